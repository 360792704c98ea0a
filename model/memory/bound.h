// SPDX-License-Identifier: Apache-2.0
// A lower bound of a strategy's arena in a few multiplications, for searches over millions of them.
//
//   arena(stage) >= step + max(frames x slots + rings + max over blocks of scratch, scratch of the step's end)
//
// with every term a SizeForm read from small lowered plans (chunk_forms.h) and slot counts read from the
// schedule (schedule_slots.h). Left out, hence a bound: alignment, unit padding, what packing loses, and
// the difference between frames of one pool. Measured against the exact arena in tests/memory.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "model/memory/chunk_forms.h"
#include "model/memory/schedule_slots.h"

namespace orrery {

// One strategy's bound with all but the sharding degree filled in.
class BoundTerms {
 public:
  BoundTerms(const PlanForms& forms, const std::vector<StageSlots>& slots, double micro_batch);
  // Bytes of the fullest stage when ZeRO shards over `dp` ranks.
  double At(double dp) const;

 private:
  struct Point {
    double fixed, shard;
  };
  void Add(const SizeForm& form, double micro_batch);

  std::vector<Point> points_;  // over stages and moments; only those that some dp can select
};

// Caches forms and slots of one model and workload (its global batch does not matter). Safe for
// concurrent use.
class MemoryModel {
 public:
  // `gradient_copy`: the software's, counted as part of the arena (software_memory.h).
  MemoryModel(const ModelSpec& model, const Workload& work, double gradient_copy = 0)
      : model_(model), work_(work), gradient_copy_(gradient_copy) {}

  // Null: such a strategy cannot be lowered. Pointers stay valid.
  const PlanForms* Forms(const Strategy& strategy);
  const std::vector<StageSlots>& Slots(const Strategy& strategy, int64_t micro_batches);
  // Lower bound of the largest stage's arena, in bytes. The strategy must be legal for the batch.
  double ArenaBound(const Strategy& strategy, int64_t micro_batches);

 private:
  using FormKey = std::array<int, 23>;
  using SlotKey = std::array<int64_t, 8>;
  static FormKey KeyOf(const Strategy& form_strategy);

  ModelSpec model_;
  Workload work_;
  double gradient_copy_;
  std::mutex mutex_;  // guards both maps; their elements never change or move
  std::map<FormKey, std::variant<PlanForms, Refusal>> forms_;
  std::map<SlotKey, std::vector<StageSlots>> slots_;
};

}  // namespace orrery
