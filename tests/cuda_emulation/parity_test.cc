// SPDX-License-Identifier: Apache-2.0
// Every CUDA kernel, emulated, against the reference in double and against the CPU device, per storage type.
#include <gtest/gtest.h>

#include "runtime/device/cuda/ops.h"
#include "tests/cuda_emulation/emulated_call.h"

namespace orrery {
namespace {

using emulation::Order;
using ir::Attr;
using ir::Attrs;
using ir::Dtype;
using ir::OpKind;

struct Setting {
  const char* name;
  Dtype storage;
  double tolerance;  // of the largest value of an output
};

const std::vector<TypedCall>& Calls() {
  static const std::vector<TypedCall> calls = AllCases();
  return calls;
}

class CudaParity : public testing::TestWithParam<Setting> {};

TEST_P(CudaParity, EveryOpAgreesWithTheReferenceAndTheCpu) {
  const Setting setting = GetParam();
  for (const TypedCall& original : Calls()) {
    const TypedCall typed = Rounded(original, setting.storage);
    const std::vector<Vector> expected = RunReference(typed), cpu = RunCpu(typed, setting.storage);
    const std::vector<Vector> found = RunEmulated(typed, setting.storage);
    EXPECT_EQ(LastFault(), 0) << typed.name;
    for (size_t o = 0; o < expected.size(); ++o) {
      EXPECT_LE(RelativeError(found[o], expected[o]), setting.tolerance)
          << typed.name << " output " << o;
      EXPECT_LE(RelativeError(found[o], cpu[o]), setting.tolerance)
          << typed.name << " output " << o << " (CPU)";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaParity,
                         testing::Values(Setting{"f32", Dtype::kF32, 1e-5},
                                         Setting{"bf16", Dtype::kBf16, 2e-2},
                                         Setting{"f16", Dtype::kF16, 2e-3}),
                         [](const auto& tested) { return tested.param.name; });

// A result that depends on the order in which threads run misses a barrier.
TEST(CudaRaces, TheOrderOfThreadsChangesNoBit) {
  for (const TypedCall& typed : Calls()) {
    emulation::SetOrder(Order::kForward);
    const std::vector<Vector> forward = RunEmulated(typed, Dtype::kF32);
    for (const Order order : {Order::kBackward, Order::kShuffled}) {
      emulation::SetOrder(order);
      const std::vector<Vector> found = RunEmulated(typed, Dtype::kF32);
      for (size_t o = 0; o < found.size(); ++o)
        EXPECT_EQ(interpreter::LargestDifference(found[o], forward[o]), 0)
            << typed.name << " output " << o;
    }
  }
  emulation::SetOrder(Order::kForward);
}

TEST(CudaCoverage, EveryOpKindOfTheCpuHasAKernel) {
  using enum ir::OpKind;
  for (const ir::OpInfo& info : ir::OpTable()) {
    // Casts are emulated by CPU ranks alone; `plan run --device cuda` refuses plans that have some.
    const bool emulated = info.kind == kQuantize || info.kind == kAmax || info.kind == kAmaxRoll ||
                          info.kind == kScaleUpdate || info.kind == kUnpack ||
                          info.kind == kUnitAmax || info.kind == kUnitCast;
    EXPECT_EQ(cuda::HasKernel(info.kind), cpu::KernelFor(info.kind) != nullptr && !emulated)
        << info.name;
  }
}

TEST(CudaRefusals, WrongSizesThrow) {
  for (const TypedCall& original : Calls()) {
    if (original.call.in.empty() || original.call.kind == OpKind::kLossScale) continue;
    TypedCall typed = original;
    typed.call.shared.clear();
    typed.call.out_sizes[0] += 1;
    EXPECT_THROW(RunEmulated(typed, Dtype::kF32), cpu::KernelError) << typed.name;
    typed = original;
    typed.call.in.pop_back();
    typed.call.shared.clear();
    typed.call.out_sizes[0] -= 1;
    EXPECT_THROW(RunEmulated(typed, Dtype::kF32), cpu::KernelError) << typed.name;
  }
}

// Kernels cannot throw: what they refuse is left in the word that the device reads behind each step.
TEST(CudaRefusals, BadIndicesLeaveAFault) {
  const Attrs embed{{Attr::kRows, 2}, {Attr::kH, 2}, {Attr::kVl, 3}};
  RunEmulated({"", {OpKind::kEmbed, embed, {{0, -1}, Vector(6)}, {4}}, "if", "f"}, Dtype::kF32);
  EXPECT_EQ(LastFault(), cuda::kBadToken);
  const Attrs gather{{Attr::kRows, 2}, {Attr::kH, 2}, {Attr::kBatch, 1}};
  RunEmulated({"", {OpKind::kGatherRows, gather, {Vector(6), {0, 3}}, {4}}, "fi", "f"},
              Dtype::kF32);
  EXPECT_EQ(LastFault(), cuda::kBadRow);
  const Attrs loss{{Attr::kRows, 1}, {Attr::kVl, 3}, {Attr::kV, 3}};
  RunEmulated({"", {OpKind::kXentSum, loss, {Vector(3), {0}, {-5}}, {2}}, "fsi", "s"}, Dtype::kF32);
  EXPECT_EQ(LastFault(), cuda::kBadLabel);
}

}  // namespace
}  // namespace orrery
