// SPDX-License-Identifier: Apache-2.0
// Deviations of measured kernels by shape: near, between and far from what was measured.
#include "model/hardware/kernel_factors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/hardware/kernel_factors_file.h"
#include "model/price/op_cost.h"

namespace orrery {
namespace {

using Shape = KernelFactors::Shape;

KernelFactors Two() {
  KernelFactors factors;
  factors.Set("mm", {0.1, 2, 0.005},
              {{{1024, 1024, 1024, 1}, std::log(1.2)}, {{4096, 1024, 1024, 1}, std::log(0.9)}});
  return factors;
}

TEST(KernelFactors, MeasuredShapesTakeTheirOwn) {
  const KernelFactors factors = Two();
  EXPECT_NEAR(factors.Factor("mm", {1024, 1024, 1024, 1}), 1.2, 0.005);
  EXPECT_NEAR(factors.Factor("mm", {4096, 1024, 1024, 1}), 0.9, 0.005);
  const double between = factors.Factor("mm", {2048, 1024, 1024, 1});
  EXPECT_GT(between, 0.95);
  EXPECT_LT(between, 1.15);
  EXPECT_EQ(factors.Factor("attn", {1024, 1024, 1024, 1}), 1.0);
  EXPECT_EQ(KernelFactors().Factor("mm", {1024, 1024, 1024, 1}), 1.0);
}

TEST(KernelFactors, FarAwayTheFormulaRemainsAndNothingJumps) {
  const KernelFactors factors = Two();
  EXPECT_NEAR(factors.Factor("mm", {1024, 1 << 20, 1 << 20, 1}), 1.0, 1e-3);
  double before = factors.Factor("mm", {8, 1024, 1024, 1});
  for (double m = 8; m < 1e8; m *= 1.02) {
    const double now = factors.Factor("mm", {m, 1024, 1024, 1});
    EXPECT_LT(std::abs(std::log(now / before)), 0.01) << m;
    before = now;
  }
  EXPECT_NEAR(before, 1.0, 1e-3);
}

TEST(KernelFactors, NoiseShrinksWhatOneMeasurementSays) {
  KernelFactors sure, unsure;
  sure.Set("mm", {0.1, 2, 0.001}, {{{512, 512, 512, 1}, 0.1}});
  unsure.Set("mm", {0.1, 2, 0.1}, {{{512, 512, 512, 1}, 0.1}});
  EXPECT_NEAR(std::log(sure.Factor("mm", {512, 512, 512, 1})), 0.1, 1e-4);
  EXPECT_NEAR(std::log(unsure.Factor("mm", {512, 512, 512, 1})), 0.05, 1e-4);
}

TEST(KernelFactors, ProductsAndAttentionUseThem) {
  GpuProfile gpu = LoadGpuProfile("h100-sxm5-80gb");
  FrameworkProfile framework = LoadFrameworkProfile("megatron");
  framework.kernel_gap = Seconds(0);
  KernelFactors& bf16 = gpu.factors[static_cast<std::size_t>(Precision::kBf16)];
  bf16.Set("mm", {0.2, 2, 1e-4}, {{{2048, 2048, 2048, 1}, std::log(1.25)}});
  bf16.Set("attn_causal_flash_cudnn", {0.2, 2, 1e-4}, {{{32, 2048, 2048, 64}, std::log(0.8)}});
  const OpCost cost(gpu, framework, Precision::kBf16), other(gpu, framework, Precision::kFp16);
  const OpCost plain = cost.WithoutFactors();
  const GemmShape product{2048, 2048, 2048, 1, 2};
  EXPECT_NEAR(cost.Gemm(product) / plain.Gemm(product), 1.25, 1e-4);
  EXPECT_EQ(other.Gemm(product), other.WithoutFactors().Gemm(product));
  AttentionShape attention{2, 16, 2048, 2048, 64, 2, true, true, false};
  EXPECT_NEAR(cost.Attention(attention) / plain.Attention(attention), 0.8, 1e-4);
  attention.backward = true;
  EXPECT_EQ(cost.Attention(attention), plain.Attention(attention));
}

GpuProfile Read(const std::string& rows) {
  Diagnostics diagnostics;
  const Node root =
      Node::Parse(std::make_shared<Source>(Source{"chip.yaml",
                                                  "bf16:\n  mm:\n    spread: 0.1\n    reach: 2\n"
                                                  "    noise: 0.01\n    points: 3\n    source: a\n"
                                                  "    shapes:\n" +
                                                      rows}),
                  &diagnostics);
  diagnostics.ThrowIfAny();
  GpuProfile gpu;
  ReadKernelFactors(root, &gpu);
  diagnostics.ThrowIfAny();
  return gpu;
}

TEST(KernelFactors, FilesNameTheirMistakes) {
  const GpuProfile gpu = Read("      - [512, 512, 512, 1, 1.1]\n      - [512, 1024, 512, 1, 1]\n");
  const auto& bf16 = gpu.factors[static_cast<std::size_t>(Precision::kBf16)];
  EXPECT_EQ(bf16.shapes("mm"), 2U);
  EXPECT_GT(bf16.Factor("mm", {512, 512, 512, 1}), 1.05);
  EXPECT_THROW(Read("      - [512, 512, 512, 1.1]\n"), InputError);
  EXPECT_THROW(Read("      - [512, 512, 512, 1, -1]\n"), InputError);
  EXPECT_THROW(Read("      - [512, 512, 0, 1, 1]\n"), InputError);
}

}  // namespace
}  // namespace orrery
