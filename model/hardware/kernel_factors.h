// SPDX-License-Identifier: Apache-2.0
// How much longer measured kernels of a chip take than the formulas of op_cost.h say, by shape.
//
// Libraries choose tiles and pipelines by shape, and no smooth formula follows. The logarithm of
// measured over formula is a Gaussian process over the logarithms (base 2) of the extents, with mean
// 0 and covariance s^2 m(d / l) + n^2 [same shape]; m(x) = (1 + sqrt(3) x) exp(-sqrt(3) x), d the
// distance in factors of two. Its mean is continuous: close to what was measured at a measured
// shape, between neighbours in between, the formula far away from all of them.
// s spread between shapes, l reach, n noise of one measurement: `plan calibrate` chooses them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

inline constexpr std::size_t kMostFactorShapes = 192;  // of one kernel

class KernelFactors {
 public:
  // m, n, k, batch of a product ("mm"); batch x heads, queries, keys, head width of attention
  // (AttentionShape::kernel()).
  using Shape = std::array<double, 4>;
  struct Rule {
    double spread = 0;  // s, of the logarithm
    double reach = 1;   // l, factors of two
    double noise = 0;   // n, of the logarithm
  };
  struct Measured {
    Shape shape{};
    double log_ratio = 0;  // ln(measured / formula)
  };

  // Different shapes with extents above 0, at most kMostFactorShapes; spread, reach and noise above
  // 0. Replaces what was said of the kernel.
  void Set(const std::string& kernel, const Rule& rule, const std::vector<Measured>& measured);

  bool empty() const { return kernels_.empty(); }
  std::size_t shapes(std::string_view kernel) const;
  // 1: nothing is known of the kernel, or nothing near this shape.
  double Factor(std::string_view kernel, const Shape& shape) const;

  // m(distance / reach), for those who fit the rule.
  static double Correlation(double distance, double reach);
  static double Distance(const Shape& log2_a, const Shape& log2_b);
  static Shape Log2(const Shape& shape);  // the last extent counts eightfold

 private:
  struct Weighted {
    Shape log2{};
    double weight = 0;  // of the covariance with this shape
  };
  struct Kernel {
    double reach = 1;
    std::vector<Weighted> shapes;
    uint64_t number = 0;  // of this kernel with these shapes, in the process
  };
  static double FactorOf(const Kernel& kernel, const Shape& log2);
  std::map<std::string, Kernel, std::less<>> kernels_;
};

}  // namespace orrery
