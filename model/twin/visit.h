// SPDX-License-Identifier: Apache-2.0
// One split of a search under way: what its strategies share, what waits to be looked at, what is kept.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "model/twin/evaluator.h"

namespace orrery {

inline constexpr double kNearMiss = 1.25;  // of the capacity
inline constexpr std::size_t kNone = static_cast<std::size_t>(-1);

// Strategies that differ in the degree of sharding alone.
struct Evaluator::Sharded {
  Strategy strategy;
  PlanOutline outline;
  const LayerTable* table = nullptr;

  void Shard(const ShardChoice& shard) {
    strategy.dp = shard.dp;
    strategy.dp_outer = shard.dp_outer;
    if (strategy.zero > 0) outline.shards = static_cast<double>(strategy.shards());
  }
};

// Null table: it is not known yet, or there is a refusal.
struct Evaluator::KnownTable {
  const LayerTable* table = nullptr;
  std::optional<Refusal> refusal = {};
};

// What layouts under one recomputation have in common.
struct Evaluator::LayerKind {
  Recompute recompute;
  KindForms* forms;
  std::vector<KnownTable> tables =
      {};  // by Visit::table_of; where only some layers are recomputed: none
  // By chunks; where some layers are recomputed by schedule, too. Null: there is no table.
  std::map<std::pair<int, PipelineSchedule>, const Layouts*> layouts;
  bool checked = false;
  std::optional<Refusal> refused = {};  // then: of every schedule
  KnownTable plain = {};  // of layouts without sharding; not where only some layers are recomputed
};

// What follows from a schedule of a split and the layers of its chunks.
struct Evaluator::KnownPipeline {
  std::shared_ptr<const std::vector<int>> layout;
  const std::vector<StageSlots>* slots = nullptr;  // what it holds at once; null: not known yet
  const PipelineLayers* layers = nullptr;          // null: not known yet, or by recomputation
  bool checked = false;
  std::optional<Refusal> refused = {};  // then

  KnownPipeline& Of(const std::shared_ptr<const std::vector<int>>& wanted) {
    if (layout != wanted) *this = {wanted};
    return *this;
  }
};

// Strategies that differ in ZeRO and sharding alone.
struct Evaluator::Group {
  Strategy base;
  std::size_t choice = 0;  // of the schedules of the split
  LayerKind* kind = nullptr;
  bool started = false;                    // group_terms_ are of it
  const PipelineLayers* layers = nullptr;  // found when first wanted
  std::size_t only = kNone;                // of the shards; none: all
  std::size_t sharded[4][2] = {{kNone, kNone}, {kNone, kNone}, {kNone, kNone}, {kNone, kNone}};
  // of those that wait, by ZeRO and hybrid: which of Visit::sharded
};

// A strategy whose step is not known yet, among those of its group: one after the other comes into the heap.
struct Evaluator::Parked {
  // Done or never there; to come; in the heap.
  enum class State : uint8_t { kGone, kWaits, kTaken };
  double least = 0;                 // lower bound of its objective
  double allocated = 0, total = 0;  // bytes: allocated, and with what the machine itself needs
  const LayerTable* table = nullptr;
  State state = State::kGone;
};

// A group of which strategies wait.
struct Evaluator::Queue {
  Group group;
  int64_t sequence = 0;   // of its first shard
  std::size_t first = 0;  // likewise, which of Visit::parked
};

// A strategy in the heap whose step is not known yet.
struct Evaluator::Waiting {
  int64_t sequence;
  double allocated, total;
  const LayerTable* table;
  std::size_t shard;
  std::size_t queue = kNone;  // which of Visit::queues; kNone: formulas alone said that it waits,
  std::size_t of = kNone;     // and it is this one of Visit::sharded
};

// One of those that wait, in a heap whose top has the lowest bound; of equals, the first of the enumeration.
struct Evaluator::Bounded {
  double least;          // lower bound of its objective
  int64_t sequence;      // place in the enumeration
  std::size_t of;        // which of Visit::queues: its next one
  bool refined = false;  // or which of Visit::waiting: the bound is that of its own prices

  struct Later {
    bool operator()(const Bounded& a, const Bounded& b) const {
      return a.least != b.least ? a.least > b.least : a.sequence > b.sequence;
    }
  };
};

// A strategy and where it stands.
struct Evaluator::Place {
  const Strategy* strategy;
  double allocated, total;
  int64_t sequence;
};

// What a step takes beyond its passes follows from it: schedule where it fills bubbles, fewest layers of a stage then, whether
// the first chunk has layers; of the first, fullest other and last stage.
using OnceKey = std::array<double, 6>;

struct Evaluator::Visit {
  const Split& split;
  int64_t index;
  const EvaluateOptions& options;
  std::vector<ShardChoice> shards;
  std::vector<const DataMessages*> data = {};  // by shard
  std::vector<std::size_t> first_of_kind =
      {};  // by shard: the first that differs in the degree of sharding alone
  std::vector<std::size_t> next_kind = {};          // by shard: behind the last of these
  std::vector<std::size_t> table_of = {};           // by shard: which of `tables`
  std::vector<MicroBatchKey> tables = {};           // of plain layouts, each once
  std::vector<double> shards_of_states = {};        // by shard
  std::vector<double> shares_of_states = {};        // one over them
  std::vector<int> communicators = {};              // by shard
  std::vector<PlanOutline> outlines = {};           // by shard: without layers
  std::vector<double> gathers = {}, scatters = {};  // by shard: seconds of a layer's, in each pass
  const LayerTable* messages_of = nullptr;          // of whose layers they are
  std::deque<std::pair<OnceKey, std::vector<double>>> once = {};
  const StageMessages* stages = nullptr;
  const std::vector<double>* least_memory = nullptr;  // by shard; null, empty: not looked at
  const StageGpus* gpus = nullptr;                    // where nodes differ
  MemoryLimits limits = {};                           // of its stages
  std::vector<LayerKind> kinds = {};                  // of the modules under way
  std::vector<KnownPipeline> pipelines = {};          // by choice of the schedule
  std::optional<Refusal> refused = {};                // of the last group
  SplitResult result = {};
  int64_t sequence = 0;
  StepObjective objective = {};     // of its steps
  std::vector<Parked> parked = {};  // by queue and shard
  std::deque<Queue> queues = {};    // of groups
  std::vector<Waiting> waiting = {};
  std::vector<Bounded> bounds = {};  // of those that wait, and of the next one of each queue
  std::deque<Sharded> sharded = {};

  bool mixed() const { return gpus != nullptr && !gpus->together.empty(); }
  const std::vector<std::vector<double>>& SlowdownsOf(bool stages_wait) const {
    static const std::vector<std::vector<double>> none;
    return mixed() ? gpus->SlowdownsOf(stages_wait) : none;
  }
  bool mixed_memory() const { return gpus != nullptr && !gpus->memory.empty(); }
  // True if no strategy of this value can enter the result.
  bool Beaten(double value) const {
    if (value >= options.below) return true;
    return options.prune && result.best.size() >= options.keep &&
           value > result.best.back().rank.value;
  }
  Parked::State& StateOf(const Waiting& one) {
    return parked[queues[one.queue].first + one.shard].state;
  }
  bool SurelyOver(std::size_t shard) const {
    return least_memory != nullptr && !least_memory->empty() &&
           (*least_memory)[shard] > *options.fits_in;
  }
  // No value above this one would be kept of what takes so many bytes.
  double LargestOfUse(double bytes, double capacity) const {
    constexpr double kAny = std::numeric_limits<double>::infinity();
    const auto of = [](const std::optional<Entry>& kept) { return kept ? kept->rank.value : kAny; };
    if (bytes <= capacity) {
      const bool full = result.best.size() >= options.keep;
      return std::max(of(result.unlimited), full ? result.best.back().rank.value : kAny);
    }
    const bool near = bytes <= kNearMiss * capacity;
    return std::max(of(result.unlimited), near ? of(result.near_miss) : 0.0);
  }
  // A lower bound shows that it would not be kept.
  bool Useless(double least, double bytes, double capacity) {
    if (least <= LargestOfUse(bytes, capacity)) return false;
    result.truncated |= bytes <= capacity;
    return true;
  }
  void Refuse(const Refusal& refusal, const Strategy& s, int64_t strategies) {
    result.counts.illegal += strategies;
    Tally& tally = result.refusals[refusal.reason];
    tally.strategies += strategies;
    if (tally.example.empty()) tally.example = DescribeLayout(s, split.micro_batches);
  }
};

}  // namespace orrery
