// SPDX-License-Identifier: Apache-2.0
// Fits recover what made the points, stay in bounds and do not follow noise.
#include "calib/sweeps/curve_fit.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "calib/sweeps/residual_table.h"
#include "tests/sweeps/made.h"

namespace orrery {
namespace {

double MeanError(const SweepCurve& fitted, const SweepCurve& truth, bool table) {
  double sum = 0;
  int count = 0;
  for (double log = std::log(8.0); log < std::log(8e9); log += 0.37, ++count) {
    const double bytes = std::exp(log);
    const double time = table ? fitted.Time(bytes) : fitted.Formula(bytes);
    sum += std::abs(std::log(time / truth.Time(bytes)));
  }
  return sum / count;
}

TEST(CurveFit, RecoversAKnownCurveFromExactPoints) {
  const CurveFit fit = FitCurve(PointsOf(KnownCurve(), 0, 1), GenericPrior(1), {2, false});
  EXPECT_NEAR(fit.curve.protocols[0].latency, 12e-6, 0.5e-6);
  EXPECT_NEAR(1e-9 / fit.curve.protocols[0].per_byte, 6, 1.0);
  EXPECT_NEAR(fit.curve.protocols[1].latency, 30e-6, 3e-6);
  EXPECT_NEAR(1e-9 / fit.curve.protocols[1].per_byte, 200, 4);
  EXPECT_LT(MeanError(fit.curve, KnownCurve(), false), 0.01);
}

TEST(CurveFit, NoiseAveragesOut) {
  for (unsigned seed : {1U, 2U, 3U}) {
    const CurveFit fit = FitCurve(PointsOf(KnownCurve(), 0.03, seed), GenericPrior(1), {2, true});
    EXPECT_LT(MeanError(fit.curve, KnownCurve(), true), 0.025) << seed;
    EXPECT_GT(fit.spread, 0.01) << seed;
    EXPECT_LT(fit.spread, 0.06) << seed;
  }
}

TEST(CurveFit, OneSpikeDoesNotMoveTheRest) {
  std::vector<SweepPoint> points = PointsOf(KnownCurve(), 0, 1);
  points[2].seconds *= 5;
  const CurveFit fit = FitCurve(points, GenericPrior(1), {2, false});
  EXPECT_LT(MeanError(fit.curve, KnownCurve(), false), 0.02);
}

TEST(CurveFit, CrossValidationTakesOneProtocolForOneLine) {
  SweepCurve line;
  line.protocols = {{20e-6, 1 / 10e9}};
  EXPECT_EQ(ChooseProtocols(PointsOf(line, 0.01, 4), GenericPrior(2)), 1);
  EXPECT_GE(ChooseProtocols(PointsOf(KnownCurve(), 0.002, 4), GenericPrior(1)), 2);
}

TEST(CurveFit, NothingIsNegativeAndTimesGrowWithoutATable) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> log_time(-14, 2);
  for (int trial = 0; trial < 40; ++trial) {
    std::vector<SweepPoint> points;  // times that no line explains
    for (int power = 3; power < 30; power += 3)
      points.push_back({std::ldexp(1.0, power), std::exp(log_time(random))});
    const CurveFit fit = FitCurve(points, GenericPrior(1), {2, false});
    EXPECT_GE(fit.curve.per_root_byte, 0);
    for (const SweepCurve::Protocol& protocol : fit.curve.protocols) {
      EXPECT_GT(protocol.latency, 0);
      EXPECT_GT(protocol.per_byte, 0);
    }
    EXPECT_LE(fit.curve.protocols[0].latency, fit.curve.protocols[1].latency * (1 + 1e-9));
    EXPECT_GE(fit.curve.protocols[0].per_byte, fit.curve.protocols[1].per_byte * (1 - 1e-9));
    double last = 0;
    for (int power = 0; power < 40; ++power) {
      const double time = fit.curve.Time(std::ldexp(1.0, power));
      EXPECT_TRUE(std::isfinite(time));
      EXPECT_GE(time, last);
      last = time;
    }
  }
}

TEST(CurveFit, LargeMessagesAloneKeepThePriorOfTheLatencyProtocol) {
  std::vector<SweepPoint> points = PointsOf(KnownCurve(), 0.01, 5);
  std::erase_if(points, [](const SweepPoint& point) { return point.bytes < 1e9; });
  const CurveFit fit = FitCurve(points, GenericPrior(1), {2, true});
  const auto named = [&](const std::string& name) {
    return *std::ranges::find(fit.constants, name, &CurveConstant::name);
  };
  EXPECT_GT(named("bandwidth 1").ratio, 0.95);
  EXPECT_GT(named("latency 1").ratio, 0.8);
  EXPECT_LT(named("bandwidth 2").ratio, 0.1);
}

TEST(CurveFit, OnePointIsEnoughForAPrediction) {
  const CurveFit fit = FitCurve({{1048576, 1e-4}}, GenericPrior(2), {});
  EXPECT_NEAR(fit.curve.Time(1048576) / 1e-4, 1, 0.05);
}

TEST(ResidualTable, KeepsSmoothResidualsAndShrinksScatter) {
  std::vector<SweepCurve::Residual> smooth, scatter;
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal(0, 0.02);
  for (int power = 3; power < 33; ++power) {
    const double x = power * std::log(2.0);
    smooth.push_back({x, 0.1 * std::sin(power / 5.0)});
    scatter.push_back({x, normal(random)});
  }
  const auto norm = [](const std::vector<SweepCurve::Residual>& residuals) {
    double sum = 0;
    for (const auto& residual : residuals) sum += residual.log_ratio * residual.log_ratio;
    return std::sqrt(sum / static_cast<double>(residuals.size()));
  };
  EXPECT_NEAR(norm(ShrinkResiduals(smooth).entries) / norm(smooth), 1, 0.1);
  EXPECT_LT(norm(ShrinkResiduals(scatter).entries) / norm(scatter), 0.7);
}

}  // namespace
}  // namespace orrery
