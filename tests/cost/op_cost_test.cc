// SPDX-License-Identifier: Apache-2.0
// Single operations: rooflines, their limits and their order.
#include "model/price/op_cost.h"

#include <gtest/gtest.h>

#include <memory>

#include "model/framework/presets.h"
#include "model/price/message_prices.h"
#include "model/price/op_shape.h"

namespace orrery {
namespace {

class OpCostTest : public testing::Test {
 protected:
  GpuProfile gpu_ = LoadGpuProfile("a100-sxm4-80gb");
  FrameworkProfile framework_ = LoadFrameworkProfile("megatron");
};

TEST_F(OpCostTest, LargeProductsReachTheCalibratedEfficiency) {
  const OpCost cost(gpu_, framework_, Precision::kBf16);
  const double n = 16384;
  const double rate = 2.0 * n * n * n / cost.Gemm({n, n, n, 1, 2});
  EXPECT_NEAR(rate / gpu_.peak_bf16.value, gpu_.gemm_efficiency_bf16, 0.03);
}

TEST_F(OpCostTest, SmallProductsPayTheGapAndThinOnesTheMemory) {
  const OpCost cost(gpu_, framework_, Precision::kBf16);
  EXPECT_GE(cost.Gemm({1, 1, 1, 1, 2}), framework_.kernel_gap.value);
  const double bytes = 2.0 * (8192.0 * 8192.0 + 2.0 * 8192.0);
  EXPECT_GE(cost.Gemm({1, 8192, 8192, 1, 2}), cost.Stream(bytes));
}

TEST_F(OpCostTest, ProductsGrowWithEveryDimension) {
  const OpCost cost(gpu_, framework_, Precision::kBf16);
  double last = 0;
  for (double m = 64; m <= 65536; m *= 2) {
    const double time = cost.Gemm({m, 4096, 4096, 1, 2});
    EXPECT_GE(time, last) << m;
    last = time;
  }
  EXPECT_LT(cost.Gemm({4096, 4096, 1024, 1, 2}), cost.Gemm({4096, 4096, 4096, 1, 2}));
}

// FlashAttention-3 (Shah et al. 2024), figures 5 and 6, on H100: forward and backward TFLOP/s of FlashAttention-2, 8,192
// tokens, 16 heads of 128, no mask.
TEST_F(OpCostTest, BackwardAttentionGoesByItsKernel) {
  const GpuProfile h100 = LoadGpuProfile("h100-sxm5-80gb");
  struct Seconds {
    double forward, backward;
  };
  const auto time = [&](AttentionKernel kernel) {
    FrameworkProfile framework = framework_;
    auto preset = std::make_shared<FrameworkPreset>();
    preset->attention = {kernel};
    framework.preset = preset;
    const OpCost cost(h100, framework, Precision::kBf16);
    AttentionShape shape{2, 16, 8192, 8192, 128, 2, false, true, false};
    const double forward = cost.Attention(shape);
    shape.backward = true;
    return Seconds{forward, cost.Attention(shape)};
  };
  const auto ratio = [&](AttentionKernel kernel) {
    return 2.5 * time(kernel).forward / time(kernel).backward;
  };
  // Its forward rate with a mask is what the constant holds: without one it is 370, and priced 338.
  const double backward_flops = 10.0 * 2 * 16 * 8192 * 8192 * 128;
  EXPECT_NEAR(backward_flops / time(AttentionKernel::kFa2).backward / 1e12, 318, 10);
  EXPECT_NEAR(ratio(AttentionKernel::kCudnn), 518.0 / 600.0, 0.06);
  EXPECT_LT(ratio(AttentionKernel::kTriton), ratio(AttentionKernel::kFa2));
  EXPECT_NEAR(ratio(AttentionKernel::kFa2Deterministic) / ratio(AttentionKernel::kFa2), 0.56, 0.03);
  EXPECT_LT(ratio(AttentionKernel::kCudnnDeterministic), ratio(AttentionKernel::kCudnn));
}

// What deterministic mode takes depends on the chip: cuDNN's backward pass has a fixed order from Hopper on.
TEST_F(OpCostTest, DeterministicMegatronTakesAnotherKernelOnAmpere) {
  const FrameworkPreset& preset = FindFramework("megatron@deterministic");
  EXPECT_EQ(preset.FusedAttention(gpu_), AttentionKernel::kFa2Deterministic);
  EXPECT_EQ(preset.FusedAttention(LoadGpuProfile("h100-sxm5-80gb")),
            AttentionKernel::kCudnnDeterministic);
}

// A chip without figures of its own for a kernel takes those of its family's.
TEST_F(OpCostTest, KernelsWithoutAFigureTakeTheChips) {
  GpuProfile gpu = gpu_;
  gpu.attention_backward = 0.5;
  gpu.attention_backward_fa3 = 0;
  EXPECT_EQ(gpu.AttentionBackward(AttentionKernel::kFa3), 0.5);
  gpu.attention_deterministic_fa2 = 0;
  EXPECT_EQ(gpu.AttentionBackward(AttentionKernel::kFa2Deterministic),
            gpu.AttentionBackward(AttentionKernel::kFa2));
}

TEST_F(OpCostTest, PrecisionSetsThePeak) {
  const GemmShape shape{8192, 8192, 8192, 1, 2};
  EXPECT_GT(OpCost(gpu_, framework_, Precision::kFp32).Gemm(shape),
            5 * OpCost(gpu_, framework_, Precision::kBf16).Gemm(shape));
}

// One H100, 8,192 x 768 times 768 x vocabulary and its two gradients: 15.4 ms with 50,257 columns. Megatron pads them.
TEST_F(OpCostTest, RowsThatWideLoadsCannotReadAreSlow) {
  const GpuProfile h100 = LoadGpuProfile("h100-sxm5-80gb");
  const FrameworkProfile ddp = LoadFrameworkProfile("ddp");
  const OpCost plain(h100, ddp, Precision::kBf16);
  const auto three = [](const OpCost& cost, double vocab, double row_bytes) {
    double time = 0;
    for (GemmShape shape :
         {GemmShape{8192, vocab, 768}, GemmShape{8192, 768, vocab}, GemmShape{vocab, 768, 8192}}) {
      shape.row_bytes = row_bytes;
      time += cost.Gemm(shape);
    }
    return time;
  };
  EXPECT_EQ(RowBytes({768, 50257}, 2), 2);
  EXPECT_EQ(RowBytes({768, 30522}, 2), 4);
  EXPECT_EQ(RowBytes({768, 50304}, 2), 16);
  EXPECT_EQ(RowBytes({768, 50257}, 4), 4);
  EXPECT_NEAR(three(plain, 50257, 2), 15.4e-3, 1.5e-3);
  EXPECT_LT(three(plain, 50304, 16), 0.25 * three(plain, 50257, 2));
  const OpCost padded(h100, framework_, Precision::kBf16);
  EXPECT_NEAR(three(padded, 50257, 2), three(padded, 50304, 16), 1e-4);
}

TEST_F(OpCostTest, MaterialisedAttentionCostsMoreThanFusedAtLongSequences) {
  const OpCost cost(gpu_, framework_, Precision::kBf16);
  AttentionShape shape{1, 16, 8192, 8192, 128, 2, true, true, false};
  const double fused = cost.Attention(shape);
  AttentionShape backward = shape;
  backward.backward = true;
  EXPECT_GT(cost.Attention(backward), 2.5 * fused);
  shape.causal = false;  // twice the products, a smaller ramp
  EXPECT_LT(cost.Attention(shape), 2 * fused);
  EXPECT_GT(cost.Attention(shape), 1.8 * fused);
  shape.flash = false;
  EXPECT_GT(cost.Attention(shape), 2 * fused);
}

TEST_F(OpCostTest, UnalignedHeadsAndOddHeadCountsArePenalised) {
  const OpCost cost(gpu_, framework_, Precision::kBf16);
  const AttentionShape aligned{4, 16, 2048, 2048, 112, 2, true, false, false};
  AttentionShape unaligned = aligned;
  unaligned.head_dim = 108;  // 108 % 8 != 0
  EXPECT_GT(cost.Attention(unaligned), cost.Attention(aligned));
  EXPECT_EQ(cost.UnfusedSoftmaxHost(aligned), 0.0);
  const AttentionShape odd{1, 2, 2048, 2048, 128, 2, true, false, false};
  EXPECT_EQ(cost.UnfusedSoftmaxHost(odd), framework_.host_unfused_softmax.value);
}

TEST_F(OpCostTest, TrafficOfLargeOperandsIsBandwidthBound) {
  const OpCost cost(gpu_, framework_, Precision::kBf16);
  const double bytes = 1e9;
  EXPECT_NEAR(cost.Traffic({bytes}),
              framework_.elementwise_traffic * cost.Stream(bytes) + framework_.kernel_gap.value,
              1e-6);
  EXPECT_LT(cost.Traffic({1e6}) - framework_.kernel_gap.value,
            1e-3 * (cost.Traffic({bytes}) - framework_.kernel_gap.value) + 1e-9);
}

TEST_F(OpCostTest, TheLossReadsFourTimesAQuarterOfItsTraffic) {
  const OpCost cost(gpu_, framework_, Precision::kBf16);
  const double logits = 1e8;
  EXPECT_NEAR(cost.Loss({logits, 4}), cost.Stream(framework_.loss_traffic * logits), 1e-12);
}

// Megatron-Core counts parameters: 40 million, or a million per rank, in whatever type they travel.
TEST_F(OpCostTest, BucketsOfMegatronAreOfParameters) {
  const FabricProfile fabric;
  const ClusterSummary cluster;
  const MessagePrices prices({&gpu_, &fabric, &framework_, &cluster, {}});
  const auto bucket = [&](int ranks, double element) {
    return prices.TermsOf(MessageRole::kStep, Collective::kAllReduce, {ranks, 8, 1})
        .Bucket(element);
  };
  EXPECT_EQ(bucket(8, 4), 160e6);
  EXPECT_EQ(bucket(8, 2), 80e6);
  EXPECT_EQ(bucket(512, 2), 1024e6);
  framework_ = LoadFrameworkProfile("fsdp");
  EXPECT_EQ(bucket(512, 2), 25.0 * 1024 * 1024);
  framework_ = LoadFrameworkProfile("nanotron");
  EXPECT_EQ(bucket(512, 4), 25.0 * 1024 * 1024);
  framework_ = LoadFrameworkProfile("megatron@2021");
  EXPECT_EQ(bucket(512, 4), 1e12);
}

}  // namespace
}  // namespace orrery
