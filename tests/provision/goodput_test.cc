// SPDX-License-Identifier: Apache-2.0
// Goodput against published vectors, identities and simulations.
#include "model/provision/goodput.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/base/csv.h"
#include "model/provision/failure_simulation.h"
#include "tests/provision/played_jobs.h"

namespace orrery {
namespace {

StopModel Model(double m, double b, double w, double d, double r, double notice = 0) {
  return {Seconds(m), Seconds(b), Seconds(w), Seconds(d), Seconds(r), notice};
}

// Made by an independent prototype in Python, with scipy's Lambert W function for the interval.
TEST(Goodput, EqualsTheVectors) {
  Diagnostics diagnostics;
  const CsvTable table = CsvTable::Parse(
      ReadSource(std::string(ORRERY_SOURCE_DIR) + "/tests/provision/data/goodput_vectors.csv"),
      {"mtbf_s", "goodput_exact"}, &diagnostics);
  diagnostics.ThrowIfAny();
  ASSERT_EQ(table.rows(), 10u);
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const auto cell = [&](const char* name) { return *table.Number(i, name, -1e12, 1e12); };
    // Row 9's interval was found to 2.4e-9: log(1 - y) + y cancels where y is small.
    const auto near = [&](double value, const char* name) {
      EXPECT_NEAR(value / cell(name), 1, 1e-8) << "row " << i + 1 << " " << name;
    };
    const StopModel model = Model(cell("mtbf_s"), cell("blocking_s"), cell("background_s"),
                                  cell("detect_s"), cell("restart_s"));
    near(ExactInterval(model.between, model.blocking).value, "interval_optimal_s");
    near(YoungInterval(model.between, model.blocking).value, "interval_young_s");
    near(DalyInterval(model.between, model.blocking).value, "interval_daly_s");
    near(Goodput(model, Seconds(cell("interval_s"))), "goodput_exact");
    near(FirstOrderGoodput(model, Seconds(cell("interval_s"))), "goodput_first_order");
  }
}

TEST(Goodput, HoldsTheIdentities) {
  const StopModel model = Model(11124, 5, 60, 120, 300);
  const Seconds tau = OptimalInterval(model);
  // Without stops only blocking costs.
  EXPECT_NEAR(Goodput(Model(1e15, 5, 60, 120, 300), Seconds(500)), 500.0 / 505, 1e-9);
  // All times seven times as long change nothing.
  EXPECT_NEAR(Goodput(Model(7 * 11124, 35, 420, 840, 2100), tau * 7), Goodput(model, tau), 1e-12);
  EXPECT_NEAR(Goodput(Model(1000, 0, 0, 0, 0), Seconds(1e-3)), 1, 1e-5);
  for (const StopModel& worse :
       {Model(11124, 6, 60, 120, 300), Model(11124, 5, 70, 120, 300), Model(11124, 5, 60, 130, 300),
        Model(11124, 5, 60, 120, 310), Model(11000, 5, 60, 120, 300)})
    EXPECT_LT(Goodput(worse, tau), Goodput(model, tau));
  EXPECT_GT(Goodput(Model(11124, 5, 60, 120, 300, 0.5), tau), Goodput(model, tau));
}

TEST(Goodput, TheOptimalIntervalBeatsAThousandOthers) {
  for (const StopModel& model :
       {Model(11124, 5, 60, 120, 300), Model(100, 150, 0, 0, 0), Model(1800, 60, 0, 300, 600),
        Model(11124, 5, 600, 120, 300), Model(40000, 20, 60, 120, 300, 0.7)}) {
    const Seconds best = OptimalInterval(model);
    EXPECT_GE((best + model.blocking).value, model.background.value);
    for (int i = 1; i <= 1000; ++i) {
      const Seconds other = best * (i / 200.0);
      if (other + model.blocking < model.background) continue;
      EXPECT_LE(Goodput(model, other), Goodput(model, best) * (1 + 1e-12)) << i;
    }
  }
}

TEST(Goodput, TheIntervalSolvesLambertsEquation) {
  for (const double ratio : {1e-6, 1e-4, 1e-2, 0.1, 0.5, 1.0, 3.0}) {
    const double y = ExactInterval(Seconds(1), Seconds(ratio)).value;
    EXPECT_GT(y, 0);
    EXPECT_LT(y, 1);
    EXPECT_NEAR(std::log1p(-y) + y + ratio, 0, 1e-12 * std::max(1.0, ratio)) << ratio;
  }
}

// Settings drawn over the range of clusters from 8 to 100,000 GPUs.
StopModel DrawModel(Random* random) {
  const auto between = [&](double low, double high) {
    return low * std::pow(high / low, random->Uniform());
  };
  StopModel model = Model(between(900, 1e6), between(1, 150), between(1, 600), between(10, 1200),
                          between(30, 1800));
  if (random->Uniform() < 0.3) model.background = Seconds(0);
  if (random->Uniform() < 0.2) {  // hours on slow storage: behind the steps or ahead of them
    model.between = Seconds(between(1e5, 1e6));
    (model.background > Seconds(0) ? model.background : model.blocking) =
        Seconds(between(600, 2e4));
    model.restart = Seconds(between(600, 2e4));
  }
  if (random->Uniform() < 0.2) {
    model.with_notice = random->Uniform();
  } else if (random->Uniform() < 0.2) {  // not rare ones: their noise would hide what is compared
    model.waits = 0.6 + 0.4 * random->Uniform();
    model.wait = Seconds(between(600, 86400));
  }
  return model;
}

double IntervalOf(const StopModel& model, Random* random) {
  const double best = OptimalInterval(model).value;
  return std::max(model.background.value - model.blocking.value,
                  best * std::pow(10, random->Uniform() - 0.5));
}

void CompareWithSimulation(int settings, int64_t stops) {
  Random random(20261122);
  double largest = 0;
  for (int i = 0; i < settings; ++i) {
    const StopModel model = DrawModel(&random);
    const Seconds interval(IntervalOf(model, &random));
    const double exact = Goodput(model, interval);
    const double simulated = SimulatedGoodput(model, interval, stops, 1000 + i);
    largest = std::max(largest, std::abs(simulated - exact) / exact);
    EXPECT_NEAR(simulated / exact, 1, 0.01)
        << i << ": M " << model.between.value << " b " << model.blocking.value << " w "
        << model.background.value << " D " << model.detection.value << " R " << model.restart.value
        << " notice " << model.with_notice << " tau " << interval.value;
  }
  std::printf("%d settings: largest difference %.2f %%\n", settings, 100 * largest);
}

TEST(Goodput, AgreesWithASimulation) { CompareWithSimulation(200, 100'000); }

// Event by event, on a code path of its own; many finite jobs.
PlayedJobs PlayJobs(const StopModel& model, Seconds interval, Seconds work, int jobs,
                    uint64_t seed) {
  return PlayAll(jobs, seed,
                 [&](Random* random) { return SimulateJob(model, interval, work, random); });
}

void CompareJobs(const StopModel& model, double work, int runs) {
  const Seconds interval = OptimalInterval(model);
  const PlayedJobs jobs = PlayJobs(model, interval, Seconds(work), runs, 7);
  const JobTime expected = TimeOf(model, interval, Seconds(work));
  EXPECT_NEAR(jobs.mean / expected.mean.value, 1, 0.01);
  EXPECT_NEAR(jobs.deviation / expected.deviation.value, 1, 0.15);
}

TEST(Goodput, AFiniteJobTakesAsLongAsPlayed) {
  CompareJobs(Model(11124, 5, 60, 120, 300), 30 * 86400.0, 400);
  CompareJobs(Model(403200, 40, 0, 600, 1200), 90 * 86400.0, 1500);
  CompareJobs(Model(1800, 5, 60, 60, 180), 10 * 86400.0, 300);
  CompareJobs(Model(20000, 10, 60, 900, 300, 1.0), 20 * 86400.0, 400);
  StopModel waiting = Model(40000, 5, 6, 120, 480, 0.6);
  waiting.waits = 0.25;
  waiting.wait = Seconds(43200);
  CompareJobs(waiting, 60 * 86400.0, 1500);
  CompareJobs(Model(43.9 * 86400, 5, 60, 86520, 480), 22.5 * 86400.0, 2000);  // rare, long waits
}

// Of any goodput from 5 to 99 %, from a part of one interval to hundreds, from no stop in most runs to many.
TEST(Goodput, ARunVariesAsMuchAsPlayed) {
  constexpr int kSettings = 200, kRuns = 4000;
  Random random(17);
  double largest = 0, least = 1, most = 0;
  for (int i = 0; i < kSettings;) {
    StopModel model = DrawModel(&random);
    if (random.Uniform() <
        0.5) {  // hard times: stops within a few writes, restarts or days of repair
      const double longest = std::max({model.blocking, model.background, model.restart}).value;
      model.between = Seconds(longest * std::pow(10, 2 * random.Uniform() - 0.5));
    }
    const Seconds interval(IntervalOf(model, &random));
    const double goodput = Goodput(model, interval);
    if (goodput < 0.05 || goodput > 0.99) continue;
    const Seconds work = interval * std::pow(300, random.Uniform() * 1.2 - 0.2);
    const JobTime expected = TimeOf(model, interval, work);
    // A few jobs in all that stop say nothing of how much they vary.
    if (expected.stops < 0.1 || expected.stops > 1000) continue;
    const PlayedJobs jobs = PlayJobs(model, interval, work, kRuns, 1000 + i);
    const double ratio = expected.deviation.value / jobs.deviation;
    EXPECT_NEAR(ratio, 1, 0.05 + 4 * jobs.Chance())
        << i << ": M " << model.between.value << " b " << model.blocking.value << " w "
        << model.background.value << " D " << model.detection.value << " R " << model.restart.value
        << " notice " << model.with_notice << " waits " << model.waits << " X " << model.wait.value
        << " tau " << interval.value << " work " << work.value << " goodput " << goodput
        << " stops " << expected.stops << " mean " << expected.mean.value / jobs.mean;
    largest = std::max(largest, std::abs(ratio - 1));
    least = std::min(least, goodput), most = std::max(most, goodput);
    ++i;
  }
  std::printf("%d settings of goodput %.2f to %.2f: largest difference of the deviation %.1f %%\n",
              kSettings, least, most, 100 * largest);
}

// Waits one by one: each failure takes a node for one repair, the job waits for the first to be back, time without detection.
double SimulatedWaitVariation(double mean_in_repair, int64_t spares) {
  constexpr int kFailures = 2'000'000;
  const double part =
      40.0 *
      static_cast<double>(spares + 1);  // of the time without waits, in mean times between failures
  std::vector<double> failed(static_cast<std::size_t>(spares), -1e18);
  Random random(5);
  double now = 0, up = 0, waited = 0, sum = 0, squares = 0;
  int64_t waits = 0, parts = 0;
  std::size_t oldest = 0;
  for (int i = 0; i < kFailures; ++i) {
    const double life = random.Exponential(1);
    now += life, up += life;
    for (; up > part; up -= part, ++parts) sum += waited, squares += waited * waited, waited = 0;
    const double wait = std::max(0.0, failed[oldest] + mean_in_repair - now);
    failed[oldest] = now;
    oldest = (oldest + 1) % failed.size();
    now += wait, waited += wait, waits += wait > 0;
  }
  const double count = static_cast<double>(parts), mean = sum / count;
  const double each = mean_in_repair / static_cast<double>(spares + 1);
  return (squares / count - mean * mean) / (static_cast<double>(waits) / count * each * each) - 1;
}

TEST(Goodput, BunchesOfWaitsVaryAsSimulated) {
  double largest = 0;
  for (const int64_t spares : {1, 2, 5, 9, 16, 32}) {
    for (const double load : {0.5, 0.7, 0.9, 1.2, 2.0, 6.0}) {
      const double in_repair = load * static_cast<double>(spares + 1);
      const double share = FindsNone(in_repair, spares);
      if (share < 2e-3) continue;
      const double expected = SimulatedWaitVariation(in_repair, spares);
      const double off = std::sqrt((1 + WaitVariation(in_repair, spares)) / (1 + expected)) - 1;
      EXPECT_NEAR(off, 0, 0.06) << spares << " spares, " << in_repair << " in repair";
      largest = std::max(largest, std::abs(off));
    }
  }
  fmt::print("largest difference of a deviation {:.1f} %\n", 100 * largest);
  EXPECT_EQ(WaitVariation(3, 0), 0);                    // all waits are the same repair
  EXPECT_NEAR(WaitVariation(1e-3, 4), 4.0 / 6, 1e-12);  // hardly any
  for (const int64_t spares : {1, 50, 99, 100, 1000, 20000}) {
    for (const double in_repair : {1e-9, 1.0, 499.0, 501.0, 1e6}) {
      const double variation = WaitVariation(in_repair, spares);
      EXPECT_TRUE(variation >= 0 && variation < 1e4) << spares << ' ' << in_repair;
    }
  }
}

TEST(Goodput, TheSameSeedGivesTheSameNumbersOnEveryMachine) {
  Random random(42);
  EXPECT_EQ(random.Next(), 1546998764402558742ULL);
  const StopModel model = Model(11124, 5, 60, 120, 300);
  EXPECT_EQ(SimulatedGoodput(model, Seconds(330), 1000, 3),
            SimulatedGoodput(model, Seconds(330), 1000, 3));
  EXPECT_NE(SimulatedGoodput(model, Seconds(330), 1000, 3),
            SimulatedGoodput(model, Seconds(330), 1000, 4));
}

// Table of the design study: failures in repair are Poisson, shortage at most 1 %.
TEST(Spares, CoverTheRepairs) {
  const auto spares = [](double nodes, double rate, double days) {
    return SparesFor(nodes * rate / 1000 * days, 0.01);
  };
  EXPECT_EQ(spares(16, 2.34, 1), 1);
  EXPECT_EQ(spares(48, 3.79, 3), 3);
  EXPECT_EQ(spares(128, 3.79, 1), 3);
  EXPECT_EQ(spares(128, 6.5, 3), 7);
  EXPECT_EQ(spares(512, 2.34, 1), 4);
  EXPECT_EQ(spares(2048, 3.79, 1), 15);
  EXPECT_EQ(spares(2048, 6.5, 3), 55);
  EXPECT_EQ(SparesFor(0, 0.01), 0);
}

}  // namespace
}  // namespace orrery
