// SPDX-License-Identifier: Apache-2.0
// Points of time and cost of which no other is at least as good in both.
#pragma once

#include <algorithm>
#include <vector>

namespace orrery {

struct Point {
  double time, cost;
};

class Frontier {
 public:
  // Some point is at least as good in both.
  bool Dominates(const Point& other) const {
    return std::ranges::any_of(points_, [&](const Point& point) {
      return point.time <= other.time && point.cost <= other.cost;
    });
  }
  void Add(const Point& point) {
    if (Dominates(point)) return;
    std::erase_if(points_, [&](const Point& other) {
      return point.time <= other.time && point.cost <= other.cost;
    });
    points_.push_back(point);
  }

 private:
  std::vector<Point> points_;
};

}  // namespace orrery
