// SPDX-License-Identifier: Apache-2.0
// The solver on problems whose answer is known: means, priors, bounds, outliers.
#include "calib/fit/solver.h"

#include <gtest/gtest.h>

#include <cmath>

namespace orrery {
namespace {

// r_i = x - y_i.
class Mean : public ResidualModel {
 public:
  explicit Mean(std::vector<double> values) : values_(std::move(values)) {}
  int residuals() const override { return static_cast<int>(values_.size()); }
  void Evaluate(const Eigen::VectorXd& x, Eigen::VectorXd* r, Eigen::MatrixXd* jacobian) override {
    r->resize(residuals());
    for (int i = 0; i < residuals(); ++i) (*r)[i] = x[0] - values_[i];
    if (jacobian != nullptr) jacobian->setOnes(residuals(), 1);
  }
  const std::vector<int>& Dependencies(int) const override { return first_; }

 private:
  std::vector<double> values_;
  std::vector<int> first_ = {0};
};

constexpr double kWide = 1e3;

TEST(Solver, WeighsDataAgainstThePrior) {
  Mean model({1.0, 1.0, 1.0});
  const Variable x{0, 0, 1, -kWide, kWide};
  const Solution s = Minimise(&model, {x}, {1, 1, 1}, {1e6, 50, 1e-12, true});
  EXPECT_NEAR(s.x[0], 0.75, 1e-6);  // three observations and a prior, all of unit variance
  EXPECT_NEAR(s.sigma[0], 0.5, 1e-6);
  EXPECT_FALSE(s.bound[0]);
}

TEST(Solver, LeavesOutRowsWithoutWeight) {
  Mean model({1.0, 50.0});
  const Variable x{0, 0, 1, -kWide, kWide};
  EXPECT_NEAR(Minimise(&model, {x}, {1, 0}, {1e6, 50, 1e-12, true}).x[0], 0.5, 1e-3);
}

// r_i = x[which_i] - y_i.
class Means : public ResidualModel {
 public:
  Means(std::vector<double> values, std::vector<std::vector<int>> which)
      : values_(std::move(values)), which_(std::move(which)) {}
  int residuals() const override { return static_cast<int>(values_.size()); }
  void Evaluate(const Eigen::VectorXd& x, Eigen::VectorXd* r, Eigen::MatrixXd* jacobian) override {
    r->resize(residuals());
    if (jacobian != nullptr) jacobian->setZero(residuals(), x.size());
    for (int i = 0; i < residuals(); ++i) {
      (*r)[i] = x[which_[i].front()] - values_[i];
      if (jacobian != nullptr) (*jacobian)(i, which_[i].front()) = 1;
    }
  }
  const std::vector<int>& Dependencies(int i) const override { return which_[i]; }

 private:
  std::vector<double> values_;
  std::vector<std::vector<int>> which_;
};

// A family without data of its own, one measured member and one that was never measured. Data,
// member and family have unit variances: the family's posterior is 6 / 3, its variance 2 / 3.
TEST(Solver, MembersAreDrawnAroundTheirFamily) {
  Means model({6.0}, {{1}});
  const Variable family{0, 0, 1, -kWide, kWide};
  const Variable member{0, 0, 1, -kWide, kWide, 0};
  const Solution s = Minimise(&model, {family, member, member}, {1}, {1e6, 50, 1e-12, true});
  EXPECT_NEAR(s.x[0], 2.0, 1e-4);
  EXPECT_NEAR(s.x[1], 4.0, 1e-4);
  EXPECT_NEAR(s.x[2], 2.0, 1e-4);  // follows the family
  EXPECT_NEAR(s.sigma[0], std::sqrt(2.0 / 3.0), 1e-4);
  EXPECT_NEAR(s.sigma[2], std::sqrt(2.0 / 3.0 + 1.0), 1e-4);
}

TEST(Solver, StopsAtBounds) {
  Mean model({5.0, 5.0});
  const Variable x{0, 0, kWide, -1, 2};
  const Solution s = Minimise(&model, {x}, {1, 1}, {1e6, 50, 1e-12, true});
  EXPECT_NEAR(s.x[0], 2.0, 1e-6);
  EXPECT_TRUE(s.bound[0]);
}

TEST(Solver, AnOutlierHardlyCounts) {
  Mean model({1.0, 1.1, 0.9, 1.0, 100.0});
  const Variable x{1, 1, kWide, -kWide, kWide};
  const std::vector<double> even(5, 1.0);
  EXPECT_NEAR(Minimise(&model, {x}, even, {0.2, 100, 1e-12, true}).x[0], 1.0, 0.05);
  EXPECT_GT(Minimise(&model, {x}, even, {1e6, 100, 1e-12, true}).x[0], 20.0);
}

}  // namespace
}  // namespace orrery
