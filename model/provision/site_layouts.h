// SPDX-License-Identifier: Apache-2.0
// The fastest layouts on each topology of a question, looked for on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "model/base/parallel.h"
#include "model/provision/frontier.h"
#include "model/twin/fastest.h"

namespace orrery {

// Question and sites must outlive it.
class SiteLayouts {
 public:
  SiteLayouts(const Question& question, const std::vector<Site>& sites);

  Job JobAt(std::size_t site, int64_t nodes, int64_t batch) const;

  // What `of(index, thread)` finds for each of `count`, on threads of their own: the longest first, by what `length` makes of the
  // index, so that threads end together.
  template <typename Result, typename Length, typename Of>
  std::vector<Result> OnThreads(std::size_t count, const Length& length, const Of& of) const {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater<>(), length);
    std::vector<Result> found(count);
    std::atomic<std::size_t> at{0};
    orrery::OnThreads(static_cast<int>(std::min(shapes_.size(), count)), [&](int thread) {
      for (std::size_t i = at++; i < count; i = at++)
        found[order[i]] = of(order[i], static_cast<std::size_t>(thread));
    });
    return found;
  }

  // As FastestLayouts; `thread`: of OnThreads().
  double LeastGpuSeconds(std::size_t site, int64_t nodes, std::size_t thread);
  double Settle(std::size_t site, FastestLayouts::Found* found, std::size_t most_rivals,
                std::size_t thread);
  // Of all batches that are searched, the layout whose run ends first. nullopt: none is legal and fits, or none takes fewer
  // seconds for a sequence than `below`.
  std::optional<FastestLayouts::Found> Fastest(std::size_t site, int64_t nodes, double below,
                                               std::size_t thread);
  int64_t looked() const;  // FastestLayouts::looked() of all

 private:
  ShapeCache* ShapesOf(std::size_t site, std::size_t thread) {
    return &shapes_[thread][kinds_[site]];
  }
  std::optional<FastestLayouts::Found> FindOn(std::size_t site, int64_t nodes,
                                              const BatchSpan& batches, double below,
                                              std::size_t thread);

  const Question& question_;
  const std::vector<Site>& sites_;
  std::vector<std::map<std::string, ShapeCache>> shapes_;  // by thread and kind of work
  std::vector<std::string> kinds_;                         // by site
  std::vector<std::unique_ptr<FastestLayouts>> layouts_;   // by site
};

}  // namespace orrery
