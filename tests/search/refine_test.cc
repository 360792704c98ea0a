// SPDX-License-Identifier: Apache-2.0
// Refinement: simulated times rank, order changes have reasons, effort is bounded by counted ops.
#include "model/twin/refine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "model/arch/catalogue.h"
#include "model/hardware/catalog.h"

namespace orrery {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

SearchRequest SmallRequest(int refine) {
  SearchRequest request;
  request.model = LoadModel("gpt2-xl").spec;
  request.topology = LoadTopology("aws-p4d");
  request.nodes = {2};
  request.work.seq_len = 512;
  request.work.global_batch = 128;
  request.threads = 2;
  request.refine = refine;
  return request;
}

std::vector<std::string> Layouts(const std::vector<Candidate>& ranked) {
  std::vector<std::string> layouts;
  for (const Candidate& c : ranked) layouts.push_back(DescribeLayout(c.strategy, c.micro_batches));
  return layouts;
}

// Candidates of one layout each, with terms {compute, data-parallel communication}.
Candidate MadeUp(int closed_rank, double closed_data, double simulated_data, double contention) {
  Candidate candidate;
  candidate.strategy.dp = closed_rank;
  candidate.closed_rank = closed_rank;
  StepTime closed;
  closed.compute = candidate.time.compute = 1;
  closed.data = closed_data;
  candidate.time.data = simulated_data - contention;
  candidate.time.contention = contention;
  closed.total = closed.Total();
  candidate.time.total = candidate.time.Total();
  candidate.closed_form = closed;
  candidate.simulated = SimulatedStep{};
  if (contention > 0) candidate.simulated->shared = {{CommAxis::kData, contention, "", {}}};
  return candidate;
}

TEST(OrderChanges, SwappedNeighboursAndTheLinkThatDecided) {
  std::vector<Candidate> ranked = {MadeUp(1, 0.1, 0.1, 0), MadeUp(3, 0.3, 0.3, 0),
                                   MadeUp(2, 0.2, 0.5, 0.3)};
  sim::SharedLink& slowed = ranked[2].simulated->shared[0];
  slowed.link = "n0.nic0 -> leaf0";
  slowed.shared_with = {CommAxis::kPipeline};
  EXPECT_THAT(
      OrderChanges(ranked, 3, 3),
      ElementsAre(
          "2 and 3 swapped: against the closed form, the simulation sees 300 ms more of "
          "contention in 3 and as much in 2; contention slows data-parallel communication "
          "by 300 ms in 3, where it shares n0.nic0 -> leaf0 with transfers between stages"));
}

TEST(OrderChanges, WithoutContentionNoneIsNamed) {
  const std::vector<Candidate> ranked = {MadeUp(3, 0.3, 0.2, 0), MadeUp(1, 0.1, 0.3, 0),
                                         MadeUp(2, 0.2, 0.4, 0)};
  const std::vector<std::string> changes = OrderChanges(ranked, 3, 3);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_THAT(changes[0], AllOf(StartsWith("1 was 3 in the closed form: "),
                                HasSubstr("100 ms less in 1"), Not(HasSubstr("contention"))));
}

TEST(OrderChanges, SameOrderHasNone) {
  EXPECT_THAT(OrderChanges({MadeUp(1, 0.1, 0.3, 0.1), MadeUp(2, 0.2, 0.4, 0)}, 2, 3), IsEmpty());
}

TEST(OrderChanges, OnesThatAreNotShownGoByTheirLayout) {
  const std::vector<Candidate> ranked = {MadeUp(2, 0.2, 0.2, 0), MadeUp(1, 0.1, 0.3, 0)};
  const std::vector<std::string> changes = OrderChanges(ranked, 1, 3);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_THAT(changes[0], HasSubstr(DescribeLayout(ranked[1].strategy)));
}

// Transfers over one slow NIC per node: contention doubles the step of the best layouts by the closed form.
SearchRequest ContendedRequest() {
  SearchRequest request;
  request.model = LoadModel("gpt2-xl").spec;
  request.topology = LoadTopology("dli-slurm-v100");
  request.framework = "megatron";
  request.nodes = {4};
  request.work.seq_len = 1024;
  request.work.global_batch = 64;
  request.work.precision = Precision::kFp16;
  request.refine = 5;
  return request;
}

// What rows have used up of the effort does not hide what does not fit.
TEST(Refine, NearMissesAreShownWhateverTheRowsLeave) {
  int seen = 0;
  for (const double gigabytes : {8, 10, 12, 16, 20, 24}) {
    SearchRequest request = SmallRequest(5);
    request.memory_limit = Bytes(gigabytes * 1e9);
    const SearchResult whole = Search(request);
    request.refine_ops = 1;
    const SearchResult spent = Search(request);
    if (!whole.feasible()) continue;
    EXPECT_EQ(spent.near_misses.size(), whole.near_misses.size()) << gigabytes;
    EXPECT_EQ(spent.unlimited.has_value(), whole.unlimited.has_value()) << gigabytes;
    for (const Candidate& miss : spent.near_misses) EXPECT_TRUE(miss.settled());
    seen += static_cast<int>(spent.near_misses.size());
  }
  EXPECT_GT(seen, 0);
}

TEST(Refine, SimulatesEverythingThatTheAnswerCompares) {
  const SearchResult result = Search(ContendedRequest());
  ASSERT_TRUE(result.refinement->ranked_by_simulation);
  ASSERT_EQ(result.ranked.size(), 5u);
  const Candidate& winner = result.ranked.front();
  for (std::size_t i = 0; i < result.ranked.size(); ++i) {
    EXPECT_TRUE(result.ranked[i].simulated.has_value());
    const double before = i > 0 ? result.ranked[i - 1].time.total : 0;
    EXPECT_LE(before, result.ranked[i].time.total * (1 + 1e-6));
  }
  ASSERT_FALSE(result.comparisons.empty());
  for (const Comparison& comparison : result.comparisons) {
    EXPECT_TRUE(comparison.other.simulated.has_value());
    EXPECT_GE(comparison.other.time.total, winner.time.total * (1 - 1e-6)) << comparison.words;
    double saved = 0;
    for (const TermDifference& term : comparison.terms) saved += term.seconds;
    EXPECT_NEAR(saved, comparison.other.time.total - winner.time.total,
                1e-9 * comparison.other.time.total);
  }
  for (const Candidate& miss : result.near_misses) {
    EXPECT_TRUE(miss.simulated.has_value());
    EXPECT_LT(miss.time.total, winner.time.total);
  }
  ASSERT_FALSE(result.limits.empty());
  for (const Limit& limit : result.limits)
    EXPECT_NEAR(limit.gain, 1 - limit.step_seconds / winner.time.total, 1e-12) << limit.words;
}

// The closed form's order is not the simulation's: the search must look further than K.
TEST(Refine, NothingThatMayWinIsLeft) {
  SearchRequest request = ContendedRequest();
  request.refine = 20;
  request.refine_ops = 1e9;
  const SearchResult result = Search(request);
  EXPECT_FALSE(result.refinement->open);
  SearchRequest all = request;
  all.variants = true;
  all.top = 400;
  all.refine = 0;
  const Profiles profiles = LoadProfiles(all);
  Runner runner(all, profiles);
  runner.Run();
  CandidateSimulator simulator(request, runner);
  double fastest = 1e9;
  std::vector<Candidate> every = Search(all, profiles).ranked;
  // Whatever wins at the ratio of the engines that the answer itself shows.
  double least = 1;
  for (const Candidate& candidate : result.ranked)
    least = std::min(least, candidate.time.total / candidate.ClosedForm().total);
  std::vector<Candidate*> pointers;
  for (Candidate& candidate : every) {
    if (!candidate.memory->nearly_full &&
        candidate.time.total < 1.06 * result.ranked.front().time.total / least)
      pointers.push_back(&candidate);
  }
  ASSERT_GT(pointers.size(), 3u);
  EXPECT_TRUE(simulator.Simulate(pointers));
  for (const Candidate* candidate : pointers) fastest = std::min(fastest, candidate->time.total);
  EXPECT_LE(result.ranked.front().time.total, fastest * (1 + 1e-6));
}

TEST(Refine, SaysWhenItStoppedBeforeAllThatMayWin) {
  int open = 0;
  for (const int batch :
       {64, 256, 1024, 2048, 4096}) {  // where contention slows the row, others may win
    SearchRequest request = ContendedRequest();
    request.work.global_batch = batch;
    request.top = 1;
    request.refine = 0;
    const SearchResult closed = Search(request);
    const double effort =
        SimulationEffort(*closed.ranked.front().plan, closed.ranked.front().strategy);
    request.refine = 1;
    request.refine_ops = 1e-3 * effort;  // the row is simulated all the same
    const SearchResult result = Search(request);
    // And what does not fit and may be shown: near misses, one nearly full, one without a limit.
    EXPECT_GE(result.refinement->simulated, 1);
    EXPECT_LE(result.refinement->simulated, 1 + 5);
    open += result.refinement->open;
  }
  EXPECT_GT(open, 0);
}

TEST(Refine, TermsAddUpToTheSteps) {
  for (const Candidate& candidate : Search(SmallRequest(4)).ranked) {
    if (!candidate.simulated) continue;
    EXPECT_NEAR(candidate.time.Total(), candidate.time.total, 1e-9 * candidate.time.total);
    EXPECT_NEAR(candidate.ClosedForm().Total(), candidate.ClosedForm().total,
                1e-9 * candidate.time.total);
  }
}

// Stages that send to each other over the NIC that also carries their gradients.
TEST(Refine, SeesTransfersAndReductionOnOneNic) {
  SearchRequest request = SmallRequest(1);
  request.topology = LoadTopology("azure-nd-v2");
  request.model = LoadModel("gpt2-medium").spec;
  request.nodes = {2};
  request.work.global_batch = 32;
  request.work.precision = Precision::kFp16;
  request.fixed.tp = 1, request.fixed.pp = 4, request.fixed.zero = 0;
  request.fixed.micro_batch = 2, request.fixed.schedule = PipelineSchedule::k1F1B;
  const SearchResult result = Search(request);
  ASSERT_TRUE(result.feasible());
  ASSERT_TRUE(result.ranked[0].simulated.has_value());
  bool shared = false;
  for (const sim::SharedLink& link : result.ranked[0].simulated->shared)
    shared |= link.seconds > 0 && !link.link.empty() && !link.shared_with.empty();
  EXPECT_TRUE(shared);
}

TEST(Refine, LayoutsTooLargeKeepTheClosedFormAndTheOthersDoNot) {
  SearchRequest request = SmallRequest(0);
  const Profiles profiles = LoadProfiles(request);
  const SearchResult closed = Search(request, profiles);
  std::vector<double> efforts;
  for (const Candidate& candidate : closed.ranked)
    efforts.push_back(SimulationEffort(*candidate.plan, candidate.strategy));
  std::ranges::sort(efforts);
  ASSERT_LT(efforts[3], efforts[4]);
  request.refine = 5;
  request.most_effort = efforts[3];
  const SearchResult mixed = Search(request, profiles);
  EXPECT_FALSE(mixed.refinement->ranked_by_simulation);
  EXPECT_GE(mixed.refinement->simulated, 4);
  int kept = 0;
  double before = 0;
  for (const Candidate& candidate : mixed.ranked) {
    const bool small = SimulationEffort(*candidate.plan, candidate.strategy) <= request.most_effort;
    EXPECT_EQ(candidate.simulated.has_value(), small);
    EXPECT_EQ(candidate.not_simulated.empty(), small) << candidate.not_simulated;
    EXPECT_LE(before, candidate.time.total * (1 + 1e-6));
    before = candidate.time.total;
    kept += small ? 0 : 1;
    // The rule of Predict() is the search's.
    const auto alone = Predict(JobOf(request, profiles, candidate.nodes, candidate.global_batch),
                               candidate.strategy);
    EXPECT_EQ(std::get<Prediction>(alone).time.total, candidate.time.total);
    EXPECT_EQ(std::get<Prediction>(alone).not_simulated, candidate.not_simulated);
    EXPECT_EQ(std::get<Prediction>(alone).digest, ir::Digest(*candidate.plan));
  }
  EXPECT_GE(kept, 1);
  for (const Comparison& comparison : mixed.comparisons) {
    double saved = 0;
    for (const TermDifference& term : comparison.terms) saved += term.seconds;
    const bool like =
        comparison.other.simulated.has_value() == mixed.ranked[0].simulated.has_value();
    const double expected =
        like ? comparison.other.time.total - mixed.ranked[0].time.total
             : comparison.other.ClosedForm().total - mixed.ranked[0].ClosedForm().total;
    EXPECT_NEAR(saved, expected, 1e-9 * comparison.other.time.total);
  }

  request.most_effort = 0;
  const SearchResult none = Search(request, profiles);
  EXPECT_EQ(none.refinement->simulated, 0);
  EXPECT_THAT(none.refinement->changes, IsEmpty());
  EXPECT_EQ(Layouts(none.ranked), Layouts(closed.ranked));
  for (std::size_t i = 0; i < none.ranked.size(); ++i)
    EXPECT_EQ(none.ranked[i].time.total, closed.ranked[i].time.total);
}

// Two engines compared: their own difference comes on top of that between layouts.
TEST(OrderChanges, ThatRestOnOneSimulatedRowSayWhichIsNot) {
  std::vector<Candidate> ranked = {MadeUp(2, 0.2, 0.2, 0), MadeUp(1, 0.1, 0.3, 0)};
  ranked[0].simulated.reset();
  ranked[0].closed_form.reset();
  EXPECT_THAT(OrderChanges(ranked, 2, 3),
              ElementsAre("1 and 2 swapped: against the closed form, the simulation sees 200 ms "
                          "more of data-parallel communication in 2; 1 is not simulated"));
}

TEST(Refine, IsTheSameWithAnyNumberOfThreads) {
  SearchRequest request = SmallRequest(5);
  request.threads = 1;
  const SearchResult one = Search(request);
  request.threads = 4;
  const SearchResult four = Search(request);
  ASSERT_EQ(one.ranked.size(), four.ranked.size());
  EXPECT_EQ(Layouts(one.ranked), Layouts(four.ranked));
  EXPECT_EQ(one.refinement->changes, four.refinement->changes);
  EXPECT_EQ(one.refinement->disagreement, four.refinement->disagreement);
  for (std::size_t i = 0; i < one.ranked.size(); ++i)
    EXPECT_EQ(one.ranked[i].time.total, four.ranked[i].time.total);
}

TEST(Refine, LooksBehindWhatIsShown) {
  SearchRequest request = SmallRequest(5);
  const std::string best = Layouts(Search(request).ranked).front();
  request.top = 1;
  const SearchResult one = Search(request);
  ASSERT_EQ(one.ranked.size(), 1u);
  EXPECT_EQ(Layouts(one.ranked).front(), best);
  EXPECT_GE(one.refinement->simulated, 5);
}

// Dollars follow the same step time as the ranking.
TEST(Refine, PricesGoByTheSimulatedTime) {
  SearchRequest request = ContendedRequest();
  request.nodes = {2, 4};
  request.objective = Objective::kCost;
  request.node_price = DollarsPerHour(10);
  const SearchResult result = Search(request);
  ASSERT_TRUE(result.refinement->ranked_by_simulation);
  for (std::size_t i = 0; i < result.ranked.size(); ++i) {
    const Candidate& candidate = result.ranked[i];
    const double dollars =
        10.0 / 3600 * static_cast<double>(candidate.nodes) * candidate.time.total;
    EXPECT_NEAR(candidate.price_per_step->value, dollars, 1e-9 * dollars);
    const double before = i > 0 ? result.ranked[i - 1].price_per_step->value : 0;
    EXPECT_LE(before, dollars * (1 + 1e-6));
  }
}

TEST(Refine, NoneLeavesNoTrace) {
  const SearchResult result = Search(SmallRequest(0));
  EXPECT_FALSE(result.refinement.has_value());
  for (const Candidate& candidate : result.ranked) {
    EXPECT_FALSE(candidate.simulated.has_value());
    EXPECT_EQ(candidate.closed_rank, 0);
  }
  for (std::size_t i = 1; i < result.ranked.size(); ++i)
    EXPECT_GE(result.ranked[i].time.total, result.ranked[i - 1].time.total);
}

}  // namespace
}  // namespace orrery
