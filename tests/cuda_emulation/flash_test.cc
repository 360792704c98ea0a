// SPDX-License-Identifier: Apache-2.0
// The flash attention kernels, emulated, against the reference in double.
#include <gtest/gtest.h>

#include "tests/cuda_emulation/emulated_call.h"
#include "tests/cuda_emulation/flash_cases.h"

namespace orrery {
namespace {

using ir::Dtype;

// Products round P and dS to bf16: half a unit in the last place of 8 bits, and a little more.
constexpr double kHalf = 1e-2;

class Flash : public testing::TestWithParam<TypedCall> {};

TEST_P(Flash, AgreesWithTheReference) {
  const TypedCall typed = Rounded(GetParam(), Dtype::kBf16);
  const std::vector<Vector> expected = RunReference(typed),
                            found = RunEmulated(typed, Dtype::kBf16);
  for (size_t o = 0; o < expected.size(); ++o)
    EXPECT_LE(RelativeError(found[o], expected[o]), kHalf) << typed.name << " output " << o;
}

// The order of threads changes nothing: no barrier is missing between the tiles.
TEST_P(Flash, RepeatsInAnyOrderOfThreads) {
  const TypedCall typed = Rounded(GetParam(), Dtype::kBf16);
  emulation::SetOrder(emulation::Order::kForward);
  const std::vector<Vector> once = RunEmulated(typed, Dtype::kBf16);
  emulation::SetOrder(emulation::Order::kShuffled);
  EXPECT_EQ(RunEmulated(typed, Dtype::kBf16), once);
  emulation::SetOrder(emulation::Order::kForward);
}

INSTANTIATE_TEST_SUITE_P(Cases, Flash, testing::ValuesIn(FlashCalls()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace orrery
