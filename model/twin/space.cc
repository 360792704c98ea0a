// SPDX-License-Identifier: Apache-2.0
// Enumerates the space in a fixed order, simpler choices first.
#include "model/twin/space.h"

#include <algorithm>

namespace orrery {

std::vector<int64_t> Divisors(int64_t n) {
  std::vector<int64_t> low, high;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d * d != n) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

std::vector<Split> Space::Degrees(int64_t ranks, int domain_gpus) const {
  std::vector<Split> all;
  const FixedAxes& fixed = request_.fixed;
  for (const int64_t tp : Divisors(ranks)) {
    if (fixed.tp ? tp != *fixed.tp : tp > 1 && !preset_.tensor) continue;
    for (const int64_t pp : Divisors(ranks / tp)) {
      if (fixed.pp ? pp != *fixed.pp : pp > 1 && !preset_.pipeline()) continue;
      const int64_t data = ranks / tp / pp;
      if (fixed.dp && data != *fixed.dp) continue;
      // What is fixed holds in every row: it must mean something there.
      if (fixed.zero.value_or(0) > 0 && data == 1) continue;
      if (fixed.vpp.value_or(1) > 1 && pp == 1) continue;
      if (fixed.sequence_parallel.value_or(false) && tp == 1) continue;
      Split split;
      split.tp = static_cast<int>(tp);
      split.pp = static_cast<int>(pp);
      split.data = static_cast<int>(data);
      all.push_back(split);
    }
  }
  std::stable_partition(all.begin(), all.end(),
                        [&](const Split& split) { return split.tp <= domain_gpus; });
  return all;
}

std::vector<Split> Space::Splits(const Split& degrees, int64_t global_batch) const {
  std::vector<Split> all;
  if (global_batch % degrees.data != 0) return all;
  const int64_t samples = global_batch / degrees.data;
  for (const int64_t micro_batch : Divisors(samples)) {
    if (request_.fixed.micro_batch && micro_batch != *request_.fixed.micro_batch) continue;
    Split split = degrees;
    split.micro_batch = static_cast<int>(micro_batch);
    split.micro_batches = samples / micro_batch;
    all.push_back(split);
  }
  return all;
}

std::vector<bool> Space::SequenceParallel(int tp) const {
  if (request_.fixed.sequence_parallel) return {*request_.fixed.sequence_parallel && tp > 1};
  if (tp > 1 && preset_.sequence) return {false, true};
  return {false};
}

std::vector<Recompute> Space::Recomputes() const {
  if (request_.fixed.recompute) return {*request_.fixed.recompute};
  return preset_.recompute;
}

std::vector<ScheduleChoice> Space::Schedules(int pp) const {
  const FixedAxes& fixed = request_.fixed;
  const auto given = [&](int vpp) {
    return fixed.layout && fixed.layout->size() == static_cast<std::size_t>(pp) * vpp;
  };
  if (pp == 1) {
    if (!fixed.layout) return {{PipelineSchedule::k1F1B, 1}};
    if (!given(1)) return {};
    return {{PipelineSchedule::k1F1B, 1, LayerSplit::kGiven}};
  }
  const int64_t layers = request_.model.layers;
  std::vector<ScheduleChoice> all;
  const auto add = [&](PipelineSchedule schedule, int vpp) {
    if (fixed.layout) {
      if (given(vpp)) all.push_back({schedule, vpp, LayerSplit::kGiven});
      return;
    }
    if (vpp == 1 || layers % (int64_t{1} * vpp * pp) == 0 || fixed.vpp || preset_.uneven_chunks)
      all.push_back({schedule, vpp, LayerSplit::kRule});
    if (!preset_.uneven_chunks || request_.model.family == Family::kMlp) return;
    all.push_back({schedule, vpp, LayerSplit::kBalanced});
    all.push_back({schedule, vpp, LayerSplit::kLighter});
  };
  for (const PipelineSchedule schedule : preset_.schedules) {
    const bool interleaved = schedule == PipelineSchedule::kInterleaved;
    if (fixed.schedule && schedule != *fixed.schedule) continue;
    if (fixed.vpp && (*fixed.vpp > 1) != interleaved) continue;
    if (!interleaved) {
      add(schedule, 1);
      continue;
    }
    // Chunks of the embedding and of the head need no layer.
    const int64_t most = (layers + (preset_.uneven_chunks ? 2 : 0)) / pp;
    for (int64_t vpp = 2; vpp <= most; ++vpp) {
      if (!fixed.vpp || vpp == *fixed.vpp) add(schedule, static_cast<int>(vpp));
    }
  }
  return all;
}

std::vector<ShardChoice> Space::Shards(int pp, int data) const {
  const FixedAxes& fixed = request_.fixed;
  if (data == 1) return {{0, 1, 1}};
  std::vector<ShardChoice> all;
  for (const int zero : fixed.zero ? std::vector<int>{*fixed.zero} : preset_.zero) {
    if (pp > 1 && zero > preset_.zero_with_pipeline) continue;
    for (const int64_t outer : Divisors(data)) {
      if (fixed.dp_outer ? outer != *fixed.dp_outer : outer > 1 && !preset_.hybrid) continue;
      if (outer > 1 && (zero == 0 || outer == data)) continue;
      all.push_back({zero, static_cast<int>(data / outer), static_cast<int>(outer)});
    }
  }
  return all;
}

int64_t Space::Choices(int tp, int pp, int data) const {
  return static_cast<int64_t>(SequenceParallel(tp).size() * Recomputes().size() *
                              Schedules(pp).size() * Shards(pp, data).size());
}

}  // namespace orrery
