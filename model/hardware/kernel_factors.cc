// SPDX-License-Identifier: Apache-2.0
// Means of Gaussian processes over shapes of kernels.
#include "model/hardware/kernel_factors.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "model/base/check.h"

namespace orrery {
namespace {

constexpr double kLeastExtent = 1e-3;
constexpr double kLastExtent = 8;  // another head width, another number of experts: another kernel

// Lower triangle of a symmetric positive definite matrix, row by row.
using Triangle = std::vector<std::vector<double>>;

void Factorise(Triangle* matrix) {  // Cholesky, in place
  Triangle& a = *matrix;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = a[i][j];
      for (std::size_t k = 0; k < j; ++k) sum -= a[i][k] * a[j][k];
      ORRERY_CHECK(i != j || sum > 0, "shapes {} and before are one", i);
      a[i][j] = i == j ? std::sqrt(sum) : sum / a[j][j];
    }
  }
}

// Solves L L^T x = b.
std::vector<double> Solve(const Triangle& lower, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) b[i] -= lower[i][k] * b[k];
    b[i] /= lower[i][i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= lower[k][i] * b[k];
    b[i] /= lower[i][i];
  }
  return b;
}

uint64_t NextNumber() {
  static std::atomic<uint64_t> number{0};
  return ++number;
}

// A search asks for few shapes, each of them thousands of times.
struct Asked {
  uint64_t kernel;
  std::array<double, 4> shape;
  bool operator==(const Asked&) const = default;
};

struct AskedHash {
  std::size_t operator()(const Asked& asked) const {
    uint64_t hash = asked.kernel;
    for (const double extent : asked.shape) {
      uint64_t bits;
      std::memcpy(&bits, &extent, sizeof(bits));
      hash = (hash ^ bits) * 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio
      hash ^= hash >> 32;
    }
    return hash;
  }
};

constexpr std::size_t kMostRemembered = 1 << 16;  // of a thread; a few megabytes

}  // namespace

KernelFactors::Shape KernelFactors::Log2(const Shape& shape) {
  Shape log2{};
  for (std::size_t i = 0; i < shape.size(); ++i)
    log2[i] = std::log2(std::max(shape[i], kLeastExtent));
  log2.back() *= kLastExtent;
  return log2;
}

double KernelFactors::Distance(const Shape& log2_a, const Shape& log2_b) {
  double sum = 0;
  for (std::size_t i = 0; i < log2_a.size(); ++i)
    sum += (log2_a[i] - log2_b[i]) * (log2_a[i] - log2_b[i]);
  return std::sqrt(sum);
}

double KernelFactors::Correlation(double distance, double reach) {
  const double x = std::sqrt(3.0) * distance / reach;
  return (1 + x) * std::exp(-x);
}

void KernelFactors::Set(const std::string& kernel, const Rule& rule,
                        const std::vector<Measured>& measured) {
  ORRERY_CHECK(measured.size() <= kMostFactorShapes && rule.spread > 0 && rule.noise > 0,
               "{}: {} shapes", kernel, measured.size());
  Kernel& into = kernels_[kernel];
  into = {rule.reach, {}, NextNumber()};
  Triangle covariance;
  std::vector<double> logs;
  for (const Measured& one : measured) {
    into.shapes.push_back({Log2(one.shape), 0});
    std::vector<double> row;
    for (const Weighted& other : into.shapes)
      row.push_back(rule.spread * rule.spread *
                    Correlation(Distance(into.shapes.back().log2, other.log2), rule.reach));
    row.back() += rule.noise * rule.noise;
    covariance.push_back(std::move(row));
    logs.push_back(one.log_ratio);
  }
  Factorise(&covariance);
  const std::vector<double> weights = Solve(covariance, std::move(logs));
  for (std::size_t i = 0; i < weights.size(); ++i)
    into.shapes[i].weight = rule.spread * rule.spread * weights[i];
}

std::size_t KernelFactors::shapes(std::string_view kernel) const {
  const auto found = kernels_.find(kernel);
  return found == kernels_.end() ? 0 : found->second.shapes.size();
}

double KernelFactors::Factor(std::string_view kernel, const Shape& shape) const {
  if (kernels_.empty()) return 1;
  const auto found = kernels_.find(kernel);
  if (found == kernels_.end()) return 1;
  thread_local std::unordered_map<Asked, double, AskedHash> known;
  if (known.size() > kMostRemembered) known.clear();
  const auto [at, fresh] = known.try_emplace({found->second.number, shape}, 1);
  if (fresh) at->second = FactorOf(found->second, Log2(shape));
  return at->second;
}

double KernelFactors::FactorOf(const Kernel& kernel, const Shape& log2) {
  double mean = 0;
  for (const Weighted& one : kernel.shapes)
    mean += one.weight * Correlation(Distance(log2, one.log2), kernel.reach);
  return std::exp(mean);
}

}  // namespace orrery
