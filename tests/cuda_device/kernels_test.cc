// SPDX-License-Identifier: Apache-2.0
// Every CUDA kernel on a GPU against the reference in double.
#include <gtest/gtest.h>

#include "tests/cuda_device/device_call.h"
#include "tests/cuda_emulation/flash_cases.h"

namespace orrery {
namespace {

using ir::Dtype;

struct Setting {
  const char* name;
  Dtype storage;
  bool vendor;
  double tolerance;  // of the largest value of an output
};

void Expect(const TypedCall& original, const Setting& setting) {
  const TypedCall typed = Rounded(original, setting.storage);
  const std::vector<Vector> expected = RunReference(typed);
  const std::vector<Vector> found = RunOnGpu(typed, setting.storage, setting.vendor);
  for (size_t o = 0; o < expected.size(); ++o)
    EXPECT_LE(RelativeError(found[o], expected[o]), setting.tolerance)
        << typed.name << " output " << o;
}

class GpuParity : public testing::TestWithParam<Setting> {};

TEST_P(GpuParity, EveryOpAgreesWithTheReference) {
  SKIP_WITHOUT_GPU();
  for (const TypedCall& call : AllCases()) Expect(call, GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, GpuParity,
                         testing::Values(Setting{"f32", Dtype::kF32, true, 1e-5},
                                         Setting{"f32_own_products", Dtype::kF32, false, 1e-5},
                                         Setting{"bf16", Dtype::kBf16, true, 2e-2},
                                         Setting{"f16", Dtype::kF16, true, 2e-3}),
                         [](const auto& tested) { return tested.param.name; });

TEST(GpuFlash, AgreesWithTheReference) {
  SKIP_WITHOUT_GPU();
  for (const TypedCall& call : FlashCalls()) Expect(call, {"", Dtype::kBf16, true, 1e-2});
}

// A moving result is a race.
TEST(GpuRepeatability, TwoRunsGiveTheSameBits) {
  SKIP_WITHOUT_GPU();
  std::vector<TypedCall> calls = AllCases();
  for (const TypedCall& call : FlashCalls()) calls.push_back(call);
  for (const TypedCall& original : calls) {
    const TypedCall typed = Rounded(original, Dtype::kBf16);
    const std::vector<Vector> once = RunOnGpu(typed, Dtype::kBf16, true),
                              again = RunOnGpu(typed, Dtype::kBf16, true);
    for (size_t o = 0; o < once.size(); ++o)
      EXPECT_EQ(interpreter::LargestDifference(once[o], again[o]), 0)
          << typed.name << " output " << o;
  }
}

}  // namespace
}  // namespace orrery
