// SPDX-License-Identifier: Apache-2.0
// What must hold of any job: a layout drawn at random of a random model on a random cluster under a random framework.
// ORRERY_RANDOM_JOBS sets their number, ORRERY_MUTATION_SEED the seed, ORRERY_RANDOM_JOB runs one of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <random>

#include "bench/engines/random_jobs.h"
#include "model/engine/event/simulation.h"
#include "model/twin/explain.h"
#include "model/twin/predict.h"
#include "model/twin/search.h"
#include "model/twin/step_predictor.h"
#include "tests/from_environment.h"

namespace orrery {
namespace {

constexpr uint64_t kJobs = 100;   // properties_test_full: 1500
constexpr double kSum = 1e-6;     // of a step: its terms
constexpr double kSlower = 1e-9;  // of a step: rounding
constexpr double kQuick = 2e5;    // effort of a simulation

using Random = std::mt19937_64;

template <class Check>
void ForEachJob(const char* what, Check check) {
  const uint64_t jobs = FromEnvironment("ORRERY_RANDOM_JOBS", kJobs);
  const uint64_t seed = FromEnvironment("ORRERY_MUTATION_SEED", 20261123);
  const uint64_t only = FromEnvironment("ORRERY_RANDOM_JOB", jobs);
  uint64_t sound = 0, checked = 0;
  for (uint64_t i = only < jobs ? only : 0; i < jobs; ++i) {
    const std::unique_ptr<RandomJob> drawn = DrawJob(seed, i);
    if (drawn == nullptr) continue;
    ++sound;
    SCOPED_TRACE("job " + std::to_string(i) + ": " + drawn->name);
    checked += check(*drawn);
    if (only < jobs) return;
  }
  EXPECT_GT(sound, jobs * 9 / 10);
  EXPECT_GT(checked, jobs / 25) << what;
  std::cout << what << ": " << checked << " of " << jobs << " jobs\n";
}

StepTime ClosedForm(const Job& job, const Strategy& layout) {
  return std::get<StepTime>(StepPredictor(job).Predict(layout));
}

void ExpectSum(const StepTime& time) {
  EXPECT_TRUE(std::isfinite(time.total) && time.total > 0) << time.total;
  EXPECT_NEAR(time.Total(), time.total, kSum * time.total);
  for (const BreakdownTerm& term : BreakdownTerms())
    EXPECT_GE(time.*term.seconds, -kSum * time.total) << term.key;
}

TEST(Properties, TermsOfTheClosedFormSumToTheStep) {
  ForEachJob("closed form", [](const RandomJob& drawn) {
    ExpectSum(ClosedForm(drawn.job, drawn.layout));
    return true;
  });
}

TEST(Properties, TermsOfTheSimulatedStepSumToTheStep) {
  ForEachJob("simulated", [](const RandomJob& drawn) {
    const ir::Plan plan = LowerLegal(drawn.job, drawn.layout);
    if (SimulationEffort(plan) > kQuick) return false;
    ExpectSum(SimulateLayout(drawn.job, drawn.layout, plan, ClusterOf(drawn.job)));
    return true;
  });
}

struct Way {
  const char* name;
  bool merge_replicas, contention;
  int slow;  // GPUs, drawn
};
constexpr Way kWays[] = {{"replicas apart", false, true, 0},
                         {"replicas merged", true, true, 0},
                         {"prices", false, false, 1},
                         {"one slow GPU", false, true, 1},
                         {"three slow GPUs", false, true, 3}};

// Every rank executed, and one of those that are alike.
TEST(Properties, RanksThatAreAlikeTakeTheStepOfAll) {
  constexpr double kSame = 1e-12, kSameTerms = 1e-9;  // of the step; sums of differences of dates
  std::size_t all = 0, executed = 0;
  uint64_t at = 0;
  ForEachJob("alike", [&](const RandomJob& drawn) {
    const ir::Plan plan = LowerLegal(drawn.job, drawn.layout);
    const Way& way = kWays[at++ % std::size(kWays)];
    if (SimulationEffort(plan, way.merge_replicas) > kQuick) return false;
    SCOPED_TRACE(way.name);
    Random random(at);
    sim::SimulationOptions options;
    options.keep_links = true;
    options.merge_replicas = way.merge_replicas;
    options.contention = way.contention;
    options.perturbation.slowdown.assign(static_cast<std::size_t>(plan.mesh.ranks()), 1.0);
    for (int i = 0; i < way.slow; ++i)
      options.perturbation.slowdown[random() % options.perturbation.slowdown.size()] = 1.25;
    const Cluster cluster = ClusterOf(drawn.job);
    sim::Simulation each(plan, cluster, drawn.job.prices(), options);
    options.merge_alike = true;
    sim::Simulation alike(plan, cluster, drawn.job.prices(), options);
    const double seconds = each.Run();
    EXPECT_NEAR(alike.Run(), seconds, kSame * seconds);
    EXPECT_EQ(alike.result().ops, each.result().ops);
    for (const BreakdownTerm& term : BreakdownTerms())
      EXPECT_NEAR(alike.breakdown().*term.seconds, each.breakdown().*term.seconds,
                  kSameTerms * seconds)
          << term.key;
    // Which of several links that are alike the longest path crosses is a tie: the seconds of each axis are not.
    const auto waits = [](const sim::Simulation& step) {
      std::map<CommAxis, double> of_axis;
      for (const sim::SharedLink& link : step.SharedLinks()) of_axis[link.axis] += link.seconds;
      return of_axis;
    };
    const auto shared = waits(each), same = waits(alike);
    EXPECT_EQ(same.size(), shared.size());
    for (const auto& [axis, waited] : shared) {
      const auto found = same.find(axis);
      EXPECT_NEAR(found == same.end() ? 0 : found->second, waited, kSameTerms * seconds);
    }
    const auto traffic = [&](const sim::Simulation& step) {
      return sim::TrafficOnLinks(plan, step.tasks(), step.communicators(), cluster.links.size());
    };
    const auto expected = traffic(each), found = traffic(alike);
    for (std::size_t link = 0; link < expected.size(); ++link)
      EXPECT_EQ(found[link].bytes, expected[link].bytes);
    all += each.result().ranks.size();
    executed += alike.result().ranks.size();
    return true;
  });
  EXPECT_LT(2 * executed, all);
  std::cout << executed << " of " << all << " ranks executed\n";
}

// Replicas one by one up to where they meet, and all events in order of time, as where rates are logged.
TEST(Properties, ReplicasOneByOneTakeTheStepOfAll) {
  constexpr double kSame = 1e-12;  // of the step
  const uint64_t jobs = FromEnvironment("ORRERY_RANDOM_JOBS", kJobs);
  std::size_t parts = 0;
  uint64_t at = 0;
  ForEachJob("jitter", [&](const RandomJob& drawn) {
    const ir::Plan plan = LowerLegal(drawn.job, drawn.layout);
    if (SimulationEffort(plan, false) > kQuick) return false;
    sim::SimulationOptions options;
    options.merge_replicas = false;
    options.record = false;
    options.perturbation.jitter = 0.05;
    options.perturbation.seed = ++at;
    const Cluster cluster = ClusterOf(drawn.job);
    sim::Simulation apart(plan, cluster, drawn.job.prices(), options);
    parts += sim::FindParts(plan, apart.communicators()).ranks.size() - 1;
    options.log_rates = true;
    sim::Simulation together(plan, cluster, drawn.job.prices(), options);
    EXPECT_EQ(sim::FindParts(plan, together.communicators()).ranks.size(), 1u);
    const double seconds = together.Run();
    EXPECT_NEAR(apart.Run(), seconds, kSame * seconds);
    for (std::size_t r = 0; r < together.result().times.size(); ++r) {
      const sim::RankTime &one = apart.result().times[r], &other = together.result().times[r];
      EXPECT_NEAR(one.end, other.end, kSame * seconds);
      EXPECT_NEAR(one.compute, other.compute, 1e3 * kSame * seconds);
      EXPECT_NEAR(one.exposed, other.exposed, 1e3 * kSame * seconds);
    }
    return true;
  });
  EXPECT_GT(parts, jobs / 3);
  std::cout << parts << " more parts\n";
}

struct Resource {
  const char* name;
  void (*twice)(GpuProfile&, ClusterSummary&);
};
constexpr Resource kResources[] = {
    {"arithmetic",
     [](GpuProfile& gpu, ClusterSummary&) {
       for (FlopsPerSecond* peak : {&gpu.peak_fp32, &gpu.peak_tf32, &gpu.peak_fp16, &gpu.peak_bf16})
         *peak *= 2.0;
     }},
    {"memory bandwidth", [](GpuProfile& gpu, ClusterSummary&) { gpu.memory_bandwidth *= 2.0; }},
    {"links of a node",
     [](GpuProfile&, ClusterSummary& cluster) {
       cluster.scaleup_per_gpu *= 2.0;
       cluster.per_link *= 2.0;
       cluster.pcie_rate *= 2.0;
     }},
    {"network", [](GpuProfile&, ClusterSummary& cluster) { cluster.nic_rate *= 2.0; }},
};

std::string Grown(const StepTime& before, const StepTime& after) {
  std::string text;
  for (const BreakdownTerm& term : BreakdownTerms()) {
    const double more = after.*term.seconds - before.*term.seconds;
    if (more != 0) text += std::string(term.key) + " " + std::to_string(1e6 * more) + " us; ";
  }
  return text;
}

// Not quite never: the closed form hides gradients behind the device's work alone, so where the host, a copy or another message
// sets the pace of a pass, a device that works faster hides less of them though the pass takes as long; tables of kernels and
// collectives change algorithm with the rate; and a faster network may turn a pipeline that is walked into one of formulas. Of
// 80,000 cases 0.25 % are slower, 9 by more than 1 %, at most 3.0 %. Bars above these: to burn down.
TEST(Properties, TwiceOfAResourceIsHardlyEverSlower) {
  constexpr double kMostSlower = 0.04, kMostOften = 0.01;
  int cases = 0, slower = 0;
  ForEachJob("twice of each resource", [&](const RandomJob& drawn) {
    const StepTime before = ClosedForm(drawn.job, drawn.layout);
    for (const Resource& resource : kResources) {
      Profiles profiles = drawn.profiles;
      Job job = drawn.job;
      job.gpu = &profiles.gpu;
      resource.twice(profiles.gpu, job.cluster);
      const StepTime after = ClosedForm(job, drawn.layout);
      ++cases;
      slower += after.total > before.total * (1 + kSlower);
      EXPECT_LE(after.total, before.total * (1 + kMostSlower))
          << resource.name << ": " << Grown(before, after);
    }
    return true;
  });
  EXPECT_LE(slower, kMostOften * cases + 1);
  std::cout << slower << " of " << cases << " cases slower\n";
}

TEST(Properties, RatesFollowFromTheStep) {
  ForEachJob("rates", [](const RandomJob& drawn) {
    const Prediction p = PredictionOf(drawn.job, drawn.layout, ClosedForm(drawn.job, drawn.layout));
    EXPECT_NEAR(p.tokens_per_second * p.time.total, p.tokens, kSum * p.tokens);
    EXPECT_NEAR(p.mfu * p.time.total * p.peak_flops, p.model_flops, kSum * p.model_flops);
    // It counts against the peak of --precision: products in 8 and 4 bits may beat that.
    const GpuProfile& gpu = drawn.profiles.gpu;
    const ProductType product = FormOf(drawn.job.work.fp8).product;
    const Precision precision = drawn.job.work.precision;
    EXPECT_LT(p.mfu * gpu.Peak(precision).value,
              std::max(gpu.Peak(precision), gpu.Peak(product, precision)).value);
    EXPECT_EQ(p.tokens, static_cast<double>(drawn.job.work.global_batch * drawn.job.work.seq_len));
    return true;
  });
}

// More room takes no layout away. Rows that leave little of it rank below others (memory_nearly_full): they are no measure.
TEST(Properties, TwiceTheMemoryIsNeverSlower) {
  const uint64_t jobs = FromEnvironment("ORRERY_RANDOM_JOBS", kJobs);
  uint64_t at = 0;
  ForEachJob("searches", [&](const RandomJob& drawn) {
    if (at++ % 10 != 0 && jobs > 10) return false;
    SearchRequest request = drawn.request;
    request.top = 1;
    request.threads = 1;
    const double capacity = drawn.profiles.gpu.Capacity().value;
    double before = 0;
    for (const double share : {1.0, 2.0}) {
      request.memory_limit = Bytes(share * capacity);
      SearchResult result;
      try {
        result = SearchOnly(request, drawn.profiles);
      } catch (const InputError&) {
        return false;
      }
      const bool counts = result.feasible() && !result.ranked.front().memory->nearly_full;
      if (share == 1.0 && !counts) return false;
      if (share == 1.0) {
        before = result.ranked.front().time.total;
        continue;
      }
      EXPECT_TRUE(counts);
      if (counts) {
        EXPECT_LE(result.ranked.front().time.total, before * (1 + kSlower));
      }
    }
    return true;
  });
}

}  // namespace
}  // namespace orrery
