// SPDX-License-Identifier: Apache-2.0
// Two backends, one answer: random flows, capped flows and coupled jobs on both.
#include <gtest/gtest.h>

#include "model/base/diagnostics.h"
#include "tests/network/scenario.h"

namespace orrery::net {
namespace {

class BothBackends : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasSimGrid()) GTEST_SKIP() << "libsimgrid was not found when this was built";
  }

  // Largest relative difference of the dates.
  static double Difference(const Scenario& scenario) {
    const std::vector<double> fluid =
        Play(scenario, MakeNetwork(Backend::kFluid, WiresOf(scenario)).get());
    const std::vector<double> simgrid =
        Play(scenario, MakeNetwork(Backend::kSimGrid, WiresOf(scenario)).get());
    double largest = 0;
    for (std::size_t i = 0; i < fluid.size(); ++i) {
      EXPECT_GT(simgrid[i], 0) << "job " << i << " did not end";
      largest = std::max(largest, std::abs(fluid[i] - simgrid[i]) / simgrid[i]);
    }
    return largest;
  }
};

TEST_F(BothBackends, AgreeOnRandomFlows) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    EXPECT_LE(Difference(RandomScenario({.links = 20, .jobs = 200}, seed)), 1e-6)
        << "seed " << seed;
  }
}

TEST_F(BothBackends, AgreeOnManyFlowsOverFewLinks) {
  EXPECT_LE(Difference(RandomScenario({.links = 6, .jobs = 1'000}, 20)), 1e-6);
}

TEST_F(BothBackends, AgreeOnCappedFlows) {
  for (unsigned seed = 30; seed < 34; ++seed) {
    EXPECT_LE(Difference(RandomScenario({.links = 20, .jobs = 200, .capped = 0.4}, seed)), 1e-6)
        << "seed " << seed;
  }
}

TEST_F(BothBackends, AgreeOnCoupledJobs) {
  for (unsigned seed = 40; seed < 44; ++seed) {
    const ScenarioShape shape{.links = 16, .jobs = 100, .largest_weight = 5, .all_at_once = true};
    EXPECT_LE(Difference(RandomScenario(shape, seed)), 1e-3) << "seed " << seed;
  }
}

TEST_F(BothBackends, CarryTheSameBytes) {
  const Scenario scenario = RandomScenario({.links = 9, .jobs = 60, .largest_weight = 2}, 50);
  const auto carried = [&](Backend backend) {
    const std::unique_ptr<Network> network = MakeNetwork(backend, WiresOf(scenario));
    Play(scenario, network.get());
    return network->Carried();
  };
  const std::vector<Bytes> fluid = carried(Backend::kFluid), simgrid = carried(Backend::kSimGrid);
  for (std::size_t i = 0; i < fluid.size(); ++i) EXPECT_DOUBLE_EQ(fluid[i].value, simgrid[i].value);
}

TEST_F(BothBackends, SimGridRefusesTwoAtOnceAndFractions) {
  const Scenario scenario = RandomScenario({.links = 2, .jobs = 1}, 60);
  const std::unique_ptr<Network> network = MakeNetwork(Backend::kSimGrid, WiresOf(scenario));
  EXPECT_THROW(MakeNetwork(Backend::kSimGrid, WiresOf(scenario)), InputError);
  const std::vector<LinkUse> half = {{0, 0.5}};
  EXPECT_THROW(network->Start(network->AddPath(half, kNoCap, "half"), Bytes(1), [] {}), InputError);
}

TEST_F(BothBackends, SimGridStartsEachRunAtZero) {
  Scenario scenario;
  scenario.capacity = {1e9};
  scenario.jobs.push_back({{{0, 1.0}}, kNoCap, 0.25, 1e9});
  for (int run = 0; run < 20; ++run) {
    const std::unique_ptr<Network> network = MakeNetwork(Backend::kSimGrid, WiresOf(scenario));
    EXPECT_EQ(network->Now().value, 0);
    EXPECT_NEAR(Play(scenario, network.get()).front(), 1.25, 1e-6);
  }
}

TEST(Backends, WithoutSimGridItIsRefusedWithAHint) {
  if (HasSimGrid()) GTEST_SKIP() << "this build has SimGrid";
  EXPECT_THROW(MakeNetwork(Backend::kSimGrid, {}), InputError);
}

}  // namespace
}  // namespace orrery::net
