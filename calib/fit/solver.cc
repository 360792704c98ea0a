// SPDX-License-Identifier: Apache-2.0
// The problem in Ceres' terms: one evaluation feeds all residual blocks.
#include "calib/fit/solver.h"

#include <ceres/ceres.h>

#include <cmath>

#include "model/base/check.h"

namespace orrery {
namespace {

constexpr double kAtBound = 1e-6;

// Evaluates everything once per point.
class Board : public ceres::EvaluationCallback {
 public:
  Board(ResidualModel* model, const Eigen::VectorXd& start) : x(start), model_(model) {
    r.resize(model->residuals());
    jacobian.setZero(model->residuals(), start.size());
  }

  void PrepareForEvaluation(bool evaluate_jacobians, bool new_point) override {
    if (new_point) has_jacobian_ = has_residuals_ = false;
    if (evaluate_jacobians ? has_jacobian_ : has_residuals_) return;
    model_->Evaluate(x, &r, evaluate_jacobians ? &jacobian : nullptr);
    has_residuals_ = true;
    has_jacobian_ = evaluate_jacobians;
  }

  Eigen::VectorXd x, r;
  Eigen::MatrixXd jacobian;

 private:
  ResidualModel* model_;
  bool has_residuals_ = false, has_jacobian_ = false;
};

class BoardResidual : public ceres::CostFunction {
 public:
  BoardResidual(const Board& board, int index, const std::vector<int>& variables)
      : board_(board), index_(index), variables_(variables) {
    set_num_residuals(1);
    for (std::size_t i = 0; i < variables.size(); ++i)
      mutable_parameter_block_sizes()->push_back(1);
  }

  bool Evaluate(double const* const*, double* residuals, double** jacobians) const override {
    residuals[0] = board_.r[index_];
    if (!std::isfinite(residuals[0])) return false;
    for (std::size_t i = 0; jacobians != nullptr && i < variables_.size(); ++i) {
      if (jacobians[i] != nullptr) jacobians[i][0] = board_.jacobian(index_, variables_[i]);
    }
    return true;
  }

 private:
  const Board& board_;
  int index_;
  const std::vector<int>& variables_;
};

class PriorResidual : public ceres::SizedCostFunction<1, 1> {
 public:
  explicit PriorResidual(const Variable& variable) : variable_(variable) {}
  bool Evaluate(double const* const* x, double* residuals, double** jacobians) const override {
    residuals[0] = (x[0][0] - variable_.prior) / variable_.sigma;
    if (jacobians != nullptr && jacobians[0] != nullptr) jacobians[0][0] = 1.0 / variable_.sigma;
    return true;
  }

 private:
  Variable variable_;
};

// Of a variable that is drawn around another one.
class AroundResidual : public ceres::SizedCostFunction<1, 1, 1> {
 public:
  explicit AroundResidual(double sigma) : sigma_(sigma) {}
  bool Evaluate(double const* const* x, double* residuals, double** jacobians) const override {
    residuals[0] = (x[0][0] - x[1][0]) / sigma_;
    for (int i = 0; jacobians != nullptr && i < 2; ++i) {
      if (jacobians[i] != nullptr) jacobians[i][0] = (i == 0 ? 1.0 : -1.0) / sigma_;
    }
    return true;
  }

 private:
  double sigma_;
};

ceres::Problem::Options ProblemOptions(Board* board) {
  ceres::Problem::Options options;
  options.evaluation_callback = board;
  return options;
}

void AddData(const std::vector<double>& weights, double scale, ResidualModel* model, Board* board,
             ceres::Problem* problem) {
  for (int i = 0; i < model->residuals(); ++i) {
    const std::vector<int>& variables = model->Dependencies(i);
    if (weights[i] <= 0 || variables.empty()) continue;
    std::vector<double*> blocks;
    for (int variable : variables) blocks.push_back(&board->x[variable]);
    problem->AddResidualBlock(
        new BoardResidual(*board, i, variables),
        new ceres::ScaledLoss(new ceres::CauchyLoss(scale), weights[i], ceres::TAKE_OWNERSHIP),
        blocks);
  }
}

void SolveInPlace(const std::vector<Variable>& variables, const std::vector<double>& weights,
                  const SolverOptions& options, ResidualModel* model, Board* board, Solution* out) {
  ceres::Problem problem(ProblemOptions(board));
  for (std::size_t j = 0; j < variables.size(); ++j) {
    const Variable& variable = variables[j];
    double* block = &board->x[static_cast<Eigen::Index>(j)];
    if (variable.around < 0) {
      problem.AddResidualBlock(new PriorResidual(variable), nullptr, block);
    } else {
      problem.AddResidualBlock(new AroundResidual(variable.sigma), nullptr, block,
                               &board->x[variable.around]);
    }
    problem.SetParameterLowerBound(block, 0, variable.lower);
    problem.SetParameterUpperBound(block, 0, variable.upper);
  }
  AddData(weights, options.cauchy_scale, model, board, &problem);
  ceres::Solver::Options solver;
  solver.linear_solver_type = ceres::DENSE_NORMAL_CHOLESKY;
  solver.max_num_iterations = options.iterations;
  solver.function_tolerance = options.tolerance;
  solver.parameter_tolerance = 1e-5;
  solver.logging_type = ceres::SILENT;
  ceres::Solver::Summary summary;
  ceres::Solve(solver, &problem, &summary);
  ORRERY_CHECK(summary.IsSolutionUsable(), "least squares: {}", summary.message);
  out->cost = summary.final_cost;
  out->iterations = static_cast<int>(summary.iterations.size());
}

}  // namespace

Eigen::MatrixXd PosteriorCovariance(const Solution& s, const std::vector<Variable>& variables,
                                    const std::vector<double>& weights, double cauchy_scale) {
  const Eigen::Index n = s.x.size();
  Eigen::MatrixXd information = Eigen::MatrixXd::Zero(n, n);
  for (Eigen::Index i = 0; i < s.residuals.size(); ++i) {
    if (weights[i] <= 0) continue;
    const double r = s.residuals[i] / cauchy_scale;
    const double weight = weights[i] / (1.0 + r * r);
    information.selfadjointView<Eigen::Lower>().rankUpdate(s.jacobian.row(i).transpose(), weight);
  }
  for (Eigen::Index j = 0; j < n; ++j) {
    const double weight = 1.0 / (variables[j].sigma * variables[j].sigma);
    information(j, j) += weight;
    const Eigen::Index centre = variables[j].around;
    if (centre < 0) continue;
    information(centre, centre) += weight;
    information(std::max(j, centre), std::min(j, centre)) -= weight;
  }
  const Eigen::MatrixXd full = information.selfadjointView<Eigen::Lower>();
  return full.ldlt().solve(Eigen::MatrixXd::Identity(n, n));
}

Solution Minimise(ResidualModel* model, const std::vector<Variable>& variables,
                  const std::vector<double>& weights, const SolverOptions& options) {
  Solution out;
  Eigen::VectorXd start(static_cast<Eigen::Index>(variables.size()));
  for (std::size_t j = 0; j < variables.size(); ++j)
    start[static_cast<Eigen::Index>(j)] =
        std::clamp(variables[j].start, variables[j].lower, variables[j].upper);
  Board board(model, start);
  if (!variables.empty()) SolveInPlace(variables, weights, options, model, &board, &out);
  out.x = board.x;
  board.PrepareForEvaluation(options.posterior, true);
  out.residuals = board.r;
  if (!options.posterior) return out;
  out.jacobian = board.jacobian;
  out.sigma = PosteriorCovariance(out, variables, weights, options.cauchy_scale)
                  .diagonal()
                  .cwiseMax(0.0)
                  .cwiseSqrt();
  for (std::size_t j = 0; j < variables.size(); ++j) {
    const double x = out.x[static_cast<Eigen::Index>(j)];
    out.bound.push_back(x - variables[j].lower < kAtBound || variables[j].upper - x < kAtBound);
  }
  return out;
}

}  // namespace orrery
