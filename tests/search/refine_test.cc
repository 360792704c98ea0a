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
          "contention in 3 and 0 s more in 2; contention slows data-parallel communication "
          "by 300 ms in 3, where it shares n0.nic0 -> leaf0 with transfers between stages"));
}

TEST(OrderChanges, WithoutContentionNoneIsNamed) {
  const std::vector<Candidate> ranked = {MadeUp(3, 0.3, 0.2, 0), MadeUp(1, 0.1, 0.3, 0),
                                         MadeUp(2, 0.2, 0.4, 0)};
  const std::vector<std::string> changes = OrderChanges(ranked, 3, 3);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_THAT(changes[0], AllOf(StartsWith("1 was 3 by the closed form: "),
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

TEST(Refine, RanksBySimulatedTimeWhateverTheOrderBefore) {
  const SearchRequest request = SmallRequest(4);
  const Profiles profiles = LoadProfiles(request);
  const Runner runner(request, profiles);
  SearchRequest plain = request;
  plain.refine = 0, plain.top = 4;
  std::vector<Candidate> forward = Search(plain, profiles).ranked;
  ASSERT_EQ(forward.size(), 4u);
  std::vector<Candidate> backward(forward.rbegin(), forward.rend());
  const Refinement refinement = Refine(request, runner, &forward);
  EXPECT_TRUE(refinement.ranked_by_simulation);
  EXPECT_EQ(refinement.simulated, 4);
  for (std::size_t i = 1; i < forward.size(); ++i)
    EXPECT_LE(forward[i - 1].time.total, forward[i].time.total * (1 + 1e-6));
  Refine(request, runner, &backward);
  EXPECT_EQ(Layouts(backward), Layouts(forward));
  // One of the two lists came in another order.
  EXPECT_GT(OrderChanges(forward, 4, 4).size() + OrderChanges(backward, 4, 4).size(), 0u);
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
  request.topology = LoadTopology("aws-g5-1gpu");
  request.model = LoadModel("gpt2-medium").spec;
  request.nodes = {4};
  request.work.global_batch = 32;
  request.fixed.tp = 1, request.fixed.pp = 2, request.fixed.zero = 0;
  request.fixed.micro_batch = 2, request.fixed.schedule = PipelineSchedule::k1F1B;
  const SearchResult result = Search(request);
  ASSERT_TRUE(result.feasible());
  ASSERT_TRUE(result.ranked[0].simulated.has_value());
  bool shared = false;
  for (const sim::SharedLink& link : result.ranked[0].simulated->shared)
    shared |= link.seconds > 0 && !link.link.empty() && !link.shared_with.empty();
  EXPECT_TRUE(shared);
}

TEST(Refine, SkipsWhatIsBeyondTheBudgetAndKeepsTheOrder) {
  SearchRequest request = SmallRequest(0);
  const std::vector<std::string> plain = Layouts(Search(request).ranked);
  request.refine = 4;
  request.refine_ops = 1;
  const SearchResult none = Search(request);
  EXPECT_EQ(none.refinement->simulated, 0);
  ASSERT_EQ(none.refinement->skipped.size(), 4u);
  EXPECT_EQ(none.refinement->skipped[2].rank, 3);
  EXPECT_EQ(Layouts(none.ranked), plain);

  request.refine_ops = none.refinement->skipped[0].ops * 1.5;
  const SearchResult some = Search(request);
  EXPECT_GT(some.refinement->simulated, 0);
  EXPECT_LT(some.refinement->simulated, 4);
  EXPECT_FALSE(some.refinement->ranked_by_simulation);
  EXPECT_THAT(some.refinement->changes, IsEmpty());
  EXPECT_EQ(Layouts(some.ranked), plain);
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
  EXPECT_EQ(one.refinement->simulated, 5);
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
