// SPDX-License-Identifier: Apache-2.0
// What a search promises beyond its ranking: determinism, explanations, remedies, clear refusals.
#include "model/twin/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>

#include "model/arch/catalogue.h"
#include "model/arch/parameters.h"
#include "model/hardware/catalog.h"
#include "model/plan/ir/verify.h"
#include "model/twin/runner.h"

namespace orrery {
namespace {

SearchRequest Request(const char* model, const char* topology, int64_t nodes,
                      int64_t global_batch) {
  SearchRequest request;
  const LoadedModel loaded = LoadModel(model);
  request.model = loaded.spec;
  request.topology = LoadTopology(topology);
  request.nodes = {nodes};
  request.work.seq_len = loaded.defaults.seq_len.value_or(512);
  request.work.global_batch = global_batch;
  request.threads = 2;
  return request;
}

void ExpectSame(const SearchResult& a, const SearchResult& b) {
  ASSERT_EQ(a.ranked.size(), b.ranked.size());
  for (std::size_t i = 0; i < a.ranked.size(); ++i) {
    EXPECT_EQ(DescribeLayout(a.ranked[i].strategy), DescribeLayout(b.ranked[i].strategy));
    EXPECT_EQ(a.ranked[i].time.total, b.ranked[i].time.total);
    EXPECT_EQ(a.ranked[i].memory->total, b.ranked[i].memory->total);
  }
  EXPECT_EQ(a.counts.space, b.counts.space);
  EXPECT_EQ(a.counts.illegal, b.counts.illegal);
  EXPECT_EQ(a.counts.bounded, b.counts.bounded);
  EXPECT_EQ(a.counts.evaluated, b.counts.evaluated);
  EXPECT_EQ(a.counts.over_memory, b.counts.over_memory);
  ASSERT_EQ(a.rejections.size(), b.rejections.size());
  for (std::size_t i = 0; i < a.rejections.size(); ++i) {
    EXPECT_EQ(a.rejections[i].reason, b.rejections[i].reason);
    EXPECT_EQ(a.rejections[i].strategies, b.rejections[i].strategies);
    EXPECT_EQ(a.rejections[i].example, b.rejections[i].example);
  }
}

TEST(Search, IsTheSameWithAnyNumberOfThreads) {
  SearchRequest request = Request("sc21-7.5b", "selene", 8, 256);
  request.threads = 1;
  const SearchResult one = Search(request);
  request.threads = 3;
  ExpectSame(one, Search(request));
}

TEST(Search, EveryStrategyIsAccountedFor) {
  const SearchResult result = Search(Request("sc21-3.6b", "selene", 4, 512));
  const SearchCounts& c = result.counts;
  EXPECT_TRUE(result.complete);
  EXPECT_LE(c.illegal + c.bounded + c.evaluated, c.space);
  EXPECT_LE(c.space, c.illegal + c.bounded + c.evaluated + c.over_memory);
}

TEST(Search, RankedPlansFitVerifyAndCarryConsistentFigures) {
  const SearchRequest request = Request("gpt2-xl", "aws-p4d", 2, 128);
  const SearchResult result = Search(request);
  ASSERT_EQ(result.ranked.size(), 5u);
  const Profiles profiles = LoadProfiles(request);
  for (const Candidate& c : result.ranked) {
    ASSERT_TRUE(c.memory.has_value());
    EXPECT_TRUE(c.memory->fits) << c.memory->summary;
    EXPECT_LE(c.memory_bound, c.memory->total);
    EXPECT_TRUE(ir::Verify(*c.plan).empty()) << DescribeLayout(c.strategy);
    EXPECT_NEAR(c.tokens_per_second * c.time.total,
                128.0 * static_cast<double>(request.work.seq_len), 1);
    const double flops = ModelFlopsPerSequence(request.model, request.work.seq_len, 0).value * 128;
    EXPECT_NEAR(c.mfu, flops / c.time.total / 16 / profiles.gpu.Peak(Precision::kBf16).value,
                1e-12);
    ASSERT_TRUE(c.price_per_step.has_value());
    EXPECT_NEAR(c.price_per_step->value,
                c.time.total / 3600 * 2 * request.topology.node_price->value, 1e-12);
    EXPECT_NEAR(c.price_per_billion_tokens->value * c.tokens_per_second * c.time.total / 1e9,
                c.price_per_step->value, 1e-9);
    EXPECT_GE(c.time.total, result.ranked.front().time.total);
  }
}

TEST(Search, ComparisonTermsAddUpToTheDifference) {
  const SearchResult result = Search(Request("sc21-7.5b", "selene", 8, 256));
  ASSERT_FALSE(result.comparisons.empty());
  for (const Comparison& comparison : result.comparisons) {
    double sum = 0;
    for (const TermDifference& term : comparison.terms) sum += term.seconds;
    EXPECT_NEAR(sum, comparison.other.time.total - result.ranked.front().time.total, 1e-9);
    EXPECT_GE(sum, 0);
  }
}

TEST(Search, MoreOfAResourceNeverHurts) {
  const SearchResult result = Search(Request("bert-1.5b", "aws-dl1", 4, 12288));
  ASSERT_FALSE(result.limits.empty());
  for (const Limit& limit : result.limits) EXPECT_GE(limit.gain, 0) << limit.resource;
  EXPECT_GE(result.limits.front().gain, result.limits.back().gain);
}

// Small models under ZeRO 3 wait for the hooks of their modules: the lever is that, and the answer names its constant.
TEST(Search, ALimitNamesTheConstantBehindIt) {
  SearchRequest request = Request("gpt2-xl", "aws-p4d", 4, 512);
  request.framework = "deepspeed";
  request.work.precision = Precision::kBf16;
  request.fixed.zero = 3;
  request.fixed.dp_outer = 1;  // MiCS gathers inside nodes
  request.fixed.micro_batch = 4;
  request.fixed.recompute = Recompute::kNone;
  const SearchResult result = Search(request);
  ASSERT_TRUE(result.feasible());
  const Candidate& winner = result.ranked.front();
  ASSERT_GT(winner.time.host, 0.2 * winner.time.total);
  for (const char* resource : {"host", "latency"}) {
    const auto limit = std::ranges::find(result.limits, resource, &Limit::resource);
    ASSERT_NE(limit, result.limits.end()) << resource;
    EXPECT_GT(limit->gain, 0.01) << limit->words;
    EXPECT_NE(limit->words.find(resource[0] == 'h' ? "(host_module)" : "(gather_latency)"),
              std::string::npos)
        << limit->words;
  }
  for (const Limit& limit : result.limits) EXPECT_GE(limit.gain, 0.005) << limit.words;
}

TEST(Search, OneChoiceOfDegreesAndMicroBatchRanksItsVariants) {
  SearchRequest request = Request("gpt2-xl", "aws-p4d", 2, 128);
  request.fixed.tp = 1, request.fixed.pp = 1, request.fixed.micro_batch = 2;
  request.top = 10;
  for (const int refine : {0, 3}) {
    request.refine = refine;
    const SearchResult result = Search(request);
    ASSERT_EQ(result.ranked.size(), 10u);
    std::set<std::string> layouts;
    for (const Candidate& c : result.ranked) {
      EXPECT_EQ(c.strategy.micro_batch, 2);
      layouts.insert(DescribeLayout(c.strategy, c.micro_batches));
    }
    EXPECT_EQ(layouts.size(), 10u);
  }
}

// A shorter step on more nodes is no other answer where the objective is the same.
TEST(Search, TiesCompareTheObjectiveAcrossNodeCounts) {
  SearchRequest request = Request("gpt2-medium", "aws-p4d", 1, 512);
  request.nodes = {1, 2};
  request.objective = Objective::kTokensPerDollar;
  request.top = 20;
  const SearchResult result = Search(request);
  const Candidate& first = result.ranked.front();
  const double dearest = 1.1 * first.price_per_billion_tokens->value;
  int others = 0;
  for (const Candidate& c : result.ranked) {
    if (c.nodes == first.nodes || c.price_per_billion_tokens->value > dearest) continue;
    ++others;
    EXPECT_TRUE(c.tie_with_first) << DescribeLayout(c.strategy);
    // The steps themselves are far apart.
    EXPECT_TRUE(c.time.low > first.time.high || first.time.low > c.time.high);
  }
  EXPECT_GT(others, 0);
}

TEST(Search, NearlyFullPlansRankBelowAndTheMarginHasItsPrice) {
  SearchRequest request = Request("gpt2-xl", "aws-p4d", 2, 128);
  request.top = 1;
  const Candidate free = Search(request).ranked.at(0);
  request.memory_limit = Bytes(free.memory->total.value * 1.01);  // the best one fills 99 %
  request.top = 200;
  const SearchResult result = Search(request);
  ASSERT_TRUE(result.nearly_full.has_value());
  EXPECT_TRUE(result.nearly_full->memory->nearly_full);
  EXPECT_TRUE(result.nearly_full->memory->fits);
  EXPECT_LT(result.nearly_full->time.total, result.ranked[0].time.total);
  EXPECT_DOUBLE_EQ(result.nearly_full->time.total, free.time.total);
  bool below = false;
  for (const Candidate& c : result.ranked) {
    EXPECT_TRUE(c.memory->nearly_full || !below) << DescribeLayout(c.strategy);
    below = c.memory->nearly_full;
  }
  EXPECT_FALSE(result.ranked[0].memory->nearly_full);
}

TEST(Search, TensorParallelGroupsStayInsideNodes) {
  SearchRequest request = Request("gpt3-175b", "selene", 512, 2048);
  request.work.seq_len = 2048;
  request.work.precision = Precision::kFp16;
  request.work.optimizer = Optimizer::kAdam;
  request.framework = "megatron";
  request.fixed.schedule = PipelineSchedule::k1F1B;
  request.fixed.zero = 1;
  for (const int refine : {0, 3}) {  // both engines
    request.refine = refine;
    const SearchResult result = Search(request);
    EXPECT_EQ(result.ranked.at(0).simulated.has_value(), refine > 0);
    EXPECT_LE(result.ranked.at(0).strategy.tp, 8);
  }
}

TEST(Search, NearMissesAreFasterAndDoNotFit) {
  // Of the second one, a layout that does not fit does so above the margin once its layers have moved.
  std::size_t misses = 0;
  for (const SearchRequest& request :
       {Request("sc21-18.4b", "selene", 4, 64), Request("llama2-13b", "dgx-h100", 5, 480)}) {
    const SearchResult result = Search(request);
    ASSERT_TRUE(result.feasible());
    misses += result.near_misses.size();
    for (const Candidate& miss : result.near_misses) {
      EXPECT_LT(miss.time.total, result.ranked.front().time.total);
      EXPECT_FALSE(miss.memory->fits);
      EXPECT_NE(miss.memory->summary.find("out of memory on stage"), std::string::npos)
          << miss.memory->summary;
    }
  }
  EXPECT_GT(misses, 0u);
}

TEST(Search, WhenNothingFitsRemediesAreProved) {
  SearchRequest request = Request("llama2-70b", "aws-p4d", 1, 16);
  const SearchResult result = Search(request);
  EXPECT_FALSE(result.feasible());
  ASSERT_TRUE(result.closest.has_value());
  EXPECT_FALSE(result.closest->memory->fits);
  ASSERT_FALSE(result.remedies.empty());
  for (const Remedy& remedy : result.remedies) {
    EXPECT_TRUE(remedy.candidate.memory->fits) << remedy.change;
    EXPECT_NE(remedy.flag, "");
  }
  EXPECT_EQ(result.remedies.front().flag.substr(0, 7), "--nodes") << result.remedies.front().flag;
}

// States that the host holds are no GPU's, and the answer says how many bytes; what is offered depends on the framework.
// Only the best of what does not fit is shown: layers move between the stages of what may be among it, and the answer is that of
// moving all.
TEST(Search, WhereNothingFitsFewLayoutsAreMoved) {
  SearchRequest request = Request("sc21-76.1b", "selene", 2, 96);
  request.framework = "megatron";
  const Profiles profiles = LoadProfiles(request);
  Runner some(request, profiles), all(request, profiles);
  for (Runner* runner : {&some, &all}) {
    runner->Run();
    runner->MoveLayers(5);
    ASSERT_FALSE(runner->Next());
  }
  const int64_t before = some.counts().shares.moved;
  constexpr std::size_t kShown = 3;
  some.MoveUnfit(kShown);
  all.MoveUnfit(0);
  EXPECT_LT(some.counts().shares.priced, all.counts().shares.priced / 2);
  EXPECT_LE(before, some.counts().shares.moved);
  const auto same = [](const Candidate& a, const Candidate& b) {
    EXPECT_EQ(DescribeLayout(a.strategy), DescribeLayout(b.strategy));
    EXPECT_EQ(a.time.total, b.time.total);
  };
  const auto fastest = some.BestOf(&SplitResult::unlimited);
  const auto of_all = all.BestOf(&SplitResult::unlimited);
  ASSERT_TRUE(fastest && of_all);
  same(some.Complete(*fastest, false), all.Complete(*of_all, false));
  constexpr double kAny = std::numeric_limits<double>::infinity();
  const auto near = some.NearMisses(kAny, kShown), all_near = all.NearMisses(kAny, kShown);
  ASSERT_EQ(near.size(), all_near.size());
  for (std::size_t i = 0; i < near.size(); ++i) same(near[i], all_near[i]);
}

TEST(Search, WhatTheHostCanHoldIsARemedy) {
  SearchRequest request = Request("llama2-70b", "aws-p4d", 1, 16);
  const auto offload = [&](const char* framework) {
    request.framework = framework;
    const SearchResult result = Search(request);
    EXPECT_FALSE(result.feasible()) << framework;
    const auto found = std::ranges::find_if(
        result.remedies, [](const Remedy& remedy) { return remedy.flag.starts_with("--offload"); });
    return found == result.remedies.end() ? Remedy() : *found;
  };
  const Remedy remedy = offload("orrery");
  EXPECT_EQ(remedy.flag, "--offload optimizer");
  EXPECT_NE(remedy.change.find(" GiB of each GPU's"), std::string::npos) << remedy.change;
  EXPECT_GT(remedy.candidate.strategy.offload.optimizer, 0);
  EXPECT_TRUE(remedy.candidate.memory->fits);
  EXPECT_EQ(offload("nanotron").flag, "");
}

TEST(Search, AFixedAxisThatDoesNotFitCanBeFreed) {
  SearchRequest request = Request("gpt2-xl", "aws-p4d", 1, 512);
  request.fixed.micro_batch = 64;
  request.fixed.recompute = Recompute::kNone;
  request.fixed.zero = 0;
  request.fixed.tp = 1;
  request.fixed.pp = 1;
  const SearchResult result = Search(request);
  EXPECT_FALSE(result.feasible());
  ASSERT_FALSE(result.remedies.empty());
  EXPECT_EQ(result.remedies.front().flag.substr(0, 13), "--micro-batch");
}

TEST(Search, ABatchThatNothingDividesIsMovedToTheNearest) {
  SearchRequest request = Request("gpt2-medium", "aws-p4d", 2, 13);
  request.framework = "ddp";
  const SearchResult result = Search(request);
  EXPECT_FALSE(result.feasible());
  ASSERT_FALSE(result.remedies.empty());
  EXPECT_EQ(result.remedies.front().flag, "--global-batch 16");
}

TEST(Search, ObjectivesDifferWhereTheyShould) {
  SearchRequest request = Request("gpt2-medium", "aws-p4d", 1, 64);
  request.nodes = {1, 2, 4};
  const SearchResult fastest = Search(request);
  request.objective = Objective::kTokensPerDollar;
  const SearchResult thrifty = Search(request);
  EXPECT_LE(thrifty.ranked.front().price_per_billion_tokens->value,
            fastest.ranked.front().price_per_billion_tokens->value);
  EXPECT_GE(fastest.ranked.front().tokens_per_second, thrifty.ranked.front().tokens_per_second);
  EXPECT_LT(thrifty.ranked.front().nodes, fastest.ranked.front().nodes);
}

TEST(Search, ARangeOfBatchesIsRankedByTimePerToken) {
  SearchRequest request = Request("gpt2-medium", "aws-p4d", 2, 64);
  request.global_batches = {16, 64, 256};
  const SearchResult result = Search(request);
  EXPECT_EQ(result.ranked.front().global_batch, 256);
  for (std::size_t i = 1; i < result.ranked.size(); ++i) {
    EXPECT_LE(result.ranked[i].tokens_per_second,
              result.ranked[i - 1].tokens_per_second * (1 + 1e-12));
  }
}

TEST(Search, FixedAxesHold) {
  SearchRequest request = Request("gpt2-medium", "aws-p4d", 2, 64);
  request.fixed.tp = 2;
  request.fixed.zero = 3;
  request.fixed.recompute = Recompute::kFull;
  for (const Candidate& c : Search(request).ranked) {
    EXPECT_EQ(c.strategy.tp, 2);
    EXPECT_TRUE(c.strategy.zero == 3 || c.strategy.dp == 1);
    EXPECT_EQ(c.strategy.recompute, Recompute::kFull);
  }
}

TEST(Search, ContradictionsAreInputErrors) {
  SearchRequest request = Request("gpt2-medium", "aws-p4d", 1, 64);
  request.fixed.tp = 3;
  EXPECT_THROW(Search(request), InputError);
  request.fixed.tp = 2;
  request.framework = "ddp";
  EXPECT_THROW(Search(request), InputError);
  request = Request("gpt2-medium", "selene", 1, 64);
  request.objective = Objective::kCost;
  EXPECT_THROW(Search(request), InputError);
  request = Request("gpt2-medium", "dgx1-v100", 1, 64);  // no bf16
  EXPECT_THROW(Search(request), InputError);
  request = Request("gpt2-medium", "aws-p4d", 0, 64);
  EXPECT_THROW(Search(request), InputError);
}

TEST(Search, PredictAgreesWithTheRanking) {
  const SearchRequest request = Request("gpt2-medium", "aws-p4d", 1, 64);
  const SearchResult result = Search(request);
  const Candidate& first = result.ranked.front();
  const Profiles profiles = LoadProfiles(request);
  const auto assessed = Predict(JobOf(request, profiles), first.strategy, Engine::kClosed);
  EXPECT_EQ(std::get<Prediction>(assessed).time.total, first.time.total);
  EXPECT_EQ(std::get<Prediction>(assessed).memory->total, first.memory->total);
  Strategy wrong = first.strategy;
  wrong.dp *= 2;
  EXPECT_TRUE(std::holds_alternative<Refusal>(Predict(JobOf(request, profiles), wrong)));
}

// A stage that a layout with one data-parallel rank does not have is no answer to --zero 3, unless that rank is asked for,
// too: ZeRO of one rank runs.
TEST(Search, WhatIsFixedHoldsInEveryRow) {
  SearchRequest request;
  request.model = LoadModel("gpt2-xl").spec;
  request.topology = LoadTopology("aws-p4d");
  request.nodes = {1};
  request.work.seq_len = 512;
  request.work.global_batch = 64;
  request.top = 50;
  request.fixed.zero = 3;
  const SearchResult sharded = Search(request);
  ASSERT_TRUE(sharded.feasible());
  for (const Candidate& candidate : sharded.ranked) EXPECT_EQ(candidate.strategy.zero, 3);
  request.fixed = {};
  request.fixed.vpp = 2;
  for (const Candidate& candidate : Search(request).ranked) EXPECT_EQ(candidate.strategy.vpp, 2);
  request.fixed = {};
  request.fixed.zero = 1, request.fixed.dp = 1;
  for (const Candidate& candidate : Search(request).ranked) {
    EXPECT_EQ(candidate.strategy.zero, 1);
    EXPECT_EQ(candidate.strategy.data_parallel(), 1);
  }
}

}  // namespace
}  // namespace orrery
