// SPDX-License-Identifier: Apache-2.0
// Intervals over profiles as they are shipped and loaded from disk: which constants reach them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "model/framework/profile.h"
#include "model/hardware/profile.h"
#include "model/twin/trust.h"

namespace orrery {
namespace {

double WidthOf(const Confidence& c) { return std::log(c.high / c.low); }

// One constant, a log-normal spread of 0.3 wide, and one run in some cluster "here".
Trust OfTheClock() {
  constexpr double kSpread[kKins] = {0.02, 0.03, 0.05, 0.1, 0.2, 0.3};
  Trust trust;
  trust.constants = {{"gpu/family-blackwell:clock_share"}};
  trust.covariance = {0.09};
  for (std::size_t kin = 0; kin < kKins; ++kin) trust.kin[kin] = {10, 50, kSpread[kin], 1.5, 0.8};
  trust.runs = {{"nemo", "b200-sxm-180gb", "efa", "here", {}, {}}};
  trust.runs[0].at.fill(1);
  return trust;
}

// Of the interval that profiles of the catalogue, as they are loaded, have on both sides.
double WidthOfShipped(const Trust& trust, const GpuProfile& gpu, const FrameworkProfile& framework,
                      const std::string& topology) {
  const FabricProfile fabric = LoadFabricProfile("efa");
  ClusterSummary cluster;
  cluster.name = topology;
  const CostSetting setting{&gpu, &fabric, &framework, &cluster};
  RunIdentity asked{"nemo", gpu.header.id, "efa", topology, {}, {}};
  asked.at.fill(1);
  const auto step = [](const CostSetting& s) {
    return 1 / (s.gpu->clock_share * s.gpu->gemm_efficiency_bf16) + s.framework->step_fixed.value;
  };
  return WidthOf(ConfidenceOf(trust, setting, asked, step(setting), step));
}

TEST(Confidence, ConstantsCountThatShippedProfilesTakeFromTheirFamilies) {
  Trust trust = OfTheClock();
  const FrameworkProfile nemo = LoadFrameworkProfile("nemo");
  const GpuProfile b200 = LoadGpuProfile("b200-sxm-180gb");
  EXPECT_NEAR(WidthOfShipped(trust, b200, nemo, "here") / 3, std::hypot(0.02, 0.3), 0.02);
  // Another chip, and one that measured its own.
  const GpuProfile own = LoadGpuProfile("b200-sxm-180gb-simumax");
  trust.runs[0].gpu = own.header.id;
  EXPECT_NEAR(WidthOfShipped(trust, own, nemo, "here") / 3, 0.02, 1e-3);
  // Sites lie around their family.
  trust.runs[0].gpu = b200.header.id;
  trust.site_spread["gpu/family-blackwell:clock_share"] = 0.4;
  EXPECT_NEAR(WidthOfShipped(trust, b200, nemo, "there") / 3, std::hypot(0.1, 0.3, 0.4), 0.03);
}

// What trust.json of the repository says reaches profiles of the repository.
TEST(Confidence, ShippedConstantsWidenShippedProfiles) {
  const Trust shipped = LoadTrust();
  Trust certain = shipped;
  certain.covariance.assign(certain.covariance.size(), 0.0);
  const FrameworkProfile nemo = LoadFrameworkProfile("nemo");
  for (const char* gpu : {"b200-sxm-180gb", "h100-sxm5-80gb", "a100-sxm4-80gb"}) {
    const GpuProfile chip = LoadGpuProfile(gpu);
    EXPECT_GT(WidthOfShipped(shipped, chip, nemo, "nowhere"),
              1.001 * WidthOfShipped(certain, chip, nemo, "nowhere"))
        << gpu;
  }
  // A site that nobody measured: where clocks differ from site to site, by more than where they do not.
  EXPECT_GT(WidthOfShipped(shipped, LoadGpuProfile("b200-sxm-180gb"), nemo, "nowhere"),
            1.5 * WidthOfShipped(shipped, LoadGpuProfile("h100-sxm5-80gb"), nemo, "nowhere"));
}

TEST(Confidence, AUsersCopyOfAConstantHasItsOwnSpread) {
  Trust trust = OfTheClock();
  const FrameworkProfile nemo = LoadFrameworkProfile("nemo");
  const auto spread = [&](const std::string& more) {
    const std::string path = testing::TempDir() + "/family-blackwell.yaml";
    std::ofstream(path) << "inherits: b200-sxm-180gb\nconstants:\n  clock_share: {value: 0.595, " +
                               more + "}\n";
    GpuProfile gpu = LoadGpuProfile(path);
    gpu.header.id = "b200-sxm-180gb";
    return WidthOfShipped(trust, gpu, nemo, "here") / 3;
  };
  EXPECT_NEAR(spread("source: \"measured\""), 0.02, 1e-3);
  EXPECT_NEAR(spread("spread: 0.05, source: \"measured\""), std::hypot(0.02, 0.05), 5e-3);
  EXPECT_NEAR(spread("spread: 0.05, source: \"prior: mine\""), 0.02, 1e-3);  // of a known chip
}

}  // namespace
}  // namespace orrery
