// SPDX-License-Identifier: Apache-2.0
// An increasing function that is known at points.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "model/base/check.h"

namespace orrery {

// Straight between its points; beyond the first and the last in proportion to the argument.
class IncreasingCurve {
 public:
  // (x, y), both above 0, x increasing; where y falls back, the highest so far counts.
  explicit IncreasingCurve(std::vector<std::pair<double, double>> points)
      : points_(std::move(points)) {
    ORRERY_CHECK(!points_.empty(), "a curve without points");
    for (std::size_t i = 1; i < points_.size(); ++i)
      points_[i].second = std::max(points_[i].second, points_[i - 1].second);
  }

  double At(double x) const {
    const auto [before, after] = Around([&](const auto& point) { return point.first > x; });
    if (before == after) return before->second * (x / before->first);
    const double share = (x - before->first) / (after->first - before->first);
    return before->second + share * (after->second - before->second);
  }

  // The largest x with At(x) <= y.
  double Inverse(double y) const {
    const auto [before, after] = Around([&](const auto& point) { return point.second > y; });
    if (before == after) return before->first * (y / before->second);
    const double share = (y - before->second) / (after->second - before->second);
    return before->first + share * (after->first - before->first);
  }

 private:
  using Point = std::vector<std::pair<double, double>>::const_iterator;

  // The last point that is not beyond and the first that is; twice the same at either end.
  template <class Beyond>
  std::pair<Point, Point> Around(Beyond beyond) const {
    const auto after = std::partition_point(points_.begin(), points_.end(),
                                            [&](const auto& point) { return !beyond(point); });
    if (after == points_.begin()) return {after, after};
    if (after == points_.end()) return {after - 1, after - 1};
    return {after - 1, after};
  }

  std::vector<std::pair<double, double>> points_;
};

}  // namespace orrery
