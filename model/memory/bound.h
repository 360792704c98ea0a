// SPDX-License-Identifier: Apache-2.0
// A lower bound of what a strategy allocates in a few multiplications, for searches over millions of them.
//
//   arena(stage) >= step + max(frames x slots + rings + max over blocks of scratch, scratch of the step's end)
//   live(stage)  >= step + max(over calls: frames in flight + the call's fullest op, scratch of the step's end)
//
// the first for software with a static layout, the second for all other, its copies included (software_memory.h).
// Every term is a SizeForm read from small lowered plans (chunk_forms.h) and counts are read from the schedule
// (schedule_slots.h). Where some layers of a chunk are recomputed, frames count by layer and the rest is that of the others. Left out, hence a bound: alignment, unit padding, what packing loses, and the difference between
// frames of one pool; calls that are not the fullest of their kind. Measured against the exact figure in tests/memory.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/memory/chunk_forms.h"
#include "model/memory/schedule_slots.h"

namespace orrery {

// Frames in flight at the fullest moments of each stage. Forms with the same number (PlanForms::frames) have the same.
class FrameSums {
 public:
  void Set(const PlanForms& forms, const std::vector<StageSlots>& slots, double micro_batch);
  // Bytes by stage; where software has no static layout, by moment of each stage.
  const std::vector<SizeForm>& forms() const { return forms_; }

 private:
  std::vector<SizeForm> forms_;
};

// What the rings of chunks hold at one micro-batch, and those moments of their scratch that can be fullest, whatever the
// schedule: the last few are kept.
class RingSums {
 public:
  struct Sum {
    const ChunkForm* chunk = nullptr;
    double micro_batch = 0;
    bool alike = false;  // at all micro-batches
    SizeForm rings;
    std::vector<SizeForm> scratch;
  };
  // `place`: of the chunk (ChunkPlace). Valid until the next call for the same place.
  const Sum& Of(int place, const ChunkForm& chunk, double micro_batch);

 private:
  static constexpr int kKeptBits = 9;
  std::array<std::array<Sum, std::size_t{1} << kKeptBits>, kPlaces> kept_;
};

// One strategy's bound with all but the sharding degree filled in. Keeps its memory from one to the next.
class BoundTerms {
 public:
  void Set(const PlanForms& forms, const std::vector<StageSlots>& slots, double micro_batch,
           const FrameSums& frames, RingSums* rings);
  // Bytes of the fullest stage when ZeRO shards over `dp` ranks; by 1 / dp.
  double At(double dp) const { return AtShare(1.0 / dp); }
  double AtShare(double share) const {
    double most = 0;
    for (const Point& point : points_) most = std::max(most, point.fixed + point.shard * share);
    return most;
  }

 private:
  struct Point {
    double fixed = 0, shard = 0;
  };
  void Add(const SizeForm& form, double micro_batch);
  void AddLayout(const PlanForms& forms, const StageSlots& slots, double micro_batch,
                 const SizeForm& held, RingSums* rings);
  void AddCalls(const PlanForms& forms, const StageSlots& slots, double micro_batch,
                const SizeForm& step, const SizeForm* frames);

  std::vector<Point> points_;  // over stages and moments; only those that some dp can select
};

// The bounds of strategies that differ in sharding alone: what they share is added up once.
class GroupTerms {
 public:
  // Starts a group. The slots must outlive it.
  void Start(const std::vector<StageSlots>& slots, double micro_batch);
  // Valid until the next Start(). The forms, of one memory model, must outlive the group.
  const BoundTerms& Of(const PlanForms& forms);

 private:
  const std::vector<StageSlots>* slots_ = nullptr;
  double micro_batch_ = 1;
  std::vector<std::pair<int, FrameSums>> frames_;  // by PlanForms::frames
  std::deque<std::pair<const PlanForms*, BoundTerms>> terms_;
  std::size_t frames_used_ = 0, terms_used_ = 0;
  RingSums rings_;
};

// Caches forms and slots of one model and workload (its global batch does not matter). Safe for
// concurrent use.
class MemoryModel {
 public:
  MemoryModel(const ModelSpec& model, const Workload& work, const Allocation& allocation)
      : model_(model), work_(work), allocation_(allocation) {}

  // Null: such a strategy cannot be lowered. Pointers stay valid.
  const PlanForms* Forms(const Strategy& strategy);
  const std::vector<StageSlots>& Slots(const Strategy& strategy, int64_t micro_batches);
  // Lower bound of PeakOf(...).allocated() of the fullest stage, in bytes. The strategy must be legal for the batch.
  double AllocatedBound(const Strategy& strategy, int64_t micro_batches);
  // At least what the fullest stage of such a strategy holds all through a step, whatever schedule, chunks, micro-batch and
  // recomputation: weights, gradients and optimizer state of an equal part of the layers. 0: nothing is known.
  double HeldBound(const Strategy& strategy);
  // The same as AllocatedBound() of each stage. Empty: it cannot be lowered.
  std::vector<double> AllocatedByStage(const Strategy& strategy, int64_t micro_batches);

 private:
  using FormKey = std::array<int, 39>;
  using SlotKey =
      std::pair<std::array<int64_t, 8>, std::vector<int>>;  // the latter: Strategy::layout
  static FormKey KeyOf(const Strategy& form_strategy);
  std::variant<PlanForms, Refusal> MakeForms(const Strategy& form_strategy);
  std::variant<PlanForms, Refusal> Mixture(const Strategy& form_strategy);
  void CountFrames(PlanForms* forms);

  ModelSpec model_;
  Workload work_;
  const Allocation allocation_;
  std::mutex mutex_;  // guards both maps; their elements never change or move
  struct Spread {     // FNV-1a over numbers
    std::size_t operator()(const FormKey& key) const;
    std::size_t operator()(const SlotKey& key) const;
  };
  std::unordered_map<FormKey, std::variant<PlanForms, Refusal>, Spread> forms_;
  std::vector<const PlanForms*> frames_;  // by their number, one of those that have it
  std::unordered_map<SlotKey, std::vector<StageSlots>, Spread> slots_;
};

}  // namespace orrery
