// SPDX-License-Identifier: Apache-2.0
// Robust least squares over ranks and sizes.
#include "calib/sweeps/node_form.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "calib/fit/solver.h"
#include "calib/sweeps/residual_table.h"
#include "model/base/check.h"

namespace orrery {
namespace {

constexpr double kUnit = 0.03, kRobust = 2.0;
constexpr double kStepwidth = 1e-4;
constexpr const char* kFormNames[] = {"offset", "step", "ring bandwidth", "copy bandwidth",
                                      "pipelining loss"};
constexpr int kVariables = 5;

NodeRingForm FormAt(const Eigen::VectorXd& x) {
  NodeRingForm form;
  form.offset = std::exp(x[0]);
  form.per_step = std::exp(x[1]);
  form.bandwidth = std::exp(x[2]);
  form.copy = std::exp(x[3]);
  form.per_root_byte = x[4] * std::sqrt(form.per_step / form.bandwidth);  // kappa = x[4]
  return form;
}

class NodeModel : public ResidualModel {
 public:
  explicit NodeModel(const std::vector<NodeSweep>& sweeps) : sweeps_(sweeps), all_(kVariables) {
    std::iota(all_.begin(), all_.end(), 0);
    for (const NodeSweep& sweep : sweeps) count_ += static_cast<int>(sweep.points.size());
  }
  int residuals() const override { return count_; }
  const std::vector<int>& Dependencies(int) const override { return all_; }

  void Evaluate(const Eigen::VectorXd& x, Eigen::VectorXd* r, Eigen::MatrixXd* jacobian) override {
    *r = Residuals(x);
    if (jacobian == nullptr) return;
    jacobian->resize(count_, kVariables);
    for (int j = 0; j < kVariables; ++j) {
      Eigen::VectorXd up = x, down = x;
      up[j] += kStepwidth;
      down[j] -= kStepwidth;
      jacobian->col(j) = (Residuals(up) - Residuals(down)) / (2 * kStepwidth);
    }
  }

 private:
  Eigen::VectorXd Residuals(const Eigen::VectorXd& x) const {
    Eigen::VectorXd r(count_);
    const NodeRingForm form = FormAt(x);
    Eigen::Index i = 0;
    for (const NodeSweep& sweep : sweeps_) {
      const SweepCurve curve = form.CurveOf(sweep.ranks, sweep.rings);
      for (const SweepPoint& point : sweep.points)
        r[i++] = std::log(curve.Formula(point.bytes) / point.seconds) / kUnit;
    }
    return r;
  }

  const std::vector<NodeSweep>& sweeps_;
  std::vector<int> all_;
  int count_ = 0;
};

// Starts of tens of microseconds, NVLink-like steps, a copy at the pace of device memory; the loss
// in units of sqrt(l / B) is 2.1 within a factor of 1.6 on fourteen published sweeps.
std::vector<Variable> NodeVariables(double bandwidth) {
  const auto log_normal = [](double mean, double sigma, double lower, double upper) {
    return Variable{std::log(mean), std::log(mean), sigma, std::log(lower), std::log(upper)};
  };
  return {log_normal(15e-6, 1.0, 1e-7, 1e-2), log_normal(2.5e-6, 0.5, 1e-8, 1e-3),
          log_normal(bandwidth, 1.5, 1e6, 1e14), log_normal(560e9, 0.7, 1e8, 1e14),
          Variable{1.0, 1.0, 1.0, 0.0, 10.0}};
}

double BestBusBandwidth(const std::vector<NodeSweep>& sweeps) {
  double best = 0;
  for (const NodeSweep& sweep : sweeps) {
    for (const SweepPoint& point : sweep.points)
      best = std::max(
          best, 2.0 * (sweep.ranks - 1) / sweep.ranks * point.bytes / point.seconds / sweep.rings);
  }
  return best;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

NodeFormFit FitNodeForm(const std::vector<NodeSweep>& sweeps) {
  ORRERY_CHECK(!sweeps.empty(), "a form over ranks without sweeps ({})", sweeps.size());
  NodeModel model(sweeps);
  const std::vector<Variable> variables = NodeVariables(BestBusBandwidth(sweeps));
  SolverOptions options;
  options.cauchy_scale = kRobust;
  options.iterations = 100;
  const Solution solution =
      Minimise(&model, variables,
               std::vector<double>(static_cast<std::size_t>(model.residuals()), 1.0), options);
  NodeFormFit fit;
  fit.form = FormAt(solution.x);
  fit.points = model.residuals();
  const double values[] = {fit.form.offset, fit.form.per_step, fit.form.bandwidth, fit.form.copy,
                           fit.form.per_root_byte};
  for (int j = 0; j < kVariables; ++j)
    fit.constants.push_back({kFormNames[j], values[j],
                             j + 1 < kVariables  ? solution.sigma[j]
                             : solution.x[j] > 0 ? solution.sigma[j] / solution.x[j]
                                                 : 0,
                             fit.points,
                             solution.sigma[j] / variables[static_cast<std::size_t>(j)].sigma,
                             solution.bound[static_cast<std::size_t>(j)]});
  std::vector<double> sizes;
  for (Eigen::Index i = 0; i < solution.residuals.size(); ++i)
    sizes.push_back(std::abs(solution.residuals[i]) * kUnit);
  fit.spread = 1.4826 * Median(std::move(sizes));
  return fit;
}

std::vector<SweepCurve::Residual> ResidualsNear(const NodeRingForm& form,
                                                const std::vector<NodeSweep>& sweeps, int ranks) {
  const NodeSweep *below = nullptr, *above = nullptr;
  for (const NodeSweep& sweep : sweeps) {
    if (sweep.rings != sweeps.front().rings) return {};
    if (sweep.ranks <= ranks && (below == nullptr || sweep.ranks > below->ranks)) below = &sweep;
    if (sweep.ranks >= ranks && (above == nullptr || sweep.ranks < above->ranks)) above = &sweep;
  }
  if (below == nullptr || above == nullptr) return {};
  std::map<double, std::pair<double, double>> sums;  // by ln(bytes): weight, weighted residual
  for (const NodeSweep* sweep : {below, above}) {
    const double weight = 1.0 / (1.0 + std::abs(sweep->ranks - ranks));
    const SweepCurve curve = form.CurveOf(sweep->ranks, sweep->rings);
    for (const SweepPoint& point : sweep->points) {
      auto& [total, sum] = sums[std::log(point.bytes)];
      total += weight;
      sum += weight * std::log(point.seconds / curve.Formula(point.bytes));
    }
  }
  std::vector<SweepCurve::Residual> residuals;
  for (const auto& [log_bytes, sum] : sums)
    residuals.push_back({log_bytes, sum.second / sum.first});
  return ShrinkResiduals(residuals).entries;
}

}  // namespace orrery
