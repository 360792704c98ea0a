// SPDX-License-Identifier: Apache-2.0
// Intervals of predictions: what widens them, what they say, the file behind them.
#include "model/twin/trust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>

#include "model/arch/data_root.h"
#include "model/base/diagnostics.h"

namespace orrery {
namespace {

using testing::HasSubstr;

constexpr double kSpread[kKins] = {0.02, 0.03, 0.05, 0.1, 0.2, 0.3};

RunIdentity Run() {
  RunIdentity run{"s", "a-80gb", "f", "known", {{"attention", "standard"}}, {}};
  run.at.fill(1);
  return run;
}

// A file of the catalogue's folder, such as profiles that are loaded from there name.
std::string FileIn(const std::string& folder, const std::string& name) {
  return DataRoot() + "/calib/profiles/" + folder + "/" + name + ".yaml";
}

// Two constants that hold the step together, strongly anticorrelated; runs of one framework, chip and cluster.
Trust Sample() {
  Trust trust;
  trust.constants = {{"gpu/a:gemm_efficiency_bf16"}, {"framework/s:kernel_gap"}};
  trust.covariance = {0.04, -0.0396, -0.0396, 0.04};
  for (std::size_t kin = 0; kin < kKins; ++kin) trust.kin[kin] = {10, 50, kSpread[kin], 1.5, 0.8};
  trust.differences["s"] = {0.1, 20};
  RunIdentity run = Run();
  trust.runs.push_back(run);
  run.at.fill(8);
  trust.runs.push_back(run);
  return trust;
}

struct Bench {
  GpuProfile gpu;
  FabricProfile fabric;
  FrameworkProfile framework;
  ClusterSummary cluster;
  RunIdentity asked = Run();

  Bench() {
    gpu.header.id = "a-80gb";
    gpu.gemm_efficiency_bf16 = 0.5;
    gpu.header.constants["gemm_efficiency_bf16"].file = FileIn("gpu", "a");
    fabric.header.id = "f";
    framework.header.id = "s";
    framework.kernel_gap = Seconds(1);
    framework.residual_low = 0.8;
    framework.residual_high = 1.3;
    framework.header.constants["kernel_gap"].file = FileIn("framework", "s");
    cluster.nodes = 2;
    asked.at.fill(4);
  }
  // 1 s of products and 1 s of gaps.
  static double Step(const CostSetting& s) {
    return 0.5 / s.gpu->gemm_efficiency_bf16 + s.framework->kernel_gap.value;
  }
  Confidence Ask(const Trust& trust) const {
    const CostSetting setting{&gpu, &fabric, &framework, &cluster};
    return ConfidenceOf(trust, setting, asked, Step(setting), Step);
  }
};

double WidthOf(const Confidence& c) { return std::log(c.high / c.low); }

// Of the interval on both sides, without what constants add.
double SpreadOf(Bench bench, Trust trust = Sample()) {
  trust.covariance = {0, 0, 0, 0};
  return WidthOf(bench.Ask(trust)) / 3;
}

TEST(Confidence, WithoutAFileTheProfileSpeaks) {
  const Confidence c = Bench().Ask({});
  EXPECT_DOUBLE_EQ(c.low, 2 * 0.8);
  EXPECT_DOUBLE_EQ(c.high, 2 * 1.3);
  EXPECT_TRUE(c.outside.empty());
}

TEST(Confidence, CorrelationsOfConstantsCount) {
  // d log T / d log efficiency = -1/2, of the gap +1/2: the errors add up when anticorrelated.
  const double slope = 0.5, variance = slope * slope * (0.04 + 0.04 + 2 * 0.0396);
  const double f = 1.5 * std::sqrt(0.05 * 0.05 + variance);
  const Confidence c = Bench().Ask(Sample());
  EXPECT_NEAR(c.low, 2 * std::exp(-f), 0.01);
  EXPECT_NEAR(c.high, 2 * std::exp(f), 0.02);
  Trust together = Sample();
  together.covariance[1] = together.covariance[2] = 0.0396;
  EXPECT_LT(WidthOf(Bench().Ask(together)), 0.6 * WidthOf(c));
}

TEST(Confidence, ConstantsOfOtherFilesDoNotCount) {
  Bench bench;
  for (const std::string& file :
       {FileIn("gpu", "base"), FileIn("fabric", "a"), std::string("./a.yaml"), std::string("a")}) {
    bench.gpu.header.constants["gemm_efficiency_bf16"].file = file;
    EXPECT_LT(WidthOf(bench.Ask(Sample())), WidthOf(Bench().Ask(Sample()))) << file;
  }
}

TEST(Confidence, EachDoublingOutsideWidensAndIsNamed) {
  Bench bench;
  const double inside = WidthOf(bench.Ask(Sample()));
  bench.asked.at[kAtNodes] = 32;
  const Confidence c = bench.Ask(Sample());
  EXPECT_NEAR(WidthOf(c), inside * (1 + 2 * kPerDoubling), 1e-9);
  ASSERT_EQ(c.outside.size(), 1U);
  EXPECT_EQ(c.outside[0], "32 nodes: calibrated on 1 to 8");
  bench.asked.at[kAtNodes] = 1e30;
  EXPECT_NEAR(WidthOf(bench.Ask(Sample())), inside * (1 + kMostDoublings * kPerDoubling), 1e-9);
}

TEST(Confidence, TheNearestKinGivesTheSpreadAndIsNamed) {
  Bench bench;
  const auto expect = [&](Kin kin) {
    EXPECT_NEAR(SpreadOf(bench), kSpread[static_cast<std::size_t>(kin)], 1e-9) << NameOf(kin);
    EXPECT_THAT(bench.Ask(Sample()).basis, testing::StartsWith(NameOf(kin)));
  };
  expect(Kin::kCluster);
  bench.asked.at[kAtHidden] = bench.asked.at[kAtLayers] = 8;
  expect(Kin::kModel);
  bench.asked.at.fill(8);
  bench.asked.at[kAtLayers] = 3;  // another depth of the same layers
  expect(Kin::kShape);
  bench.asked.topology = "new";
  expect(Kin::kNewCluster);
  bench.asked.gpu = "a-40gb";  // the same chip
  expect(Kin::kNewCluster);
  bench.asked.gpu = "b-80gb";
  expect(Kin::kNewChip);
  bench.asked.framework = "s@2021";
  EXPECT_NEAR(SpreadOf(bench), std::sqrt(0.3 * 0.3 + 0.2 * 0.2 - 0.1 * 0.1), 1e-9);
}

// What no calibrated row has is flagged, each for itself; what rows have is not.
TEST(Confidence, ChoicesBeyondAPlainRunAreFacts) {
  const Bench bench;
  const CostSetting setting{&bench.gpu, &bench.fabric, &bench.framework, &bench.cluster};
  const auto facts = [&](const Workload& work, const Strategy& strategy) {
    return IdentityOf(setting, work, strategy, {}).facts;
  };
  const RunFacts plain = facts({}, {});
  Workload work;
  for (const auto& [name, optimizer] : kOptimizerNames) {
    work.optimizer = optimizer;
    const bool adam = optimizer == Optimizer::kAdam || optimizer == Optimizer::kAdamW;
    EXPECT_EQ(facts(work, {}) == plain, adam) << name;
  }
  Strategy strategy;
  strategy.cp = 4;
  strategy.context = ContextOf(CpMethod::kUlysses);
  EXPECT_EQ(facts({}, strategy).at("cp method"), "ulysses");
  strategy = {};
  strategy.pp = 2;
  EXPECT_EQ(facts({}, strategy), plain);
  strategy.schedule = PipelineSchedule::kZeroBubble;
  EXPECT_EQ(facts({}, strategy).at("schedule"), "zero-bubble");
}

TEST(Confidence, AFactWithoutRunsWidensAndIsNamed) {
  Bench bench;
  bench.asked.facts["attention"] = "fa3";
  const Confidence c = bench.Ask(Sample());
  EXPECT_THAT(c.outside, testing::ElementsAre("attention fa3: no calibrated run with it on a"));
  EXPECT_NEAR(SpreadOf(bench), 0.3, 1e-9);
  Trust known = Sample();
  known.runs[0].facts["attention"] = "fa3";
  EXPECT_TRUE(bench.Ask(known).outside.empty());
  known.runs[0].gpu = "b-80gb";  // on another chip it says nothing
  EXPECT_EQ(bench.Ask(known).outside.size(), 1U);
}

// A chip that ran products in 8 bits alone says little of those in 16, and other chips say nothing of it.
TEST(Confidence, ProductsOfAnotherPrecisionAreAFact) {
  const Bench bench;
  const CostSetting setting{&bench.gpu, &bench.fabric, &bench.framework, &bench.cluster};
  const auto products = [&](Precision precision, Fp8 recipe) {
    Workload work;
    work.precision = precision;
    work.fp8 = recipe;
    return IdentityOf(setting, work, {}, {}).facts.at(kProductsFact);
  };
  const std::string half = products(Precision::kBf16, Fp8::kOff);
  EXPECT_EQ(half, products(Precision::kFp16, Fp8::kOff));
  EXPECT_EQ(
      std::set({half, products(Precision::kFp32, Fp8::kOff), products(Precision::kTf32, Fp8::kOff),
                products(Precision::kBf16, Fp8::kDelayed), products(Precision::kBf16, Fp8::kMxfp8)})
          .size(),
      5U);
  Bench question;
  question.asked.facts[kProductsFact] = half;
  Trust trust = Sample();
  for (RunIdentity& run : trust.runs) run.facts[kProductsFact] = "mxfp8";
  trust.runs.push_back(trust.runs[0]);
  trust.runs.back().gpu = "b-80gb";
  trust.runs.back().facts[kProductsFact] = half;
  const Confidence c = question.Ask(trust);
  EXPECT_THAT(c.outside, testing::ElementsAre("products 16-bit: no calibrated run with it on a"));
  EXPECT_THAT(c.basis, testing::StartsWith(NameOf(Kin::kNewFramework)));
  trust.runs.back().gpu = "a-80gb-there";  // the same chip at a site of another clock
  EXPECT_EQ(question.Ask(trust).outside.size(), 1U);
  trust.runs[0].facts[kProductsFact] = half;
  EXPECT_TRUE(question.Ask(trust).outside.empty());
}

// What another framework's runs had, this one's did not.
TEST(Confidence, FactsAreKnownFromRunsOfTheFramework) {
  Bench bench;
  bench.asked.facts["compile"] = "off";
  Trust trust = Sample();
  for (RunIdentity& run : trust.runs) run.facts["compile"] = "on";
  trust.runs.push_back(trust.runs[0]);
  trust.runs.back().framework = "other";
  trust.runs.back().facts["compile"] = "off";
  EXPECT_THAT(bench.Ask(trust).outside,
              testing::ElementsAre("compile off: no calibrated run of s with it"));
  EXPECT_NEAR(SpreadOf(bench, trust), 0.3, 1e-9);
  trust.runs.back().framework = "s@2021";  // an earlier release of it
  EXPECT_TRUE(bench.Ask(trust).outside.empty());
  // Nothing is known of a framework without runs: facts of all others are no news.
  bench.asked.framework = "third";
  trust.runs.back().framework = "other";
  EXPECT_THAT(bench.Ask(trust).outside,
              testing::ElementsAre("third: no calibrated run of this framework"));
}

// Both ways, where there is an occasion.
TEST(Confidence, EveryHabitOfAFrameworkIsAFact) {
  Bench bench;
  auto preset = std::make_shared<FrameworkPreset>();
  bench.framework.preset = preset;
  const CostSetting setting{&bench.gpu, &bench.fabric, &bench.framework, &bench.cluster};
  Strategy alone, cut;
  cut.tp = cut.dp = 2;
  cut.sequence_parallel = true;
  const auto facts = [&](const Strategy& s) { return IdentityOf(setting, {}, s, {}).facts; };
  const RunFacts before = facts(cut);
  preset->autocast = preset->sequence_copies = preset->tp_overlap = preset->compile_loss = true;
  preset->compile = false;
  cut.overlap_grad_reduce = !cut.overlap_grad_reduce;
  cut.gathers_kept = cut.fp32_grads = true;
  const RunFacts after = facts(cut);
  for (const char* key : {"autocast", "sequence_copies", "tp_overlap", "compile_loss", "compile",
                          "overlap_grad_reduce", "gathers_kept", "fp32_grads"})
    EXPECT_NE(before.at(key), after.at(key)) << key;
  for (const char* key : {"sequence_copies", "gathers_kept", "overlap_grad_reduce", "tp_overlap"})
    EXPECT_FALSE(facts(alone).contains(key)) << key;
}

TEST(Confidence, SitesHaveTheirOwnNoiseWhereTheyWereCalibrated) {
  Trust trust = Sample();
  trust.sites["s@known, several nodes"] = 2;
  EXPECT_NEAR(SpreadOf(Bench(), trust), 2 * 0.05, 1e-9);
  Bench bench;
  bench.asked.at[kAtNodes] = 1;
  EXPECT_NEAR(SpreadOf(bench, trust), 0.05, 1e-9);
}

TEST(Confidence, UnknownHardwareAddsItsPriors) {
  Bench bench;
  const double known = WidthOf(bench.Ask(Sample()));
  bench.asked.gpu = "new-80gb";
  bench.gpu.header.constants["gemm_efficiency_bf16"] = {.source = "prior: a guess", .file = "new"};
  const Confidence c = bench.Ask(Sample());
  EXPECT_THAT(c.outside, testing::ElementsAre("new-80gb: no calibrated run on this chip"));
  bench.gpu.header.constants["gemm_efficiency_bf16"].spread = 0.5;
  EXPECT_GT(WidthOf(bench.Ask(Sample())), WidthOf(c));
  EXPECT_GT(WidthOf(bench.Ask(Sample())), known);
}

TEST(Confidence, SitesLieAsFarFromTheirFamilyAsOthersDo) {
  Trust trust = Sample();
  trust.site_spread["framework/s:kernel_gap"] = 0.4;  // half of the step
  trust.site_spread["framework/other:kernel_gap"] = 9;
  EXPECT_NEAR(SpreadOf(Bench(), trust), 0.05, 1e-9);
  Bench bench;
  bench.asked.topology = "new";
  EXPECT_NEAR(SpreadOf(bench, trust), std::hypot(0.1, 0.5 * 0.4), 0.01);
}

TEST(Confidence, WhatATopologyAssumesWidensWhereItCounts) {
  Bench bench;
  bench.asked.topology = "new";
  bench.cluster.name = "new";
  bench.cluster.nic_rate = BytesPerSecond(1);
  const CostSetting setting{&bench.gpu, &bench.fabric, &bench.framework, &bench.cluster};
  Trust trust = Sample();
  trust.covariance = {0, 0, 0, 0};
  // 2 s of products and gaps, and as many behind the network.
  const auto step = [](const CostSetting& s) {
    return Bench::Step(s) + 2 / s.cluster->nic_rate.value;
  };
  const auto spread = [&] {
    return WidthOf(ConfidenceOf(trust, setting, bench.asked, step(setting), step)) / 3;
  };
  const double known = spread();
  bench.cluster.assumed = true;
  EXPECT_NEAR(spread(), std::hypot(known, 0.5 * kAssumedRate), 0.01);
  EXPECT_THAT(ConfidenceOf(trust, setting, bench.asked, step(setting), step).outside,
              testing::Contains("new: its file assumes the rates between nodes"));
  bench.cluster.nodes = 1;  // nothing travels between nodes
  EXPECT_NEAR(spread(), known, 1e-9);
  bench.cluster.nodes = 2;
  bench.asked.topology = Bench().asked.topology;  // calibrated: what was assumed was measured
  EXPECT_LT(spread(), known);
}

// A network that no calibrated run used widens by what hangs on its rates, where nodes talk at all.
TEST(Confidence, ANetworkWithoutRunsWidensWhereItCounts) {
  Bench bench;
  bench.cluster.nic_rate = BytesPerSecond(1);
  bench.asked.at[kAtNodes] = 2;
  const CostSetting setting{&bench.gpu, &bench.fabric, &bench.framework, &bench.cluster};
  Trust trust = Sample();
  trust.covariance = {0, 0, 0, 0};
  for (RunIdentity& run : trust.runs) run.at[kAtNodes] = 2;
  const auto step = [](const CostSetting& s) {
    return Bench::Step(s) + 2 / s.cluster->nic_rate.value;
  };
  const auto spread = [&] {
    return WidthOf(ConfidenceOf(trust, setting, bench.asked, step(setting), step)) / 3;
  };
  const double known = spread();
  bench.asked.fabric = "new";
  EXPECT_NEAR(spread(), std::hypot(known, 0.5 * kNewNetwork), 0.01);
  bench.cluster.nodes = 1;
  EXPECT_NEAR(spread(), known, 1e-9);
}

// An unknown framework does not hide that the site and its network are unknown, too.
TEST(Kinship, AllThatIsUnknownIsSaid) {
  RunIdentity asked = Bench().asked, known = asked;
  asked.framework = "third";
  asked.topology = "new";
  asked.fabric = "g";
  asked.at.fill(2);
  known.at.fill(2);
  EXPECT_THAT(KinshipOf(asked, {&known}).outside,
              testing::ElementsAre("third: no calibrated run of this framework",
                                   "new: no calibrated run on it",
                                   "g: no calibrated run between nodes on this network"));
}

TEST(Kinship, ChipsHaveTheirMemoryCutOff) {
  EXPECT_EQ(ChipOf("a100-sxm4-80gb"), "a100-sxm4");
  EXPECT_EQ(ChipOf("b200-sxm-180gb-together"), "b200-sxm");
  EXPECT_EQ(ChipOf("gaudi-hl205"), "gaudi-hl205");
}

TEST(TrustFile, IsReadAsItWasWritten) {
  Trust written = Sample();
  written.sites["s@known, one node"] = 1.5;
  written.site_spread["framework/s:kernel_gap"] = 0.5;
  const auto source = std::make_shared<Source>(Source{"trust.json", TrustText(written)});
  const Trust trust = ParseTrust(source);
  EXPECT_EQ(trust.sites, written.sites);
  EXPECT_EQ(trust.site_spread, written.site_spread);
  EXPECT_EQ(trust.constants, Sample().constants);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(trust.covariance[i], Sample().covariance[i], 1e-4);
  for (std::size_t kin = 0; kin < kKins; ++kin) EXPECT_EQ(trust.kin[kin].spread, kSpread[kin]);
  EXPECT_EQ(trust.differences.at("s").difference, 0.1);
  EXPECT_EQ(TrustText(trust), TrustText(written));
}

TEST(TrustFile, DamageIsAnErrorOfTheInput) {
  const std::string text = TrustText(Sample());
  for (const std::size_t cut : {std::size_t{0}, text.size() / 3, text.size() / 2}) {
    const auto source = std::make_shared<Source>(Source{"trust.json", text.substr(0, cut)});
    EXPECT_THROW((void)ParseTrust(source), InputError) << cut;
  }
  std::string other = text;
  other.replace(other.find("trust/3"), 7, "trust/9");
  EXPECT_THROW((void)ParseTrust(std::make_shared<Source>(Source{"trust.json", other})), InputError);
}

TEST(TrustFile, TheOneOfTheRepositoryCoversItsConstants) {
  const Trust trust = LoadTrust();
  ASSERT_FALSE(trust.empty());
  EXPECT_GT(trust.constants.size(), 50U);
  for (std::size_t i = 0; i < trust.constants.size(); ++i)
    EXPECT_GT(trust.covariance[i * trust.constants.size() + i], 0) << trust.constants[i][0];
  double nearer = 0;
  for (const KinErrors& errors : trust.kin) {
    EXPECT_GT(errors.groups, 0);
    EXPECT_GE(errors.spread, nearer);
    nearer = errors.spread;
  }
  EXPECT_GT(trust.runs.size(), 1000U);
}

}  // namespace
}  // namespace orrery
