// SPDX-License-Identifier: Apache-2.0
// Measured kernels: exact where measured, sensible in between and beyond, and what the costs take.
#include "model/hardware/kernel_table.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/price/op_cost.h"

namespace orrery {
namespace {

TEST(KernelTable, OneExtentIsInterpolatedInLogarithms) {
  KernelTable table;
  table.Add("ln", {1024, 1, 1, 1}, 10e-6);
  table.Add("ln", {4096, 1, 1, 1}, 20e-6);
  table.Add("ln", {16384, 1, 1, 1}, 80e-6);
  EXPECT_NEAR(*table.Seconds("ln", {4096, 1, 1, 1}), 20e-6, 1e-15);
  EXPECT_NEAR(*table.Seconds("ln", {2048, 1, 1, 1}), 14.142e-6, 1e-9);  // slope 1/2
  EXPECT_NEAR(*table.Seconds("ln", {8192, 1, 1, 1}), 40e-6, 1e-12);     // slope 1
  EXPECT_NEAR(*table.Seconds("ln", {65536, 1, 1, 1}), 320e-6, 1e-12);
  EXPECT_NEAR(*table.Seconds("ln", {256, 1, 1, 1}), 5e-6, 1e-12);
  EXPECT_FALSE(table.Seconds("gelu", {1024, 1, 1, 1}));
}

TEST(KernelTable, BeyondTheEndsTimesNeitherFallNorOutgrowTheWork) {
  KernelTable table;
  table.Add("x", {1024, 1, 1, 1}, 10e-6);
  table.Add("x", {2048, 1, 1, 1}, 5e-6);  // a slip of measuring
  EXPECT_NEAR(*table.Seconds("x", {512, 1, 1, 1}), 10e-6, 1e-12);
  EXPECT_NEAR(*table.Seconds("x", {4096, 1, 1, 1}), 5e-6, 1e-12);
  KernelTable steep;
  steep.Add("x", {1024, 1, 1, 1}, 10e-6);
  steep.Add("x", {2048, 1, 1, 1}, 80e-6);
  EXPECT_NEAR(*steep.Seconds("x", {4096, 1, 1, 1}), 160e-6, 1e-12);
}

TEST(KernelTable, SeveralExtentsTakeTheRateOfTheirNeighbours) {
  KernelTable table;
  table.Add("mm", {64, 64, 64, 1}, 1e-5);
  table.Add("mm", {1024, 1024, 1024, 1}, 2e-2);  // half the time per work
  EXPECT_NEAR(*table.Seconds("mm", {64, 64, 64, 1}), 1e-5, 1e-15);
  const double rate_small = 64.0 * 64 * 64 / 1e-5, rate_large = 1024.0 * 1024 * 1024 / 2e-2;
  const double between = 256.0 * 256 * 256 / *table.Seconds("mm", {256, 256, 256, 1});
  EXPECT_NEAR(between, std::sqrt(rate_small * rate_large), 1e-6 * between);
  const double near = 900.0 * 900 * 900 / *table.Seconds("mm", {900, 900, 900, 1});
  EXPECT_NEAR(near / rate_large, 1, 0.01);
}

TEST(KernelTable, CostsPreferWhatWasMeasured) {
  GpuProfile gpu = LoadGpuProfile("localhost-cpu");
  const FrameworkProfile framework = LoadFrameworkProfile("orrery-cpu");
  KernelTable& fp32 = gpu.kernels[static_cast<std::size_t>(Precision::kFp32)];
  fp32.Add("mm", {128, 256, 512, 1}, 0.25);
  fp32.Add("gelu", {1e6, 1, 1, 1}, 0.5);
  fp32.Add("attn_causal_bwd", {8, 128, 128, 64}, 0.75);
  const OpCost cost(gpu, framework, Precision::kFp32), other(gpu, framework, Precision::kBf16);
  EXPECT_NEAR(cost.Gemm({128, 256, 512, 1, 4}), 0.25, 1e-9);
  EXPECT_NEAR(cost.Traffic({1e6, "gelu"}), 0.5, 1e-9);
  EXPECT_LT(cost.Traffic({1e6, "ln"}), 0.01);
  AttentionShape attention{2, 4, 128, 128, 64, 4, true, false, true};
  EXPECT_NEAR(cost.Attention(attention), 0.75, 1e-9);
  attention.flash = true;
  EXPECT_LT(cost.Attention(attention), 0.01);
  EXPECT_LT(other.Gemm({128, 256, 512, 1, 2}), 0.01);
}

}  // namespace
}  // namespace orrery
