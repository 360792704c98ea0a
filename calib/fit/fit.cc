// SPDX-License-Identifier: Apache-2.0
// Two passes of the fit, the status of each constant, and refits with rows left out.
#include "calib/fit/fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "calib/fit/fit_model.h"

namespace orrery {
namespace {

constexpr double kMostSpread = 0.3;
constexpr double kFrozen = 1e-6;  // standard deviation of a variable that shall not move
constexpr int kFirstIterations = 15;
constexpr int kRefitIterations = 30;
constexpr int kSiteRounds = 3;  // without a source its software's constants go far

double MedianSize(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Groups by the information that they hold on variable j, down to a tenth of the largest.
std::vector<std::string> Informative(const std::map<std::string, double>& information) {
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [group, value] : information) order.emplace_back(value, group);
  std::sort(order.rbegin(), order.rend());
  std::vector<std::string> groups;
  for (const auto& [value, group] : order) {
    if (value > 0.1 * order.front().first && groups.size() < 4) groups.push_back(group);
  }
  return groups;
}

}  // namespace

std::map<int, double> SiteSpreads(const std::vector<FitParameter>& parameters) {
  std::map<int, std::pair<double, int>> sums;  // of squares
  for (const FitParameter& parameter : parameters) {
    if (parameter.variable.around < 0) continue;
    auto& [sum, count] = sums[parameter.variable.around];
    sum += parameter.variable.sigma * parameter.variable.sigma;
    ++count;
  }
  std::map<int, double> spreads;
  for (const auto& [centre, sum] : sums) spreads[centre] = std::sqrt(sum.first / sum.second);
  return spreads;
}

Fitter::Fitter(const Evidence& evidence, std::vector<FitParameter> parameters, FitOptions options)
    : evidence_(evidence), parameters_(std::move(parameters)), options_(options) {
  model_ = std::make_unique<Model>(evidence_, parameters_, options_.threads);
  frozen_.assign(parameters_.size(), false);
  ratios_.assign(parameters_.size(), 1.0);
  for (const Observation* seen : evidence.observations())
    spread_[seen->group] = options_.first_spread;
}

Fitter::~Fitter() = default;

std::vector<double> Fitter::Weights() const {
  std::map<std::string, int> rows;
  for (const Observation* seen : evidence_.observations()) ++rows[seen->group];
  std::vector<double> weights;
  for (const Observation* seen : evidence_.observations())
    weights.push_back(std::min(1.0, std::sqrt(options_.full_rows / rows[seen->group])));
  return weights;
}

std::vector<Variable> Fitter::Variables() const {
  std::vector<Variable> variables;
  for (std::size_t j = 0; j < parameters_.size(); ++j) {
    Variable variable = parameters_[j].variable;
    if (solution_.x.size() > 0) variable.start = solution_.x[static_cast<Eigen::Index>(j)];
    if (frozen_[j]) {
      if (variable.around < 0)
        variable.start = std::clamp(variable.prior, variable.lower, variable.upper);
      variable.sigma = kFrozen;
    }
    variables.push_back(variable);
  }
  return variables;
}

double Fitter::PriorSpread(std::size_t j) const {
  const Variable& variable = parameters_[j].variable;
  if (variable.around < 0) return variable.sigma;
  return std::hypot(variable.sigma, PriorSpread(static_cast<std::size_t>(variable.around)));
}

FitResult Fitter::Fit() {
  const std::vector<double> weights = Weights();
  const auto scale_rows = [&] {
    for (std::size_t i = 0; i < weights.size(); ++i)
      model_->scale[i] = spread_.at(evidence_.observations()[i]->group);
  };
  scale_rows();
  solution_ = Minimise(model_.get(), Variables(), weights,
                       {options_.cauchy_scale, kFirstIterations, 1e-3, false});
  std::map<std::string, std::vector<double>> errors;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    errors[evidence_.observations()[i]->group].push_back(
        solution_.residuals[static_cast<Eigen::Index>(i)] * model_->scale[i]);
  }
  // 1.48: from the median of |error| to a normal distribution's standard deviation. Small groups
  // are close to their own fit: they borrow from the first spread.
  for (auto& [group, values] : errors) {
    const double n = static_cast<double>(values.size());
    const double own = 1.48 * MedianSize(values);
    const double mixed = (n * own + 5.0 * options_.first_spread) / (n + 5.0);
    spread_[group] = std::clamp(mixed, options_.least_spread, kMostSpread);
  }
  scale_rows();
  solution_ = Minimise(model_.get(), Variables(), weights, {options_.cauchy_scale});
  for (std::size_t j = 0; j < parameters_.size(); ++j) {
    ratios_[j] = solution_.sigma[static_cast<Eigen::Index>(j)] / PriorSpread(j);
    frozen_[j] = ratios_[j] > kKeptRatio;
  }
  const Solution around = solution_;
  Refit(weights, {options_.cauchy_scale}, around, &solution_);
  model_->Evaluate(solution_.x, &solution_.residuals, nullptr);
  FitResult result = Describe(solution_);
  result.covariance = Covariance(solution_, weights);
  return result;
}

Eigen::MatrixXd Fitter::Covariance(const Solution& solution,
                                   const std::vector<double>& weights) const {
  std::vector<Variable> variables;
  for (const FitParameter& parameter : parameters_) variables.push_back(parameter.variable);
  return PosteriorCovariance(solution, variables, weights, options_.cauchy_scale);
}

FitResult Fitter::Describe(const Solution& solution) const {
  FitResult result;
  result.spread = spread_;
  const auto& seen = evidence_.observations();
  for (std::size_t i = 0; i < seen.size(); ++i)
    result.error.push_back(solution.residuals[static_cast<Eigen::Index>(i)] * model_->scale[i]);
  for (std::size_t j = 0; j < parameters_.size(); ++j) {
    const auto column = static_cast<Eigen::Index>(j);
    FittedConstant constant{parameters_[j]};
    constant.ratio = ratios_[j];
    constant.status = frozen_[j]                ? FitStatus::kKept
                      : ratios_[j] > kWeakRatio ? FitStatus::kWeak
                                                : FitStatus::kFitted;
    const bool at_prior = frozen_[j] && parameters_[j].variable.around < 0;
    constant.after = at_prior ? parameters_[j].prior : std::exp(solution.x[column]);
    constant.spread = frozen_[j] ? PriorSpread(j) : solution.sigma[column];
    constant.bound = !frozen_[j] && solution.bound[j];
    std::map<std::string, double> information;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const double slope = solution.jacobian(static_cast<Eigen::Index>(i), column);
      constant.points += std::abs(slope * model_->scale[i]) > kMovesRow;
      information[seen[i]->group] += slope * slope;
    }
    constant.groups = Informative(information);
    result.constants.push_back(std::move(constant));
  }
  return result;
}

void Fitter::Refit(const std::vector<double>& weights, const SolverOptions& options,
                   const Solution& around, Solution* solution) {
  model_->linear = &around;
  *solution = Minimise(model_.get(), Variables(), weights, options);
  model_->linear = nullptr;
}

double Fitter::SiteVariance(const Eigen::VectorXd& slope) const {
  double variance = 0;
  for (const auto& [centre, spread] : SiteSpreads(parameters_))
    variance += slope[centre] * slope[centre] * spread * spread;
  return variance;
}

Unseen Fitter::LeaveOut(const std::vector<int>& without, bool site) {
  std::vector<double> weights = Weights();
  for (int row : without) {
    weights[row] = 0;
    model_->left_out[row] = true;
  }
  Solution around = solution_, refit;
  for (int round = 1;; ++round) {
    Refit(weights, {options_.cauchy_scale, kRefitIterations, 1e-9}, around, &refit);
    if (round >= (site ? kSiteRounds : 1)) break;
    around.x = refit.x;
    model_->Evaluate(around.x, &around.residuals, &around.jacobian);
  }
  model_->left_out.assign(weights.size(), false);
  Unseen unseen;
  unseen.error = model_->Errors(refit.x, without);
  const Eigen::MatrixXd covariance = Covariance(refit, weights);
  for (int row : without) {
    const Eigen::VectorXd slope = solution_.jacobian.row(row).transpose() * model_->scale[row];
    unseen.variance.push_back(slope.dot(covariance * slope));
    unseen.site_variance.push_back(SiteVariance(slope));
  }
  return unseen;
}

}  // namespace orrery
