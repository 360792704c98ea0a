// SPDX-License-Identifier: Apache-2.0
// Jobs that shrink against simulations: goodput, days, their spread and their distribution.
#include "model/provision/elastic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/provision/failure_simulation.h"
#include "model/provision/finish_time.h"
#include "tests/provision/played_jobs.h"

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
  model.spares = static_cast<int64_t>(random->Uniform() * 4);
  if (random->Uniform() > 0.3) return model;
  model.interruptions = between(7, 120) / 1000 / 86400;
  model.replacement = Seconds(between(60, 600));
  return model;
}

PlayedJobs PlayJobs(const ElasticModel& model, Seconds work, int jobs, uint64_t seed = 5) {
  return PlayAll(jobs, seed,
                 [&](Random* random) { return SimulateElasticJob(model, work, random); });
}

// Up to what so many jobs leave to chance, where the distribution leaps between numbers of stops.
void ExpectSameDistribution(const ElasticModel& model, const ElasticTime& time,
                            const PlayedJobs& jobs) {
  constexpr double kOff = 0.01, kShare = 0.03;
  FinishTime finish;
  finish.AddRate(1, LossesOf(model, time));
  for (const double share : {0.1, 0.25, 0.5, 0.75, 0.9}) {
    EXPECT_LE(finish.Quantile(share - kShare).value, jobs.At(share) * (1 + kOff)) << share;
    EXPECT_GE(finish.Quantile(share + kShare).value, jobs.At(share) * (1 - kOff)) << share;
  }
}

// Relative, of the variance of so many jobs: by what they show, by what the formula has of rare failures, and four failures
// more or less where hardly one is expected in all jobs.
double ChanceOf(const ElasticTime& time, const PlayedJobs& jobs) {
  const double square = time.deviation.value * time.deviation.value;
  const double each = (time.absence.value * time.absence.value +
                       time.absence_deviation.value * time.absence_deviation.value) /
                      square;
  const auto count = static_cast<double>(jobs.seconds.size());
  const double played = jobs.fourths / std::pow(jobs.deviation, 4);
  const double expected = 3 + time.short_of_spares * each * each;
  return std::sqrt((std::max(played, expected) - 1) / count) +
         (time.short_of_spares * count < 20 ? each / count : 0);
}

// Mean, stops, spread and distribution of random settings up to that many groups in repair, none of them left out.
void CompareSettings(uint64_t seed, double least_away, double most_away) {
  constexpr int kSettings = 200;
  constexpr double kStops = 3e5;  // of many stops fewer jobs say as much
  constexpr double kMeanOff = 0.003, kSpreadOff = 0.05;
  Random random(seed);
  double largest = 0, spread = 0, all = 0;
  for (int i = 0; i < kSettings; ++i) {
    ElasticModel model = DrawElastic(&random);
    const double away = least_away * std::pow(most_away / least_away, random.Uniform());
    model.repair = Seconds(away / (model.group_nodes * model.node_rate));
    const Seconds work = model.repair * (0.1 * std::pow(300, random.Uniform()));
    SCOPED_TRACE(testing::Message()
                 << i << ": " << model.nodes << " nodes in groups of " << model.group_nodes << ", "
                 << model.spares << " spares, " << work / model.repair << " repairs long, "
                 << model.Away() << " away");
    const ElasticTime time = ElasticTimeOf(model, work);
    const double stops = time.failures + time.interruptions;
    const int count = static_cast<int>(std::clamp(kStops / stops, 300.0, 4000.0));
    const PlayedJobs jobs = PlayJobs(model, work, count, seed + static_cast<uint64_t>(i));
    const double off = time.mean.value / jobs.mean - 1;
    const double chance = time.deviation.value / time.mean.value / std::sqrt(count);
    EXPECT_NEAR(off, 0, kMeanOff + 3.5 * chance);
    EXPECT_NEAR(stops, jobs.stops, 4.5 * std::sqrt(stops / count));
    // Of variances: where no job had a stop so rare theirs may be zero, and no ratio to it is bounded.
    const double ratio = jobs.deviation / time.deviation.value;
    EXPECT_NEAR(ratio * ratio, 1, 2 * kSpreadOff + 4 * ChanceOf(time, jobs));
    ExpectSameDistribution(model, time, jobs);
    largest = std::max(largest, std::abs(off)), all += std::abs(off) / kSettings;
    if (ChanceOf(time, jobs) < 0.04) spread = std::max(spread, std::abs(ratio - 1));
  }
  std::printf("%d settings: mean off by %.2f %%, at most %.2f %%; spread at most %.1f %%\n",
              kSettings, 100 * all, 100 * largest, 100 * spread);
}

TEST(ElasticTime, AgreesWithASimulationOfRandomSettings) { CompareSettings(20261128, 0.005, 0.4); }

// Few nodes are left, and the first come back while others still fail.
TEST(ElasticTime, AgreesWithASimulationUpToWhereAllGroupsHaveFailed) {
  CompareSettings(1918, 0.4, 1);
}

TEST(ElasticTime, AgreesWithASimulationWhereFewGroupsAreEverThere) { CompareSettings(1917, 1, 4); }

// Stops in their thousands are followed in part: beyond, each second of work adds the same.
TEST(ElasticTime, AgreesWithASimulationOfLongJobs) {
  constexpr int kJobs = 1000;
  for (const double groups : {2, 12, 60}) {
    for (const int64_t spares : {0, 2}) {
      for (const double away : {0.1, 0.6, 2.0}) {
        ElasticModel model = Elastic(groups, 1, away * 1000, 24, 60, 10);
        model.spares = spares;
        const Seconds work(1500 / (groups * model.node_rate));
        const ElasticTime time = ElasticTimeOf(model, work);
        const PlayedJobs jobs = PlayJobs(model, work, kJobs);
        EXPECT_NEAR(time.mean.value / jobs.mean, 1, 0.004)
            << groups << " groups, " << spares << " spares, " << away << " away";
        EXPECT_NEAR(time.deviation.value / jobs.deviation, 1, 0.06 + 2 * ChanceOf(time, jobs))
            << groups << " groups, " << spares << " spares, " << away << " away";
      }
    }
  }
}

// The paths know nothing of the product form of the long run, nor that it is the same for fixed and exponential repairs.
TEST(ElasticTime, OfALongJobAddsWhatTheProductFormSays) {
  for (const double groups : {2, 5}) {
    for (const int64_t spares : {0, 1, 3}) {
      for (const double away : {0.3, 1.0, 3.0}) {
        ElasticModel model = Elastic(groups, 1, away * 1000, 24, 0, 0);
        model.spares = spares;
        const Seconds half(240 / (groups * model.node_rate));
        const Seconds added = ElasticTimeOf(model, half * 2).mean - ElasticTimeOf(model, half).mean;
        EXPECT_NEAR(half / added / ElasticGoodput(model), 1, 0.005)
            << groups << " groups, " << spares << " spares, " << away << " away";
      }
    }
  }
}

// One failure at work w of W takes one of G groups for X, or until the end: T = W + min((W - w) / (G - 1), X / G).
TEST(ElasticTime, OfOneFailureIsThatOfAUniformPlaceInTheJob) {
  ElasticModel model = Elastic(4, 1, 1e-3, 24, 0, 0);
  for (const double days : {0.5, 1.0, 3.0}) {
    const double work = days * 86400, repair = model.repair.value;
    const double reach = std::min(work, repair * 3 / 4);  // of work that the repair is long
    const double cost = (reach * reach / 2 / 3 + (work - reach) * repair / 4) / work;
    const ElasticTime time = ElasticTimeOf(model, Seconds(work));
    EXPECT_NEAR(time.absence.value / cost, 1, 0.01) << days;
    const double square =
        (reach * reach * reach / 27 + (work - reach) * repair * repair / 16) / work;
    EXPECT_NEAR(time.deviation.value / std::sqrt(time.failures * square), 1, 0.01) << days;
  }
}

// A chain that forgets when nodes left has up to 15 % too little.
TEST(ElasticTime, TheSpreadWithSparesAndFewGroupsIsThatOfASimulation) {
  constexpr int kJobs = 40'000;
  for (const double groups : {2, 3, 4}) {
    for (const int64_t spares : {1, 2}) {
      for (const double away : {0.1, 0.4}) {
        ElasticModel model = Elastic(groups, 1, away * 1000, 24, 0, 0);
        model.spares = spares;
        const Seconds work(16 * 86400);
        const PlayedJobs jobs = PlayJobs(model, work, kJobs);
        EXPECT_NEAR(ElasticTimeOf(model, work).deviation.value / jobs.deviation, 1, 0.04)
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
    const ElasticTime time = ElasticTimeOf(model, Seconds(9 * 86400.0));
    EXPECT_LE(time.absence.value, 86400) << spares;
    EXPECT_LE(time.absence_deviation.value, 86400) << spares;
    if (spares > 10) {
      EXPECT_EQ(time.short_of_spares, 0) << spares;
    }
  }
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
