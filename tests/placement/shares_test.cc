// SPDX-License-Identifier: Apache-2.0
// Stages on different GPUs: whose memory counts, how many layers each gets, and what the search makes of it.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

#include "model/plan/lower/balance.h"
#include "model/twin/explain.h"
#include "model/twin/fastest.h"
#include "model/twin/other_nodes.h"
#include "model/twin/runner.h"
#include "tests/placement/clusters.h"

namespace orrery::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr const char* kSmallV100 = "[{nodes: \"2..3\", gpu: v100-sxm2-16gb}]";
constexpr const char* kFasterNodes = "[{nodes: \"0..1\", gpu: h100-sxm5-80gb}]";
constexpr const char* kThreeKinds =
    "[{nodes: \"1\", gpu: v100-sxm2-32gb}, {nodes: \"2\", slower: 1.3}, "
    "{nodes: \"3\", gpu: v100-sxm2-16gb}]";

// A search on four nodes, of which some have other GPUs.
struct MixedSearch {
  MixedSearch(const std::string& others, int gpus, int64_t layers, int64_t global_batch,
              const char* model = "gpt2-medium") {
    request.model = LoadModel(model).spec;
    request.model.layers = layers;
    request.work.seq_len = 512;
    request.work.global_batch = global_batch;
    request.work.precision = Precision::kFp16;
    request.topology = SmallCluster(4, gpus, "kind: single-switch", others);
    request.top = 1;
    PriceOtherNodes(request.model, request.work, true, request.framework, &request.topology);
    profiles = LoadProfiles(request);
  }
  Job job() const { return JobOf(request, profiles); }
  void Fix(int pp, int vpp, PipelineSchedule schedule) {
    request.fixed = {};
    request.fixed.tp = 1, request.fixed.pp = pp, request.fixed.vpp = vpp;
    request.fixed.schedule = schedule;
    request.fixed.micro_batch = 1, request.fixed.zero = 0;
    request.fixed.recompute = Recompute::kNone;
  }

  SearchRequest request;
  Profiles profiles;
};

// Every way to share `layers` out over `stages`, of which each gets at least `least`.
std::vector<std::vector<int64_t>> AllShares(int64_t layers, std::size_t stages, int64_t least) {
  std::vector<std::vector<int64_t>> all;
  std::vector<int64_t> one;
  const std::function<void(int64_t)> next = [&](int64_t left) {
    if (one.size() + 1 == stages) {
      if (left < least) return;
      all.push_back(one);
      all.back().push_back(left);
      return;
    }
    for (int64_t held = least; held <= left; ++held) {
      one.push_back(held);
      next(left - held);
      one.pop_back();
    }
  };
  next(layers);
  return all;
}

TEST(Shares, BalanceWithinLimitsEqualsBruteForce) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int without = 0;
  for (int round = 0; round < 400; ++round) {
    const std::size_t stages = 2 + static_cast<std::size_t>(below(3));
    const int64_t layers = static_cast<int64_t>(stages) + below(12);
    const double embedding = 0.1 * below(20), head = 0.1 * below(30);
    std::vector<double> slowdown;
    std::vector<int64_t> most;
    for (std::size_t s = 0; s < stages; ++s) {
      slowdown.push_back(0.3 + 0.1 * below(40));
      most.push_back(1 + below(static_cast<int>(layers)));
    }
    const auto slowest = [&](const std::vector<int64_t>& held) {
      double time = 0;
      for (std::size_t s = 0; s < stages; ++s)
        time =
            std::max(time, slowdown[s] * (static_cast<double>(held[s]) + (s == 0 ? embedding : 0) +
                                          (s + 1 == stages ? head : 0)));
      return time;
    };
    double best = std::numeric_limits<double>::infinity();
    for (const std::vector<int64_t>& held : AllShares(layers, stages, 0)) {
      bool allowed = true;
      for (std::size_t s = 0; s < stages; ++s) {
        const bool end = s == 0 || s + 1 == stages;
        allowed = allowed && held[s] <= most[s] && held[s] >= (end ? 0 : 1);
      }
      if (allowed) best = std::min(best, slowest(held));
    }
    const std::vector<int64_t> held =
        BalancedStages(layers, static_cast<int>(stages), 1, embedding, head, slowdown, most);
    if (held.empty()) {
      EXPECT_EQ(best, std::numeric_limits<double>::infinity());
      ++without;
    } else {
      EXPECT_NEAR(slowest(held), best, 1e-9 * best);
    }
  }
  EXPECT_LT(without, 200);
}

TEST(Shares, EachStageIsComparedWithTheMemoryOfItsOwnGpus) {
  const MixedSearch mixed(kSmallV100, 1, 24, 64);
  const Job job = mixed.job();
  const MemoryLimits limits = LimitsOf(job, Layout(1, 4, 1));
  ASSERT_THAT(limits.of_stages, SizeIs(4));
  EXPECT_EQ(limits.of_stages[1].capacity, mixed.profiles.gpu.Capacity());
  EXPECT_LT(limits.of_stages[2].capacity, mixed.profiles.gpu.Capacity() * 0.25);
  // A stage of GPUs of both kinds has what the smaller ones have; one kind alone is the limit of all.
  Strategy three = Placed(Layout(1, 2, 2), false, {0, 2, 1, 3});
  EXPECT_THAT(LimitsOf(job, three).of_stages, IsEmpty());
  EXPECT_EQ(LimitsOf(job, three).capacity, limits.of_stages[2].capacity);

  Strategy uneven = Layout(1, 4, 1, 16);
  uneven.layout = std::make_shared<const std::vector<int>>(std::vector<int>{11, 11, 1, 1});
  const auto predicted = Predict(job, uneven);
  const MemoryReport& memory = *std::get<Prediction>(predicted).memory;
  ASSERT_TRUE(memory.mixed);
  double most = 0;
  for (const StageMemory& stage : memory.stages) {
    EXPECT_EQ(stage.capacity, limits.of_stages[static_cast<std::size_t>(stage.stage)].capacity);
    most = std::max(most, stage.total / stage.capacity);
  }
  EXPECT_DOUBLE_EQ(memory.total / memory.capacity, most);
  EXPECT_EQ(memory.fits, most <= 1);
  // Stage 0 alone would not fit on the small GPUs.
  EXPECT_GT(memory.stages[0].total, memory.stages[3].capacity);
  EXPECT_TRUE(memory.fits);
}

TEST(Shares, AMemoryLimitHoldsOnEveryGpuAndNoneHasMoreThanItsOwn) {
  MixedSearch mixed(kSmallV100, 1, 24, 32);
  mixed.request.memory_limit = Bytes(20e9);
  const MemoryLimits limits = LimitsOf(mixed.job(), Layout(1, 4, 1));
  ASSERT_THAT(limits.of_stages, SizeIs(4));
  EXPECT_EQ(limits.of_stages[0].capacity, Bytes(20e9));
  EXPECT_LT(limits.of_stages[3].capacity, Bytes(20e9));
}

// The closed form of the search's first row against every share of the layers that fits.
TEST(Shares, TheSearchEqualsBruteForceOverShares) {
  struct Case {
    const char* others;
    int pp, vpp;
    PipelineSchedule schedule;
    int64_t layers, batch;
  };
  for (const Case& one : {Case{kSmallV100, 2, 1, PipelineSchedule::k1F1B, 24, 32},
                          Case{kSmallV100, 4, 1, PipelineSchedule::k1F1B, 16, 32},
                          Case{kSmallV100, 4, 1, PipelineSchedule::kGpipe, 16, 12},
                          Case{kSmallV100, 4, 1, PipelineSchedule::k1F1B, 16, 4},
                          Case{kThreeKinds, 4, 1, PipelineSchedule::k1F1B, 18, 16},
                          Case{kThreeKinds, 4, 1, PipelineSchedule::kZeroBubble, 14, 16},
                          Case{kFasterNodes, 4, 1, PipelineSchedule::k1F1B, 17, 24},
                          Case{kSmallV100, 2, 2, PipelineSchedule::kZeroBubbleV, 20, 16},
                          Case{kFasterNodes, 4, 2, PipelineSchedule::kZeroBubbleV, 18, 16},
                          Case{kSmallV100, 2, 3, PipelineSchedule::kInterleaved, 24, 16},
                          Case{kThreeKinds, 4, 2, PipelineSchedule::kInterleaved, 20, 16}}) {
    MixedSearch mixed(one.others, 1, one.layers, one.batch);
    mixed.Fix(one.pp, one.vpp, one.schedule);
    const SearchResult result = SearchOnly(mixed.request, mixed.profiles);
    ASSERT_TRUE(result.feasible());
    const Candidate& first = result.ranked[0];
    const Job job = mixed.job();
    StepPredictor predictor(job);
    MemoryModel memory(mixed.request.model, mixed.request.work,
                       AllocationOf(mixed.profiles.framework));
    double fastest = std::numeric_limits<double>::infinity(), equal = fastest;
    std::vector<int> best;
    for (const std::vector<int64_t>& held :
         AllShares(one.layers, static_cast<std::size_t>(one.pp), one.vpp > 1 ? one.vpp - 1 : 0)) {
      Strategy s = first.strategy;
      s.layout = SpreadShares(held, s);
      if (CheckStrategy(mixed.request.model, mixed.request.work, s)) continue;
      const double seconds = std::get<StepTime>(predictor.Predict(s)).total;
      if (seconds < fastest &&
          MemoryBoundOf(job, s, &memory).total <= MemoryBoundOf(job, s, &memory).capacity * 0.9)
        fastest = seconds, best = *s.layout;
    }
    Strategy even = first.strategy;
    even.layout = nullptr;
    equal = std::get<StepTime>(predictor.Predict(even)).total;
    // Chunks of a stage may hold what suits them, which SpreadShares() does not try.
    const double found = first.ClosedForm().total;
    EXPECT_LE(found, fastest * (1 + 1e-9))
        << DescribeLayout(first.strategy) << " / " << LayoutWords(best);
    if (one.vpp == 1) {
      EXPECT_NEAR(found, fastest, 1e-9 * fastest);
    }
    EXPECT_LT(fastest, 0.97 * equal) << DescribeLayout(first.strategy);
    std::printf("pp %d vpp %d: %s: %.4g s, equal shares %.4g s\n", one.pp, one.vpp,
                LayoutWords(best).c_str(), fastest, equal);
  }
}

// Layers leave the stages whose memory they would not fit in.
TEST(Shares, GoWhereThereIsMemory) {
  MixedSearch mixed("[{nodes: \"2..3\", gpu: v100-sxm2-16gb, slower: 0.15}]", 1, 48, 64, "gpt2-xl");
  mixed.request.work.seq_len = 1024;
  mixed.Fix(4, 1, PipelineSchedule::k1F1B);
  mixed.request.fixed.micro_batch = 4;
  const SearchResult result = SearchOnly(mixed.request, mixed.profiles);
  ASSERT_TRUE(result.feasible());
  const Candidate& first = result.ranked[0];
  EXPECT_TRUE(first.memory->fits);
  EXPECT_FALSE(first.memory->nearly_full);
  ASSERT_THAT(first.shares, SizeIs(4));
  // The balance by speed alone does not fit.
  const Job job = mixed.job();
  const StageGpus gpus = StageGpusOf(job, first.strategy);
  StepPredictor predictor(job);
  const auto table = predictor.Table(KeyOf(mixed.request.model, first.strategy));
  Strategy by_speed = first.strategy;
  by_speed.layout =
      LayoutsOf(*std::get<const LayerTable*>(table), 48, by_speed, gpus.Slowest()).balanced;
  ASSERT_TRUE(by_speed.layout);
  const MemoryReport memory =
      ReportMemory(LowerLegal(job, by_speed), LimitsOf(job, by_speed), Communicators(by_speed));
  EXPECT_FALSE(memory.fits && !memory.nearly_full);
  EXPECT_GT(first.shares[0] + first.shares[1], (*by_speed.layout)[0] + (*by_speed.layout)[1]);
}

// `predict --placement search` looks at other orders of nodes, too, as `plan --placement search` does from the first row on.
TEST(Shares, TheSearchIsAsFastAsSharesFoundByPlacement) {
  for (const char* others : {kSmallV100, "[{nodes: \"2..3\", gpu: v100-sxm2-32gb}]"}) {
    for (const bool two_stages : {false, true}) {
      MixedSearch mixed(others, 4, 24, 128);
      mixed.request.refine = 3;
      if (two_stages) mixed.request.fixed.pp = 2;
      const SearchResult result = Search(mixed.request, mixed.profiles);
      ASSERT_TRUE(result.feasible());
      const Candidate& first = result.ranked[0];
      ASSERT_TRUE(first.simulated);
      // What `predict` says of the same flags.
      const auto again = Predict(mixed.job(), first.strategy);
      EXPECT_DOUBLE_EQ(std::get<Prediction>(again).time.total, first.time.total);
      // Equal shares of the same degrees, and with what a search over placements makes of them.
      ASSERT_TRUE(first.equals) << DescribeLayout(first.strategy);
      EXPECT_LT(first.time.total, 0.98 * first.equals->seconds);
      Strategy equal = first.strategy;
      equal.layout = nullptr;
      const PlacementChoice from_equal = ChoosePlacement(mixed.job(), equal);
      const PlacementChoice from_first = ChoosePlacement(mixed.job(), first.strategy);
      EXPECT_LE(from_first.placed.time.total, from_equal.placed.time.total * (1 + 1e-9))
          << DescribeLayout(from_first.strategy) << " / " << DescribeLayout(from_equal.strategy);
      const double others_gain = two_stages ? 0 : 0.02;
      EXPECT_LE(first.time.total, from_equal.placed.time.total * (1 + others_gain))
          << DescribeLayout(first.strategy) << " / " << DescribeLayout(from_equal.strategy);
    }
  }
}

TEST(Shares, APlacementPutsNoStageOnGpusTooSmallForIt) {
  // The first two nodes are slow and large, the others fast and small.
  MixedSearch mixed("[{nodes: \"2..3\", gpu: v100-sxm2-16gb, slower: 0.2}]", 1, 48, 64, "gpt2-xl");
  mixed.request.work.seq_len = 1024;
  const Job job = mixed.job();
  Strategy fitting = Layout(1, 4, 1, 4);
  fitting.layout = std::make_shared<const std::vector<int>>(std::vector<int>{20, 20, 4, 4});
  ASSERT_TRUE(ReportMemory(LowerLegal(job, fitting), LimitsOf(job, fitting), 1).fits);
  const PlacementChoice choice = ChoosePlacement(job, fitting);
  const Strategy& placed = choice.strategy;
  EXPECT_TRUE(ReportMemory(LowerLegal(job, placed), LimitsOf(job, placed), 1).fits)
      << DescribeLayout(placed);
  for (const Strategy& near : choice.found.near)
    EXPECT_TRUE(ReportMemory(LowerLegal(job, near), LimitsOf(job, near), 1).fits)
        << DescribeLayout(near);
  EXPECT_LT(choice.placed.time.total, choice.plain.time.total);
}

// Bounds on GPUs that are faster and slower than the topology's own prune nothing that would win.
TEST(Shares, PruningKeepsTheBest) {
  for (const char* others : {kSmallV100, kFasterNodes, kThreeKinds}) {
    MixedSearch mixed(others, 2, 8, 16);
    Runner pruned(mixed.request, mixed.profiles), whole(mixed.request, mixed.profiles);
    pruned.Run(true);
    whole.Run(false);
    pruned.MoveLayers(1);
    whole.MoveLayers(1);
    const auto a = pruned.Next(), b = whole.Next();
    ASSERT_TRUE(a && b);
    EXPECT_EQ(DescribeLayout(a->strategy), DescribeLayout(b->strategy));
    EXPECT_DOUBLE_EQ(a->time.total, b->time.total);
    EXPECT_LT(pruned.counts().evaluated, whole.counts().evaluated);
  }
}

// As Evaluator::One() has them: seconds of the step, and of memory as a share of the fullest GPU.
TEST(Shares, BoundsHoldOnDifferentGpus) {
  for (const char* others : {kSmallV100, kFasterNodes, kThreeKinds}) {
    MixedSearch mixed(others, 1, 12, 16);
    const Job job = mixed.job();
    const FrameworkPreset& preset = FindFramework("orrery");
    MemoryModel memory(mixed.request.model, mixed.request.work,
                       AllocationOf(mixed.profiles.framework));
    const MemoryLimits limits = LimitsOf(mixed.profiles.gpu, mixed.profiles.framework);
    Evaluator evaluator(mixed.request, preset, limits, job, memory);
    for (const auto& [pp, dp] : {std::pair{1, 4}, {2, 2}, {4, 1}}) {
      for (int schedule = 0; schedule < (pp > 1 ? 5 : 1); ++schedule) {
        for (const int zero : {0, 1, 3}) {  // 3: messages are most of the step
          Strategy s = Layout(1, pp, dp);
          if (dp == 1 && zero > 0) continue;
          s.zero = zero;
          s.schedule = pp > 1 ? static_cast<PipelineSchedule>(schedule) : PipelineSchedule::k1F1B;
          s.vpp = s.schedule == PipelineSchedule::kInterleaved ||
                          s.schedule == PipelineSchedule::kZeroBubbleV
                      ? 2
                      : 1;
          s = preset.Complete(s, mixed.request.work);
          if (CheckStrategy(mixed.request.model, mixed.request.work, s)) continue;
          const Entry entry = std::get<Entry>(evaluator.One(s));
          EXPECT_LE(entry.seconds_bound, entry.seconds) << DescribeLayout(s);
          if (zero == 0) {
            EXPECT_GT(entry.seconds_bound, 0.2 * entry.seconds) << DescribeLayout(s);
          }
          const MemoryReport exact =
              ReportMemory(LowerLegal(job, s), LimitsOf(job, s), Communicators(s));
          const double filled =
              limits.Total(Bytes(entry.allocated), Communicators(s)) / limits.capacity;
          EXPECT_LE(filled, (exact.total / exact.capacity) * (1 + 1e-9)) << DescribeLayout(s);
        }
      }
    }
  }
}

TEST(Shares, TheFastestLayoutOfARunHasThem) {
  MixedSearch mixed(kSmallV100, 4, 24, 128);
  const FastestLayouts fastest(mixed.request, mixed.profiles);
  ShapeCache shapes;
  const auto found = fastest.Find(4, {128, 128}, &shapes);
  ASSERT_TRUE(found);
  const SearchResult result = SearchOnly(mixed.request, mixed.profiles);
  ASSERT_TRUE(result.feasible());
  EXPECT_LE(found->candidate.time.total, 1.02 * result.ranked[0].time.total);
  EXPECT_TRUE(found->candidate.strategy.layout);
}

TEST(Shares, AlikeGpusHaveThoseOfTheLayoutAlone) {
  MixedSearch mixed("[]", 4, 24, 128);
  const SearchResult result = SearchOnly(mixed.request, mixed.profiles);
  ASSERT_TRUE(result.feasible());
  const Candidate& first = result.ranked[0];
  EXPECT_EQ(first.shares.empty(), first.strategy.layout == nullptr)
      << DescribeLayout(first.strategy);
  EXPECT_FALSE(result.ranked[0].memory->mixed);
}

}  // namespace
}  // namespace orrery::testing
