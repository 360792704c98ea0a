// SPDX-License-Identifier: Apache-2.0
// The form over ranks of a node.
#include "calib/sweeps/node_form.h"

#include <gtest/gtest.h>

#include "tests/sweeps/made.h"

namespace orrery {
namespace {

NodeRingForm KnownForm() {
  NodeRingForm form;
  form.offset = 20e-6;
  form.per_step = 2.4e-6;
  form.bandwidth = 235e9;
  form.copy = 600e9;
  form.per_root_byte = 1.5 * std::sqrt(2.4e-6 / 235e9);
  return form;
}

NodeSweep MadeSweep(int ranks, int rings, double noise) {
  return {ranks, rings,
          PointsOf(KnownForm().CurveOf(ranks, rings), noise, static_cast<unsigned>(ranks))};
}

TEST(NodeForm, RecoversItsConstants) {
  const NodeFormFit fit =
      FitNodeForm({MadeSweep(2, 1, 0.01), MadeSweep(4, 1, 0.01), MadeSweep(8, 1, 0.01)});
  EXPECT_NEAR(fit.form.offset / 20e-6, 1, 0.1);
  EXPECT_NEAR(fit.form.per_step / 2.4e-6, 1, 0.1);
  EXPECT_NEAR(fit.form.bandwidth / 235e9, 1, 0.02);
  EXPECT_NEAR(fit.form.copy / 600e9, 1, 0.1);
}

TEST(NodeForm, PredictsOtherRanksAndOtherNumbersOfRings) {
  const NodeFormFit fit =
      FitNodeForm({MadeSweep(2, 1, 0.01), MadeSweep(4, 4, 0.01), MadeSweep(8, 6, 0.01)});
  for (const auto& [ranks, rings] : {std::pair{3, 2}, std::pair{6, 2}, std::pair{7, 4}}) {
    const SweepCurve truth = KnownForm().CurveOf(ranks, rings);
    for (double bytes : {1e3, 1e6, 1e9})
      EXPECT_NEAR(fit.form.CurveOf(ranks, rings).Time(bytes) / truth.Time(bytes), 1, 0.04)
          << ranks << " ranks, " << bytes;
  }
}

TEST(NodeForm, ResidualsComeFromBothSidesOnly) {
  const std::vector<NodeSweep> sweeps = {MadeSweep(2, 1, 0), MadeSweep(8, 1, 0)};
  NodeRingForm off = KnownForm();
  off.bandwidth *= 0.9;  // the form is 10 % slow: both neighbours say so
  const auto residuals = ResidualsNear(off, sweeps, 4);
  ASSERT_FALSE(residuals.empty());
  EXPECT_NEAR(residuals.back().log_ratio, std::log(0.9), 0.04);
  EXPECT_TRUE(ResidualsNear(off, sweeps, 9).empty());
  EXPECT_TRUE(ResidualsNear(off, {MadeSweep(2, 1, 0), MadeSweep(8, 6, 0)}, 4).empty());
}

}  // namespace
}  // namespace orrery
