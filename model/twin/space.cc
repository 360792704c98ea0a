// SPDX-License-Identifier: Apache-2.0
// Enumerates the space in a fixed order, simpler choices first.
#include "model/twin/space.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "model/plan/lower/schedules.h"

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

std::vector<int> MicroBatchSizes(int64_t seq_len) {
  constexpr int64_t kMostTokens = int64_t{1} << 18;
  constexpr int64_t kFewest = 16, kMostOfShort = 64;
  const int64_t most = std::max(kMostOfShort, kMostTokens / std::max<int64_t>(1, seq_len));
  std::vector<int> sizes;
  for (int64_t size = 1; size <= most; ++size) {
    int64_t rest = size;
    for (const int factor : {2, 3, 5}) {
      while (rest % factor == 0) rest /= factor;
    }
    if (rest == 1 || size <= kFewest) sizes.push_back(static_cast<int>(size));
  }
  return sizes;
}

std::vector<Split> Space::Degrees(int64_t ranks, int domain_gpus) const {
  std::vector<Split> all;
  const FixedAxes& fixed = request_.fixed;
  for (const int64_t tp : Divisors(ranks)) {
    if (fixed.tp ? tp != *fixed.tp : tp > 1 && !preset_.tensor) continue;
    for (const int64_t pp : Divisors(ranks / tp)) {
      if (fixed.pp ? pp != *fixed.pp : pp > 1 && !preset_.pipeline()) continue;
      for (const int64_t cp : Divisors(ranks / tp / pp)) {
        if (fixed.cp ? cp != *fixed.cp : !LooksAtContext(cp)) continue;
        const int64_t data = ranks / tp / pp / cp;
        if (fixed.dp && data != *fixed.dp) continue;
        if (pp > 1 && fixed.offload && preset_.OffloadsAlone(*fixed.offload)) continue;
        // What is fixed holds in every row: it must mean something there.
        if (fixed.zero.value_or(0) > 0 && data * cp == 1 && fixed.dp != 1) continue;
        if (fixed.vpp.value_or(1) > 1 && pp == 1) continue;
        if (fixed.schedule && NeedsStages(*fixed.schedule) && pp == 1) continue;
        if (fixed.sequence_parallel.value_or(false) && tp == 1) continue;
        if (fixed.cp_method && cp == 1) continue;
        Split split;
        split.tp = static_cast<int>(tp);
        split.pp = static_cast<int>(pp);
        split.cp = static_cast<int>(cp);
        split.data = static_cast<int>(data);
        all.push_back(split);
      }
    }
  }
  std::stable_partition(all.begin(), all.end(),
                        [&](const Split& split) { return split.tp <= domain_gpus; });
  return all;
}

bool Space::LooksAt(const Split& degrees, int64_t micro_batch) const {
  const FixedAxes& fixed = request_.fixed;
  if (fixed.micro_batch) return micro_batch == *fixed.micro_batch;
  // With a common factor f of cp and micro-batch, cp / f and micro-batch / f on f times the data-parallel ranks hold as
  // many rows, reduce over as many ranks and exchange less (and may keep a communicator more): a search that is free to
  // take them looks at those alone.
  return fixed.cp || fixed.dp || std::gcd<int64_t>(degrees.cp, micro_batch) == 1;
}

std::vector<Split> Space::Splits(const Split& degrees, int64_t global_batch) const {
  std::vector<Split> all;
  if (global_batch % degrees.data != 0) return all;
  const int64_t samples = global_batch / degrees.data;
  for (const int64_t micro_batch : Divisors(samples)) {
    if (!LooksAt(degrees, micro_batch)) continue;
    if (micro_batch > std::numeric_limits<int>::max()) break;  // no tensor is that long
    Split split = degrees;
    split.micro_batch = static_cast<int>(micro_batch);
    split.micro_batches = samples / micro_batch;
    all.push_back(split);
  }
  return all;
}

std::vector<Split> Space::Splits(const Split& degrees, const BatchSpan& batches) const {
  if (batches.least == batches.most) return Splits(degrees, batches.most);
  std::vector<Split> all;
  std::vector<int> sizes = MicroBatchSizes(request_.work.seq_len);
  if (request_.fixed.micro_batch) sizes = {*request_.fixed.micro_batch};
  for (const int size : sizes) {
    Split split = degrees;
    split.micro_batch = size;
    split.micro_batches = batches.most / (int64_t{1} * degrees.data * size);
    if (split.micro_batches < 1) break;
    if (split.global_batch() >= batches.least && LooksAt(degrees, size)) all.push_back(split);
  }
  return all;
}

int64_t Space::FewerMicroBatches(const Split& split, const BatchSpan& batches) const {
  const int64_t part = split.global_batch() / split.micro_batches, now = split.micro_batches;
  const int64_t pp = split.pp;
  int64_t fewer = now / 2;
  if (pp == 1) {
    fewer = std::min<int64_t>(now - 1, 1);  // a single one needs no sum of gradients
  } else if (now > pp) {
    // Whole rounds, which interleaved schedules take; from four down, as activations that are held grow so far (CountSlots()).
    fewer = now % pp != 0 ? now / pp * pp : std::min(now - pp, 4 * pp);
  }
  return fewer * part >= batches.least ? fewer : 0;
}

bool Space::LooksAtContext(int64_t cp) const {
  if (cp == 1) return true;
  const bool is_long = request_.work.seq_len >= kLongSequence;
  if (is_long && request_.work.seq_len < cp * kLeastShare) return false;
  if (request_.fixed.cp_method) return true;
  return !preset_.context.empty() && is_long && request_.model.family == Family::kDecoder &&
         request_.flash_attention;
}

std::vector<ContextLayout> Space::Contexts(int tp, int cp, int domain_gpus) const {
  if (cp == 1) return {{}};
  const FixedAxes& fixed = request_.fixed;
  std::vector<ContextLayout> all;
  for (const CpMethod method : preset_.context) {
    if (fixed.cp_method ? method != *fixed.cp_method
                        : fixed.cp_inner && method != CpMethod::kA2aRing)
      continue;
    ContextLayout context = ContextOf(method);
    if (method == CpMethod::kA2aRing) {
      // Two levels are those of the network: the part inside a node changes heads.
      context.inner = fixed.cp_inner.value_or(std::clamp(domain_gpus / tp, 1, cp));
      const bool two_levels = context.inner > 1 && context.inner < cp && cp % context.inner == 0;
      if (!two_levels && !fixed.cp_inner) continue;  // it would be another method
    }
    context.zigzag = fixed.zigzag.value_or(context.zigzag);
    all.push_back(context);
  }
  return all;
}

std::vector<bool> Space::SequenceParallel(int tp, int pp) const {
  if (request_.fixed.sequence_parallel) return {*request_.fixed.sequence_parallel && tp > 1};
  if (tp > 1 && preset_.OffersSequence(pp)) return {false, true};
  return {false};
}

std::vector<RecomputeChoice> Space::Recomputes() const {
  if (request_.fixed.recompute) return {{*request_.fixed.recompute}};
  if (request_.fixed.offload && preset_.OffloadsAlone(*request_.fixed.offload))
    return {{Recompute::kNone}};
  std::vector<RecomputeChoice> all;
  for (const Recompute& recompute : preset_.recompute) {
    const bool whole = recompute == Recompute::kFull;
    for (int quarters = 1; whole && preset_.recompute_first && quarters < 4; ++quarters)
      all.push_back({recompute, quarters});
    all.push_back({recompute});
  }
  return all;
}

std::optional<Recompute> Space::Recomputation(const RecomputeChoice& choice, int chunks) const {
  if (choice.quarters == 4) return choice.recompute;
  // Of an average chunk, rounded up.
  const auto first = [&](int quarters) {
    const int64_t parts = 4 * int64_t{1} * chunks;
    return static_cast<int>((request_.model.layers * quarters + parts - 1) / parts);
  };
  const int taken = first(choice.quarters);
  if (taken == first(choice.quarters - 1) || taken == first(4)) return std::nullopt;
  Recompute recompute = choice.recompute;
  recompute.first = taken;
  return recompute;
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
    // In a V the first stage holds no more micro-batches than the others.
    if (schedule != PipelineSchedule::kZeroBubbleV)
      all.push_back({schedule, vpp, LayerSplit::kLighter});
    if (!request_.topology.slowdown.empty()) all.push_back({schedule, vpp, LayerSplit::kFitted});
  };
  for (const PipelineSchedule schedule : preset_.schedules) {
    const bool interleaved = schedule == PipelineSchedule::kInterleaved;
    if (fixed.schedule && schedule != *fixed.schedule) continue;
    if (!fixed.schedules.empty() &&
        std::ranges::find(fixed.schedules, schedule) == fixed.schedules.end())
      continue;
    if (schedule == PipelineSchedule::kZeroBubbleV) {
      if (fixed.vpp.value_or(2) == 2 && layers + (preset_.uneven_chunks ? 2 : 0) >= 2 * pp)
        add(schedule, 2);
      continue;
    }
    if (fixed.vpp && (*fixed.vpp > 1) != interleaved) continue;
    if (!interleaved) {
      add(schedule, 1);
      continue;
    }
    // Chunks of the embedding and of the head need no layer.
    const int64_t most = (layers + (preset_.uneven_chunks ? 2 : 0)) / pp;
    const auto look = [&](int64_t vpp) {
      return fixed.vpp ? vpp == *fixed.vpp
                       : vpp <= kMostChunks || std::has_single_bit(static_cast<uint64_t>(vpp));
    };
    for (int64_t vpp = 2; vpp <= most; ++vpp) {
      if (look(vpp)) add(schedule, static_cast<int>(vpp));
    }
  }
  return all;
}

std::vector<ShardChoice> Space::Shards(int pp, int data, int cp) const {
  const FixedAxes& fixed = request_.fixed;
  if (data * cp == 1) {  // a stage of one rank only where somebody says both
    const int stage = fixed.dp == 1 ? fixed.zero.value_or(0) : 0;
    return {{fixed.offload && fixed.offload->weights ? 3 : stage, 1, 1}};
  }
  std::vector<ShardChoice> all;
  for (const int zero : fixed.zero ? std::vector<int>{*fixed.zero} : preset_.zero) {
    if (pp > 1 && zero > preset_.zero_with_pipeline) continue;
    if (preset_.LacksCodes(zero)) continue;
    if (fixed.offload && fixed.offload->optimizer > 0 && zero < preset_.offload_zero) continue;
    if (zero < 3 && fixed.offload && fixed.offload->weights) continue;
    for (const int64_t outer : Divisors(data)) {
      if (fixed.dp_outer ? outer != *fixed.dp_outer : outer > 1 && !preset_.hybrid) continue;
      if (outer > 1 && (zero < preset_.hybrid_zero || (outer == data && cp == 1))) continue;
      all.push_back({zero, static_cast<int>(data / outer), static_cast<int>(outer)});
    }
  }
  return all;
}

int64_t Space::Choices(const Split& split, int domain_gpus) const {
  return static_cast<int64_t>(Contexts(split.tp, split.cp, domain_gpus).size() *
                              SequenceParallel(split.tp, split.pp).size() * Recomputes().size() *
                              Schedules(split.pp).size() *
                              Shards(split.pp, split.data, split.cp).size());
}

}  // namespace orrery
