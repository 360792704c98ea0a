// SPDX-License-Identifier: Apache-2.0
// Jobs that shrink against simulations: goodput, days, their spread and their distribution.
#include "model/provision/elastic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/provision/failure_simulation.h"
#include "model/provision/finish_time.h"

namespace orrery {
namespace {

ElasticModel Elastic(double nodes, double group, double per_1000_node_days, double repair_h,
                     double pause, double step) {
  ElasticModel model;
  model.nodes = nodes, model.group_nodes = group;
  model.node_rate = per_1000_node_days / 1000 / 86400;
  model.repair = Seconds(repair_h * 3600);
  model.pause = Seconds(pause), model.step = Seconds(step);
  return model;
}

TEST(ElasticGoodput, AgreesWithASimulation) {
  std::vector<ElasticModel> models = {
      Elastic(128, 4, 3.8, 24, 60, 10), Elastic(2048, 16, 3.8, 24, 60, 10),
      Elastic(12480, 64, 6.5, 4, 60, 20), Elastic(64, 8, 20, 48, 120, 30)};
  for (const int64_t spares : {1, 3, 8}) {
    models.push_back(Elastic(64, 8, 20, 48, 120, 30));
    models.back().spares = spares;
  }
  models.push_back(Elastic(64, 8, 20, 48, 120, 30));
  models.back().interruptions = 1e-6;  // 86 per 1000 node-days
  models.back().replacement = Seconds(600);
  for (const ElasticModel& model : models) {
    EXPECT_NEAR(SimulatedElasticGoodput(model, 100'000, 5) / ElasticGoodput(model), 1, 0.01)
        << model.nodes << " nodes, " << model.spares << " spares";
  }
}

// A step that shrinks with what is there: nothing fails, nothing is lost.
// Its days and their spread, which the pauses alone would make a tenth of what it is.
TEST(ElasticGoodput, TheTimeOfAJobAgreesWithASimulation) {
  struct Case {
    ElasticModel model;
    double days;
  };
  for (const auto& [model, days] :
       {Case{Elastic(128, 4, 3.8, 24, 60, 10), 60}, Case{Elastic(512, 2, 6.5, 12, 60, 5), 60},
        Case{Elastic(64, 1, 20, 48, 120, 30), 60},
        // Shorter than a repair.
        Case{Elastic(64, 2, 20, 72, 60, 10), 2}, Case{Elastic(128, 1, 20, 24, 60, 10), 1.5}}) {
    const Seconds work(days * 86400);
    const ElasticTime time = ElasticTimeOf(model, work);
    Random random(11);
    constexpr int kJobs = 2000;
    double sum = 0, squares = 0, stops = 0;
    for (int i = 0; i < kJobs; ++i) {
      const SimulatedJob job = SimulateElasticJob(model, work, &random);
      sum += job.time.value, squares += job.time.value * job.time.value;
      stops += static_cast<double>(job.stops);
    }
    const double mean = sum / kJobs;
    EXPECT_NEAR(mean / time.mean.value, 1, 0.005) << model.nodes;
    EXPECT_NEAR(stops / kJobs / time.failures, 1, 0.03) << model.nodes;
    EXPECT_NEAR(std::sqrt(squares / kJobs - mean * mean) / time.deviation.value, 1, 0.1)
        << model.nodes;
  }
}

// Few groups, each of which is much of the job; runs shorter than a repair and much longer.
TEST(ElasticGoodput, TheSpreadOfAJobAgreesWithASimulationOfFewGroups) {
  constexpr int kJobs = 30'000;
  for (const double groups : {2, 3, 4, 8, 32}) {
    for (const double failures : {10, 100, 300}) {  // per 1000 node-days
      for (const double days : {0.2, 0.33, 0.5, 0.8, 1.2, 2.0, 5.0, 30.0}) {
        if (groups * failures / 1000 * days < 0.05) continue;  // too few stops in all jobs
        const ElasticModel model = Elastic(groups, 1, failures, 24, 60, 10);
        const Seconds work(days * 86400);
        Random random(7);
        double sum = 0, squares = 0;
        for (int i = 0; i < kJobs; ++i) {
          const double more = (SimulateElasticJob(model, work, &random).time - work).value;
          sum += more, squares += more * more;
        }
        const double mean = sum / kJobs, spread = std::sqrt(squares / kJobs - mean * mean);
        EXPECT_NEAR(ElasticTimeOf(model, work).deviation.value / spread, 1, 0.12)
            << groups << " groups, " << failures << " failures, " << days << " d";
      }
    }
  }
}

TEST(ElasticGoodput, IsOneWithoutFailures) {
  EXPECT_DOUBLE_EQ(ElasticGoodput(Elastic(128, 4, 0, 24, 60, 10)), 1);
}

// Few groups to many, jobs of a tenth of a repair to thirty of them, none to three spares, with and without interruptions.
ElasticModel DrawElastic(Random* random) {
  const auto between = [&](double low, double high) {
    return low * std::pow(high / low, random->Uniform());
  };
  const double groups = std::floor(between(2, 65)), of = std::floor(between(1, 9));
  ElasticModel model =
      Elastic(groups * of, of, between(2, 100), between(4, 96), between(20, 200), between(1, 40));
  constexpr double kOften = 0.4;  // g r X
  model.repair = std::min(model.repair, Seconds(kOften / (of * model.node_rate)));
  model.spares = static_cast<int64_t>(random->Uniform() * 4);
  if (random->Uniform() > 0.3) return model;
  model.interruptions = between(7, 120) / 1000 / 86400;
  model.replacement = Seconds(between(60, 600));
  return model;
}

struct PlayedJobs {
  std::vector<double> seconds;  // ascending
  double mean = 0, stops = 0;
  double At(double share) const {
    return seconds[static_cast<std::size_t>(share * static_cast<double>(seconds.size()))];
  }
};

PlayedJobs PlayJobs(const ElasticModel& model, Seconds work, int jobs) {
  Random random(5);
  PlayedJobs played;
  for (int i = 0; i < jobs; ++i) {
    const SimulatedJob job = SimulateElasticJob(model, work, &random);
    played.seconds.push_back(job.time.value);
    played.mean += job.time.value / jobs;
    played.stops += static_cast<double>(job.stops) / jobs;
  }
  std::ranges::sort(played.seconds);
  return played;
}

TEST(ElasticTime, AgreesWithASimulationOfRandomSettings) {
  constexpr int kSettings = 200, kJobs = 4000;
  Random random(20261128);
  double largest = 0;
  const auto interval = [&](const ElasticModel& model, const ElasticTime& time,
                            const PlayedJobs& jobs) {  // few stops make it lopsided
    FinishTime finish;
    finish.AddRate(1, LossesOf(model, time));
    for (const double share : {0.1, 0.5, 0.9}) {
      EXPECT_LE(finish.Quantile(share - 0.05).value, jobs.At(share) * 1.04) << share;
      EXPECT_GE(finish.Quantile(share + 0.05).value, jobs.At(share) * 0.96) << share;
    }
  };
  for (int i = 0; i < kSettings; ++i) {
    SCOPED_TRACE(i);
    const ElasticModel model = DrawElastic(&random);
    const Seconds work = model.repair * (0.1 * std::pow(300, random.Uniform()));
    const ElasticTime time = ElasticTimeOf(model, work);
    const PlayedJobs jobs = PlayJobs(model, work, kJobs);
    largest = std::max(largest, std::abs(time.mean.value / jobs.mean - 1));
    EXPECT_NEAR(time.mean.value / jobs.mean, 1, 0.01)
        << i << ": " << model.nodes << " nodes in groups of " << model.group_nodes << ", "
        << model.spares << " spares, " << work / model.repair << " repairs long, "
        << model.group_nodes * model.node_rate * model.repair.value << " away";
    const double stops = time.failures + time.interruptions;
    interval(model, time, jobs);
    EXPECT_NEAR(stops, jobs.stops, 0.03 * stops + 4 * std::sqrt(stops / kJobs)) << i;
  }
  std::printf("%d settings: largest difference %.2f %%\n", kSettings, 100 * largest);
}

// Spares make what a failure costs depend on those before it; all groups away make the job wait a random time. Each is compared
// up to what so many jobs leave to chance.
TEST(ElasticTime, TheSpreadOfRandomSettingsIsThatOfASimulation) {
  constexpr int kSettings = 160, kJobs = 4000;
  constexpr double kMostOff = 0.07, kLongJob = 3;  // repairs
  Random random(1917);
  double largest = 0;
  int compared = 0;
  for (int i = 0; i < kSettings; ++i) {
    const ElasticModel model = DrawElastic(&random);
    const Seconds work = model.repair * (kLongJob * std::pow(10, random.Uniform()));
    const ElasticTime time = ElasticTimeOf(model, work);
    const PlayedJobs jobs = PlayJobs(model, work, kJobs);
    double squares = 0, fourths = 0;
    for (const double seconds : jobs.seconds) {
      const double off = (seconds - jobs.mean) * (seconds - jobs.mean);
      squares += off / kJobs, fourths += off * off / kJobs;
    }
    const double chance = std::sqrt((fourths / (squares * squares) - 1) / kJobs) / 2;
    // Rare stops decide, which no job of these had, or a few.
    if (chance > 0.05 || time.short_of_spares * kJobs < 200) continue;
    ++compared;
    const double ratio = time.deviation.value / std::sqrt(squares);
    largest = std::max(largest, std::abs(ratio - 1));
    EXPECT_NEAR(ratio, 1, kMostOff + 3 * chance)
        << i << ": " << model.Groups() << " groups, " << model.spares << " spares, " << model.Away()
        << " away, " << work / model.repair << " repairs long";
    FinishTime finish;
    finish.AddRate(1, LossesOf(model, time));
    const double played = jobs.At(0.9) - jobs.At(0.1);
    if (time.short_of_spares < 10) continue;  // few: a quantile is one number of them or the next
    EXPECT_NEAR((finish.Quantile(0.9) - finish.Quantile(0.1)).value / played, 1, 0.1) << i;
  }
  EXPECT_GE(compared, 100);
  std::printf("%d settings: largest difference of the spread %.1f %%\n", compared, 100 * largest);
}

// Against a chain that forgets when nodes left, spares make up to 15 % of the spread.
TEST(ElasticTime, TheSpreadWithSparesAndFewGroupsIsThatOfASimulation) {
  constexpr int kJobs = 40'000;
  for (const double groups : {2, 3, 4}) {
    for (const int64_t spares : {1, 2}) {
      for (const double away : {0.1, 0.4}) {
        ElasticModel model = Elastic(groups, 1, away * 1000, 24, 0, 0);
        model.spares = spares;
        const Seconds work(16 * 86400);
        const PlayedJobs jobs = PlayJobs(model, work, kJobs);
        double squares = 0;
        for (const double seconds : jobs.seconds)
          squares += (seconds - jobs.mean) * (seconds - jobs.mean) / kJobs;
        EXPECT_NEAR(ElasticTimeOf(model, work).deviation.value / std::sqrt(squares), 1, 0.04)
            << groups << " groups, " << spares << " spares, " << away << " away";
      }
    }
  }
}

// What a failure costs that finds none of many spares is no more than its repair; where none is ever expected it is nothing.
TEST(ElasticTime, SparesThatNeverRunOutCostNoSpread) {
  for (const int64_t spares : {2, 6, 10, 14, 16, 24, 60}) {
    ElasticModel model = Elastic(32, 2, 3.8, 24, 60, 10);
    model.spares = spares;
    const StopLosses losses = LossesOf(model, ElasticTimeOf(model, Seconds(9 * 86400.0)));
    EXPECT_LE(losses.wait.value, 86400) << spares;
    EXPECT_LE(losses.wait_deviation.value, 86400) << spares;
    if (spares > 10) EXPECT_EQ(losses.waiting, 0) << spares;
  }
}

// Few nodes are left, and the first come back while others still fail.
TEST(ElasticTime, IsNearASimulationUpToWhereAllGroupsHaveFailed) {
  constexpr int kSettings = 100, kJobs = 2000;
  Random random(1918);
  double largest = 0;
  for (int i = 0; i < kSettings; ++i) {
    ElasticModel model = DrawElastic(&random);
    model.repair = Seconds((0.4 + 0.6 * random.Uniform()) / (model.group_nodes * model.node_rate));
    ASSERT_LE(model.Away(), kMostAway * (1 + 1e-12));
    const Seconds work = model.repair * (0.1 * std::pow(100, random.Uniform()));
    const PlayedJobs jobs = PlayJobs(model, work, kJobs);
    const double ratio = ElasticTimeOf(model, work).mean.value / jobs.mean;
    largest = std::max(largest, std::abs(ratio - 1));
    EXPECT_NEAR(ratio, 1, 0.03) << i << ": " << model.Groups() << " groups, " << model.spares
                                << " spares, " << model.Away() << " away, " << work / model.repair;
  }
  std::printf("%d settings: largest difference %.2f %%\n", kSettings, 100 * largest);
}

// The states are lost where no replica is left.
TEST(ElasticTime, AllGroupsAreAwayAsOftenAsInASimulation) {
  for (const double groups : {2, 3}) {
    for (const int64_t spares : {0, 1}) {
      ElasticModel model = Elastic(groups, 1, 300, 24, 0, 0);
      model.spares = spares;
      Random random(3);
      constexpr int kJobs = 400;
      const Seconds work(300 * 86400);
      double times = 0, seconds = 0;
      for (int i = 0; i < kJobs; ++i) {
        const SimulatedJob job = SimulateElasticJob(model, work, &random);
        times += static_cast<double>(job.all_away), seconds += job.time.value;
      }
      EXPECT_NEAR(AllAwayRate(model) / (times / seconds), 1, 0.03 + 3 / std::sqrt(times)) << groups;
    }
  }
}

}  // namespace
}  // namespace orrery
