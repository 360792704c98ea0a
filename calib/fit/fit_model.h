// SPDX-License-Identifier: Apache-2.0
// Residuals of all observations and their derivatives by differences, on several threads.
#pragma once

#include "calib/fit/fit.h"

namespace orrery {

class Fitter::Model : public ResidualModel {
 public:
  Model(const Evidence& evidence, const std::vector<FitParameter>& parameters, int threads);

  int residuals() const override { return static_cast<int>(evidence_.observations().size()); }
  void Evaluate(const Eigen::VectorXd& x, Eigen::VectorXd* r, Eigen::MatrixXd* jacobian) override;
  const std::vector<int>& Dependencies(int residual) const override { return depends_[residual]; }

  // log(predicted / measured) of some rows.
  std::vector<double> Errors(const Eigen::VectorXd& x, const std::vector<int>& which);

  std::vector<double> scale;   // of each residual: its group's spread
  std::vector<bool> left_out;  // rows that need no evaluation
  // When set, residuals are linear around this solution: nothing is predicted.
  const Solution* linear = nullptr;
  Eigen::MatrixXd last_jacobian;  // unscaled

 private:
  std::vector<int> Active(const std::vector<int>& rows) const;
  void Apply(const Eigen::VectorXd& x, ProfileStore* store) const;
  void Column(const Eigen::VectorXd& x, int j, ProfileStore* store, Eigen::MatrixXd* out) const;
  void ComputeJacobian(const Eigen::VectorXd& x);

  const Evidence& evidence_;
  const std::vector<FitParameter>& parameters_;
  std::vector<ProfileStore> stores_;       // one per thread
  std::vector<std::vector<int>> depends_;  // per row
  std::vector<std::vector<int>> rows_;     // per parameter
  std::vector<int> all_;
  std::vector<double> errors_;  // at the point of the derivatives
};

}  // namespace orrery
