// SPDX-License-Identifier: Apache-2.0
// Ranks that share cores: both engines, with all ranks executed and with replicas merged.
#include "tests/sim/setting.h"

namespace orrery::sim {
namespace {

class SharedCores : public SimTest {
 protected:
  double Shared(const ir::Plan& plan, int64_t cores) {
    cluster_.summary.cores = cores;
    return Simulate(plan).seconds;
  }
};

TEST_F(SharedCores, ComputeOfAllRanksAtOnceTakesTurns) {
  UseRanks(4);
  const ir::Plan plan = Build(Layout(1, 1, 4));
  const StepResult own = Simulate(plan);
  const double compute = own.times[0].compute, rest = own.seconds - compute;
  EXPECT_NEAR(Shared(plan, 4), own.seconds, 1e-9 * own.seconds);
  EXPECT_NEAR(Shared(plan, 8), own.seconds, 1e-9 * own.seconds);
  EXPECT_NEAR(Shared(plan, 2), 2 * compute + rest, 1e-6 * own.seconds);
  EXPECT_NEAR(Shared(plan, 1), 4 * compute + rest, 1e-6 * own.seconds);
}

TEST_F(SharedCores, StagesThatWaitLendTheirCores) {
  UseRanks(2);
  work_.global_batch =
      16;  // one micro-batch: two stages work at the same time in the optimizer only
  const ir::Plan plan = Build(Layout(1, 2, 1, 16));
  const double own = Simulate(plan).seconds;
  EXPECT_NEAR(Shared(plan, 1), own, 0.05 * own);
}

TEST_F(SharedCores, ClosedFormFollows) {
  UseRanks(4);
  const auto closed = [&](const Strategy& strategy) {
    StepPredictor predictor({model_, work_, Setting()});
    return std::get<StepTime>(predictor.Predict(strategy));
  };
  const Strategy strategy = Layout(1, 1, 4);
  const StepTime own = closed(strategy);
  cluster_.summary.cores = 2;
  const StepTime shared = closed(strategy);
  EXPECT_NEAR(shared.total, own.total + own.compute + own.optimizer, 1e-9 * own.total);
  const double played = Simulate(Build(strategy)).seconds;
  EXPECT_NEAR(shared.total / played, 1, 0.02);
}

}  // namespace
}  // namespace orrery::sim
