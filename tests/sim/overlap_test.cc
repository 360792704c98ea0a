// SPDX-License-Identifier: Apache-2.0
// Reductions and gathers of a whole step beside compute: what software hides costs the same in the
// closed form and in the simulation, on healthy links and on degraded ones.
#include "model/plan/lower/overlap.h"

#include "model/hardware/faults.h"
#include "tests/sim/setting.h"

namespace orrery::sim {
namespace {

class Overlapped : public SimTest {
 protected:
  Overlapped() {
    model_.layers = 24, model_.vocab = 2048, model_.max_positions = 1024;
    framework_.bucket_parameters = 1e12;  // all at once
  }

  // The simulated step over the closed form's, with network links between nodes at `share`.
  double Ratio(const Strategy& strategy, double share = 1) {
    UseRanks(strategy.ranks());
    if (share < 1) DegradeLinks(MatchLinks(cluster_, "*nic* <-> *"), share, &cluster_);
    const double simulated = Simulate(Build(strategy)).seconds;
    // All that the closed form sends between nodes here is sent by the data axis.
    const FrameworkProfile healthy = framework_;
    framework_.data_nic_use *= share;
    const double closed = ClosedForm(strategy).total;
    framework_ = healthy;
    return simulated / closed;
  }
};

Strategy Sharded() {
  Strategy strategy;
  strategy.dp = 16, strategy.micro_batch = 4, strategy.zero = 1;
  strategy.overlap_grad_reduce = false;
  return strategy;
}

TEST_F(Overlapped, OneRuleTellsStrategiesAndTheirPlansApart) {
  for (const int zero : {0, 1, 2, 3}) {
    for (const int pp : {1, 2}) {
      for (const bool in_backward : {false, true}) {
        Strategy strategy;
        strategy.tp = 2, strategy.pp = pp, strategy.dp = 4, strategy.zero = zero;
        strategy.reduce_in_backward = in_backward && zero < 2;
        for (const Optimizer optimizer : {Optimizer::kSgd, Optimizer::kAdam, Optimizer::kLamb}) {
          work_.optimizer = optimizer;
          EXPECT_EQ(HoldsWholeReplicas(Build(strategy)), HoldsWholeReplicas(strategy))
              << "zero " << zero << " pp " << pp << " optimizer " << static_cast<int>(optimizer);
        }
      }
    }
  }
}

// Software that hides reductions of replicas alone: a pipeline told by hand to overlap hides nothing.
TEST_F(Overlapped, AnOverlapForcedOnAPipelineHidesNothingInEitherEngine) {
  framework_.data_exposed = 1, framework_.data_exposed_replicas = 0.25,
  framework_.data_nic_use = 0.2;
  work_.global_batch = 256;
  for (const bool in_backward : {false, true}) {
    Strategy pipeline = Layout(1, 2, 16, 2);
    pipeline.overlap_grad_reduce = true, pipeline.reduce_in_backward = in_backward;
    EXPECT_NEAR(Ratio(pipeline), 1, 0.03) << in_backward;
    EXPECT_GT(ClosedForm(pipeline).data, 0.1 * ClosedForm(pipeline).total);
  }
}

// A plan that lists reductions behind the passes, on a stream of their own: each waits for its gradients alone.
TEST_F(Overlapped, WholeGradientsAreReducedAsSoonAsTheyAreThereWhereverThePlanListsThem) {
  framework_.data_exposed = 0.3, framework_.data_nic_use = 0.2;
  work_.global_batch = 256;
  for (const int pp : {1, 2}) {
    Strategy replicas = Layout(1, pp, 16 / pp, 2);
    replicas.overlap_grad_reduce = true, replicas.reduce_in_backward = false;
    EXPECT_NEAR(Ratio(replicas), 1, 0.01) << pp;
    Strategy awaited = replicas;
    awaited.overlap_grad_reduce = false;
    EXPECT_LT(ClosedForm(replicas).data, 0.6 * ClosedForm(awaited).data) << pp;
  }
}

// The constants of gathers are those of layers inside a pass.
TEST_F(Overlapped, WeightsOfAWholeStepAreGatheredWithTheConstantsOfTheirReduction) {
  framework_.data_nic_use = 0.3, framework_.gather_nic_use = 0.05,
  framework_.gather_latency = Seconds(0.01);
  for (const bool overlapped : {false, true}) {
    Strategy sharded = Sharded();
    sharded.overlap_param_gather = overlapped;
    EXPECT_NEAR(Ratio(sharded), 1, 0.02) << overlapped;
    const double before = Simulate(sharded).seconds;
    framework_.gather_nic_use = 1;
    EXPECT_EQ(Simulate(sharded).seconds, before);
  }
}

TEST_F(Overlapped, GathersForTheNextStepShowWhereTheLinkNoLongerHidesThem) {
  framework_.data_exposed = 0.1;
  const Strategy sharded = Sharded();
  Strategy awaited = sharded;
  awaited.overlap_param_gather = false;
  double hidden_before = 1e300;
  for (const double share : {1.0, 0.5, 0.2, 0.1, 0.05, 0.02}) {
    EXPECT_NEAR(Ratio(sharded, share), 1, 0.02) << share;
    UseRanks(16);
    DegradeLinks(MatchLinks(cluster_, "*nic* <-> *"), share, &cluster_);
    const double gained = Simulate(Build(awaited)).seconds - Simulate(Build(sharded)).seconds;
    EXPECT_GT(gained, 0);
    if (share < 0.1) {
      EXPECT_NEAR(gained, hidden_before, 0.1 * hidden_before) << share;
    }
    hidden_before = gained;
  }
}

// One slow NIC holds up the ring of all.
TEST_F(Overlapped, OneDegradedNicIsEnough) {
  framework_.data_exposed = 0.1;
  UseRanks(16);
  const ir::Plan plan = Build(Sharded());
  const double healthy = Simulate(plan).seconds;
  double before = healthy;
  for (const double share : {0.5, 0.1, 0.02}) {
    UseRanks(16);
    DegradeLinks(MatchLinks(cluster_, "n0.nic0 <-> *"), share, &cluster_);
    const double degraded = Simulate(plan).seconds;
    EXPECT_GT(degraded, before) << share;
    before = degraded;
  }
  EXPECT_GT(before, 2 * healthy);
}

}  // namespace
}  // namespace orrery::sim
