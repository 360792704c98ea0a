// SPDX-License-Identifier: Apache-2.0
// The fastest layout by branch and bound against the search, and of a range against each of its batches.
#include "model/twin/fastest.h"

#include <gtest/gtest.h>

#include <chrono>

#include "model/arch/catalogue.h"
#include "model/base/parallel.h"
#include "model/hardware/catalog.h"
#include "model/twin/explain.h"

namespace orrery {
namespace {

struct Question {
  const char *model, *topology, *framework;
  int64_t seq_len;
  std::vector<int64_t> nodes, batches;
};

SearchRequest RequestOf(const Question& question) {
  SearchRequest request;
  request.model = LoadModel(question.model).spec;
  request.topology = LoadTopology(question.topology);
  request.work.seq_len = question.seq_len;
  request.work.optimizer = Optimizer::kAdamW;
  request.framework = question.framework;
  request.top = 1;
  request.threads = 1;
  request.shares = false;  // layers move between stages of fewer layouts than those of a search
  return request;
}

TEST(ShapeCache, MakesEachShapeOnceForAllThreads) {
  const ModelSpec model = LoadModel("gpt2-medium").spec;
  Workload work;
  work.seq_len = 512;
  constexpr std::size_t kSizes = 4, kTimes = 16;
  ShapeCache shapes;
  std::vector<const std::variant<MicroBatchOps, Refusal>*> found(kSizes * kTimes);
  EachOnThreads(4, found.size(), [&](std::size_t i) {
    Strategy strategy;
    strategy.micro_batch = 1 + static_cast<int>(i % kSizes);
    found[i] = &shapes.Of(model, work, KeyOf(model, strategy));
  });
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i], found[i % kSizes]);
    EXPECT_TRUE(std::holds_alternative<MicroBatchOps>(*found[i]));
    EXPECT_TRUE(i == 0 || i % kSizes == 0 || found[i] != found[0]);
  }
}

class FastestTest : public testing::TestWithParam<Question> {};

TEST_P(FastestTest, IsTheFirstRowOfTheSearch) {
  const Question& question = GetParam();
  SearchRequest request = RequestOf(question);
  const Profiles profiles = LoadProfiles(request);
  const FastestLayouts fastest(request, profiles);
  ShapeCache shapes;
  const double least = fastest.LeastGpuSeconds(1, &shapes);
  double searched = 0, bounded = 0;
  int found_any = 0;
  const auto now = [] { return std::chrono::steady_clock::now(); };
  for (const int64_t nodes : question.nodes) {
    for (const int64_t batch : question.batches) {
      request.nodes = {nodes};
      request.global_batches = {batch};
      const auto start = now();
      const SearchResult result = SearchOnly(request, profiles);
      const auto middle = now();
      const auto found = fastest.Find(nodes, {batch, batch}, &shapes);
      searched += std::chrono::duration<double>(middle - start).count();
      bounded += std::chrono::duration<double>(now() - middle).count();
      const bool fits = result.feasible() && !result.ranked[0].memory->nearly_full;
      ASSERT_EQ(found.has_value(), fits) << nodes << " nodes, batch " << batch;
      if (!found) continue;
      ++found_any;
      EXPECT_DOUBLE_EQ(found->candidate.time.total, result.ranked[0].time.total)
          << DescribeLayout(found->candidate.strategy) << " / "
          << DescribeLayout(result.ranked[0].strategy);
      const double gpu_seconds = found->candidate.time.total *
                                 static_cast<double>(found->job.cluster.ranks()) /
                                 static_cast<double>(batch);
      EXPECT_LE(least, gpu_seconds * (1 + 1e-12));
    }
  }
  EXPECT_GT(found_any, 0);
  std::printf("%s on %s: %.0f ms searched, %.0f ms bounded\n", question.model, question.topology,
              1e3 * searched, 1e3 * bounded);
}

// Simulated, against the first row of a search that simulates: never faster than it by more than rounding, and hardly slower.
TEST_P(FastestTest, SettlesOnWhatASearchPutsFirst) {
  constexpr double kSlower = 0.003, kRounding = 1e-6;
  int compared = 0;
  SearchRequest request = RequestOf(GetParam());
  request.shares = true;
  request.top = request.refine = 5;
  const Profiles profiles = LoadProfiles(request);
  const FastestLayouts fastest(request, profiles);
  ShapeCache shapes;
  for (const int64_t nodes : GetParam().nodes) {
    if (nodes > 8) continue;
    const int64_t batch = GetParam().batches.front();
    request.nodes = {nodes};
    request.global_batches = {batch};
    auto found = fastest.Find(nodes, {batch, batch}, &shapes);
    if (!found) continue;
    const double closed = found->seconds;
    const double effort = fastest.Settle(&*found, &shapes);
    EXPECT_EQ(effort > 0, found->candidate.simulated.has_value());
    const SearchResult result = Search(request, profiles);
    ASSERT_TRUE(result.feasible());
    const Candidate& first = result.ranked.front();
    if (!found->candidate.simulated || !first.simulated) continue;  // too large
    ++compared;
    const double ratio = found->candidate.time.total / first.time.total;
    EXPECT_GE(ratio, 1 - kRounding) << nodes << " nodes";
    EXPECT_LE(ratio, 1 + kSlower) << nodes
                                  << " nodes: " << DescribeLayout(found->candidate.strategy)
                                  << " / " << DescribeLayout(first.strategy);
    EXPECT_DOUBLE_EQ(found->seconds, found->candidate.time.total / static_cast<double>(batch));
    std::printf("%s, %ld nodes: closed form %.6f, settled %.6f, search %.6f s per sequence\n",
                GetParam().model, static_cast<long>(nodes), closed, found->seconds,
                first.time.total / static_cast<double>(batch));
  }
  std::printf("%d compared\n", compared);
}

// Also where moving layers between stages makes the fastest: what is asked to be below a little more than its time is the same.
TEST_P(FastestTest, IsFoundBelowALimitIfItTakesLess) {
  SearchRequest request = RequestOf(GetParam());
  request.shares = true;
  const Profiles profiles = LoadProfiles(request);
  const FastestLayouts fastest(request, profiles);
  ShapeCache shapes;
  for (const int64_t nodes : GetParam().nodes) {
    const BatchSpan batches{GetParam().batches.front(), GetParam().batches.back() * 3 / 2};
    const auto found = fastest.Find(nodes, batches, &shapes);
    if (!found) continue;
    for (const double ratio : {0.8, 0.97, 1.0, 1.0001, 1.03, 1.3}) {
      const double below = found->seconds * ratio;
      const auto limited = fastest.Find(nodes, batches, &shapes, 0, below);
      if (ratio > 1) {
        ASSERT_TRUE(limited) << nodes << " nodes, " << ratio;
        EXPECT_DOUBLE_EQ(limited->seconds, found->seconds) << nodes << " nodes, " << ratio;
        EXPECT_EQ(DescribeLayout(limited->candidate.strategy),
                  DescribeLayout(found->candidate.strategy));
      } else if (limited) {  // of more moved layers, which Settle() looks at, one may be below it
        EXPECT_GT(ratio, 0.96) << nodes << " nodes, " << ratio;
      }
    }
  }
}

std::string NameOf(const testing::TestParamInfo<Question>& test) {
  std::string name = std::string(test.param.model) + "_" + test.param.topology;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(
    Questions, FastestTest,
    testing::Values(Question{"llama3-8b", "dgx-h100", "megatron", 8192, {3}, {512}},
                    Question{"gpt2-xl", "aws-p4d", "deepspeed", 1024, {1, 2, 6}, {96, 512}},
                    Question{"bert-large", "aws-dl1", "orrery", 128, {1, 2}, {4096}}),
    NameOf);
INSTANTIATE_TEST_SUITE_P(
    QuestionsSlow, FastestTest,
    testing::Values(
        Question{"llama3-8b", "dgx-h100", "megatron", 8192, {1, 2, 3, 8, 32, 96}, {512, 1536}},
        Question{"llama3-70b", "aws-p5", "megatron", 8192, {2, 3, 4, 24, 128}, {1536}},
        Question{"llama2-7b", "mosaic-a100-40", "fsdp", 4096, {1, 4, 12}, {768}},
        Question{"gpt3-175b", "dgx-b200", "megatron", 2048, {1, 16, 48}, {1536}}),
    NameOf);

// What refuses degrees without a look is no more than any of their strategies needs.
TEST(LeastMemory, IsBelowThatOfEveryStrategy) {
  int known = 0;
  for (const Question& question : {Question{"gpt2-xl", "aws-p4d", "megatron", 1024, {2}, {32}},
                                   Question{"gpt2-xl", "aws-p4d", "deepspeed", 1024, {2}, {32}},
                                   Question{"gpt2-medium", "aws-p4d", "orrery", 512, {1}, {16}},
                                   Question{"llama2-7b", "aws-p4d", "fsdp", 2048, {1}, {16}},
                                   Question{"t5-small", "aws-p4d", "orrery", 512, {1}, {16}}}) {
    SearchRequest request = RequestOf(question);
    request.memory_limit = Bytes(1e9);  // all states are no small part of it
    const Profiles profiles = LoadProfiles(request);
    const Job job = JobOf(request, profiles, question.nodes[0], question.batches[0]);
    const MemoryLimits limits = LimitsOf(job);
    const FrameworkPreset& preset = FindFramework(request.framework);
    MemoryModel memory(request.model, request.work, limits.allocation);
    Evaluator evaluator(request, preset, limits, job, memory);
    const Space space(request, preset);
    EvaluateOptions options;
    options.prune = false;
    for (const Split& degrees : space.Degrees(job.cluster.ranks(), job.cluster.domain_gpus())) {
      const double least = evaluator.LeastMemory(degrees);
      known += least > 0;
      for (const Split& split : space.Splits(degrees, question.batches[0])) {
        if (split.micro_batch > 2) break;
        const SplitResult result = evaluator.Run(split, 0, options);
        if (!result.smallest) continue;
        const Strategy& smallest = result.smallest->strategy;
        const double needs =
            limits.Total(Bytes(result.smallest->allocated), Communicators(smallest)).value;
        EXPECT_LE(least, needs * (1 + 1e-9))
            << question.model << " " << DescribeLayout(smallest, split.micro_batches);
      }
    }
  }
  EXPECT_GT(known, 30);
}

struct Range {
  const char *model, *topology, *framework;
  int64_t seq_len, nodes;
  BatchSpan batches;
  double memory;  // GB of a GPU; 0: its own
};

class EveryBatch : public testing::TestWithParam<Range> {};

// Every integer of the range on its own, with all its micro-batches, is no faster per sequence than the range as one.
TEST_P(EveryBatch, OfARangeIsNoFasterThanTheOneChosen) {
  const Range& range = GetParam();
  SearchRequest request =
      RequestOf({range.model, range.topology, range.framework, range.seq_len, {}, {}});
  if (range.memory > 0) request.memory_limit = Bytes(range.memory * 1e9);
  const Profiles profiles = LoadProfiles(request);
  const FastestLayouts fastest(request, profiles);
  ShapeCache shapes;
  const auto chosen = fastest.Find(range.nodes, range.batches, &shapes);
  ASSERT_TRUE(chosen);
  EXPECT_GE(chosen->candidate.global_batch, range.batches.least);
  EXPECT_LE(chosen->candidate.global_batch, range.batches.most);
  EXPECT_DOUBLE_EQ(chosen->seconds, chosen->candidate.time.total /
                                        static_cast<double>(chosen->candidate.global_batch));
  int batches = 0;
  double best = 1e300;
  int64_t at = 0;
  for (int64_t batch = range.batches.least; batch <= range.batches.most; ++batch) {
    const auto found = fastest.Find(range.nodes, {batch, batch}, &shapes);
    if (!found) continue;
    ++batches;
    if (found->seconds < best) best = found->seconds, at = batch;
  }
  EXPECT_GT(batches, 1);
  EXPECT_LE(chosen->seconds, best * (1 + 1e-12))
      << "batch " << at << " against " << chosen->candidate.global_batch << ", "
      << DescribeLayout(chosen->candidate.strategy, chosen->candidate.micro_batches);
  std::printf("%s on %ld nodes: best of %d batches %ld, chosen %ld: %s\n", range.model,
              static_cast<long>(range.nodes), batches, static_cast<long>(at),
              static_cast<long>(chosen->candidate.global_batch),
              DescribeLayout(chosen->candidate.strategy, chosen->candidate.micro_batches).c_str());
}

const auto kNameOfRange = [](const auto& test) { return "range" + std::to_string(test.index); };
INSTANTIATE_TEST_SUITE_P(
    Ranges, EveryBatch,
    testing::Values(Range{"gpt2-xl", "aws-p4d", "megatron", 1024, 1, {24, 96}, 0},
                    Range{"gpt2-xl", "aws-p4d", "deepspeed", 1024, 3, {24, 96}, 0},
                    Range{"gpt2-xl", "aws-p4d", "megatron", 1024, 2, {16, 64}, 8}),
    kNameOfRange);
INSTANTIATE_TEST_SUITE_P(
    RangesSlow, EveryBatch,
    testing::Values(Range{"gpt2-xl", "aws-p4d", "megatron", 1024, 6, {24, 96}, 0},
                    Range{"llama2-7b", "mosaic-a100-40", "fsdp", 4096, 4, {33, 130}, 0},
                    Range{"llama3-8b", "dgx-h100", "megatron", 8192, 3, {25, 100}, 0},
                    Range{"llama3-8b", "dgx-h100", "megatron", 8192, 8, {25, 100}, 24},
                    Range{"llama3-70b", "aws-p5", "megatron", 8192, 4, {9, 37}, 0},
                    Range{"gpt3-175b", "dgx-h100", "megatron", 2048, 16, {9, 37}, 0}),
    kNameOfRange);

}  // namespace
}  // namespace orrery
