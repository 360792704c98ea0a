// SPDX-License-Identifier: Apache-2.0
// The least-squares problem of one sweep, its starts, cross-validation.
#include "calib/sweeps/curve_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "calib/fit/solver.h"
#include "calib/sweeps/residual_table.h"
#include "model/base/check.h"

namespace orrery {
namespace {

constexpr double kResidualUnit = 0.02, kCauchy = 2.5;  // residuals above 5 % lose weight
constexpr double kLeastLatency = 1e-7, kMostLatency = 10;
constexpr double kLeastBandwidth = 1e4, kMostBandwidth = 1e14;
constexpr double kNoLoss = 1e-4;  // of h
constexpr double kMostLoss = 3, kLargestStep = 6;
constexpr double kWorthIt = 0.93;  // left-out error of one more protocol over that without it

// x = [ln a_1, ln b_P, h, ln u_1, ln v_1, ...].
struct Layout {
  int protocols;
  int size() const { return 3 + 2 * (protocols - 1); }
  int u(int i) const { return 3 + 2 * i; }
  int v(int i) const { return 4 + 2 * i; }
};

SweepCurve CurveAt(const Layout& layout, const Eigen::VectorXd& x) {
  SweepCurve curve;
  curve.protocols.resize(static_cast<std::size_t>(layout.protocols));
  double latency = x[0], bandwidth = x[1];
  for (int p = 0; p < layout.protocols; ++p) {
    if (p > 0) latency += x[layout.u(p - 1)];
    curve.protocols[static_cast<std::size_t>(p)].latency = std::exp(latency);
  }
  for (int p = layout.protocols - 1; p >= 0; --p) {
    if (p + 1 < layout.protocols) bandwidth += x[layout.v(p)];
    curve.protocols[static_cast<std::size_t>(p)].per_byte = std::exp(-bandwidth);
  }
  const SweepCurve::Protocol& last = curve.protocols.back();
  curve.per_root_byte = 2 * x[2] * std::sqrt(last.latency * last.per_byte);
  return curve;
}

class CurveModel : public ResidualModel {
 public:
  CurveModel(const std::vector<SweepPoint>& points, Layout layout)
      : points_(points), layout_(layout), all_(static_cast<std::size_t>(layout.size())) {
    std::iota(all_.begin(), all_.end(), 0);
  }
  int residuals() const override { return static_cast<int>(points_.size()); }
  const std::vector<int>& Dependencies(int) const override { return all_; }

  void Evaluate(const Eigen::VectorXd& x, Eigen::VectorXd* r, Eigen::MatrixXd* jacobian) override {
    const SweepCurve curve = CurveAt(layout_, x);
    r->resize(residuals());
    if (jacobian != nullptr) jacobian->setZero(residuals(), layout_.size());
    for (int i = 0; i < residuals(); ++i) {
      const SweepPoint& point = points_[static_cast<std::size_t>(i)];
      (*r)[i] = std::log(curve.Formula(point.bytes) / point.seconds) / kResidualUnit;
      if (jacobian != nullptr) FillRow(curve, point.bytes, i, jacobian);
    }
  }

 private:
  void FillRow(const SweepCurve& curve, double bytes, int row, Eigen::MatrixXd* jacobian) const {
    const auto time = [&](const SweepCurve::Protocol& p) { return p.latency + bytes * p.per_byte; };
    const auto fastest = std::ranges::min_element(curve.protocols, {}, time);
    const int active = static_cast<int>(fastest - curve.protocols.begin());
    const double loss = curve.per_root_byte * std::sqrt(bytes);
    const double wire = bytes * fastest->per_byte;
    const double scale = 1.0 / (kResidualUnit * curve.Formula(bytes));
    const SweepCurve::Protocol& last = curve.protocols.back();
    (*jacobian)(row, 0) = scale * (fastest->latency + 0.5 * loss);
    (*jacobian)(row, 1) = -scale * (wire + 0.5 * loss);
    (*jacobian)(row, 2) = scale * 2 * std::sqrt(last.latency * last.per_byte * bytes);
    for (int i = 0; i + 1 < layout_.protocols; ++i) {
      (*jacobian)(row, layout_.u(i)) = scale * ((i < active ? fastest->latency : 0) + 0.5 * loss);
      (*jacobian)(row, layout_.v(i)) = i >= active ? -scale * wire : 0;
    }
  }

  const std::vector<SweepPoint>& points_;
  Layout layout_;
  std::vector<int> all_;
};

Variable Make(const NormalPrior& prior, double lower, double upper) {
  return {prior.mean, prior.mean, prior.sigma, lower, upper};
}

std::vector<Variable> VariablesOf(const Layout& layout, const CurvePrior& prior) {
  std::vector<Variable> variables = {
      Make(prior.log_latency, std::log(kLeastLatency), std::log(kMostLatency)),
      Make(prior.log_bandwidth, std::log(kLeastBandwidth), std::log(kMostBandwidth)),
      Make(prior.loss, 0, kMostLoss)};
  for (int i = 0; i + 1 < layout.protocols; ++i) {
    // Several protocols share what the first and the last differ by.
    const double share = 1.0 / (layout.protocols - 1), root = std::sqrt(share);
    variables.push_back(
        Make({share * prior.log_latency_step.mean, root * prior.log_latency_step.sigma}, 0,
             kLargestStep));
    variables.push_back(
        Make({share * prior.log_bandwidth_step.mean, root * prior.log_bandwidth_step.sigma},
             -kLargestStep, 0));
  }
  return variables;
}

Solution SolveFrom(const std::vector<SweepPoint>& points, const Layout& layout,
                   std::vector<Variable> variables, const Eigen::VectorXd& start, bool posterior) {
  for (std::size_t j = 0; j < variables.size(); ++j)
    variables[j].start = start[static_cast<Eigen::Index>(j)];
  CurveModel model(points, layout);
  SolverOptions options;
  options.cauchy_scale = kCauchy;
  options.iterations = 60;
  options.posterior = posterior;
  return Minimise(&model, variables, std::vector<double>(points.size(), 1.0), options);
}

std::vector<Eigen::VectorXd> StartsOf(const std::vector<SweepPoint>& points, const Layout& layout,
                                      const CurvePrior& prior) {
  double latency = points.front().seconds, bandwidth = 0;
  for (const SweepPoint& point : points) {
    latency = std::min(latency, point.seconds);
    bandwidth = std::max(bandwidth, point.bytes / point.seconds);
  }
  constexpr double kSteps[][3] = {{0.3, -0.6, 0.1}, {0.9, -1.9, 0.05}, {1.8, -3.0, 0.3}};
  std::vector<Eigen::VectorXd> starts;
  for (const auto& step : kSteps) {
    Eigen::VectorXd x = Eigen::VectorXd::Zero(layout.size());
    x[0] = std::log(0.95 * latency);
    x[1] = std::log(1.05 * bandwidth);
    x[2] = step[2];
    for (int i = 0; i + 1 < layout.protocols; ++i) {
      x[layout.u(i)] = step[0] / (layout.protocols - 1);
      x[layout.v(i)] = step[1] / (layout.protocols - 1);
    }
    starts.push_back(std::move(x));
  }
  Eigen::VectorXd usual = starts[1];
  usual[0] = prior.log_latency.mean;
  usual[1] = prior.log_bandwidth.mean;
  starts.push_back(std::move(usual));
  return starts;
}

Solution Solve(const std::vector<SweepPoint>& points, const Layout& layout, const CurvePrior& prior,
               const std::vector<Eigen::VectorXd>& starts, bool posterior) {
  const std::vector<Variable> variables = VariablesOf(layout, prior);
  Solution best;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    Solution solution = SolveFrom(points, layout, variables, starts[i], false);
    if (i == 0 || solution.cost < best.cost) best = std::move(solution);
  }
  return posterior ? SolveFrom(points, layout, variables, best.x, true) : best;
}

std::vector<SweepCurve::Residual> ResidualsOf(const std::vector<SweepPoint>& points,
                                              const SweepCurve& curve) {
  std::vector<SweepCurve::Residual> residuals;
  for (const SweepPoint& point : points)
    residuals.push_back(
        {std::log(point.bytes), std::log(point.seconds / curve.Formula(point.bytes))});
  return residuals;
}

double RobustSpread(std::vector<double> values) {
  if (values.empty()) return 0;
  for (double& value : values) value = std::abs(value);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return 1.4826 * *middle;
}

void Complete(const std::vector<SweepPoint>& points, bool table, CurveFit* fit) {
  const std::vector<SweepCurve::Residual> residuals = ResidualsOf(points, fit->curve);
  std::vector<double> logs;
  for (const auto& residual : residuals) logs.push_back(residual.log_ratio);
  fit->spread = RobustSpread(logs);
  fit->points = static_cast<int>(points.size());
  if (!table) return;
  ResidualTable shrunk = ShrinkResiduals(residuals);
  fit->curve.residuals = std::move(shrunk.entries);
  fit->noise = shrunk.noise;
}

// How many points each protocol is the fastest for.
std::vector<int> PointsByProtocol(const std::vector<SweepPoint>& points, const SweepCurve& curve) {
  std::vector<int> count(curve.protocols.size(), 0);
  for (const SweepPoint& point : points) {
    const auto fastest =
        std::ranges::min_element(curve.protocols, {}, [&](const SweepCurve::Protocol& protocol) {
          return protocol.latency + point.bytes * protocol.per_byte;
        });
    ++count[static_cast<std::size_t>(fastest - curve.protocols.begin())];
  }
  return count;
}

std::vector<CurveConstant> ConstantsOf(const Layout& layout, const Solution& solution,
                                       const std::vector<SweepPoint>& points,
                                       const SweepCurve& curve, const CurvePrior& prior) {
  const std::vector<Variable> variables = VariablesOf(layout, prior);
  const auto make = [&](std::string name, double value, int j, int count) {
    const double sigma = solution.sigma[j];
    const double loss = solution.x[2];
    const double relative = j != 2 ? sigma : loss > kNoLoss ? sigma / loss : 0;
    return CurveConstant{std::move(name),
                         value,
                         relative,
                         count,
                         sigma / variables[static_cast<std::size_t>(j)].sigma,
                         solution.bound[static_cast<std::size_t>(j)]};
  };
  const std::vector<int> active = PointsByProtocol(points, curve);
  std::vector<CurveConstant> constants;
  const int last = layout.protocols - 1;
  for (int p = 0; p <= last; ++p) {
    const SweepCurve::Protocol& protocol = curve.protocols[static_cast<std::size_t>(p)];
    constants.push_back(make(fmt::format("latency {}", p + 1), protocol.latency,
                             p == 0 ? 0 : layout.u(p - 1), active[static_cast<std::size_t>(p)]));
    constants.push_back(make(fmt::format("bandwidth {}", p + 1), 1 / protocol.per_byte,
                             p == last ? 1 : layout.v(p), active[static_cast<std::size_t>(p)]));
  }
  constants.push_back(
      make("pipelining loss", curve.per_root_byte, 2, static_cast<int>(points.size())));
  return constants;
}

std::vector<SweepPoint> Without(const std::vector<SweepPoint>& points, double bytes) {
  std::vector<SweepPoint> kept;
  std::ranges::copy_if(points, std::back_inserter(kept),
                       [&](const SweepPoint& point) { return point.bytes != bytes; });
  return kept;
}

}  // namespace

CurvePrior GenericPrior(int nodes) {
  CurvePrior prior;
  prior.log_latency = {std::log(nodes == 1 ? 15e-6 : 100e-6), 1.5};
  prior.log_bandwidth = {std::log(nodes == 1 ? 100e9 : 30e9), 3};
  return prior;
}

CurveFit FitCurve(const std::vector<SweepPoint>& points, const CurvePrior& prior,
                  const CurveOptions& options) {
  ORRERY_CHECK(!points.empty(), "a fit without points, {} protocols", options.protocols);
  const Layout layout{options.protocols > 0 ? options.protocols : ChooseProtocols(points, prior)};
  const Solution solution = Solve(points, layout, prior, StartsOf(points, layout, prior), true);
  CurveFit fit;
  fit.curve = CurveAt(layout, solution.x);
  fit.constants = ConstantsOf(layout, solution, points, fit.curve, prior);
  Complete(points, options.table, &fit);
  return fit;
}

std::vector<double> LeavePointsOut(const std::vector<SweepPoint>& points, const CurvePrior& prior,
                                   const CurveOptions& options) {
  const Layout layout{options.protocols > 0 ? options.protocols : ChooseProtocols(points, prior)};
  const std::vector<Eigen::VectorXd> starts = StartsOf(points, layout, prior);
  const Solution full = Solve(points, layout, prior, starts, false);
  std::vector<double> errors;
  for (const SweepPoint& point : points) {
    const std::vector<SweepPoint> kept = Without(points, point.bytes);
    if (kept.empty()) return {};
    const Solution solution = Solve(kept, layout, prior, {full.x, starts[1]}, false);
    CurveFit fit;
    fit.curve = CurveAt(layout, solution.x);
    Complete(kept, options.table, &fit);
    errors.push_back(std::log(fit.curve.Time(point.bytes) / point.seconds));
  }
  return errors;
}

int ChooseProtocols(const std::vector<SweepPoint>& points, const CurvePrior& prior) {
  int best = std::min<int>(2, static_cast<int>(points.size()));
  if (points.size() < 8) return std::max(best, 1);  // the priors know more than so few points
  double least = INFINITY;
  for (int protocols = 1; protocols <= kMostProtocols; ++protocols) {
    double sum = 0;
    for (double error : LeavePointsOut(points, prior, {protocols, true}))
      sum += std::min(std::abs(error), 0.3);
    if (sum < kWorthIt * least) least = sum, best = protocols;
  }
  return best;
}

}  // namespace orrery
