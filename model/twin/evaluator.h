// SPDX-License-Identifier: Apache-2.0
// Walks the strategies of one split: legality, memory bound, time bound, closed form; keeps the best.
//
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "model/engine/closed/step_sweep.h"
#include "model/memory/bound.h"
#include "model/twin/layouts.h"
#include "model/twin/space.h"
#include "model/twin/stage_gpus.h"

namespace orrery {

// What orders candidates: objective, then the step alone (seconds per sequence) where the input may set the pace, then memory, then
// place in the enumeration.
struct Rank {
  double value = 0;
  double step = 0;  // 0: the input has no limit
  double memory = 0;
  int64_t split = 0, sequence = 0;
  auto operator<=>(const Rank&) const = default;
};

struct Entry {
  Rank rank;
  Strategy strategy;
  double seconds = 0;
  double seconds_bound = 0;  // lower bound of seconds; set by One() only
  double allocated = 0;      // lower bound, bytes
};

struct Tally {
  int64_t strategies = 0;
  std::string example;
};

struct SplitResult {
  std::vector<Entry> best;         // ascending by rank, at most `keep`
  bool truncated = false;          // more strategies fit than were kept
  std::optional<Entry> unlimited;  // best whatever its memory
  std::optional<Entry> near_miss;  // best of those above the memory limit by at most a quarter
  std::optional<Entry> smallest;   // least memory
  SearchCounts counts;
  std::map<std::string, Tally> refusals;  // by reason
};

struct EvaluateOptions {
  std::size_t keep = 6;
  bool prune = true;          // by the time bound
  std::optional<Rank> after;  // only what ranks behind this
  // Set: only what fits in so many bytes and has an objective below `below`; nothing else is looked for or counted.
  std::optional<double> fits_in;
  double below = std::numeric_limits<double>::infinity();
  // With `fits_in`: only what may be below it once layers are moved between its stages, by a bound of any shares of them.
  double any_shares_below = std::numeric_limits<double>::infinity();
};

// The objective of a step: smaller is better.
double ObjectiveValue(Objective objective, double step_seconds, const Job& job);
// Seconds until the replicas have the tokens of a step; 0: the input has no limit.
double FedIn(const InputRates& input, const Job& job, int64_t replicas);
// The objective of a step with its input, or of the run of such steps.
double ObjectiveValue(const SearchRequest& request, double step_seconds, const Job& job,
                      int64_t replicas);

// The same for steps of one job and number of replicas, many times. All must outlive it.
class StepObjective {
 public:
  StepObjective() = default;
  StepObjective(const SearchRequest& request, const Job& job, int64_t replicas);
  double Of(double step_seconds) const {
    const double step = std::max(step_seconds, fed_);
    if (run_ != nullptr) return run_->Of(*job_, replicas_, step);
    const double seconds = step * per_sequence_;
    return priced_ ? seconds * price_ : seconds;
  }

 private:
  const RunValue* run_ = nullptr;
  const Job* job_ = nullptr;
  int64_t replicas_ = 1;
  double fed_ = 0, per_sequence_ = 1, price_ = 0;
  bool priced_ = false;
};

// Whose layers are moved: those of the best few that are given; others of the split, too, that may become its best; all that
// may fall below the bound.
enum class Moves : uint8_t { kGiven, kBest, kAll };

// Not for concurrent use: one per thread. Job and memory model must outlive it.
class Evaluator {
 public:
  // `shapes`, `kernels`: as of StepPredictor.
  Evaluator(const SearchRequest& request, const FrameworkPreset& preset, const MemoryLimits& limits,
            const Job& job, MemoryModel& memory, ShapeCache* shapes = nullptr,
            KnownKernels* kernels = nullptr);

  SplitResult Run(const Split& split, int64_t split_index, const EvaluateOptions& options);
  // Adds to the best of a split what moving layers between stages makes of the first of them, where their objective may fall
  // below `below` that way. They stay, each behind what it became.
  void MoveLayers(const Split& split, double below, Moves moves, SplitResult* result);
  // The same of what needs more memory than there is: the near miss and the fastest whatever its memory, where they may fall below
  // those objectives.
  void MoveUnfit(const Split& split, double near_below, double unlimited_below,
                 SplitResult* result);
  // No strategy of the split has a lower objective; infinity: none is legal.
  double Bound(const Split& split);
  // Bytes that any strategy of these degrees needs at least, with what the machine itself needs; 0: nothing is known, or it is
  // small.
  double LeastMemory(const Split& split);
  // No strategy of these degrees computes a micro-batch in fewer seconds per stage x stages.
  double Work(const Split& split);
  // One strategy; Refusal: it cannot be lowered.
  std::variant<Entry, Refusal> One(const Strategy& strategy);
  StepPredictor& predictor() { return predictor_; }

 private:
  struct Place;
  struct Sharded;
  struct Waiting;
  struct Parked;
  struct Queue;
  struct Bounded;
  struct LayerKind;
  struct KnownTable;
  struct KnownPipeline;
  // Memory forms of layouts under one recomputation, whatever the micro-batch.
  struct KindForms {
    ContextLayout context;
    bool sequence_parallel = false;
    Recompute recompute;
    const PlanForms* of[3][4][2] = {};  // split backward, ZeRO, hybrid; found when first wanted
  };
  struct Group;  // strategies that differ in ZeRO and sharding alone
  struct Visit;  // one split under way

  // Sets the layout that the choice names. False: the same as another choice, or there are too few layers.
  bool SplitLayers(const Visit& visit, const ScheduleChoice& choice, Group* group);
  LayerKind& KindOf(Visit& visit, const Strategy& strategy);
  // Null: the strategy's layers cannot be lowered.
  const Layouts* FindLayouts(const Strategy& strategy, const std::vector<double>& slowdown,
                             LayerKind* kind);
  const Refusal* CheckGroup(Visit& visit, const Group& group) const;
  void RunLegal(Visit& visit, Group& group, int64_t shards);
  static void TakeMemory(Visit* visit);
  // group.cc: the strategies of a group.
  void RunGroup(Visit& visit, Group group);
  struct GroupRun;
  Strategy StrategyOf(const Strategy& base, const ShardChoice& shard) const;
  void SetSharded(const Group& group, const ShardChoice& shard, const LayerTable* table,
                  Sharded* of) const;
  void SortShards(Visit& visit, const Strategy& base) const;
  const KnownTable& TableOf(const Visit& visit, GroupRun& run, std::size_t shard);
  const BoundTerms& MemoryOf(Visit& visit, Group& group, const ShardChoice& shard);
  void StartStages(const std::vector<StageSlots>& slots, double micro_batch);
  double AllocatedBy(Visit& visit, GroupRun& run, std::size_t shard);
  bool StartShards(Visit& visit, GroupRun& run, std::size_t first);
  void StartTable(Visit& visit, GroupRun& run, const LayerTable& table);
  const PipelineLayers& LayersOfPipeline(Visit& visit, const Group& group,
                                         const ShardChoice& shard);
  void FindMessages(Visit& visit, const LayerTable& table) const;
  std::vector<double>& OnceOf(Visit& visit, const Group& group) const;
  double OnceOf(const Visit& visit, const GroupRun& run, std::size_t shard) const;
  double LeastOf(const Visit& visit, GroupRun& run, std::size_t shard) const;
  void RunShards(Visit& visit, GroupRun& run, std::size_t first, std::size_t end);
  void Park(Visit& visit, GroupRun& run, std::size_t shard, const Parked& one, int64_t sequence);
  void Consider(Visit& visit, GroupRun& run, std::size_t shard, double allocated, double total,
                int64_t sequence);
  // waiting.cc: strategies whose passes have to be walked.
  void Walk(Visit& visit, bool until_full);
  double MostSeconds(const Visit& visit, double bytes) const;
  std::optional<Bounded> NextOf(Visit& visit, std::size_t queue, bool that_fits) const;
  void StartWalk(Visit& visit, bool until_full) const;
  std::optional<Bounded> Unpark(Visit& visit, const Bounded& next, bool until_full) const;
  Sharded& ShardedOf(Visit& visit, const Waiting& one) const;
  void Refine(Visit& visit, Bounded bound);
  void WalkLike(Visit& visit, std::size_t walked);
  void Keep(Visit& visit, const Place& place, double seconds);
  Rank RankOf(double seconds, int64_t replicas, double memory, int64_t split,
              int64_t sequence) const;
  // shares.cc: how many layers each stage gets.
  const StageGpus& GpusOf(const Split& split);
  // LeastMemory() by shard; empty: small.
  const std::vector<double>& LeastByShard(const Split& split);
  double SecondsOf(const Visit& visit, const LayerTable& table, const Strategy& strategy,
                   PlanOutline outline, const DataMessages& data);
  // Bytes on the job's own GPU that fill it as far as the fullest stage fills its GPU.
  double Equivalent(const std::vector<double>& by_stage, const Strategy& strategy,
                    const MemoryLimits& limits) const;
  void RunFitted(Visit& visit, Group& group);
  std::shared_ptr<const std::vector<int>> FittedLayout(const Visit& visit,
                                                       const Strategy& strategy);
  bool MayGain(const Visit& visit, const Entry& entry, double below, ShareCounts* counts);
  std::optional<double> SecondsWith(const Visit& visit, const Strategy& s, const DataMessages& data,
                                    double most);
  double AllocatedWith(const Visit& visit, const Strategy& s);
  std::optional<Entry> Moved(const Visit& visit, const Entry& entry, ShareCounts* counts);
  std::optional<Entry> FastestRun(const Visit& visit, const Entry& entry, double most,
                                  ShareCounts* counts);
  void MoveOthers(const Visit& visit, double below, bool each, std::set<std::string> moved,
                  SplitResult* result);
  void NameShares(SplitResult* result) const;
  bool MayMove(const Split& split) const;
  Visit StartMoves(const Split& split, const EvaluateOptions& options);
  // The strategies of a group whose layer tables may differ.
  template <class Of>
  void ForKinds(const std::vector<ShardChoice>& shards, Strategy base, Of of) const;
  // The least of what `of` says of the layer tables of a group, over its shards.
  template <class Of>
  double LeastOf(const std::vector<ShardChoice>& shards, const Strategy& base, Of of);
  // Seconds. `gpus`: null where all stages compute alike.
  double BoundOf(const LayerTable& table, const Strategy& strategy, const Split& split,
                 const StageGpus* gpus) const;
  double GroupBound(const Visit& visit, const Strategy& base);
  // Strategies of some degrees one of which has the least bound, whatever the micro-batch.
  struct Sample {
    Strategy strategy;
    MicroBatchKey key;
  };
  const std::vector<Sample>& SamplesOf(const Split& split);
  Strategy BaseOf(const Split& split) const;
  std::vector<Strategy> PlainStrategies(const Split& split) const;

  const SearchRequest& request_;
  const FrameworkPreset& preset_;
  const MemoryLimits limits_;
  const Job& job_;
  const Space space_;
  StepPredictor predictor_;
  StepSweep sweep_;  // over one split at a time
  MemoryModel& memory_;
  GroupTerms group_terms_;            // of the group under way
  std::deque<KindForms> kind_forms_;  // of these degrees: splits of equal ones follow each other
  std::array<int, 4> kind_forms_of_ = {};  // tp, pp, cp, data ranks
  // By stages, chunks (0: in a V) and the slowdown of the stages.
  std::map<std::tuple<const LayerTable*, int, int, std::vector<double>>, Layouts> layouts_;
  // Those of them, each once: what follows from a layout is found by its address.
  using Layout = std::shared_ptr<const std::vector<int>>;
  struct LayoutOrder {
    bool operator()(const Layout& a, const Layout& b) const { return *a < *b; }
  };
  std::set<Layout, LayoutOrder> distinct_layouts_;
  // By stages, chunks, schedule in a V, layout, which layers are recomputed where those are some.
  std::map<std::tuple<int, int, bool, const std::vector<int>*, Recompute>, PipelineLayers>
      pipelines_;                                 // each holds its layout
  const bool mixed_;                              // nodes compute or hold differently
  const double parameters_;                       // of the model
  std::map<std::array<int, 4>, StageGpus> gpus_;  // by tp, pp, cp and data ranks
  std::map<std::array<int, 4>, std::vector<double>> least_memory_;
  std::map<std::array<int, 4>, std::vector<Sample>> samples_;
  std::vector<std::vector<StageSlots>>
      stage_slots_;  // of the group under way, where stages' memory differs
  std::vector<GroupTerms> stage_terms_;
};

}  // namespace orrery
