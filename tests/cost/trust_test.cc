// SPDX-License-Identifier: Apache-2.0
// Intervals of predictions: what widens them, what they say, the file behind them.
#include "model/twin/trust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "model/base/diagnostics.h"

namespace orrery {
namespace {

using testing::HasSubstr;

// Two constants that hold the step together, strongly anticorrelated.
Trust Sample() {
  Trust trust;
  trust.constants = {{"gpu/a:gemm_efficiency_bf16"}, {"framework/s:kernel_gap"}};
  trust.covariance = {0.04, -0.0396, -0.0396, 0.04};
  FrameworkTrust framework;
  framework.profile = "s";
  framework.rows = 50;
  framework.spread = 0.05;
  framework.low = -1;
  framework.high = 2;
  framework.difference = 0.1;
  framework.pairs = 20;
  framework.gpus = {"a"};
  framework.fabrics = {"f"};
  for (auto& range : framework.range) range = {1, 8};
  trust.frameworks.push_back(framework);
  framework.profile = "";
  framework.spread = 0.1;
  trust.frameworks.push_back(framework);
  return trust;
}

struct Bench {
  GpuProfile gpu;
  FabricProfile fabric;
  FrameworkProfile framework;
  ClusterSummary cluster;
  Situation at;

  Bench() {
    gpu.header.id = "a";
    gpu.gemm_efficiency_bf16 = 0.5;
    gpu.header.constants["gemm_efficiency_bf16"].file = "a";
    fabric.header.id = "f";
    framework.header.id = "s";
    framework.kernel_gap = Seconds(1);
    framework.residual_low = 0.8;
    framework.residual_high = 1.3;
    framework.header.constants["kernel_gap"].file = "s";
    cluster.nodes = 2;
    at.fill(4);
  }
  // 1 s of products and 1 s of gaps.
  static double Step(const CostSetting& s) {
    return 0.5 / s.gpu->gemm_efficiency_bf16 + s.framework->kernel_gap.value;
  }
  Confidence Ask(const Trust& trust) const {
    const CostSetting setting{&gpu, &fabric, &framework, &cluster};
    return ConfidenceOf(trust, setting, at, Step(setting), Step);
  }
};

double WidthOf(const Confidence& c) { return std::log(c.high / c.low); }

TEST(Confidence, WithoutAFileTheProfileSpeaks) {
  const Confidence c = Bench().Ask({});
  EXPECT_DOUBLE_EQ(c.low, 2 * 0.8);
  EXPECT_DOUBLE_EQ(c.high, 2 * 1.3);
  EXPECT_TRUE(c.outside.empty());
}

TEST(Confidence, CorrelationsOfConstantsCount) {
  // d log T / d log efficiency = -1/2, of the gap +1/2: the errors add up when anticorrelated.
  const double slope = 0.5, variance = slope * slope * (0.04 + 0.04 + 2 * 0.0396);
  const double f = std::sqrt(0.05 * 0.05 + variance);
  const Confidence c = Bench().Ask(Sample());
  EXPECT_NEAR(c.low, 2 * std::exp(-f), 0.01);
  EXPECT_NEAR(c.high, 2 * std::exp(2 * f), 0.02);
  Trust together = Sample();
  together.covariance[1] = together.covariance[2] = 0.0396;
  EXPECT_LT(WidthOf(Bench().Ask(together)), 0.6 * WidthOf(c));
}

TEST(Confidence, ConstantsOfOtherFilesDoNotCount) {
  Bench bench;
  bench.gpu.header.constants["gemm_efficiency_bf16"].file = "base";
  EXPECT_LT(WidthOf(bench.Ask(Sample())), WidthOf(Bench().Ask(Sample())));
}

TEST(Confidence, EachDoublingOutsideWidensAndIsNamed) {
  Bench bench;
  const double inside = WidthOf(bench.Ask(Sample()));
  bench.at[kAtNodes] = 32;
  const Confidence c = bench.Ask(Sample());
  EXPECT_NEAR(WidthOf(c), inside * (1 + 2 * kPerDoubling), 1e-9);
  ASSERT_EQ(c.outside.size(), 1U);
  EXPECT_EQ(c.outside[0], "32 nodes: calibrated on 1 to 8");
  bench.at[kAtNodes] = 1e30;
  EXPECT_NEAR(WidthOf(bench.Ask(Sample())), inside * (1 + kMostDoublings * kPerDoubling), 1e-9);
}

TEST(Confidence, UnknownHardwareAddsItsPriors) {
  Bench bench;
  const double known = WidthOf(bench.Ask(Sample()));
  bench.gpu.header.id = "new";
  bench.gpu.header.constants["gemm_efficiency_bf16"] = {.source = "prior: a guess", .file = "new"};
  const Confidence c = bench.Ask(Sample());
  EXPECT_THAT(c.outside, testing::ElementsAre(HasSubstr("new: no calibrated run")));
  bench.gpu.header.constants["gemm_efficiency_bf16"].spread = 0.5;
  EXPECT_GT(WidthOf(bench.Ask(Sample())), WidthOf(c));
  EXPECT_GT(WidthOf(bench.Ask(Sample())), known);
}

TEST(Confidence, SoftwareWithoutRunsTakesTheErrorsOfAll) {
  Bench bench;
  bench.framework.header.id = "other";
  const Confidence c = bench.Ask(Sample());
  EXPECT_THAT(c.outside, testing::ElementsAre(HasSubstr("other: too few")));
  EXPECT_GT(WidthOf(c), WidthOf(Bench().Ask(Sample())));
}

TEST(Confidence, ClustersWithoutRunsTakeTheErrorsOfSourcesLeftOut) {
  Trust trust = Sample();
  Bench bench;
  bench.cluster.name = "known";
  const double everywhere = WidthOf(bench.Ask(trust));
  trust.frameworks[0].clusters = {"known"};
  EXPECT_DOUBLE_EQ(WidthOf(bench.Ask(trust)), everywhere);
  bench.cluster.name = "new";
  const Confidence c = bench.Ask(trust);
  EXPECT_THAT(c.outside,
              testing::ElementsAre(HasSubstr("new: no calibrated run of this framework")));
  EXPECT_GT(WidthOf(c), everywhere);
}

TEST(Confidence, SitesLieAsFarFromTheirFamilyAsOthersDo) {
  Trust trust = Sample();
  trust.covariance = {0, 0, 0, 0};
  trust.frameworks[0].clusters = {"known"};
  Bench bench;
  bench.cluster.name = "new";
  EXPECT_NEAR(WidthOf(bench.Ask(trust)), 3 * 0.1, 1e-9);
  trust.site_spread["framework/s:kernel_gap"] = 0.4;  // half of the step
  trust.site_spread["framework/other:kernel_gap"] = 9;
  EXPECT_NEAR(WidthOf(bench.Ask(trust)), 3 * std::hypot(0.1, 0.5 * 0.4), 0.01);
  bench.cluster.name = "known";
  EXPECT_NEAR(WidthOf(bench.Ask(trust)), 3 * 0.05, 1e-9);
}

TEST(TrustFile, IsReadAsItWasWritten) {
  Trust written = Sample();
  written.frameworks[0].clusters = {"here", "there"};
  written.site_spread["framework/s:kernel_gap"] = 0.5;
  const auto source = std::make_shared<Source>(Source{"trust.json", TrustText(written)});
  const Trust trust = ParseTrust(source);
  EXPECT_EQ(trust.frameworks[0].clusters, written.frameworks[0].clusters);
  EXPECT_EQ(trust.site_spread, written.site_spread);
  EXPECT_EQ(trust.constants, Sample().constants);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(trust.covariance[i], Sample().covariance[i], 1e-4);
  EXPECT_EQ(trust.Of("s").difference, 0.1);
  EXPECT_EQ(trust.Of("unheard of").spread, 0.1);
  EXPECT_EQ(TrustText(trust), TrustText(written));
}

TEST(TrustFile, DamageIsAnErrorOfTheInput) {
  const std::string text = TrustText(Sample());
  for (const std::size_t cut : {std::size_t{0}, text.size() / 3, text.size() / 2}) {
    const auto source = std::make_shared<Source>(Source{"trust.json", text.substr(0, cut)});
    EXPECT_THROW((void)ParseTrust(source), InputError) << cut;
  }
  std::string other = text;
  other.replace(other.find("trust/2"), 7, "trust/9");
  EXPECT_THROW((void)ParseTrust(std::make_shared<Source>(Source{"trust.json", other})), InputError);
}

TEST(TrustFile, TheOneOfTheRepositoryCoversItsConstants) {
  const Trust trust = LoadTrust();
  ASSERT_FALSE(trust.empty());
  EXPECT_GT(trust.constants.size(), 50U);
  for (std::size_t i = 0; i < trust.constants.size(); ++i)
    EXPECT_GT(trust.covariance[i * trust.constants.size() + i], 0) << trust.constants[i][0];
  for (const FrameworkTrust& framework : trust.frameworks) {
    EXPECT_LT(framework.low, framework.high) << framework.profile;
    EXPECT_GE(framework.rows, 10) << framework.profile;
  }
}

}  // namespace
}  // namespace orrery
