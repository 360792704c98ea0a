// SPDX-License-Identifier: Apache-2.0
// Compute beside exchanges that slow it down differently, in steps written by hand.
#include <gtest/gtest.h>

#include "model/engine/event/executor.h"
#include "model/engine/event/index.h"

namespace orrery::sim {
namespace {

constexpr double kBytes = 1e9;

struct Beside {
  double seconds = 0;  // of the exchange
  double slowdown = 0;
};

// One rank: a compute task on stream 0, an exchange on each further stream, all from the start.
class OneRank {
 public:
  OneRank(double compute, const std::vector<Beside>& exchanges, bool over_network) {
    plan_.mesh.axes = {{"a", 1}};
    plan_.streams.resize(exchanges.size() + 1);
    tasks_.streams = plan_.streams.size();
    tasks_.stages.resize(1);
    Add({.seconds = compute});
    net::Wires wires;
    wires.capacity.assign(exchanges.size(), BytesPerSecond(kBytes));
    table_.network = net::MakeNetwork(net::Backend::kFluid, wires);
    table_.ranks = {0};
    for (std::size_t i = 0; i < exchanges.size(); ++i) AddExchange(i, exchanges[i], over_network);
  }

  StepResult Run() { return Execute(plan_, tasks_, &table_); }

 private:
  void Add(Task task) {
    StageTasks& stage = tasks_.stages.front();
    stage.on_stream.push_back({static_cast<int32_t>(stage.tasks.size())});
    stage.tasks.push_back(task);
  }

  void AddExchange(std::size_t i, const Beside& beside, bool over_network) {
    const auto number = static_cast<int32_t>(i);
    Add({.line = number, .message = 0, .stream = static_cast<uint8_t>(i + 1)});
    table_.of.push_back({number});
    table_.of.push_back({-1});
    table_.members.push_back(0);
    table_.communicators.push_back({number, 1, number, 1, number, number});
    table_.arrivals = number + 1;
    Route route;
    if (over_network) {
      const LinkId link = static_cast<LinkId>(i);
      route.phases = {{{table_.network->AddRoute({&link, 1}, net::kNoCap, "exchange"), 1.0}}};
    } else {
      route.alone = 1 / kBytes;
    }
    table_.routes.push_back(route);
    table_.exchanges.push_back(
        {.bytes = beside.seconds * kBytes, .route = number, .slowdown = beside.slowdown});
  }

  ir::Plan plan_;
  PlanTasks tasks_;
  CommunicatorTable table_;
};

TEST(Slowdown, AnExchangeTakesItsShareOfTheComputeBesideIt) {
  for (const bool over_network : {false, true}) {
    for (const double compute : {0.5, 1.0, 3.0, 10.0}) {
      for (const double exchange : {0.25, 1.0, 4.0}) {
        for (const double slowdown : {0.0, 0.1, 0.5, 0.9, 1.0}) {
          const double expected =
              (1 - slowdown) * exchange <= compute ? compute + slowdown * exchange : exchange;
          const StepResult result = OneRank(compute, {{exchange, slowdown}}, over_network).Run();
          EXPECT_NEAR(result.seconds, expected, 1e-9)
              << compute << " " << exchange << " " << slowdown;
        }
      }
    }
  }
}

TEST(Slowdown, AFullOneSerialises) {
  const StepResult result = OneRank(2, {{3, 1}}, true).Run();
  EXPECT_NEAR(result.seconds, 5, 1e-9);
  EXPECT_NEAR(result.times[0].overlapped, 3, 1e-9);
  EXPECT_NEAR(result.times[0].compute, 2, 1e-9);
}

TEST(Slowdown, TheLargestOfThoseUnderWayCounts) {
  // 0 to 1: both, rate 0.25; 1 to 3: the second, rate 0.5; then 2.75 - 0.25 - 1 = 1.5 alone.
  EXPECT_NEAR(OneRank(2.75, {{1, 0.75}, {3, 0.5}}, true).Run().seconds, 4.5, 1e-9);
  // 0 to 1 both, the weaker one ends first and changes nothing; standing still until 2.
  EXPECT_NEAR(OneRank(1.5, {{1, 0.5}, {2, 1}}, false).Run().seconds, 3.5, 1e-9);
}

}  // namespace
}  // namespace orrery::sim
