// SPDX-License-Identifier: Apache-2.0
// The fluid backend by hand-made cases and by its invariants on random traffic.
#include "model/engine/network/fluid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "model/base/diagnostics.h"
#include "tests/network/scenario.h"

namespace orrery::net {
namespace {

Wires Links(std::vector<double> capacity) {
  Scenario scenario;
  scenario.capacity = std::move(capacity);
  return WiresOf(scenario);
}

// Notes when each job ends.
class Ends {
 public:
  explicit Ends(Network* network) : network_(network) {}
  Done Note(int job) {
    return [this, job] { dates_[job] = network_->Now().value; };
  }
  double operator[](int job) const { return dates_.at(job); }

 private:
  Network* network_;
  std::map<int, double> dates_;
};

TEST(Fluid, OneFlowTakesBytesOverItsNarrowestLink) {
  FluidNetwork network(Links({10e9, 2e9, 5e9}));
  Ends ends(&network);
  const std::vector<LinkId> route = {0, 1, 2};
  network.Flow(route, Bytes(1e9), kNoCap, ends.Note(0));
  network.Run();
  EXPECT_DOUBLE_EQ(ends[0], 0.5);
}

TEST(Fluid, TwoFlowsShareAndTheSecondSpeedsUpAlone) {
  FluidNetwork network(Links({1e9}));
  Ends ends(&network);
  const std::vector<LinkId> route = {0};
  network.Flow(route, Bytes(1e9), kNoCap, ends.Note(0));
  network.Flow(route, Bytes(2e9), kNoCap, ends.Note(1));
  network.Run();
  EXPECT_DOUBLE_EQ(ends[0], 2.0);
  EXPECT_DOUBLE_EQ(ends[1], 3.0);
}

TEST(Fluid, ALateFlowSlowsTheFirst) {
  FluidNetwork network(Links({1e9}));
  Ends ends(&network);
  const PathId path = network.AddRoute(std::vector<LinkId>{0}, kNoCap, "flow");
  network.Start(path, Bytes(1e9), ends.Note(0));
  network.After(Seconds(0.5), [&] { network.Start(path, Bytes(1e9), ends.Note(1)); });
  network.Run();
  EXPECT_DOUBLE_EQ(ends[0], 1.5);
  EXPECT_DOUBLE_EQ(ends[1], 2.0);
}

TEST(Fluid, ACapBoundsOneJobAndLeavesTheRest) {
  FluidNetwork network(Links({10e9}));
  Ends ends(&network);
  const std::vector<LinkId> route = {0};
  network.Flow(route, Bytes(1e9), BytesPerSecond(1e9), ends.Note(0));
  network.Flow(route, Bytes(9e9), kNoCap, ends.Note(1));
  network.Run();
  EXPECT_DOUBLE_EQ(ends[0], 1.0);
  EXPECT_DOUBLE_EQ(ends[1], 1.0);
}

TEST(Fluid, AJobThatCrossesALinkThriceUsesItThrice) {
  FluidNetwork network(Links({12e9, 100e9}));
  Ends ends(&network);
  const std::vector<LinkUse> ring = {{0, 3.0}, {1, 1.0}};
  network.Start(network.AddPath(ring, kNoCap, "ring"), Bytes(3e9), ends.Note(0));
  network.Flow(std::vector<LinkId>{0}, Bytes(3e9), kNoCap, ends.Note(1));
  network.Run();
  EXPECT_DOUBLE_EQ(ends[0], 1.0);  // 3 + 1 shares of 12 GB/s
  EXPECT_DOUBLE_EQ(ends[1], 1.0);
}

TEST(Fluid, LinksNamedTwiceAddUp) {
  FluidNetwork network(Links({12e9}));
  const std::vector<LinkUse> twice = {{0, 1.0}, {0, 2.0}}, once = {{0, 3.0}};
  EXPECT_EQ(network.AddPath(twice, kNoCap, "a"), network.AddPath(once, kNoCap, "b"));
  EXPECT_DOUBLE_EQ(network.AloneRate(0).value, 4e9);
}

TEST(Fluid, ZeroBytesEndAtOnce) {
  FluidNetwork network(Links({1e9}));
  Ends ends(&network);
  const std::vector<LinkId> route = {0};
  network.After(Seconds(2), [&] { network.Flow(route, Bytes(0), kNoCap, ends.Note(0)); });
  network.Run();
  EXPECT_EQ(ends[0], 2.0);
}

TEST(Fluid, TimersGoOffInOrderOfTimeThenOfCreation) {
  FluidNetwork network(Links({1e9}));
  std::string order;
  network.After(Seconds(2), [&] { order += 'c'; });
  network.After(Seconds(1), [&] { order += 'a'; });
  network.After(Seconds(1), [&] {
    order += 'b';
    network.After(Seconds(0), [&] { order += '0'; });
  });
  network.Run();
  EXPECT_EQ(order, "ab0c");
  EXPECT_EQ(network.Now().value, 2);
}

TEST(Fluid, AnInstantIsSolvedOnce) {
  FluidNetwork network(Links({1e9}));
  const PathId path = network.AddRoute(std::vector<LinkId>{0}, kNoCap, "flow");
  for (int i = 0; i < 100; ++i) network.Start(path, Bytes(1e6), [] {});
  network.Run();
  EXPECT_EQ(network.solves(), 1);
}

TEST(Fluid, TrafficElsewhereIsNotSolvedAgain) {
  FluidNetwork network(Links({1e9, 1e9}));
  network.Flow(std::vector<LinkId>{0}, Bytes(1e9), kNoCap, [] {});
  for (int i = 0; i < 10; ++i) {
    network.After(Seconds(0.01 * i),
                  [&] { network.Flow(std::vector<LinkId>{1}, Bytes(1e6), kNoCap, [] {}); });
  }
  network.Run();
  EXPECT_EQ(network.solves(), 11);
}

TEST(Fluid, EveryByteArrives) {
  const Scenario scenario =
      RandomScenario({.links = 12, .jobs = 300, .largest_weight = 3, .capped = 0.2}, 5);
  FluidNetwork network(WiresOf(scenario));
  const std::vector<double> ends = Play(scenario, &network);
  std::vector<double> expected(scenario.capacity.size());
  for (std::size_t i = 0; i < ends.size(); ++i) {
    EXPECT_GT(ends[i], scenario.jobs[i].start);
    for (const LinkUse& use : scenario.jobs[i].uses) {
      expected[static_cast<std::size_t>(use.link)] += use.weight * scenario.jobs[i].bytes;
    }
  }
  const std::vector<Bytes> carried = network.Carried();
  for (std::size_t link = 0; link < expected.size(); ++link)
    EXPECT_DOUBLE_EQ(carried[link].value, expected[link]);
}

TEST(Fluid, NoLinkCarriesMoreThanItsCapacity) {
  const Scenario scenario =
      RandomScenario({.links = 10, .jobs = 400, .largest_weight = 4, .capped = 0.3}, 6);
  FluidNetwork network(WiresOf(scenario));
  double fullest = 0;
  for (int tick = 1; tick < 200; ++tick) {
    network.After(Seconds(0.01 * tick), [&] {
      const std::vector<BytesPerSecond> load = network.Load();
      for (std::size_t link = 0; link < load.size(); ++link) {
        fullest = std::max(fullest, load[link].value / scenario.capacity[link]);
      }
    });
  }
  const std::vector<double> ends = Play(scenario, &network);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const double alone =
        network.AloneRate(network.AddPath(scenario.jobs[i].uses, scenario.jobs[i].cap, "job"))
            .value;
    EXPECT_GE(ends[i] - scenario.jobs[i].start, scenario.jobs[i].bytes / alone * (1 - 1e-9));
  }
  EXPECT_GT(fullest, 0.999);
  EXPECT_LE(fullest, 1 + 1e-12);
}

// Max-min: every job is at its cap, or crosses a full link where nobody is faster.
TEST(Fluid, EveryJobHasABottleneck) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const Scenario scenario = RandomScenario(
        {.links = 8, .jobs = 30, .largest_weight = 3, .capped = 0.3, .all_at_once = true}, seed);
    FluidNetwork network(WiresOf(scenario));
    std::vector<PathId> paths;
    for (const ScenarioJob& job : scenario.jobs) {
      paths.push_back(network.AddPath(job.uses, job.cap, "job"));
      network.Start(paths.back(), Bytes(job.bytes), [] {});
    }
    const std::vector<BytesPerSecond> load = network.Load();
    std::vector<double> fastest(scenario.capacity.size());
    for (std::size_t i = 0; i < paths.size(); ++i) {
      for (const LinkUse& use : scenario.jobs[i].uses) {
        double& most = fastest[static_cast<std::size_t>(use.link)];
        most = std::max(most, network.Rate(paths[i]).value);
      }
    }
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const double rate = network.Rate(paths[i]).value;
      bool limited = rate >= scenario.jobs[i].cap.value * (1 - 1e-9);
      for (const LinkUse& use : scenario.jobs[i].uses) {
        const auto link = static_cast<std::size_t>(use.link);
        limited |= load[link].value >= scenario.capacity[link] * (1 - 1e-9) &&
                   rate >= fastest[link] * (1 - 1e-9);
      }
      EXPECT_TRUE(limited) << "seed " << seed << " job " << i;
    }
  }
}

TEST(Fluid, TwiceTheBandwidthHalvesEveryTime) {
  const Scenario scenario =
      RandomScenario({.links = 10, .jobs = 200, .largest_weight = 2, .all_at_once = true}, 8);
  FluidNetwork slow(WiresOf(scenario)), fast(WiresOf(scenario, 2));
  const std::vector<double> before = Play(scenario, &slow), after = Play(scenario, &fast);
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_NEAR(after[i], before[i] / 2, 1e-9 * before[i]);
}

TEST(Fluid, MoreBandwidthOnASharedLinkNeverDelays) {
  double last = 1e300;
  for (const double rate : {1e9, 1.1e9, 2e9, 7e9, 50e9}) {
    Scenario scenario;
    scenario.capacity = {rate, 5e9, 6e9};
    for (int i = 0; i < 20; ++i) {
      scenario.jobs.push_back({{{0, 1.0}, {1 + i % 2, 1.0}}, kNoCap, 0.02 * i, 1e8 * (1 + i % 3)});
    }
    FluidNetwork network(WiresOf(scenario));
    const std::vector<double> ends = Play(scenario, &network);
    const double end = *std::max_element(ends.begin(), ends.end());
    EXPECT_LE(end, last);
    last = end;
  }
}

TEST(Fluid, SameInputSameOutputToTheBit) {
  const Scenario scenario = RandomScenario({.links = 10, .jobs = 300, .capped = 0.2}, 9);
  FluidNetwork first(WiresOf(scenario)), second(WiresOf(scenario));
  EXPECT_EQ(Play(scenario, &first), Play(scenario, &second));
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Fluid, ALinkWithoutBandwidthIsRefusedByName) {
  Wires wires = Links({1e9, 0});
  wires.name = [](LinkId link) { return "cable " + std::to_string(link); };
  FluidNetwork network(wires);
  const std::string message = MessageOf([&] {
    network.AddRoute(std::vector<LinkId>{0, 1}, kNoCap, "send from rank 0 to rank 1");
  });
  EXPECT_NE(message.find("cable 1"), std::string::npos) << message;
  EXPECT_NE(message.find("rank 0 to rank 1"), std::string::npos) << message;
}

TEST(Fluid, AMissingRouteIsRefused) {
  FluidNetwork network(Links({1e9}));
  const std::string message =
      MessageOf([&] { network.AddRoute({}, kNoCap, "send from rank 0 to rank 9"); });
  EXPECT_NE(message.find("send from rank 0 to rank 9: no route"), std::string::npos) << message;
  EXPECT_FALSE(MessageOf([&] { network.AddRoute({}, BytesPerSecond(0), "send"); }).empty());
}

TEST(Fluid, ACapAloneNeedsNoLink) {
  FluidNetwork network(Links({}));
  Ends ends(&network);
  network.Flow({}, Bytes(6e9), BytesPerSecond(2e9), ends.Note(0));
  network.Run();
  EXPECT_DOUBLE_EQ(ends[0], 3.0);
}

}  // namespace
}  // namespace orrery::net
