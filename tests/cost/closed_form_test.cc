// SPDX-License-Identifier: Apache-2.0
// The closed form: parts, limits, schedules, and that better hardware never makes a step longer.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "model/arch/catalogue.h"
#include "model/arch/parameters.h"
#include "model/base/diagnostics.h"
#include "model/hardware/catalog.h"
#include "model/twin/step_predictor.h"

namespace orrery {
namespace {

class ClosedFormTest : public testing::Test {
 protected:
  ClosedFormTest() {
    work_.seq_len = 2048;
    work_.global_batch = 512;
    work_.precision = Precision::kBf16;
    UseNodes(16);
    model_.layers = 48, model_.hidden = 1536, model_.heads = model_.kv_heads = 24,
    model_.head_dim = 64;
    model_.ffn = 6144, model_.max_positions = 8192;
  }
  void UseNodes(int64_t nodes) { cluster_ = Summarise(LoadTopology("selene"), nodes); }

  StepTime Predict(const Strategy& strategy, Window window = Window::kStep) {
    StepPredictor predictor({model_, work_, {&gpu_, &fabric_, &framework_, &cluster_}});
    auto result = predictor.Predict(strategy, window);
    EXPECT_TRUE(std::holds_alternative<StepTime>(result)) << std::get<Refusal>(result).reason;
    return std::get<StepTime>(result);
  }

  // 128 ranks in the layouts that matter.
  static std::vector<Strategy> Layouts() {
    std::vector<Strategy> layouts;
    const auto add = [&](int tp, int pp, int zero, int micro_batch) -> Strategy& {
      Strategy s;
      s.tp = tp, s.pp = pp, s.dp = 128 / tp / pp, s.zero = zero, s.micro_batch = micro_batch;
      layouts.push_back(s);
      return layouts.back();
    };
    add(1, 1, 0, 1), add(1, 1, 1, 4), add(1, 1, 2, 2), add(1, 1, 3, 1), add(8, 1, 0, 1),
        add(2, 4, 1, 2);
    add(4, 2, 1, 1).sequence_parallel = true;
    add(8, 4, 1, 1).recompute = Recompute::kFull;
    add(1, 8, 0, 1).recompute = Recompute::kSelective;
    Strategy& interleaved = add(2, 4, 1, 1);
    interleaved.vpp = 3, interleaved.schedule = PipelineSchedule::kInterleaved;
    add(1, 4, 0, 1).schedule = PipelineSchedule::kZeroBubble;
    Strategy& hybrid = add(1, 1, 3, 1);
    hybrid.dp = 8, hybrid.dp_outer = 16;
    return layouts;
  }

  ModelSpec model_ = LoadModel("gpt2-xl").spec;
  Workload work_;
  GpuProfile gpu_ = LoadGpuProfile("a100-sxm4-80gb");
  FabricProfile fabric_ = LoadFabricProfile("infiniband");
  FrameworkProfile framework_ = LoadFrameworkProfile("megatron");
  ClusterSummary cluster_;
};

TEST_F(ClosedFormTest, PartsAddUpAndNoneIsNegative) {
  for (const Strategy& s : Layouts()) {
    const StepTime t = Predict(s);
    double sum = 0;
    for (const BreakdownTerm& term : BreakdownTerms()) {
      EXPECT_GE(t.*term.seconds, -1e-12) << term.key;
      sum += t.*term.seconds;
    }
    EXPECT_NEAR(sum, t.total, 1e-12 * t.total);
    EXPECT_LE(t.low, t.total);
    EXPECT_GE(t.high, t.total);
  }
}

TEST_F(ClosedFormTest, BetterHardwareNeverMakesAStepLonger) {
  const std::vector<Strategy> layouts = Layouts();
  std::vector<double> before;
  for (const Strategy& s : layouts) before.push_back(Predict(s).total);
  const GpuProfile gpu = gpu_;
  const FabricProfile fabric = fabric_;
  const ClusterSummary cluster = cluster_;
  const std::vector<std::pair<const char*, std::function<void()>>> improvements = {
      {"FLOP/s", [&] { gpu_.peak_bf16 *= 1.3; }},
      {"memory bandwidth", [&] { gpu_.memory_bandwidth *= 1.3; }},
      {"scale-up rate", [&] { cluster_.scaleup_per_gpu *= 1.5; }},
      {"NIC rate", [&] { cluster_.nic_rate *= 2; }},
      {"network latency", [&] { fabric_.hop *= 0.5, fabric_.launch *= 0.5; }},
      {"scale-up latency", [&] { gpu_.scaleup_hop *= 0.5, gpu_.collective_launch *= 0.5; }},
  };
  for (const auto& [name, improve] : improvements) {
    gpu_ = gpu, fabric_ = fabric, cluster_ = cluster;
    improve();
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      EXPECT_LE(Predict(layouts[i]).total, before[i] * (1 + 1e-12)) << name << ", layout " << i;
    }
  }
}

TEST_F(ClosedFormTest, OneRankCommunicatesNothing) {
  UseNodes(1);
  cluster_ = Summarise(LoadTopology("selene"), 1, 1);
  const StepTime t = Predict(Strategy{});
  EXPECT_EQ(t.tensor + t.data + t.pipeline + t.bubble, 0.0);
  EXPECT_EQ(t.Hidden(), 0.0);
}

TEST_F(ClosedFormTest, TheBubbleIsThatOfTheScheduleWithoutEndsAndTransfers) {
  framework_.pipeline_latency = fabric_.hop = fabric_.launch = cluster_.fabric_latency = Seconds(0);
  cluster_.nic_rate *= 1e15;
  Strategy s;
  s.pp = 4, s.dp = 32, s.micro_batch = 1;
  s.overlap_grad_reduce = false;  // stages would wait for those that hide less of their reductions
  const double m = 16;            // 512 / 32
  const StepTime t = Predict(s);
  const double busiest = (t.compute + t.host + t.tensor) / m;
  // The other three stages hold at most as much as the busiest and at least their layers.
  EXPECT_LE(t.bubble, 3 * busiest);
  EXPECT_GE(t.bubble, 3 * busiest * 0.7);
  Strategy interleaved = s;
  interleaved.vpp = 3, interleaved.schedule = PipelineSchedule::kInterleaved;
  // And wait for the stage that holds an embedding or a head more to reduce.
  EXPECT_NEAR(Predict(interleaved).bubble, t.bubble / 3, 1e-6 * t.bubble);
  Strategy zero_bubble = s;
  zero_bubble.schedule = PipelineSchedule::kZeroBubble;
  EXPECT_LT(Predict(zero_bubble).bubble, t.bubble);
}

// Norms of ranks that share a sequence have a part of their gradient on each: with gradients scattered in the passes it is
// added up there, once per layer and micro-batch.
TEST_F(ClosedFormTest, SequenceParallelismAddsUpGradientsOfNormsWhereTheyAreScattered) {
  Strategy s;
  s.tp = 4, s.dp = 32, s.micro_batch = 1, s.zero = 2;
  const auto more = [&] {
    Strategy whole = s;
    whole.zero = 1;
    const StepTime scattered = Predict(s), once = Predict(whole);
    return scattered.tensor - once.tensor;
  };
  EXPECT_EQ(more(), 0);
  s.sequence_parallel = true;
  const double latencies = 48 * 16 * (gpu_.collective_launch.value + gpu_.scaleup_hop.value);
  EXPECT_GT(more(), 0.1 * latencies);
  s.tp = 1, s.dp = 128, s.sequence_parallel = false;
  EXPECT_EQ(more(), 0);
}

TEST_F(ClosedFormTest, InterleavedChunksHideTheirReductionsBesideTheOthersPasses) {
  framework_.data_exposed = 0;
  cluster_.nic_rate *= 1.0 / 16;  // a reduction longer than one micro-batch's backward pass
  Strategy s;
  s.pp = 4, s.dp = 32, s.micro_batch = 1, s.zero = 1, s.reduce_in_backward = true;
  const StepTime plain = Predict(s);
  s.vpp = 3, s.schedule = PipelineSchedule::kInterleaved;
  const StepTime interleaved = Predict(s);
  ASSERT_GT(plain.data, 0);
  EXPECT_LT(interleaved.data, plain.data);
  // The last chunk has its own pass only: of what the whole stage exposed, it keeps its share.
  EXPECT_GE(interleaved.data, 0.9 * plain.data / 3);
}

TEST_F(ClosedFormTest, KernelsOfManyNodesWaitForTheSlowest) {
  Strategy s;
  s.tp = 8, s.dp = 16, s.micro_batch = 4;
  framework_.straggling = 0;
  const StepTime even = Predict(s);
  framework_.straggling = 0.01;  // per doubling: 4 % on 16 nodes
  const StepTime uneven = Predict(s);
  EXPECT_NEAR(uneven.compute, 1.04 * even.compute, 1e-9 * even.compute);
  EXPECT_EQ(uneven.optimizer, even.optimizer);
  UseNodes(1);
  s.dp = 1;
  const double alone = Predict(s).compute;
  framework_.straggling = 0;
  EXPECT_EQ(Predict(s).compute, alone);
}

TEST_F(ClosedFormTest, RingsWithEndsApartGetLessOfTheNics) {
  framework_.data_exposed = 1, framework_.data_nic_apart = 1;
  const auto reduction = [&](int tp) {
    Strategy s;
    s.tp = tp, s.dp = 128 / tp, s.micro_batch = 4;
    return Predict(s).data;
  };
  const double one = reduction(1), two = reduction(2), eight = reduction(8);
  framework_.data_nic_apart = 0.5;
  const double apart = reduction(2);
  EXPECT_GT(apart, 1.5 * two);
  EXPECT_EQ(reduction(1), one);
  EXPECT_EQ(reduction(8), eight);
  framework_.data_nic_apart = 1, framework_.data_nic_use *= 0.5;
  EXPECT_EQ(apart, reduction(2));
}

TEST_F(ClosedFormTest, ReplicasMayReduceBesideTheBackwardPassWherePipelinesDoNot) {
  framework_.data_exposed = 1, framework_.data_exposed_replicas = 0.25;
  Strategy replicas;
  replicas.dp = 128, replicas.micro_batch = 4, replicas.reduce_in_backward = true;
  FollowFramework(framework_, &replicas);
  EXPECT_TRUE(replicas.overlap_grad_reduce);
  Strategy pipeline = replicas, sharded = replicas;
  pipeline.pp = 4, pipeline.dp = 32, sharded.zero = 1;
  FollowFramework(framework_, &pipeline), FollowFramework(framework_, &sharded);
  EXPECT_FALSE(pipeline.overlap_grad_reduce);
  EXPECT_FALSE(sharded.overlap_grad_reduce);
  const StepTime beside = Predict(replicas);
  framework_.data_exposed_replicas = 1;
  replicas.overlap_grad_reduce = true;
  FollowFramework(framework_, &replicas);
  EXPECT_FALSE(replicas.overlap_grad_reduce);
  const StepTime after = Predict(replicas);
  EXPECT_LT(beside.data, 0.5 * after.data);
  EXPECT_GE(beside.data, 0.25 * after.data);
}

TEST_F(ClosedFormTest, SoftwareThatRunsRingsOnlyIsNotGivenATree) {
  UseNodes(16);
  model_.hidden = 64, model_.ffn = 256, model_.layers = 2, model_.heads = model_.kv_heads = 1;
  model_.vocab = 512;  // gradients so small that a tree over 128 ranks is the faster one
  Strategy s;
  s.dp = 128, s.micro_batch = 4;
  framework_.bucket = Bytes(64e3), framework_.data_exposed = 1, s.overlap_grad_reduce = false;
  const double fastest = Predict(s).data;
  framework_.algorithm = "ring";
  EXPECT_GT(Predict(s).data, 1.1 * fastest);
  framework_.algorithm = "rign";
  EXPECT_THROW(Predict(s), InputError);
}

// Two gathers and two scatters of the residual stream per layer and pass: forward, and backward with the gather that
// weight gradients read.
TEST_F(ClosedFormTest, CopiesAroundPartsOfTheSequenceReadAndWriteWhatTravels) {
  Strategy s;
  s.tp = 4, s.pp = 1, s.dp = 32, s.zero = 1, s.micro_batch = 4, s.sequence_parallel = true;
  const StepTime plain = Predict(s);
  FrameworkPreset preset = *framework_.preset;
  preset.sequence_copies = true;
  framework_.preset = std::make_shared<const FrameworkPreset>(preset);
  const StepTime copied = Predict(s);
  const double bytes = 2.0 * 4 * 2048 * 1536;
  const double copy = 2 * bytes / (gpu_.memory_bandwidth.value * gpu_.memory_efficiency);
  const double passes = 48.0 * 512 / (32 * 4);  // of layers
  EXPECT_GT(copied.tensor - plain.tensor, 0.5 * 8 * copy * passes);
  EXPECT_LT(copied.tensor - plain.tensor, 1.2 * 9 * copy * passes);
  s.sequence_parallel = false;  // all-reduces move whole tensors
  const StepTime whole = Predict(s);
  framework_ = LoadFrameworkProfile("megatron");
  EXPECT_EQ(Predict(s).tensor, whole.tensor);
}

TEST_F(ClosedFormTest, ScatteredBoundaryTensorsTravelFaster) {
  Strategy s;
  s.tp = 8, s.pp = 4, s.dp = 4;
  model_.tied_embeddings = false;  // no gradients between stages
  const StepTime scattered = Predict(s);
  s.scatter_gather = false;
  const StepTime whole = Predict(s);
  EXPECT_GT(whole.pipeline, 2 * scattered.pipeline);
  EXPECT_LT(whole.pipeline, 8 * scattered.pipeline);  // latency stays
  // The parts are cut by a kernel and gathered before a pass.
  EXPECT_GT(scattered.compute, whole.compute);
  EXPECT_LT(scattered.compute, 1.001 * whole.compute);
  EXPECT_GT(scattered.tensor, whole.tensor);
  s.sequence_parallel = true;  // sends shards anyway
  const StepTime shards = Predict(s);
  s.scatter_gather = true;
  EXPECT_EQ(Predict(s).total, shards.total);
}

TEST_F(ClosedFormTest, AMicrostepIsOneForwardAndBackwardOnly) {
  Strategy s;
  s.dp = 128;
  const StepTime step = Predict(s), micro = Predict(s, Window::kMicrostep);
  EXPECT_LT(micro.total, step.total / 3);  // 512 / 128 = 4 micro-batches
  EXPECT_EQ(micro.data + micro.optimizer + micro.fixed, 0.0);
}

TEST_F(ClosedFormTest, AMicrostepOfSeveralAddsUpGradients) {
  Strategy s;
  s.dp = 128;
  framework_.accumulation_traffic = 8;
  const StepTime step = Predict(s), one_of_four = Predict(s, Window::kMicrostep);
  // A step also clears its gradients, in bf16, once: layers, table, positions and final norm, and the loss.
  const StreamPrice zero =
      OpPrices({&gpu_, &fabric_, &framework_, &cluster_}, work_.precision).Stream("zero");
  const double clears = zero.Of(2.0 * static_cast<double>(CountParameters(model_).total)) +
                        static_cast<double>(model_.layers + 3) * zero.gap;
  EXPECT_NEAR(4 * one_of_four.compute + clears, step.compute, 1e-9 * step.compute);
  s.micro_batch = 4;
  EXPECT_NEAR(Predict(s, Window::kMicrostep).compute + clears, Predict(s).compute,
              1e-9 * step.compute);
  s.micro_batch = 1;
  framework_.accumulation_traffic = 0;
  EXPECT_LT(Predict(s, Window::kMicrostep).compute, one_of_four.compute);
}

// A timer that does not wait for the device prints what the host issues, however slow the device is.
TEST_F(ClosedFormTest, ATimerMayReadTheHostsClock) {
  Strategy s;
  s.dp = 128;
  framework_.host_waits = 0;
  framework_.host_forward_op = framework_.host_backward_op = Seconds(1e-6);
  const double sustained = Predict(s, Window::kSustained).total;
  EXPECT_EQ(Predict(s, Window::kMicrostep).total, sustained);
  framework_.timer_waits = 0;
  const StepTime printed = Predict(s, Window::kMicrostep);
  EXPECT_LT(printed.total, sustained / 10);
  EXPECT_EQ(printed.host, printed.total);
  EXPECT_EQ(Predict(s, Window::kSustained).total, sustained);
  framework_.host_forward_op = framework_.host_backward_op =
      Seconds(1);  // the device waits for the host
  EXPECT_NEAR(Predict(s, Window::kMicrostep).total / Predict(s, Window::kSustained).total, 1, 1e-7);
  framework_.host_waits = 1;  // then it cannot run ahead of the device, whatever the timer does
  EXPECT_EQ(Predict(s, Window::kMicrostep).total, Predict(s, Window::kSustained).total);
  framework_.host_waits = 0;
  s.pp = 4, s.dp = 32;
  // Hosts of different stages issue at the same time.
  EXPECT_NEAR(Predict(s, Window::kMicrostep).total / Predict(s, Window::kSustained).total, 1, 0.01);
}

// Hooks cost the issuing thread time per module whose weights they gather: small models wait for it.
TEST_F(ClosedFormTest, HooksBindSmallModelsToTheHost) {
  Strategy s;
  s.dp = 128;
  const auto with_hooks = [&] {
    framework_.host_module = Seconds(1e-3);
    const StepTime time = Predict(s);
    framework_.host_module = Seconds(0);
    return time;
  };
  model_.hidden = model_.ffn = 256, model_.heads = model_.kv_heads = 4;
  work_.seq_len = 128;
  const double plain = Predict(s).total;
  EXPECT_EQ(with_hooks().total, plain);  // nothing is gathered
  s.zero = 3;
  const double gathered = Predict(s).total, micro_batches = 512.0 / 128, modules = 6 * 48;
  EXPECT_GT(with_hooks().total - gathered, 0.7 * micro_batches * 2 * modules * 1e-3);
  EXPECT_LT(with_hooks().total - gathered, 1.3 * micro_batches * 2 * modules * 1e-3);
}

// The CPU updates as fast as its memory lets all ranks of a node, and copies hide behind it but for the first and the last.
TEST_F(ClosedFormTest, AnUpdateOnTheCpuTakesTheTimeOfItsMemory) {
  Strategy s;
  s.dp = 128, s.zero = 1;
  const StepTime plain = Predict(s);
  EXPECT_EQ(plain.offload, 0);
  s.offload.optimizer = 1;
  const StepTime moved = Predict(s);
  const double parameters = static_cast<double>(CountParameters(model_).total) / 128;
  const double update = 30 * parameters * cluster_.gpus_per_node / (0.46 * 410e9);
  EXPECT_GT(moved.offload, update);
  EXPECT_LT(moved.offload, 1.2 * update);
  EXPECT_LT(moved.optimizer, plain.optimizer);
  s.offload.optimizer = 0.5;
  EXPECT_NEAR(Predict(s).offload, moved.offload / 2, 0.1 * moved.offload);
}

// Activations cost nothing while the link carries a layer's in the time of its pass.
TEST_F(ClosedFormTest, ActivationsShowWhereTheLinkIsSlowerThanThePasses) {
  Strategy s;
  s.dp = 128, s.recompute = Recompute::kFull, s.offload.activations = true;
  cluster_.pcie_rate = BytesPerSecond(1e15);
  EXPECT_LT(Predict(s).offload, 1e-3 * Predict(s).total);
  cluster_.pcie_rate = BytesPerSecond(1e8);
  EXPECT_GT(Predict(s).offload, 0.5 * Predict(s).total);
}

TEST_F(ClosedFormTest, RecomputationCostsBetweenASixthAndAHalfOfTheCompute) {
  Strategy s;
  s.dp = 128;
  work_.seq_len = 1024;
  framework_.head_fixed = Seconds(0);
  const double none = Predict(s).compute;
  s.recompute = Recompute::kFull;
  const double full = Predict(s).compute;
  EXPECT_GT(full, 1.15 * none);
  EXPECT_LT(full, 1.5 * none);
}

TEST_F(ClosedFormTest, ContextParallelismIsCostedThoughNotLowered) {
  model_ = LoadModel("llama3-8b").spec;
  work_.seq_len = 8192;
  work_.global_batch = 128;
  Strategy s;
  s.tp = 8, s.dp = 16, s.sequence_parallel = true;
  const double without = Predict(s).total;
  s.cp = 2, s.dp = 8;
  const double with = Predict(s).total;  // same ranks, same tokens
  EXPECT_NEAR(with / without, 1.0, 0.35);
}

TEST_F(ClosedFormTest, WhatCannotBeLoweredIsRefusedByName) {
  work_.seq_len = 128;
  StepPredictor predictor(
      {LoadModel("bert-1.5b").spec, work_, {&gpu_, &fabric_, &framework_, &cluster_}});
  Strategy s;
  s.tp = 8, s.dp = 16;  // 25 heads
  const auto result = predictor.Predict(s);
  ASSERT_TRUE(std::holds_alternative<Refusal>(result));
  EXPECT_NE(std::get<Refusal>(result).reason.find("25"), std::string::npos);
}

// Half of the layers with a window: half of what all of them would save.
TEST_F(ClosedFormTest, WindowsShortenAttentionLayerByLayer) {
  work_.seq_len = 8192;
  const Strategy layout = Layouts().front();
  const double full = Predict(layout).compute;
  model_.windows = {512};
  const double all = Predict(layout).compute;
  model_.windows = {512, 0};
  const double half = Predict(layout).compute;
  EXPECT_LT(all, 0.9 * full);
  EXPECT_NEAR(half, (full + all) / 2, 1e-3 * full);
  model_.windows = {8192};  // holds all keys
  EXPECT_EQ(Predict(layout).compute, full);
}

TEST_F(ClosedFormTest, NormsOfQueriesAndOutputsAddKernels) {
  const Strategy layout = Layouts().front();
  model_.linear_bias = model_.qkv_bias = false;
  const double plain = Predict(layout).compute;
  model_.qk_norm = QkNorm::kHead;
  const double normed = Predict(layout).compute;
  EXPECT_GT(normed, plain);
  model_.output_norm = true;
  EXPECT_GT(Predict(layout).compute, normed);
}

// Attention and MLP behind one norm add up in front of one reduction, forward and backward.
TEST_F(ClosedFormTest, ParallelBlocksShareAReduction) {
  Strategy layout;
  layout.tp = 8, layout.dp = 16, layout.micro_batch = 4;
  model_.tied_embeddings = false;
  const StepTime apart = Predict(layout);
  model_.parallel = model_.shared_norm = true;
  const StepTime together = Predict(layout);
  const auto sent = [](const StepTime& time) { return time.tensor + time.tensor_hidden; };
  EXPECT_LT(sent(together), 0.6 * sent(apart));
  EXPECT_GT(sent(together), 0.4 * sent(apart));
}

TEST_F(ClosedFormTest, OptimizersCostWhatTheirStatesMove) {
  const auto update = [&](Optimizer optimizer, const Strategy& layout) {
    work_.optimizer = optimizer;
    return Predict(layout).optimizer;
  };
  Strategy whole, shared;
  whole.dp = 128;
  shared.dp = 128, shared.zero = 1;
  EXPECT_LT(update(Optimizer::kAdam8bit, whole), update(Optimizer::kAdamW, whole));
  EXPECT_GT(update(Optimizer::kMuon, whole), 2 * update(Optimizer::kAdamW, whole));
  // Ranks that share the states share the products.
  EXPECT_NEAR(update(Optimizer::kMuon, shared) / update(Optimizer::kMuon, whole), 1.0 / 128, 0.02);
}

// Adapters are narrow: [16 x 1536] takes a few products of 16 rows, not many of 16 x 16 x 16, and a kernel each at least.
TEST_F(ClosedFormTest, MuonTakesAFewProductsForEachAdapter) {
  model_.linear_bias = model_.qkv_bias = false;
  work_.optimizer = Optimizer::kMuon;
  Strategy layout;
  layout.dp = 128;
  const auto update = [&](int rank) {
    work_.lora.rank = rank;
    return Predict(layout).optimizer;
  };
  const double products =
      48.0 * 4 * 2 * 15;  // layers, maps, matrices of an adapter, three products of five steps
  const double gap = framework_.kernel_gap.value;
  EXPECT_GT(update(16), products * gap);
  EXPECT_LT(update(16), products * (gap + 10e-6));
  EXPECT_LT(update(16), update(256));
}

// No rank updates less than a whole matrix: 6144 x 1536 takes 5 (4 k^2 l + 2 k^3) operations.
TEST_F(ClosedFormTest, ALargeMatrixIsAFloorOfMuonsUpdate) {
  work_.optimizer = Optimizer::kMuon;
  work_.global_batch = 4096;
  const auto update = [&](int ranks) {
    UseNodes(ranks / 8);
    Strategy shared;
    shared.dp = ranks, shared.zero = 1;
    return Predict(shared).optimizer;
  };
  const double k = 1536, l = 6144;
  const double floor = 5 * (4 * k * k * l + 2 * k * k * k) / gpu_.peak_bf16.value;
  EXPECT_GT(update(1024), floor);
  EXPECT_GT(update(2048), 0.97 * update(1024));
  EXPECT_LT(update(32), 0.6 * update(16));  // below, ranks share the matrices
}

}  // namespace
}  // namespace orrery
