// SPDX-License-Identifier: Apache-2.0
// What a fit keeps of the trust that was there before.
#include <gtest/gtest.h>

#include "calib/fit/trust.h"

namespace orrery {
namespace {

// What no file says to be fitted any more, and sites without runs, are not carried on.
TEST(MergedTrust, LeavesBehindWhatIsStale) {
  const auto of = [](std::vector<std::string> names, int rows) {
    Trust trust;
    for (std::string& name : names) trust.constants.push_back({std::move(name)});
    const std::size_t n = trust.constants.size();
    trust.covariance.assign(n * n, 0.0);
    for (std::size_t i = 0; i < n; ++i) trust.covariance[i * n + i] = 0.01;
    for (KinErrors& errors : trust.kin) errors = {20, rows, 0.1, 1.3, 0.8};
    return trust;
  };
  Trust old = of({"framework/fsdp:loss_traffic", "framework/common:softmax_traffic",
                  "framework/gone@nowhere:loss_traffic", "gpu/family-ampere:memory_efficiency"},
                 100);
  old.site_spread = {{"framework/common:softmax_traffic", 0.5},
                     {"framework/fsdp:loss_traffic", 0.5},
                     {"gpu/family-ampere:memory_efficiency", 0.5}};
  old.sites = {{"fsdp@here, one node", 2}, {"gone@nowhere, one node", 2}};
  old.runs = {{"fsdp", "", "", "here", {}, {}}};
  Trust fresh = of({"gpu/family-ampere:memory_efficiency"}, 60);
  fresh.kin[0].groups = 1;
  const Trust merged = Merged(old, fresh);
  EXPECT_EQ(merged.constants,
            (std::vector<std::vector<std::string>>{{"gpu/family-ampere:memory_efficiency"},
                                                   {"framework/fsdp:loss_traffic"}}));
  EXPECT_EQ(merged.site_spread.size(), 1U);
  EXPECT_EQ(merged.sites.size(), 1U);
  EXPECT_TRUE(merged.sites.contains("fsdp@here, one node"));
  EXPECT_EQ(merged.kin[0].groups, 1);  // of at least half of the runs
  for (KinErrors& errors : fresh.kin) errors.rows = 40;
  EXPECT_EQ(Merged(old, fresh).kin[0].groups, 20);
}

}  // namespace
}  // namespace orrery
