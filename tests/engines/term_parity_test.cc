// SPDX-License-Identifier: Apache-2.0
// Term parity of the engines on a sample of the catalogue, profiles as shipped, contention off.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <vector>

#include "model/plan/lower/names.h"
#include "tests/engines/parity_tally.h"
#include "tests/from_environment.h"

namespace orrery {
namespace {

// To burn down, see catalogue_parity_test.cc.
constexpr double kFastShare = 0.97;

std::vector<std::string> Clusters() { return Sample<std::string>({"dgx-h100"}, {"dgx-a100-80"}); }

TEST(TermParity, EnginesAgreeTermByTermOnFastNetworks) {
  ParitySelection selection;
  selection.topologies = Clusters();
  selection.situations = Sample<std::string>({"zero1", "zero3"}, {"zero2", "lamb", "efa"});
  ParityTally tally;
  CompareEngines(selection, [&](const EnginePair& pair) { tally.Add(pair); });
  EXPECT_GT(tally.plans, 100);
  EXPECT_LT(tally.worst_sum, 1e-9);  // terms add up to the step
  EXPECT_GE(tally.share(), kFastShare) << tally.Worst(10);
}

// Ranks that share sequences: gathers, rings inside and between nodes, changes of heads, both levels.
TEST(TermParity, EnginesAgreeWhereRanksShareSequences) {
  ParityTally tally;
  for (const auto& [method, cp] : Sample<std::pair<CpMethod, int>>(
           {{CpMethod::kAllGather, 8}, {CpMethod::kRing, 4}, {CpMethod::kA2aRing, 16}},
           {{CpMethod::kAllGather, 2},
            {CpMethod::kRing, 2},
            {CpMethod::kRing, 16},
            {CpMethod::kUlysses, 4}})) {
    ParitySelection selection;
    selection.models = {"llama3-8b"};
    selection.topologies = Clusters();
    selection.frameworks = {"megatron", "orrery"};
    selection.situations = {"zero1", "zero3"};
    selection.fixed.cp = cp;
    selection.fixed.cp_method = method;
    if (method == CpMethod::kA2aRing) selection.fixed.cp_inner = 4;
    selection.seq_len = 32768;
    selection.global_batch = 32;
    const int before = tally.plans;
    CompareEngines(selection, [&](const EnginePair& pair) {
      if (cp > 2) {
        EXPECT_GT(pair.closed.context, 0) << pair.where;
      }
      tally.Add(pair);
    });
    EXPECT_GT(tally.plans, before) << static_cast<int>(method) << " " << cp;
  }
  EXPECT_GT(tally.plans, 25);
  EXPECT_LT(tally.worst_sum, 1e-9);
  // Two rings of 16 over two nodes differ by 2.06 % in their own term.
  EXPECT_GE(tally.share(), 0.98) << tally.Worst(10);
}

// Frozen weights are gathered and never reduced; the first layer's backward pass ends early.
TEST(TermParity, EnginesAgreeWithAdapters) {
  ParityTally tally;
  for (const unsigned targets :
       Sample<unsigned>({kLoraAll, kLoraQ | kLoraV}, {kLoraQkv, kLoraFc2})) {
    ParitySelection selection;
    selection.models = {"llama3-8b"};
    selection.topologies = {"dgx-h100"};
    selection.frameworks = {"megatron", "orrery", "fsdp"};
    selection.situations = {"zero1", "zero2", "zero3"};
    selection.lora = {16, 32, static_cast<LoraTargets>(targets)};
    const int before = tally.plans;
    CompareEngines(selection, [&](const EnginePair& pair) { tally.Add(pair); });
    EXPECT_GT(tally.plans, before + 10) << LoraTargetWords(targets);
  }
  EXPECT_LT(tally.worst_sum, 1e-9);
  EXPECT_GE(tally.share(), kFastShare) << tally.Worst(10);
}

// Weights held in 8 bits: casts behind the update, gathers of a byte, transposed copies.
TEST(TermParity, EnginesAgreeWithWeightsInEightBits) {
  ParityTally tally;
  for (const Fp8 recipe : Sample<Fp8>({Fp8::kCurrent}, {Fp8::kDelayed})) {
    ParitySelection selection;
    selection.models = {"llama3-8b"};
    selection.topologies = {"dgx-h100"};
    selection.frameworks = {"nemo", "orrery", "fsdp"};
    selection.facts = recipe == Fp8::kCurrent ? "fp8_weights=current" : "fp8_weights=delayed";
    selection.situations = {"zero1", "zero2", "zero3"};
    selection.fp8 = recipe;
    const int before = tally.plans;
    CompareEngines(selection, [&](const EnginePair& pair) { tally.Add(pair); });
    EXPECT_GT(tally.plans, before + 10) << NameIn(kFp8Names, recipe);
  }
  EXPECT_LT(tally.worst_sum, 1e-9);
  EXPECT_GE(tally.share(), kFastShare) << tally.Worst(10);
}

// Of weights for the next step, gathers hide behind what stands in front of the first passes and inside of them: kernels that
// clear gradients and cast weights. Codes go in shorter buckets, behind all others.
TEST(TermParity, EnginesAgreeOnWhatHidesGathersOfTheNextStep) {
  struct Recipe {
    Fp8 fp8;
    std::string facts;
  };
  double worst = 0;
  for (const Recipe& at :
       {Recipe{Fp8::kOff, ""}, Recipe{Fp8::kCurrent, ""}, Recipe{Fp8::kBlockwise, ""},
        Recipe{Fp8::kCurrent, "fp8_weights=current"}}) {
    ParitySelection selection;
    selection.models = {"llama3-8b"};
    selection.topologies = {"dgx-h100"};
    selection.frameworks = {"megatron", "nemo"};
    selection.situations = {"zero1"};
    selection.facts = at.facts;
    selection.fp8 = at.fp8;
    selection.fixed.tp = selection.fixed.pp = 1;
    selection.fixed.micro_batch = 1;
    selection.seq_len = 2048;
    selection.global_batch = 32;
    int plans = 0;
    CompareEngines(selection, [&](const EnginePair& pair) {
      ++plans;
      worst = std::max({worst, std::abs(pair.Apart()), pair.WorstTerm()});
      EXPECT_LT(std::abs(pair.Apart()), 0.003) << pair.where;
      EXPECT_LT(pair.WorstTerm(), 0.003) << pair.where;
    });
    EXPECT_GE(plans, 2) << NameIn(kFp8Names, at.fp8) << " " << at.facts;
  }
  std::cout << "worst " << 100 * worst << " %\n";
}

// Copies between device and host and updates by the CPU, beside each other and beside the passes.
TEST(TermParity, EnginesAgreeWithOffload) {
  ParityTally tally;
  for (const Offload& offload :
       {Offload{1, false}, Offload{0.5, false}, Offload{0, true}, Offload{1, false, true}}) {
    ParitySelection selection;
    selection.models = {"llama2-7b"};
    selection.topologies = Clusters();
    selection.frameworks = {"orrery", "deepspeed"};
    selection.situations = {"zero1", "zero2", "zero3"};
    if (offload.weights) selection.situations = {"zero3"};
    selection.fixed.offload = offload;
    selection.fixed.recompute = Recompute::kFull;
    selection.seq_len = 4096;
    selection.global_batch = 128;
    const int before = tally.plans;
    CompareEngines(selection, [&](const EnginePair& pair) {
      if (offload.optimizer > 0) {
        EXPECT_GT(pair.closed.offload, 0) << pair.where;
      }
      tally.Add(pair);
    });
    EXPECT_GT(tally.plans, before + (offload.weights ? 2 : 5)) << OffloadText(offload);
  }
  EXPECT_LT(tally.worst_sum, 1e-9);
  EXPECT_GE(tally.share(), kFastShare) << tally.Worst(10);
}

// Every second product runs again in the backward pass.
TEST(TermParity, EnginesAgreeWhereSingleProductsRunAgain) {
  ParitySelection selection;
  selection.models = Sample<std::string>({"llama3-8b"}, {"llama2-70b"});
  selection.topologies = Clusters();
  selection.frameworks = {"torchtitan"};
  selection.situations = {"zero2", "zero3", "efa"};
  selection.fixed.recompute = Recompute::kByOp;
  selection.seq_len = 4096;
  ParityTally tally;
  CompareEngines(selection, [&](const EnginePair& pair) { tally.Add(pair); });
  EXPECT_GT(tally.plans, 5);
  EXPECT_LT(tally.worst_sum, 1e-9);
  EXPECT_GE(tally.share(), kFastShare) << tally.Worst(10);
}

// Beside shards: products that run again in the middle of a pass, whose collectives wait for what travels in front of them; and
// gathered weights whose magnitudes are found once for those products and for the gradients.
TEST(TermParity, EnginesAgreeWhereProductsRunAgainBesideShards) {
  ParityTally tally;
  ParitySelection casts;
  casts.topologies = {"dgx-h100"};
  casts.frameworks = {"fsdp@2023"};
  casts.situations = {"zero3"};
  casts.nodes = 1;
  casts.fp8 = Fp8::kCurrent;
  casts.fixed.recompute = Recompute::kFull;
  CompareEngines(casts, [&](const EnginePair& pair) { tally.Add(pair); });
  EXPECT_GT(tally.plans, 0);
  ParitySelection sequences;
  sequences.models = {"sc21-18.4b"};
  sequences.topologies = {"azure-nd-a100-40"};
  sequences.frameworks = {"orrery"};
  sequences.situations = {"zero2", "zero3"};
  sequences.nodes = 2;
  sequences.seq_len = 2048;
  sequences.global_batch = 16;
  sequences.fixed.tp = 8;
  sequences.fixed.pp = 1;
  sequences.fixed.cp = 2;
  sequences.fixed.cp_method = CpMethod::kAllGather;
  sequences.fixed.recompute = Recompute::kSelective;
  const int before = tally.plans;
  CompareEngines(sequences, [&](const EnginePair& pair) { tally.Add(pair); });
  EXPECT_GT(tally.plans, before);
  EXPECT_LT(tally.worst_sum, 1e-9);
  EXPECT_EQ(tally.share(), 1) << tally.Worst(10);
}

// Chunks of a pipeline that differ in how many of their layers run again: of the first five, of each second one.
TEST(TermParity, EnginesAgreeWhereSomeLayersRunAgain) {
  ParityTally tally;
  for (const auto& [framework, recompute] : {std::pair{"megatron", Recompute{kRecomputeLayer, 5}},
                                             {"torchtitan", {kRecomputeLayer, 0, 2}}}) {
    ParitySelection selection;
    selection.topologies = {"dgx-a100-80"};
    selection.frameworks = {framework};
    selection.situations = {"zero1", "efa"};
    selection.fixed.pp = 8;
    selection.fixed.vpp = 1;
    selection.fixed.recompute = recompute;
    selection.fixed.layout =
        std::make_shared<const std::vector<int>>(std::vector<int>{5, 7, 6, 7, 6, 7, 5, 5});
    const int before = tally.plans;
    CompareEngines(selection, [&](const EnginePair& pair) { tally.Add(pair); });
    EXPECT_GT(tally.plans, before) << framework;
  }
  EXPECT_LT(tally.worst_sum, 1e-9);
  EXPECT_EQ(tally.share(), 1) << tally.Worst(10);
}

// Codes are gathered apart from the rest, and unpacked in each pass.
TEST(TermParity, EnginesAgreeWithFrozenWeightsInFewBits) {
  ParityTally tally;
  for (const auto& [base, recipe] : Sample<std::pair<LoraBase, Fp8>>(
           {{LoraBase::kNf4, Fp8::kOff}},
           {{LoraBase::kInt8, Fp8::kOff}, {LoraBase::kFp8, Fp8::kDelayed}})) {
    ParitySelection selection;
    selection.models = {"llama3-8b"};
    selection.topologies = {"dgx-h100"};
    selection.frameworks = {"megatron", "orrery", "fsdp"};
    selection.situations = {"zero1", "zero3"};
    selection.lora = {16, 32, kLoraAll, base};
    selection.fp8 = recipe;
    const int before = tally.plans;
    CompareEngines(selection, [&](const EnginePair& pair) { tally.Add(pair); });
    EXPECT_GT(tally.plans, before + 5) << NameIn(kLoraBaseNames, base);
  }
  EXPECT_LT(tally.worst_sum, 1e-9);
  EXPECT_GE(tally.share(), kFastShare) << tally.Worst(10);
}

// Chunks that lie in a V: both ends on the first stage, weight gradients in every gap.
TEST(TermParity, EnginesAgreeInAV) {
  ParitySelection selection;
  selection.models = Sample<std::string>({"llama2-7b"}, {"llama2-70b"});
  selection.topologies = Clusters();
  selection.frameworks = {"orrery", "torchtitan"};
  selection.situations = {"zero1", "zero2"};
  selection.fixed.schedule = PipelineSchedule::kZeroBubbleV;
  ParityTally tally;
  CompareEngines(selection, [&](const EnginePair& pair) { tally.Add(pair); });
  EXPECT_GT(tally.plans, 5);
  EXPECT_GE(tally.share(), kFastShare) << tally.Worst(10);
  // Of many micro-batches, whose rounds settle late: where layers are uneven the last round of a few is no other's.
  selection.models = {"gpt2-xl"};
  selection.topologies = {"aws-p4d"};
  selection.frameworks = {"torchtitan@2024"};
  selection.fixed.pp = 4, selection.fixed.tp = 1;
  selection.fixed.layout =
      std::make_shared<const std::vector<int>>(std::vector<int>{4, 6, 6, 7, 7, 7, 7, 4});
  ParityTally uneven;
  CompareEngines(selection, [&](const EnginePair& pair) { uneven.Add(pair); });
  EXPECT_GT(uneven.plans, 3);
  EXPECT_EQ(uneven.share(), 1) << uneven.Worst(10);
  EXPECT_LT(std::max(tally.worst_sum, uneven.worst_sum), 1e-9);
}

// Gradients add up whole and are scattered in the last backward pass.
TEST(TermParity, EnginesAgreeWhereGradientsAreReducedOnce) {
  ParitySelection selection;
  selection.models = {"llama2-7b"};
  selection.topologies = Clusters();
  selection.frameworks = {"kempnerforge"};
  selection.situations = {"zero2", "zero3"};
  selection.global_batch = 512;
  ParityTally tally;
  CompareEngines(selection, [&](const EnginePair& pair) { tally.Add(pair); });
  // The last backward pass shares its links with gathers, and the stage before waits for it.
  selection.models = {"llama3-70b"};
  selection.topologies = {"dgx-b200"};
  selection.situations = {"zero3"};
  selection.fixed.tp = 4;
  selection.fixed.pp = 2;
  const int before = tally.plans;
  CompareEngines(selection, [&](const EnginePair& pair) { tally.Add(pair); });
  EXPECT_GT(tally.plans, before);
  EXPECT_GT(before, 6);
  EXPECT_LT(tally.worst_sum, 1e-9);
  EXPECT_GE(tally.share(), kFastShare) << tally.Worst(10);
}

// Each tensor rank holds the whole token table, in pipelines the whole output matrix, too, which is freed behind the
// logits and gathered again.
TEST(TermParity, EnginesAgreeWhereTensorRanksHoldWholeTables) {
  ParityTally tally;
  for (const auto& [tp, pp] : {std::pair{1, 1}, {2, 1}, {2, 2}}) {
    ParitySelection selection;
    selection.models = {"llama3-8b"};
    selection.topologies = {"kempner-h200"};
    selection.frameworks = {"kempnerforge"};
    selection.situations = {"zero3"};
    selection.fixed.tp = tp, selection.fixed.pp = pp;
    const int before = tally.plans;
    CompareEngines(selection, [&](const EnginePair& pair) { tally.Add(pair); });
    EXPECT_GT(tally.plans, before) << tp << " " << pp;
  }
  EXPECT_GE(tally.share(), 1.0) << tally.Worst(10);
}

// Without a reducer whole gradients are reduced beside what is left of the last pass when the host has issued it, shards
// behind it.
TEST(TermParity, EnginesAgreeWithoutAReducer) {
  ParityTally tally;
  for (const auto& [framework, topologies] :
       {std::pair{"maxtext", std::vector<std::string>{"dgx-b200", "mi355x-8", "gaudi3-8"}},
        {"orrery", {"eos"}}}) {
    ParitySelection selection;
    selection.topologies = topologies;
    selection.frameworks = {framework};
    selection.situations = {"zero1", "lamb", "efa"};
    const int before = tally.plans;
    CompareEngines(selection, [&](const EnginePair& pair) { tally.Add(pair); });
    EXPECT_GT(tally.plans, before + 5) << framework;
  }
  EXPECT_LT(tally.worst_sum, 1e-9);
  EXPECT_EQ(tally.share(), 1) << tally.Worst(10);
}

// A host that is ahead at the head falls behind in the backward pass: the first gradients are late, and all that follow them.
TEST(TermParity, EnginesAgreeWhereReductionsFollowALateHost) {
  ParitySelection selection;
  selection.models = {"gpt2-medium"};
  selection.topologies = {"mi355x-8"};
  selection.frameworks = {"ddp"};
  selection.situations = {"efa"};
  selection.nodes = 16;
  selection.fixed.recompute = Recompute::kFull;
  selection.global_batch = 1024;
  ParityTally tally;
  CompareEngines(selection, [&](const EnginePair& pair) { tally.Add(pair); });
  EXPECT_GT(tally.plans, 2);
  EXPECT_EQ(tally.share(), 1) << tally.Worst(10);
}

// What gradients of weights gather is put off with them: zero-bubble schedules with sequence parallelism, as drawn.
TEST(TermParity, EnginesAgreeWhereGathersArePutOff) {
  constexpr double kEffort = 2e6;
  ParityTally tally;
  for (const uint64_t number : {452, 811})
    CompareRandom(1, number, 1, kEffort, [&](const EnginePair& pair) { tally.Add(pair); });
  EXPECT_EQ(tally.plans, 2);
  EXPECT_EQ(tally.share(), 1) << tally.Worst(10);
}

// Slow networks: hosts that issue gradients of weights in passes of their own, reductions beside the last passes of each
// chunk, chunks of few micro-batches, gathers that the last stage waits for.
TEST(TermParity, EnginesAgreeInPipelinesOverSlowNetworks) {
  ParityTally tally;
  for (const auto& [topology, framework] : {std::pair{"dgx-b200", "torchtitan"},
                                            {"eos", "torchtitan"},
                                            {"eos", "kempnerforge"},
                                            {"eos", "megatron@deterministic"},
                                            {"eos", "nemo"},
                                            {"eos", "deepspeed"}}) {
    ParitySelection selection;
    selection.topologies = {topology};
    selection.frameworks = {framework};
    selection.situations = {"tcp"};
    const int before = tally.plans;
    CompareEngines(selection, [&](const EnginePair& pair) { tally.Add(pair); });
    EXPECT_GT(tally.plans, before) << topology << ", " << framework;
  }
  EXPECT_LT(tally.worst_sum, 1e-9);
  EXPECT_EQ(tally.share(), 1) << tally.Worst(10);
}

// Replicas of sharding groups add up on other links than those that gathers take.
TEST(TermParity, EnginesAgreeWhereReplicasReduceBesideGathers) {
  ParitySelection selection;
  selection.topologies = {"mi355x-8", "fms-h100", "together-b200"};
  selection.frameworks = {"kempnerforge"};
  selection.situations = {"zero3"};
  ParityTally tally;
  CompareEngines(selection, [&](const EnginePair& pair) { tally.Add(pair); });
  EXPECT_GT(tally.plans, 6);
  EXPECT_EQ(tally.share(), 1) << tally.Worst(10);
}

// What is scattered inside a sharding group is reduced between groups as soon as a unit has its sum, beside the backward
// pass and not behind it.
TEST(TermParity, EnginesAgreeWhereShardingGroupsReduceBetweenThem) {
  ParitySelection selection;
  selection.models = {"llama2-7b"};
  selection.topologies = {"aws-p4d", "dgx-h100"};
  selection.frameworks = {"fsdp", "orrery"};
  selection.situations = {"zero2", "zero3"};
  selection.fixed.tp = 1, selection.fixed.dp_outer = 4;
  ParityTally tally;
  CompareEngines(selection, [&](const EnginePair& pair) {
    tally.Add(pair);
    if (pair.where.find("dgx-h100, fsdp, zero2") == std::string::npos) return;
    for (const Breakdown* each : {&pair.closed, &pair.event})
      EXPECT_GT(each->data_hidden, each->data) << pair.where;
  });
  EXPECT_GT(tally.plans, 10);
  EXPECT_EQ(tally.share(), 1) << tally.Worst(10);
}

// Casts, scales and products in 8 and 4 bits: priced ops of the lowered plan in both engines.
TEST(TermParity, EnginesAgreeInLowPrecision) {
  ParityTally tally;
  for (const auto& [recipe, topology] : Sample<std::pair<Fp8, const char*>>(
           {{Fp8::kDelayed, "dgx-h100"}, {Fp8::kNvfp4, "dgx-b200"}}, {{Fp8::kCurrent, "dgx-h100"},
                                                                      {Fp8::kBlockwise, "dgx-h100"},
                                                                      {Fp8::kMxfp8, "dgx-b200"}})) {
    ParitySelection selection;
    selection.models = {"llama2-7b"};
    selection.topologies = {topology};
    selection.frameworks = {"megatron", "orrery", "fsdp"};
    selection.situations = {"zero1", "zero3"};
    selection.fp8 = recipe;
    const int before = tally.plans;
    CompareEngines(selection, [&](const EnginePair& pair) {
      tally.Add({std::string(NameIn(kFp8Names, recipe)) + ": " + pair.where, pair.closed,
                 pair.event, pair.closed_seconds, pair.event_seconds});
    });
    EXPECT_GT(tally.plans, before + 10) << NameIn(kFp8Names, recipe);
  }
  EXPECT_LT(tally.worst_sum, 1e-9);
  EXPECT_GE(tally.share(), kFastShare) << tally.Worst(10);
}

// Whatever a framework offers, of models from one layer of 20 weights to 1 T parameters. Honest share: the rest is outside.
TEST(TermParitySlow, EnginesAgreeOnRandomJobs) {
  // Measured: 0.974, two other seeds 0.970 and 0.980; may only rise. Of 400 jobs, as this drew once, the share of a seed varies by
  // 1.5 points, and a framework more draws all anew.
  constexpr double kRandomShare = 0.968;
  constexpr double kEffort = 2e6;  // of a simulation: 0.3 s
  const uint64_t jobs = FromEnvironment("ORRERY_RANDOM_JOBS", 1200);
  ParityTally tally;
  CompareRandom(FromEnvironment("ORRERY_MUTATION_SEED", 1), 0, jobs, kEffort,
                [&](const EnginePair& pair) { tally.Add(pair); });
  EXPECT_GT(tally.plans, static_cast<int>(jobs * 9 / 10));
  EXPECT_LT(tally.worst_sum, 1e-6);
  EXPECT_GE(tally.share(), kRandomShare) << tally.Worst(20);
  std::cout << tally.within << " of " << tally.plans << " random jobs within the bounds\n";
}

// Two racks of 16 trays: groups inside a rack are on its switch, others on NICs, in both engines.
TEST(TermParity, EnginesAgreeWhereScaleUpDomainsSpanNodes) {
  ParitySelection selection;
  selection.models = {"llama2-70b"};
  selection.topologies = {"nvl72-gb200"};
  selection.frameworks = {"megatron", "fsdp"};
  selection.situations = {"zero1", "zero3"};
  selection.nodes = 32;
  ParityTally tally;
  CompareEngines(selection, [&](const EnginePair& pair) { tally.Add(pair); });
  EXPECT_GE(tally.plans, 8);
  // Of the best layouts some are interleaved and as fast as their transfers, where the closed form is 3 to 5 % off.
  EXPECT_GE(tally.share(), 0.5) << tally.Worst(10);
  for (const auto& [apart, where] : tally.outside) EXPECT_LT(apart, 0.05) << where;
}

}  // namespace
}  // namespace orrery
