// SPDX-License-Identifier: Apache-2.0
// Interpolation between measured kernel times.
#include "model/hardware/kernel_table.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "model/base/check.h"

namespace orrery {
namespace {

constexpr double kSamePlace = 1e-9;  // factors of two, squared

double LogWork(const KernelTable::Shape& log2) {
  double sum = 0;
  for (const double extent : log2) sum += extent;
  return sum * std::numbers::ln2;
}

}  // namespace

void KernelTable::Add(const std::string& kernel, const Shape& shape, double seconds) {
  Point point{};
  for (std::size_t i = 0; i < shape.size(); ++i) {
    ORRERY_CHECK(shape[i] > 0, "{}: an extent of {}", kernel, shape[i]);
    point.log2[i] = std::log2(shape[i]);
  }
  ORRERY_CHECK(seconds > 0, "{}: {} seconds", kernel, seconds);
  point.log_rate = LogWork(point.log2) - std::log(seconds);
  std::vector<Point>& points = kernels_[kernel];
  const auto at = std::lower_bound(points.begin(), points.end(), point,
                                   [](const Point& a, const Point& b) { return a.log2 < b.log2; });
  if (at != points.end() && at->log2 == point.log2) {
    *at = point;
  } else {
    points.insert(at, point);
  }
}

std::optional<double> KernelTable::Seconds(std::string_view kernel, const Shape& shape) const {
  const auto found = kernels_.find(kernel);
  if (found == kernels_.end()) return std::nullopt;
  Shape log2{};
  for (std::size_t i = 0; i < shape.size(); ++i) log2[i] = std::log2(std::max(shape[i], 1e-3));
  const bool one_extent = shape[1] == 1 && shape[2] == 1 && shape[3] == 1;
  const double log_rate =
      one_extent ? OneExtent(found->second, log2[0]) : Nearest(found->second, log2);
  return std::exp(LogWork(log2) - log_rate);
}

double KernelTable::OneExtent(const std::vector<Point>& points, double log2) {
  if (points.size() == 1) return points.front().log_rate;
  const auto above = std::upper_bound(points.begin() + 1, points.end() - 1, log2,
                                      [](double x, const Point& p) { return x < p.log2[0]; });
  const Point &left = *(above - 1), &right = *above;
  const double width = right.log2[0] - left.log2[0];
  // Of log(rate): 1 - the slope of log(time).
  double slope = (right.log_rate - left.log_rate) / width;
  const bool outside = log2 < left.log2[0] || log2 > right.log2[0];
  if (outside) slope = std::clamp(slope, 0.0, std::numbers::ln2);
  const Point& from = log2 > right.log2[0] ? right : left;
  return from.log_rate + slope * (log2 - from.log2[0]);
}

double KernelTable::Nearest(const std::vector<Point>& points, const Shape& log2) {
  double weights = 0, sum = 0;
  for (const Point& point : points) {
    double distance = 0;  // squared
    for (std::size_t i = 0; i < log2.size(); ++i)
      distance += (log2[i] - point.log2[i]) * (log2[i] - point.log2[i]);
    if (distance < kSamePlace) return point.log_rate;
    const double weight = 1 / (distance * distance);
    weights += weight;
    sum += weight * point.log_rate;
  }
  return sum / weights;
}

}  // namespace orrery
