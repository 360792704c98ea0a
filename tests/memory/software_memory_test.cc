// SPDX-License-Identifier: Apache-2.0
// What a software takes for a plan: live bytes, the loss, copies of gradients, the device's figure.
#include <gtest/gtest.h>

#include <memory>

#include "model/arch/parameters.h"
#include "model/memory/memory.h"
#include "model/plan/ir/layout.h"
#include "model/plan/lower/lower.h"

namespace orrery {
namespace {

constexpr int64_t kHidden = 256, kSeq = 128, kVocab = 1024, kBatch = 2;

struct Job {
  ModelSpec model;
  Workload work;
  Strategy strategy;

  ir::Plan Lowered() const { return std::get<ir::Plan>(Lower(model, work, strategy)); }
  std::vector<StageDemand> Demands() const { return DemandsOf(Lowered(), {}); }
};

double Allocated(const StageDemand& demand, const FrameworkProfile& framework) {
  return PeakOf(demand, AllocationOf(framework)).allocated().value;
}

Job Gpt(int layers) {
  Job job;
  job.model.layers = layers;
  job.model.hidden = kHidden;
  job.model.ffn = 4 * kHidden;
  job.model.heads = job.model.kv_heads = 8;
  job.model.head_dim = kHidden / 8;
  job.model.vocab = kVocab;
  job.model.max_positions = kSeq;
  job.work.seq_len = kSeq;
  job.work.global_batch = 4 * kBatch;
  job.work.precision = Precision::kFp16;
  job.strategy.micro_batch = kBatch;
  return job;
}

TEST(SoftwareMemory, LiveBytesAreThePlansPeak) {
  Job job = Gpt(4);
  job.strategy.pp = 2;
  const ir::Plan plan = job.Lowered();
  const auto demands = DemandsOf(plan, {});
  ASSERT_EQ(demands.size(), 2U);
  for (const ir::Program& program : plan.programs) {
    const ir::Peak peak = ir::LivePeak(plan, program, ir::ComputeLayout(plan, program), false);
    EXPECT_EQ(demands[program.stage].live, static_cast<double>(peak.bytes)) << program.stage;
  }
}

int64_t OpsWalked(Job job, int64_t micro_batches) {
  job.work.global_batch = micro_batches * job.strategy.micro_batch;
  const ir::Plan plan = job.Lowered();
  int64_t ops = 0;
  for (const ir::Program& program : plan.programs) {
    const ir::Layout layout = ir::ComputeLayout(plan, program);
    LiveWalk walk(plan, program, layout, {}, HeldBytes(program, {}));
    walk.Run([&](StepPlace, int64_t, int64_t) {
      ++ops;
      return true;
    });
  }
  return ops;
}

TEST(SoftwareMemory, AWalkTakesNoLongerForMoreMicroBatches) {
  for (const PipelineSchedule schedule :
       {PipelineSchedule::k1F1B, PipelineSchedule::kInterleaved, PipelineSchedule::kZeroBubble}) {
    Job job = Gpt(8);
    job.strategy.pp = 4;
    job.strategy.schedule = schedule;
    if (schedule == PipelineSchedule::kInterleaved) job.strategy.vpp = 2;
    EXPECT_EQ(OpsWalked(job, 1024), OpsWalked(job, 64)) << static_cast<int>(schedule);
  }
}

// Korthikanti et al. 2022, table 2: 34 s b h bytes of activations per layer with dropout and without the scores.
TEST(SoftwareMemory, ALayerHolds34BytesPerTokenAndChannelWithDropout) {
  const auto per_layer = [](double dropout) {
    Job three = Gpt(3), four = Gpt(4);
    three.work.dropout = four.work.dropout = dropout;
    const double parameters = 12.0 * kHidden * kHidden + 13.0 * kHidden;
    return four.Demands()[0].live - three.Demands()[0].live - 16 * parameters;
  };
  const double unit = 1.0 * kSeq * kBatch * kHidden;
  EXPECT_NEAR(per_layer(0.1) / unit, 34, 0.2);
  EXPECT_NEAR(per_layer(0.0) / unit, 32, 0.2);  // two masks of a byte less
}

// PyTorch: with zero_grad(set_to_none=True) a step of one micro-batch has no gradients while activations are fullest; one
// of several has.
TEST(SoftwareMemory, GradientsMayComeWithTheBackwardPass) {
  Holding late;
  late.gradients_late = true;
  Job job = Gpt(4);
  const ir::Plan several = job.Lowered();
  EXPECT_EQ(DemandsOf(several, late)[0].live, DemandsOf(several, {})[0].live);
  job.work.global_batch = kBatch;
  const ir::Plan one = job.Lowered();
  double gradients = 0;
  for (const ir::Buffer& buffer : one.programs[0].buffers) {
    if (ComesLate(buffer, late)) gradients += static_cast<double>(ir::BufferBytes(buffer));
  }
  const StageDemand before = DemandsOf(one, {})[0], after = DemandsOf(one, late)[0];
  EXPECT_GT(gradients, 0);
  EXPECT_EQ(after.live_at_loss, before.live_at_loss - gradients);
  EXPECT_LT(after.live, before.live);
  EXPECT_GE(after.live, before.live - gradients);
}

// A GPT layer under autocast: both residuals in fp32, so that 32 bytes become 36.
TEST(SoftwareMemory, AutocastKeepsTheResidualStreamInFp32) {
  Holding autocast;
  autocast.fp32_residual = autocast.eager = true;
  const double parameters = 12.0 * kHidden * kHidden + 13.0 * kHidden;
  const double layer = DemandsOf(Gpt(4).Lowered(), autocast)[0].live -
                       DemandsOf(Gpt(3).Lowered(), autocast)[0].live - 16 * parameters;
  EXPECT_NEAR(layer / (1.0 * kSeq * kBatch * kHidden), 36, 0.2);
}

// A gated layer operation by operation keeps silu of its gate (2 bytes of ffn); two norms 6 bytes of their inputs each.
TEST(SoftwareMemory, AutogradKeepsWhatLiesBetweenOperations) {
  Holding compiled, eager, no_kernel;
  eager.eager = no_kernel.eager = no_kernel.eager_norm = true;
  const auto layer = [](const Holding& holding) {
    Job three = Gpt(3), four = Gpt(4);
    for (Job* job : {&three, &four}) {
      job->model.gated = true;
      job->model.norm = Norm::kRmsNorm;
    }
    return (DemandsOf(four.Lowered(), holding)[0].live -
            DemandsOf(three.Lowered(), holding)[0].live) /
           (1.0 * kSeq * kBatch * kHidden);
  };
  EXPECT_NEAR(layer(eager) - layer(compiled), 2 * 4, 0.01);  // ffn = 4 x hidden
  EXPECT_NEAR(layer(no_kernel) - layer(eager), 2 * 6, 0.01);
  Holding autocast = no_kernel, fused = eager;
  autocast.fp32_residual = fused.fp32_residual = true;
  EXPECT_NEAR(layer(autocast) - layer(fused), 2 * 4, 0.01);
}

// Rotary positions behind one product: values keep it whole beside the new queries and keys.
TEST(SoftwareMemory, RotatedQueriesAndKeysLieBesideTheProduct) {
  Holding apart;
  apart.rotated_apart = true;
  const auto layer = [](const Holding& holding) {
    Job three = Gpt(3), four = Gpt(4);
    for (Job* job : {&three, &four}) {
      job->model.positions = Positions::kRotary;
      job->model.kv_heads = 2;
    }
    return (DemandsOf(four.Lowered(), holding)[0].live -
            DemandsOf(three.Lowered(), holding)[0].live) /
           (1.0 * kSeq * kBatch * kHidden);
  };
  EXPECT_NEAR(layer(apart) - layer({}), 2 * (1 + 2.0 / 8), 0.01);  // keys of 2 of 8 heads
  FrameworkPreset preset;
  FrameworkProfile framework;
  framework.preset = std::make_shared<FrameworkPreset>(preset);
  EXPECT_TRUE(HoldingOf(framework).rotated_apart);
  preset.defaults.split_products = true;
  framework.preset = std::make_shared<FrameworkPreset>(preset);
  EXPECT_FALSE(HoldingOf(framework).rotated_apart);
}

// Of the two sums of a layer, a compiler keeps the first as the 16 bits that were added.
TEST(SoftwareMemory, ACompilerAddsTheFirstSumAgain) {
  Holding eager, compiled;
  eager.fp32_residual = compiled.fp32_residual = true;
  eager.eager = true;
  const auto layer = [](const Holding& holding) {
    return (DemandsOf(Gpt(4).Lowered(), holding)[0].live -
            DemandsOf(Gpt(3).Lowered(), holding)[0].live) /
           (1.0 * kSeq * kBatch * kHidden);
  };
  EXPECT_NEAR(layer(eager) - layer(compiled), 2, 0.01);
}

// What sequence parallelism gathers for the two inner products of a layer: 2 x 2 bytes whole, not a part of 1 / tp.
TEST(SoftwareMemory, GatheredSequencesMayStay) {
  const auto layer = [](bool kept) {
    Job three = Gpt(3), four = Gpt(4);
    for (Job* job : {&three, &four}) {
      job->strategy.tp = 4;
      job->strategy.sequence_parallel = true;
      job->strategy.gathers_kept = kept;
    }
    return (DemandsOf(four.Lowered(), {})[0].live - DemandsOf(three.Lowered(), {})[0].live) /
           (1.0 * kSeq * kBatch * kHidden);
  };
  EXPECT_NEAR(layer(true) - layer(false), 2 * 2 * (1 - 1.0 / 4), 0.01);
}

// A mask of a byte per query and key lies beside the copies of the logits.
TEST(SoftwareMemory, TheLoadersMaskLiesInForwardPasses) {
  FrameworkProfile framework;
  framework.memory_loss = 4;
  const StageDemand demand = Gpt(2).Demands()[0];
  EXPECT_EQ(demand.pairs, 1.0 * kSeq * kSeq * kBatch);
  const double before = Allocated(demand, framework);
  framework.memory_mask = 1;
  EXPECT_EQ(Allocated(demand, framework), before + demand.pairs);
  const StagePeak peak = PeakOf(demand, AllocationOf(framework));
  EXPECT_EQ(peak.mask.value, demand.pairs);  // by itself, not as copies of the logits
  EXPECT_EQ(peak.loss_copies.value, 4 * demand.logits);
}

// FSDP casts shards when it gathers them; where weights are in 16 bits alone they stay.
TEST(SoftwareMemory, ShardsThatAreCastToBeGatheredHaveNoBytes) {
  Holding cast;
  cast.cast_shards = true;
  Job job = Gpt(4);
  job.strategy.dp = 2;
  job.strategy.zero = 3;
  job.work.precision = Precision::kBf16;
  const ir::Plan plan = job.Lowered();
  double shards = 0;
  for (const ir::Buffer& buffer : plan.programs[0].buffers) {
    if (buffer.cls == ir::BufferClass::kParam)
      shards += static_cast<double>(ir::BufferBytes(buffer));
  }
  EXPECT_EQ(DemandsOf(plan, cast)[0].live, DemandsOf(plan, {})[0].live - shards);
  job.work.master_weights = false;
  const ir::Plan pure = job.Lowered();
  EXPECT_EQ(DemandsOf(pure, cast)[0].live, DemandsOf(pure, {})[0].live);
}

TEST(SoftwareMemory, BucketsOfReductionsAreCopiesOfWholeGradients) {
  FrameworkProfile framework;
  framework.memory_reducer = 1;
  Job job = Gpt(2);
  EXPECT_EQ(Allocated(job.Demands()[0], framework), job.Demands()[0].live);
  job.strategy.dp = 2;
  const ir::Plan plan = job.Lowered();
  double gradients = 0;
  for (const ir::Buffer& buffer : plan.programs[0].buffers) {
    if (buffer.cls == ir::BufferClass::kGrad && buffer.life == ir::Life::kStep)
      gradients += static_cast<double>(ir::BufferBytes(buffer));
  }
  const StageDemand demand = job.Demands()[0];
  EXPECT_EQ(Allocated(demand, framework), demand.live + gradients);
}

TEST(SoftwareMemory, OnlyTheLastStageHasLogitsAndOnlyInHalfPrecision) {
  Job job = Gpt(4);
  job.strategy.pp = 2;
  const auto demands = job.Demands();
  EXPECT_EQ(demands[0].logits, 0);
  EXPECT_EQ(demands[0].live_at_loss, 0);
  EXPECT_EQ(demands[1].logits, static_cast<double>(kSeq * kBatch * kVocab));
  EXPECT_GT(demands[1].live_at_loss, 0);
  job.work.precision = Precision::kFp32;
  EXPECT_EQ(job.Demands()[1].logits, 0);
}

TEST(SoftwareMemory, TheLossCountsAtItsOwnMoment) {
  FrameworkProfile framework;
  StageDemand demand;
  demand.live = 100;
  demand.live_at_loss = 80;
  demand.logits = 10;
  framework.memory_loss = 1;
  demand.loss.call = 2;
  demand.fullest.call = 3;
  EXPECT_EQ(Allocated(demand, framework), 100);
  EXPECT_EQ(PeakOf(demand, AllocationOf(framework)).at.call, 3);
  framework.memory_loss = 4;
  EXPECT_EQ(Allocated(demand, framework), 120);
  EXPECT_EQ(PeakOf(demand, AllocationOf(framework)).at.call, 2);
}

// The arena, to the byte: of a software that allocates it, and of no other.
TEST(SoftwareMemory, TheArenaCountsWhereItIsAllocated) {
  FrameworkProfile framework;
  StageDemand demand;
  demand.live = 100;
  demand.live_at_loss = 80;
  demand.arena = 130;
  EXPECT_EQ(Allocated(demand, framework), 100);
  framework.static_layout = true;
  EXPECT_EQ(Allocated(demand, framework), 130);
  EXPECT_EQ(PeakOf(demand, AllocationOf(framework)).live.value, 100);
  EXPECT_EQ(PeakOf(demand, AllocationOf(framework)).gaps.value, 30);
  EXPECT_TRUE(LoadFrameworkProfile("orrery").static_layout);
  EXPECT_TRUE(LoadFrameworkProfile("orrery-cpu").static_layout);
  EXPECT_FALSE(LoadFrameworkProfile("megatron").static_layout);
}

TEST(SoftwareMemory, GradientsAreCopiedWhereFullPrecisionOnesAccumulate) {
  Job job = Gpt(2);
  job.work.precision = Precision::kBf16;
  FrameworkProfile framework;
  framework.memory_gradient_copy = 2;
  EXPECT_EQ(job.Demands()[0].half_weights, 0);
  job.strategy.fp32_grads = true;
  const StageDemand demand = job.Demands()[0];
  const double parameters =
      2 * (12.0 * kHidden * kHidden + 13.0 * kHidden) + (kVocab + kSeq + 2.0) * kHidden;
  EXPECT_EQ(demand.half_weights, parameters);
  EXPECT_EQ(Allocated(demand, framework), demand.live + 2 * parameters);
}

// A job with adapters of rank 8, and bytes of its frozen weights on a rank.
struct Adapted {
  Job job = Gpt(3);
  Adapted() {
    job.work.precision = Precision::kBf16;
    job.work.lora = {.rank = 8};
  }
  double Frozen() const {
    const ir::Plan plan = job.Lowered();
    double bytes = 0;
    for (const ir::Buffer& buffer : plan.programs[0].buffers) {
      if (buffer.cls != ir::BufferClass::kParam || buffer.unit < 0) continue;
      const ir::Unit& unit = plan.programs[0].units[buffer.unit];
      if (plan.params[unit.segments.front().param].frozen)
        bytes += static_cast<double>(ir::BufferBytes(buffer));
    }
    return bytes;
  }
};

// FSDP keeps trained weights in fp32 alone and casts what it gathers; frozen ones have no fp32 copy, so their shards stay.
TEST(SoftwareMemory, ShardsOfFrozenWeightsAreHeldThoughTrainedOnesAreCast) {
  Adapted adapted;
  adapted.job.strategy.dp = 2;
  adapted.job.strategy.zero = 3;
  Holding cast;
  cast.cast_shards = true;
  const ir::Plan plan = adapted.job.Lowered();
  const std::vector<int64_t> bytes = HeldBytes(plan.programs[0], cast);
  double frozen = 0, trained = 0;
  for (std::size_t b = 0; b < bytes.size(); ++b) {
    const ir::Buffer& buffer = plan.programs[0].buffers[b];
    if (buffer.cls != ir::BufferClass::kParam) continue;
    const ir::Unit& unit = plan.programs[0].units[buffer.unit];
    const bool is_frozen = plan.params[unit.segments.front().param].frozen;
    (is_frozen ? frozen : trained) += static_cast<double>(bytes[b]);
  }
  EXPECT_GE(frozen, 2 * 3 * 12.0 * kHidden * kHidden /
                        2);  // 2 bytes on two ranks, matrices of layers alone
  EXPECT_EQ(frozen, adapted.Frozen());
  EXPECT_EQ(trained, 0);
}

TEST(SoftwareMemory, GradientsOfFrozenWeightsHaveNoCopies) {
  Adapted adapted;
  adapted.job.strategy.fp32_grads = true;
  const ModelSpec& model = adapted.job.model;
  const double trained = 3.0 * AdapterParameters(model, adapted.job.work.lora);  // of three layers
  EXPECT_EQ(adapted.job.Demands()[0].half_weights, trained);
}

// TransformerEngine keeps one gradient that nobody reads for each shape of weights, in their type.
TEST(SoftwareMemory, DummyGradientsAreOneOfEachShape) {
  Job job = Gpt(4);
  job.strategy.fp32_grads = true;
  job.model.vocab = 2 * kVocab;  // a table with another shape than the inner maps
  const double h = kHidden;
  EXPECT_EQ(job.Demands()[0].shapes, 2 * (3 * h * h + h * h + 2 * (4 * h * h) + 2 * kVocab * h));
  job.strategy.tp = 2;
  EXPECT_EQ(job.Demands()[0].shapes, (3 * h * h + h * h + 2 * (4 * h * h) + 2 * kVocab * h));
  Allocation allocation;
  const StageDemand demand = job.Demands()[0];
  const Bytes without = PeakOf(demand, allocation).allocated();
  allocation.dummies = true;
  EXPECT_EQ((PeakOf(demand, allocation).allocated() - without).value, demand.shapes);
  EXPECT_TRUE(AllocationOf(LoadFrameworkProfile("nemo")).dummies);
  for (const char* without_it : {"nemo@2023", "megatron@2021", "megatron@deterministic", "nanotron",
                                 "megatron-deepspeed", "fsdp"})
    EXPECT_FALSE(AllocationOf(LoadFrameworkProfile(without_it)).dummies) << without_it;
  Adapted adapted;  // frozen weights have no gradients
  EXPECT_LT(adapted.job.Demands()[0].shapes, 2 * 16 * 12 * h);
  EXPECT_GT(adapted.job.Demands()[0].shapes, 0);
}

TEST(SoftwareMemory, KeysAndValuesMayBeRepeatedAndGatesBeApart) {
  Job job = Gpt(1);
  job.strategy.flash_attention = false;
  const ir::Plan plan = job.Lowered();
  const auto held = [&](const Holding& holding, const std::string& name) {
    const std::vector<int64_t> bytes = HeldBytes(plan.programs[0], holding);
    int64_t sum = 0;
    for (std::size_t b = 0; b < bytes.size(); ++b)
      if (plan.programs[0].buffers[b].name == name) sum += bytes[b];
    return sum;
  };
  Holding repeated;
  repeated.keys_repeated = true;
  const int64_t rows = kSeq * kBatch;
  EXPECT_EQ(held({}, "l0.attn.in"), 2 * 3 * rows * kHidden);
  EXPECT_EQ(held(repeated, "l0.attn.in"), 2 * 5 * rows * kHidden);
  EXPECT_EQ(job.Demands()[0].scores, 2.0 * 8 * kBatch * kSeq * kSeq);
  EXPECT_TRUE(HoldingOf(LoadFrameworkProfile("megatron@2023")).gate_apart);
  EXPECT_FALSE(HoldingOf(LoadFrameworkProfile("megatron@2021")).gate_apart);
}

TEST(SoftwareMemory, ShardedGradientsLieInsideTheWholeOnes) {
  Job job = Gpt(2);
  job.strategy.dp = 2;
  job.strategy.zero = 1;
  job.work.global_batch *= 2;
  job.strategy.reduce_in_backward = true;
  const ir::Plan plan = job.Lowered();
  const ir::Program& program = plan.programs[0];
  int64_t shards = 0;
  for (const ir::Buffer& buffer : program.buffers) {
    const bool shard = buffer.cls == ir::BufferClass::kGrad && buffer.unit_shard_axis >= 0;
    if (shard && buffer.life == ir::Life::kStep)
      shards += buffer.elements * ir::DtypeBytes(buffer.dtype);
  }
  EXPECT_GT(shards, 0);
  const ir::Peak peak = ir::LivePeak(plan, program, ir::ComputeLayout(plan, program), false);
  EXPECT_EQ(DemandsOf(plan, {})[0].live, static_cast<double>(peak.bytes - shards));
  Holding arena;
  arena.static_layout = true;
  EXPECT_EQ(DemandsOf(plan, arena)[0].live, static_cast<double>(peak.bytes));
}

TEST(SoftwareMemory, TheDeviceShowsContextBuffersAndCommunicatorsToo) {
  GpuProfile gpu;
  FrameworkProfile framework;
  gpu.memory_context = Bytes(1000.0);
  framework.memory_buffers = Bytes(300.0);
  framework.memory_communicator = Bytes(20.0);
  framework.memory_fragmentation = 0.1;
  Strategy strategy;
  EXPECT_EQ(Communicators(strategy), 0);
  strategy.tp = 2;
  strategy.dp_outer = 4;
  EXPECT_EQ(Communicators(strategy), 2);
  EXPECT_DOUBLE_EQ(LimitsOf(gpu, framework).Total(Bytes(2000.0), 2).value, 2200 + 1000 + 300 + 40);
  gpu.memory_workspace = Bytes(7.0);
  framework.memory_handles = 3;
  EXPECT_DOUBLE_EQ(LimitsOf(gpu, framework).Total(Bytes(2000.0), 2).value,
                   2200 + 1000 + 300 + 40 + 21);
}

}  // namespace
}  // namespace orrery
