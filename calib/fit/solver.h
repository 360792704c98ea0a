// SPDX-License-Identifier: Apache-2.0
// Robust least squares with bounds and priors, and what the data say about each variable.
//
// Minimises  sum_i w_i rho(r_i(x)^2)/2 + sum_j ((x_j - m_j) / sigma_j)^2 / 2  over box bounds
// (Ceres, Levenberg-Marquardt), rho of Cauchy: rho(s) = c^2 log(1 + s/c^2); m_j is prior_j, or x of
// the variable around which x_j is drawn. Residuals and their Jacobian are computed for all variables
// at once by the caller.
#pragma once

#include <Eigen/Dense>
#include <vector>

namespace orrery {

struct Variable {
  double start = 0;
  double prior = 0, sigma = 1;
  double lower = 0, upper = 0;
  int around = -1;  // index of the variable that is the centre of this one's prior; -1: `prior` is
};

class ResidualModel {
 public:
  virtual ~ResidualModel() = default;
  virtual int residuals() const = 0;
  // Rows that stay out of the sum may hold anything.
  virtual void Evaluate(const Eigen::VectorXd& x, Eigen::VectorXd* r,
                        Eigen::MatrixXd* jacobian) = 0;
  // Variables that a residual can move with.
  virtual const std::vector<int>& Dependencies(int residual) const = 0;
};

struct SolverOptions {
  double cauchy_scale = 2.0;  // in units of the residual
  int iterations = 30;
  double tolerance = 1e-6;  // relative change of the sum
  bool posterior = true;    // also the Jacobian at the solution and `sigma`
};

struct Solution {
  Eigen::VectorXd x;
  Eigen::VectorXd residuals;
  Eigen::MatrixXd jacobian;
  Eigen::VectorXd sigma;    // posterior standard deviation of each variable
  std::vector<bool> bound;  // the solution lies on a bound
  double cost = 0;
  int iterations = 0;
};

// Inverse of the information of the data, at the weights of the robust loss, and of the priors.
Eigen::MatrixXd PosteriorCovariance(const Solution& solution,
                                    const std::vector<Variable>& variables,
                                    const std::vector<double>& weights, double cauchy_scale);

// `weights`: one per residual; 0 leaves it out.
Solution Minimise(ResidualModel* model, const std::vector<Variable>& variables,
                  const std::vector<double>& weights, const SolverOptions& options);

}  // namespace orrery
