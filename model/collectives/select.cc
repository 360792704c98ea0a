// SPDX-License-Identifier: Apache-2.0
// The selector: the smallest of all candidate times.
#include "model/collectives/select.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "model/base/check.h"
#include "model/base/diagnostics.h"

namespace orrery {

void PreparedCollective::Add(const Candidate& candidate) {
  ORRERY_CHECK(count_ < kMost, "more than {} candidates", kMost);
  candidates_[count_++] = candidate;
}

double PreparedCollective::Time(double bytes) const {
  if (count_ == 0 || bytes <= 0) return 0.0;
  if (sweep_) return sweep_->curve.Time(bytes);
  if (measured_ != nullptr) {
    if (const auto time = measured_->MeasuredCollective(Name(collective_), ranks_, bytes))
      return *time;
  }
  const double root = std::sqrt(bytes);
  double best = candidates_[0].line.At(bytes, root);
  for (int i = 1; i < count_; ++i) {
    const double time = candidates_[i].line.At(bytes, root);
    if (time < best) best = time;
  }
  return best;
}

std::string PreparedCollective::Choice(double bytes) const {
  if (count_ == 0) return "none";
  const double root = std::sqrt(bytes);
  int best = 0;
  for (int i = 1; i < count_; ++i) {
    if (candidates_[i].line.At(bytes, root) < candidates_[best].line.At(bytes, root)) best = i;
  }
  const Candidate& choice = candidates_[best];
  if (sweep_) return fmt::format("{} ({})", choice.algorithm, Words(sweep_->rule));
  return choice.latency_protocol ? fmt::format("{} (latency protocol)", choice.algorithm)
                                 : choice.algorithm;
}

PreparedCollective Prepare(Collective collective, const Network& network,
                           const std::string& algorithm) {
  PreparedCollective prepared;
  if (network.shape.ranks < 2) return prepared;
  if (algorithm.empty()) prepared.measured_ = network.measured;
  prepared.collective_ = collective;
  prepared.ranks_ = network.shape.ranks;
  std::vector<std::string> names;
  for (const Algorithm& candidate : Algorithms()) {
    names.emplace_back(candidate.name);
    if (!IsCandidate(candidate, algorithm, network.use)) continue;
    const std::optional<AlgorithmCost> cost = candidate.cost(collective, network);
    if (!cost) continue;
    prepared.Add({cost->bandwidth, candidate.name, false});
    if (cost->latency) prepared.Add({*cost->latency, candidate.name, true});
  }
  if (prepared.count_ == 0) {
    throw InputError(fmt::format("algorithm '{}' cannot run {} on this group of {} ranks",
                                 algorithm, Name(collective), network.shape.ranks),
                     SuggestName(algorithm, names));
  }
  prepared.sweep_ = FindMeasuredTime(collective, network, algorithm);
  return prepared;
}

}  // namespace orrery
