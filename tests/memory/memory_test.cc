// SPDX-License-Identifier: Apache-2.0
// Memory reports of lowered plans: sums, moments, summaries.
#include "model/memory/memory.h"

#include <gtest/gtest.h>

#include <sstream>

#include "model/arch/catalogue.h"
#include "model/arch/parameters.h"
#include "model/memory/software_memory.h"
#include "model/plan/lower/lower.h"

namespace orrery {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

struct Case {
  ModelSpec model;
  Workload work;
  Strategy strategy;
};

// The Megatron run of four V100-16GB: fp32, attention materialised.
Case MegatronRun(int micro_batch) {
  Case c;
  const LoadedModel loaded = LoadModel("megatron-s9");
  c.model = loaded.spec;
  c.work.seq_len = 1024;
  c.work.precision = Precision::kFp32;
  c.strategy.dp = 4;
  c.strategy.micro_batch = micro_batch;
  c.strategy.flash_attention = false;
  c.work.global_batch = int64_t{4} * micro_batch;
  return c;
}

MemoryReport Report(const Case& c, const MemoryLimits& limits) {
  return ReportMemory(std::get<ir::Plan>(Lower(c.model, c.work, c.strategy)), limits,
                      Communicators(c.strategy));
}

// Two moments of four bytes with AdamW, of one with 8-bit Adam, which keeps a scale for 256 of them; Muon has one for layers, embedding and head keep two.
TEST(MemoryReport, StatesFollowTheOptimizer) {
  Case c = MegatronRun(1);
  c.model.layers = 4;
  const auto states = [&](Optimizer optimizer) {
    c.work.optimizer = optimizer;
    return Report(c, {Bytes(16 * kGiB), Bytes(0), Bytes(0.0), 0})
        .stages[0]
        .by_class[static_cast<std::size_t>(MemoryClass::kOptimizer)]
        .value;
  };
  const ParameterCount count = CountParameters(c.model);
  const auto total = static_cast<double>(count.total);
  const auto layers = static_cast<double>(4 * count.per_layer);
  EXPECT_EQ(states(Optimizer::kAdamW), 8 * total);
  constexpr double kScale = 4, kBlock = 256, kUnits = 4 + 2;  // a unit's last block may not be full
  EXPECT_NEAR(states(Optimizer::kAdam8bit), 2 * total * (1 + kScale / kBlock), 2 * kScale * kUnits);
  EXPECT_EQ(states(Optimizer::kMuon), 8 * total - 4 * layers);
}

// ZeRO-Offload: shards of gradients are on the host, where the states are (DeepSpeed); Megatron's stay on the device.
TEST(MemoryReport, GradientsGoToTheHostWhereTheFrameworkSaysSo) {
  Case c = MegatronRun(2);
  c.strategy.offload.optimizer = 1;
  c.work.precision = Precision::kFp16;
  const auto report = [&](const char* framework) {
    MemoryLimits limits{Bytes(16 * kGiB), Bytes(0), Bytes(0.0), 0};
    const FrameworkProfile profile = LoadFrameworkProfile(framework);
    limits.allocation.holding = HoldingOf(profile);
    limits.allocation.holding.gradients_late = false;
    c.strategy.gradients_on_host = profile.preset->offload_gradients;
    return Report(c, limits);
  };
  const auto gradients = [](const MemoryReport& of) {
    return of.stages[0].by_class[static_cast<std::size_t>(MemoryClass::kGradients)].value;
  };
  const double whole = 2 * static_cast<double>(CountParameters(c.model).total);
  for (const auto& [zero, dp] : {std::pair{2, 4}, {3, 4}, {2, 1}}) {
    c.strategy.zero = zero, c.strategy.dp = dp;
    c.work.global_batch = 2 * dp;
    const MemoryReport here = report("megatron"), there = report("deepspeed");
    EXPECT_GE(gradients(here), whole / dp) << zero << " " << dp;
    EXPECT_LE(gradients(there), gradients(here) - 0.9 * whole / dp) << zero << " " << dp;
    // The host holds them either way: once, for its update.
    EXPECT_NEAR((there.stages[0].host - here.stages[0].host).value, 0, 0.01 * whole / dp);
    EXPECT_GE(there.stages[0].host.value, 3.9 * whole / dp);  // beside weights and two moments
  }
  c.strategy.zero = 1, c.strategy.dp = 4;
  c.work.global_batch = 8;
  EXPECT_GE(gradients(report("deepspeed")), whole);  // whole ones are on each device
  const auto moves = [&](const char* framework) {
    return LoadFrameworkProfile(framework)
        .preset->Complete(c.strategy, c.work.precision)
        .gradients_on_host;
  };
  EXPECT_FALSE(moves("megatron"));
  EXPECT_TRUE(moves("fsdp"));
}

// What the sentence names adds up to more than the capacity, buckets of reductions included.
TEST(MemoryReport, TheOverflowCountsTheBucketsOfReductions) {
  Case c = MegatronRun(2);
  c.strategy.dp = 2;
  c.strategy.zero = 0;
  c.work.global_batch = 8;
  MemoryLimits limits{Bytes(16 * kGiB), Bytes(1e9), Bytes(0.0), 0.05};
  limits.allocation.reducer = 1;
  const double buckets = Report(c, limits).peak().need.buckets.value;
  ASSERT_GT(buckets, 0);
  limits.capacity = Report(c, limits).total * 0.99;
  const std::string summary = Report(c, limits).summary;
  const std::string words = "of which the framework takes ";
  const auto at = summary.find(words);
  ASSERT_NE(at, std::string::npos) << summary;
  double taken = 0;
  std::string unit;
  std::istringstream(summary.substr(at + words.size())) >> taken >> unit;
  ASSERT_EQ(unit, "GiB") << summary;
  EXPECT_GT(taken * kGiB, 1e9 + buckets) << summary;
}

TEST(MemoryReport, ClassesAddUpToTheLivePeakAndTermsToTheTotal) {
  Case c = MegatronRun(2);
  c.strategy.pp = 2;
  c.strategy.dp = 2;
  c.work.global_batch = 8;
  MemoryLimits limits{Bytes(16 * kGiB), Bytes(1e9), Bytes(0.0), 0.05};
  const double live = Report(c, limits).live.value;
  limits.allocation.holding.static_layout = true;
  const MemoryReport report = Report(c, limits);
  EXPECT_EQ(report.live.value, live);
  ASSERT_EQ(report.stages.size(), 2u);
  for (const StageMemory& stage : report.stages) {
    double sum = 0;
    for (const Bytes& bytes : stage.by_class) sum += bytes.value;
    EXPECT_DOUBLE_EQ(sum, stage.need.live.value);
    EXPECT_LE(stage.need.live, stage.arena);
    EXPECT_EQ(stage.allocated(), stage.arena);
    EXPECT_LE(stage.need.gaps.value, 0.02 * stage.arena.value);
    ASSERT_FALSE(stage.largest.empty());
    for (std::size_t i = 1; i < stage.largest.size(); ++i)
      EXPECT_GE(stage.largest[i - 1].bytes, stage.largest[i].bytes);
  }
  EXPECT_DOUBLE_EQ(report.total.value,
                   (report.arena + report.context + report.fragmentation).value);
}

TEST(MemoryReport, StateOfAnFp32AdamRunIsSixteenBytesPerParameter) {
  const Case c = MegatronRun(2);
  const MemoryReport report = Report(c, {Bytes(16 * kGiB), Bytes(0.0), Bytes(0.0), 0});
  const auto of = [&](MemoryClass cls) {
    return report.peak().by_class[static_cast<std::size_t>(cls)].value;
  };
  const double parameters = static_cast<double>(CountParameters(c.model).total);
  EXPECT_NEAR(of(MemoryClass::kWeights), 4 * parameters, 1e3);
  EXPECT_NEAR(of(MemoryClass::kGradients), 4 * parameters, 1e3);
  EXPECT_NEAR(of(MemoryClass::kOptimizer), 8 * parameters, 1e3);
}

TEST(MemoryReport, ARunThatFitsSaysHowMuchIsLeft) {
  const MemoryReport report =
      Report(MegatronRun(2), {Bytes(15.78 * kGiB), Bytes(1e9), Bytes(0.0), 0.06});
  EXPECT_TRUE(report.fits) << report.summary;
  EXPECT_EQ(report.summary.substr(0, 5), "fits:");
  EXPECT_EQ(report.peak().moment.micro_batch, 0);
}

TEST(MemoryReport, ARunThatDoesNotFitNamesMomentAndTensor) {
  const MemoryReport report =
      Report(MegatronRun(32), {Bytes(15.78 * kGiB), Bytes(1e9), Bytes(0.0), 0.06});
  EXPECT_FALSE(report.fits);
  EXPECT_NE(report.summary.find("out of memory on stage 0"), std::string::npos) << report.summary;
  EXPECT_NE(report.summary.find("GiB live when forward of layer"), std::string::npos)
      << report.summary;
  EXPECT_NE(report.summary.find(" needs "), std::string::npos) << report.summary;
  EXPECT_NE(report.summary.find("capacity 15.8 GiB"), std::string::npos) << report.summary;
}

TEST(MemoryReport, TheFirstOverflowComesNoLaterThanThePeak) {
  const Case c = MegatronRun(4);
  const MemoryReport whole = Report(c, {Bytes(100 * kGiB), Bytes(0.0), Bytes(0.0), 0});
  for (const double share : {0.3, 0.6, 0.9, 0.999}) {
    const MemoryReport report = Report(c, {whole.live * share, Bytes(0.0), Bytes(0.0), 0});
    EXPECT_FALSE(report.fits);
    EXPECT_NE(report.summary.find(" live when "), std::string::npos) << report.summary;
  }
  const MemoryReport exact = Report(c, {whole.live, Bytes(0.0), Bytes(0.0), 0});
  EXPECT_TRUE(exact.fits) << exact.summary;
}

// The published terms of a framework: communicators, copies of the logits and of half gradients.
TEST(MemoryReport, TheTotalCountsWhatTheSoftwareTakesBesideThePlan) {
  Case c = MegatronRun(2);
  c.work.precision = Precision::kBf16;
  c.strategy.fp32_grads = true;
  const MemoryLimits limits{Bytes(16 * kGiB), Bytes(1e9),  Bytes(0.0), 0.1,
                            Bytes(2e8),       {{}, 400, 2}};  // a loss that takes the peak
  const ir::Plan plan = std::get<ir::Plan>(Lower(c.model, c.work, c.strategy));
  const StageDemand demand = DemandsOf(plan, {}).front();
  ASSERT_GT(demand.logits, 0);
  ASSERT_GT(demand.half_weights, 0);
  const double at_loss = demand.live_at_loss + 400 * demand.logits;
  ASSERT_GT(at_loss, demand.live);
  const MemoryReport report = ReportMemory(plan, limits, 3);
  EXPECT_DOUBLE_EQ(report.total.value, (at_loss + 2 * demand.half_weights) * 1.1 + 1e9 + 3 * 2e8);
  EXPECT_NE(report.peak().moment.words.find("of the head"), std::string::npos)
      << report.peak().moment.words;
  double live = 0;
  for (const Bytes& bytes : report.peak().by_class) live += bytes.value;
  EXPECT_DOUBLE_EQ(live, demand.live_at_loss);
  EXPECT_EQ(report.fits, report.total <= report.capacity);
}

TEST(MemoryReport, CopiesAloneCanTakeAPlanOverTheCapacity) {
  Case c = MegatronRun(2);
  c.work.precision = Precision::kBf16;
  c.strategy.fp32_grads = true;
  MemoryLimits limits{Bytes(100 * kGiB), Bytes(1e9), Bytes(0.0), 0.1};
  limits.capacity = Report(c, limits).total * 1.01;
  EXPECT_TRUE(Report(c, limits).fits);
  limits.allocation.gradient_copy = 2;
  const MemoryReport copied = Report(c, limits);
  EXPECT_FALSE(copied.fits);
  EXPECT_EQ(copied.summary.rfind("out of memory on stage 0", 0), 0u) << copied.summary;
  limits.allocation = {{}, 400, 0};
  const MemoryReport lost = Report(c, limits);
  EXPECT_FALSE(lost.fits);
  EXPECT_NE(lost.summary.find("copy of the logits"), std::string::npos) << lost.summary;
}

TEST(MemoryReport, AFitCloseToTheCapacityIsFlagged) {
  const Case c = MegatronRun(2);
  MemoryLimits limits{Bytes(100 * kGiB), Bytes(1e9), Bytes(0.0), 0.05, Bytes(0.0), {}, 0.92};
  const Bytes total = Report(c, limits).total;
  limits.capacity = total * (1 / 0.91);
  EXPECT_FALSE(Report(c, limits).nearly_full);
  limits.capacity = total * (1 / 0.93);
  const MemoryReport close = Report(c, limits);
  EXPECT_TRUE(close.fits && close.nearly_full);
  EXPECT_NE(close.summary.find("nearly full: above 92 %"), std::string::npos) << close.summary;
  limits.capacity = total * 0.99;
  EXPECT_FALSE(Report(c, limits).nearly_full);
}

TEST(MemoryReport, ZeroOneSplitsTheOptimizerState) {
  Case c = MegatronRun(2);
  const auto optimizer = [&] {
    return Report(c, {Bytes(16 * kGiB), Bytes(0.0), Bytes(0.0), 0})
        .peak()
        .by_class[static_cast<std::size_t>(MemoryClass::kOptimizer)];
  };
  const double whole = optimizer().value;
  c.strategy.zero = 1;
  EXPECT_NEAR(optimizer().value, whole / 4, whole * 1e-4);
}

}  // namespace
}  // namespace orrery
