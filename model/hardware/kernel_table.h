// SPDX-License-Identifier: Apache-2.0
// Measured times of a chip's kernels, by kernel and shape, looked up between the measured shapes.
//
// A shape is up to four extents, the unused ones 1, whose product is proportional to the kernel's
// work: m, n, k of a product; batch x heads, queries, keys, head width of attention; bytes of
// everything else. Shapes with one extent are interpolated linearly in log(time) over log(extent),
// beyond the ends with the slope of the nearest piece, between 0 (latency) and 1 (rate). Shapes with
// several take the mean of log(work / time) of the measured shapes, weighted by 1 / d^4, d their
// distance in factors of two; at a measured shape its own. Times are in seconds.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

class KernelTable {
 public:
  using Shape = std::array<double, 4>;

  // Extents and seconds above 0. Several times of one shape: the last one counts.
  void Add(const std::string& kernel, const Shape& shape, double seconds);

  bool empty() const { return kernels_.empty(); }
  // nullopt: the kernel was not measured.
  std::optional<double> Seconds(std::string_view kernel, const Shape& shape) const;

 private:
  struct Point {
    Shape log2;  // of the shape
    double log_rate;
  };
  static double OneExtent(const std::vector<Point>& points, double log2);
  static double Nearest(const std::vector<Point>& points, const Shape& log2);

  std::map<std::string, std::vector<Point>, std::less<>> kernels_;  // points in order of shape
};

}  // namespace orrery
