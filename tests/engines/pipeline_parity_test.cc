// SPDX-License-Identifier: Apache-2.0
// Term parity of the engines in pipelines whose stages wait in ways that formulas do not have: stages without layers, more passes
// than a few rounds, gathers that travel while a pass waits, gradients of the head; profiles and topologies as shipped.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "model/arch/catalogue.h"
#include "model/framework/presets.h"
#include "model/hardware/catalog.h"
#include "model/twin/step_predictor.h"
#include "tests/engines/parity_tally.h"

namespace orrery {
namespace {

struct Pipelined {
  const char *model, *topology, *framework;
  int nodes;
  Strategy layout;
  int64_t micro_batches;
  const char* fabric = "";  // the topology's
  int gpus = 0;             // of each node; 0: all
};

using PipelinedJobs = std::vector<Pipelined>;

EnginePair Compare(const Pipelined& of) {
  const LoadedModel model = LoadModel(of.model);
  TopologySpec topology = LoadTopology(of.topology);
  if (*of.fabric != '\0') topology.fabric_profile = of.fabric;
  const Profiles profiles = LoadProfiles(topology, of.framework, true);
  const FrameworkPreset& preset = FindFramework(of.framework);
  Strategy layout = of.layout;
  Workload work;
  work.seq_len = model.defaults.seq_len.value_or(1024);
  work.precision = profiles.gpu.peak_bf16.value > 0 ? Precision::kBf16 : Precision::kFp16;
  work.global_batch = of.micro_batches * layout.micro_batch * layout.data_parallel();
  FollowFramework(profiles.framework, &work);
  layout.flash_attention = preset.FusedAttention(profiles.gpu).has_value();
  layout = preset.Complete(layout, work);
  FollowFramework(profiles.framework, &layout);
  const Job job = MakeJob(model.spec, work, topology, of.nodes, of.gpus, profiles);
  EXPECT_FALSE(CheckStrategy(job.model, work, layout)) << DescribeLayout(layout);
  EnginePair pair =
      CompareLayout(job, layout, std::get<StepTime>(StepPredictor(job).Predict(layout)));
  pair.where = std::string(of.model) + " on " + of.topology + ", " + of.framework + ": " +
               DescribeLayout(layout, of.micro_batches);
  return pair;
}

void ExpectWithin(const PipelinedJobs& cases) {
  for (const Pipelined& of : cases) {
    const EnginePair pair = Compare(of);
    const BreakdownTerm* term = nullptr;
    EXPECT_NEAR(pair.Apart(), 0, ParityTally::kTotal) << pair.where;
    EXPECT_LT(pair.WorstTerm(&term), ParityTally::kTerm) << pair.where << ": " << term->name;
  }
}

// What its framework leaves to the last stage is the head alone: its forward passes are receives, and the first head does not
// wait for the last of them. 6.1, 6.9 and 3.6 % too long before. And more passes than are walked: 6.1 % too short.
TEST(PipelineParity, ForwardPassesFirst) {
  const auto layout = [](int pp, int dp, int micro_batch, int zero) {
    Strategy s;
    s.pp = pp, s.dp = dp, s.micro_batch = micro_batch, s.zero = zero;
    s.schedule = PipelineSchedule::kGpipe;
    return s;
  };
  ExpectWithin(
      PipelinedJobs{{"sc21-1.7b", "oci-h200", "torchtitan@2024", 2, layout(16, 1, 2, 0), 32},
                    {"bert-large", "gcp-a3-mega", "nanotron", 14, layout(14, 8, 2, 1), 28},
                    {"gpt2-small", "aws-p5en", "nanotron", 2, layout(8, 2, 4, 0), 8},
                    {"gpt2-large", "vtrain-a100", "torchtitan", 9, layout(9, 8, 4, 2), 243}});
}

// Transfers that take longer than the passes of a kind: each half of the step is as long as its slowest stage or hop. 20.2 and 3.3 %
// too short before.
TEST(PipelineParity, ForwardPassesFirstOverSlowHops) {
  Strategy s;
  s.pp = 2, s.dp = 16, s.micro_batch = 8, s.zero = 1, s.schedule = PipelineSchedule::kGpipe;
  Strategy split = s;
  split.tp = 2, split.dp = 4, split.micro_batch = 2, split.sequence_parallel = true;
  ExpectWithin(PipelinedJobs{{"gpt2-micro", "aws-p3-16xl", "nanotron", 4, s, 12, "tcp"},
                             {"gpt2-micro", "pcie-h200", "nanotron", 4, split, 8}});
}

// 4,608 passes of uneven chunks: by formula 8.8 % too long.
TEST(PipelineParity, ManyChunks) {
  Strategy s;
  s.pp = 16, s.dp = 5, s.vpp = 3, s.micro_batch = 2, s.schedule = PipelineSchedule::kInterleaved;
  ExpectWithin(PipelinedJobs{{"llama2-70b", "deepseek-h800", "colossalai", 10, s, 48}});
}

// Gathers that take several times as long as a layer: that of the second layer travels while a pass waits for its tensor. 26, 15 and
// 10 % too long before; now 6.4 % at most.
TEST(PipelineParity, SlowGathers) {
  Strategy s;
  s.pp = 8, s.dp = 7, s.zero = 3, s.recompute = Recompute::kFull;
  Strategy in_a_v = s;
  in_a_v.vpp = 2, in_a_v.schedule = PipelineSchedule::kZeroBubbleV;
  for (const Pipelined& of : PipelinedJobs{{"gpt2-xl", "aws-p3dn", "kempnerforge", 7, in_a_v, 2},
                                           {"gpt2-xl", "aws-p3dn", "kempnerforge", 7, s, 2},
                                           {"gpt2-xl", "aws-p3dn", "kempnerforge", 7, in_a_v, 8}}) {
    const EnginePair pair = Compare(of);
    EXPECT_NEAR(pair.Apart(), 0, 0.07) << pair.where;
  }
}

// The last stage's gradients of the head are ready in front of its layers, which are a small part of its pass: bubbles of 3 to 5 %
// were data before. And a host that has just begun is no faster than the gathers beside it.
TEST(PipelineParity, ReductionsBehindAHead) {
  Strategy s;
  s.pp = 4, s.dp = 4, s.zero = 1;
  Strategy few = s;
  few.pp = 3, few.dp = 32, few.zero = 0, few.micro_batch = 2;
  few.layout = std::make_shared<const std::vector<int>>(std::vector<int>{5, 3, 4});
  Strategy chunks = few;
  chunks.pp = 2, chunks.dp = 26, chunks.tp = 2, chunks.vpp = 2, chunks.micro_batch = 1;
  chunks.layout = nullptr, chunks.schedule = PipelineSchedule::kInterleaved;
  ExpectWithin(PipelinedJobs{{"bert-large", "mi300x-8", "nanotron", 2, s, 4},
                             {"gpt2-small", "oci-mi355x", "megatron@deterministic", 12, few, 3},
                             {"gpt2-large", "eos", "megatron@deterministic", 13, chunks, 2}});
}

// Stages and chunks of a layout that hold nothing hand on what they get.
TEST(PipelineParity, ChunksWithoutALayer) {
  const auto with = [](Strategy s, std::vector<int> layers) {
    s.layout = std::make_shared<const std::vector<int>>(std::move(layers));
    return s;
  };
  Strategy s;
  s.pp = 4, s.dp = 4, s.zero = 1;
  Strategy chunks = s, in_a_v = s;
  chunks.vpp = 3, chunks.schedule = PipelineSchedule::kInterleaved;
  in_a_v.vpp = 2, in_a_v.schedule = PipelineSchedule::kZeroBubbleV;
  ExpectWithin(PipelinedJobs{
      {"bert-large", "mi300x-8", "megatron", 2, with(s, {10, 0, 8, 6}), 16},
      {"gpt2-medium", "aws-p4d", "megatron", 2, with(s, {0, 12, 12, 0}), 8},
      {"gpt2-medium", "aws-p4d", "megatron", 2, with(chunks, {3, 3, 0, 3, 3, 0, 3, 3, 0, 3, 3, 0}),
       16},
      {"gpt2-medium", "dgx-h100", "megatron", 2, with(chunks, {6, 6, 6, 6, 0, 0, 0, 0, 0, 0, 0, 0}),
       8},
      {"gpt2-medium", "dgx-h100", "torchtitan", 2, with(in_a_v, {4, 4, 0, 4, 4, 0, 4, 4}), 16}});
}

// An encoder-decoder's relative positions are a unit of their own, its encoder's norm is gathered again.
TEST(PipelineParity, TwoStacks) {
  Strategy s;
  s.dp = 104, s.zero = 2, s.micro_batch = 2;
  Strategy gathers = s;
  gathers.dp = 88, gathers.zero = 3, gathers.recompute = Recompute::kFull;
  ExpectWithin(PipelinedJobs{{"t5-small", "gcp-a3-mega", "orrery", 13, s, 9},
                             {"t5-small", "oci-h200", "huggingface@fsdp", 11, gathers, 6}});
}

// The decoder's last sums go in front of the encoder's backward pass, where a host that is late gets ahead; the next stack's first
// layer is gathered beside the embedding or the layer before; what is reduced once per step is not scattered between the stacks.
// 6.3, 10.5 and 7.1 % too long before.
TEST(PipelineParity, BetweenTwoStacks) {
  Strategy s;
  s.dp = 128, s.zero = 2, s.micro_batch = 2, s.recompute = Recompute::kFull;
  Strategy split = s;
  split.tp = 8, split.dp = 4, split.zero = 3;
  Strategy few = s;
  few.dp = 10, few.zero = 3, few.recompute = Recompute::kNone;
  ExpectWithin(PipelinedJobs{{"t5-small", "oci-b200", "fsdp", 16, s, 6},
                             {"t5-small", "gaudi2-8", "kempnerforge", 4, split, 7}});
  // With messages by LL128, and attention that is not fused, the host is nearly as late as the messages: a part of the wait is the
  // host's in one engine and a message's in the other, 2.8 and 2.4 % of the step. Totals agree.
  constexpr double kSwapped = 0.03;
  for (const Pipelined& of :
       PipelinedJobs{{"t5-small", "aws-dl1", "kempnerforge", 4, split, 7},
                     {"t5-small", "deepseek-h800", "kempnerforge", 2, few, 2, "", 5}}) {
    const EnginePair pair = Compare(of);
    const BreakdownTerm* term = nullptr;
    EXPECT_NEAR(pair.Apart(), 0, ParityTally::kTotal) << pair.where;
    EXPECT_LT(pair.WorstTerm(&term), kSwapped) << pair.where << ": " << term->name;
  }
}

// Gathers for the next step that arrive before a late host issues their readers: what they took was data before, 6.0 and 4.8 % of
// the step. Between stages such a host makes passes longer that hide gathers and reductions: 6.3 and 3.4 % too long before.
// On the last stage it gets ahead while the head runs, and the layers behind the head hide less: 2.1 and 1.8 % of the step were a
// bubble instead of data.
TEST(PipelineParity, MessagesOfAStepBesideALateHost) {
  Strategy s;
  s.dp = 8, s.zero = 2, s.micro_batch = 2;
  Strategy many = s;
  many.dp = 32, many.micro_batch = 1;
  Strategy phases = s;
  phases.pp = 2, phases.dp = 3, phases.micro_batch = 4, phases.recompute = Recompute::kFull;
  phases.schedule = PipelineSchedule::kGpipe;
  Strategy turns = s;
  turns.pp = 2, turns.micro_batch = 1;
  ExpectWithin(PipelinedJobs{{"bert-large", "oci-h200", "huggingface@fsdp", 2, s, 4, "", 4},
                             {"bert-base", "eos", "torchtitan@2025", 4, many, 1},
                             {"bert-large", "meta-h100-96", "kempnerforge", 6, phases, 8, "", 1},
                             {"gpt2-xl", "olivia-gh200", "kempnerforge", 4, turns, 10, "", 4}});
}

// Hops of a ring end while a late host issues: 27 and 2.1 % of the step were exposed messages instead of host before.
TEST(PipelineParity, RingsBesideALateHost) {
  Strategy s;
  s.pp = 2, s.cp = 8, s.zero = 2, s.recompute = Recompute::kFull;
  Strategy split = s;
  split.pp = 1, split.tp = 8, split.cp = 2, split.dp = 2, split.zero = 0, split.micro_batch = 2;
  ExpectWithin(PipelinedJobs{{"gpt2-xl", "mi350x-8", "torchtitan@2025", 2, s, 9, "tcp"},
                             {"gpt2-medium", "gcp-a4-high", "colossalai", 4, split, 9}});
}

// The last backward pass waits for reductions beside gathers, and its host gets ahead meanwhile: 12.9 and 4.6 % too long before, of
// one and four micro-batches. What the host no longer delays waits for messages: 18 % of the step were the host's.
TEST(PipelineParity, AHostThatGetsAheadInTheLastPass) {
  Strategy s;
  s.dp = 16, s.zero = 3;
  ExpectWithin(PipelinedJobs{{"gpt2-xl", "nvl72-gb200", "kempnerforge", 4, s, 1}});
  EXPECT_NEAR(Compare({"gpt2-xl", "nvl72-gb200", "kempnerforge", 4, s, 4}).Apart(), 0,
              ParityTally::kTotal);
}

// Ranks on a node are apart by what hops between nodes take longer than hops inside, and each waits for slots that the next one
// sends on slowly: 6.7, 4.4 and 2.7 % too short before, all in messages of sequences.
TEST(PipelineParity, RingsOfSeveralRanksOnEachNode) {
  const auto layout = [](int tp, int cp) {
    Strategy s;
    s.tp = tp, s.cp = cp, s.zero = 1;
    s.context = ContextOf(CpMethod::kRing);
    return s;
  };
  ExpectWithin(PipelinedJobs{{"llama2-7b", "dgx-h100", "megatron", 2, layout(4, 4), 16},
                             {"llama2-7b", "dgx-h100", "megatron", 2, layout(2, 8), 16},
                             {"llama2-7b", "dgx-h100", "megatron", 2, layout(1, 16), 16}});
}

// Updates by the CPU hide gathers that follow them, not those beside the next step: 10.4, 6.6 and 6.0 % too short before.
TEST(PipelineParity, GathersOfTheNextStepBehindUpdatesByTheCpu) {
  Strategy s;
  s.tp = 8, s.dp = 8, s.zero = 1, s.recompute = Recompute::kFull, s.offload = {1};
  Strategy split = s;
  split.tp = 2, split.dp = 8, split.offload = {0.5}, split.recompute = Recompute::kNone;
  Strategy chunks = s;
  chunks.pp = 4, chunks.dp = 4, chunks.micro_batch = 2;
  chunks.vpp = 3, chunks.schedule = PipelineSchedule::kInterleaved;
  ExpectWithin(PipelinedJobs{{"sc21-310.1b", "aws-p6-b300", "megatron@deterministic", 8, s, 6},
                             {"sc21-39.1b", "mi300x-8", "nemo@2023", 2, split, 3, "tcp"},
                             {"sc21-1t", "aws-p4de", "megatron", 16, chunks, 16}});
}

// Of one GPU whole gradients, of several shards; copies that links hide, and those that they do not.
TEST(PipelineParity, GradientsThatGoToTheHostInTheBackwardPass) {
  Strategy alone;
  alone.zero = 2, alone.offload = {1};
  Strategy again = alone;
  again.recompute = Recompute::kFull, again.micro_batch = 4;
  Strategy shards = again;
  shards.dp = 16, shards.zero = 3;
  Strategy some = shards;
  some.dp = 8, some.tp = 2, some.zero = 2, some.offload = {0.5};
  Strategy weights = shards;
  weights.offload = {1, false, true};
  Strategy stages = shards;
  stages.pp = 2, stages.dp = 8, stages.micro_batch = 2;
  ExpectWithin(
      PipelinedJobs{{"gpt2-xl", "dgx1-v100", "deepspeed", 1, alone, 1, "", 1},
                    {"llama2-7b", "dgx1-v100", "deepspeed", 1, again, 4, "", 1},
                    {"gpt2-xl", "aws-p4d", "deepspeed", 1, again, 3, "", 1},
                    {"llama2-7b", "aws-p4d", "deepspeed", 2, shards, 1},
                    {"llama2-7b", "aws-p4d", "deepspeed", 2, shards, 6},
                    {"llama2-7b", "aws-p4d", "deepspeed", 2, some, 4},
                    {"llama2-7b", "aws-p4d", "deepspeed", 2, weights, 4},
                    {"llama2-7b", "aws-p4d", "orrery+offload_gradients=on", 2, stages, 8}});
  // Behind a short backward pass all of them go before the first update.
  const auto seconds = [&](const char* framework) {
    return Compare({"gpt2-xl", "dgx1-v100", framework, 1, alone, 1, "", 1}).event_seconds;
  };
  EXPECT_GT(seconds("deepspeed"), 1.05 * seconds("deepspeed+offload_gradients=off"));
}

// Where groups of a layer lie on nodes in different ways, what a pass waits for activations on the host counted twice: 19 % too
// long before.
TEST(PipelineParity, ActivationsOnTheHostWhereGroupsStraddleNodes) {
  Strategy s;
  s.tp = 4, s.pp = 10, s.micro_batch = 2, s.recompute = Recompute::kSelective;
  s.vpp = 2, s.schedule = PipelineSchedule::kInterleaved, s.offload.activations = true;
  const EnginePair pair =
      Compare({"llama3-8b", "aws-p3-16xl", "megatron@deterministic", 8, s, 10, "tcp", 5});
  EXPECT_NEAR(pair.Apart(), 0, 0.07) << pair.where;
}

// Copies back are issued before the host waits for a gradient: those of a pass's first layer travel while it is late. 16.8 and 5.0 %
// too long before.
TEST(PipelineParity, ActivationsThatComeBackBeforeTheirGradient) {
  Strategy s;
  s.pp = 16, s.dp = 6, s.zero = 1, s.micro_batch = 8, s.offload.activations = true;
  Strategy chunks = s;
  chunks.pp = 4, chunks.dp = 18, chunks.vpp = 2, chunks.micro_batch = 1;
  chunks.schedule = PipelineSchedule::kInterleaved, chunks.recompute = Recompute::kSelective;
  const EnginePair few = Compare({"gpt2-medium", "gcp-a2-high", "nemo", 12, s, 80, "tcp"});
  EXPECT_NEAR(few.Apart(), 0, 0.06) << few.where;
  const EnginePair many = Compare({"llama2-7b", "fms-h100", "megatron", 9, chunks, 8});
  EXPECT_NEAR(many.Apart(), 0, 0.04) << many.where;
}

// Copies of activations go on while the device waits for what comes once per step, and the other way round: reductions between
// the kernels of the last backward pass, gathers beside the first forward pass: up to 38 % too long before.
TEST(PipelineParity, ActivationsOnTheHostBesideMessagesOfAStep) {
  Strategy s;
  s.dp = 8, s.offload.activations = true;
  Strategy gathers = s;
  gathers.tp = 4, gathers.dp = 32, gathers.zero = 1, gathers.micro_batch = 2;
  gathers.sequence_parallel = true;
  ExpectWithin(PipelinedJobs{{"gpt2-medium", "dli-slurm-v100", "megatron", 4, s, 1},
                             {"gpt2-medium", "dli-slurm-v100", "megatron", 4, s, 3},
                             {"llama2-7b", "aws-p4d", "nemo@2023", 16, gathers, 3, "tcp"}});
}

// A host gets ahead while the first pass waits for weights, and the last one is over before what it was to hide: 11.7 % too short
// before.
TEST(PipelineParity, ReductionsBehindAHostThatGotAhead) {
  Strategy s;
  s.dp = 28, s.zero = 1, s.micro_batch = 8, s.recompute = Recompute::kFull;
  ExpectWithin(PipelinedJobs{{"bert-large", "pcie-h200-8", "colossalai", 14, s, 1, "", 2}});
}

// A stage whose shards are on two nodes has fewer weights to gather than the one with the table: 9.0 % too long before.
TEST(PipelineParity, GathersOfTheNextStepWhereLinksOfStagesDiffer) {
  Strategy s;
  s.pp = 7, s.dp = 2, s.zero = 1, s.recompute = Recompute::kSelective;
  ExpectWithin(PipelinedJobs{{"gpt2-small", "aws-p3-16xl", "megatron", 2, s, 7, "", 7}});
}

}  // namespace
}  // namespace orrery
