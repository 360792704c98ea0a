// SPDX-License-Identifier: Apache-2.0
// Adds up size forms and slot counts.
#include "model/memory/bound.h"

#include <algorithm>

namespace orrery {
namespace {

// Forms of the chunks of one stage: of a place with its layers, or of the stage itself.
struct StageView {
  const PlanForms& forms;
  const StageSlots& slots;

  const ChunkForm& Base(int place) const {
    return forms.by_stage() ? forms.stages[slots.stage] : forms.chunks[place].base;
  }
  const ChunkForm* PerLayer(int place) const { return forms.by_stage() ? nullptr : &forms.chunks[place].per_layer; }
  const ChunkForm& Transient(int place) const {
    return forms.by_stage() ? forms.stages[slots.stage] : forms.chunks[place].Transient(slots.most_layers[place]);
  }
};

SizeForm FramesAt(const StageView& view, int group, const Moment& moment, SizeForm* largest) {
  SizeForm sum;
  for (int place = 0; place < kPlaces; ++place) {
    if (view.slots.chunks[place] == 0) continue;
    const auto& base = view.Base(place).frames[group];
    const ChunkForm* per_layer = view.PerLayer(place);
    for (int kind = 0; kind < kFrameKinds; ++kind) {
      const FrameCount& count = moment[place][kind];
      if (count.frames == 0) continue;
      sum += base[kind] * count.frames;
      if (per_layer) sum += per_layer->frames[group][kind] * count.layers;
      if (base[kind].sample > largest->sample) *largest = base[kind];
    }
  }
  return sum;
}

SizeForm Frames(const StageView& view, double micro_batch) {
  SizeForm frames;
  for (int group = 0; group < kSlackGroups; ++group) {
    SizeForm most;
    for (const Moment& moment : view.slots.moments) {
      SizeForm largest;
      const SizeForm sum = FramesAt(view, group, moment, &largest) + largest * view.slots.slack[group];
      if (sum.At(micro_batch, 1) > most.At(micro_batch, 1)) most = sum;
    }
    frames += most;
  }
  return frames;
}

// Rings are shared by the chunks of a stage: a slot holds the largest of what they put there.
SizeForm Rings(const StageView& view, double micro_batch) {
  std::vector<MaxForm> slots;
  for (int place = 0; place < kPlaces; ++place) {
    if (view.slots.chunks[place] == 0) continue;
    const auto& rings = view.Transient(place).rings;
    if (slots.size() < rings.size()) slots.resize(rings.size());
    for (std::size_t i = 0; i < rings.size(); ++i) slots[i].Add(rings[i]);
  }
  SizeForm sum;
  for (const MaxForm& slot : slots) {
    SizeForm most;
    for (const SizeForm& form : slot.forms()) {
      if (form.At(micro_batch, 2) > most.At(micro_batch, 2)) most = form;
    }
    sum += most;
  }
  return sum;
}

// The block that ends the step sees the units of all chunks at once, as if they were one.
SizeForm End(const StageView& view) {
  static constexpr ChunkPlace kOrder[] = {ChunkPlace::kOnly, ChunkPlace::kFirst, ChunkPlace::kLast,
                                          ChunkPlace::kMiddle};
  double layers = 0;
  for (const double of_place : view.slots.layers) layers += of_place;
  for (const ChunkPlace place : kOrder) {
    const int index = static_cast<int>(place);
    if (view.slots.chunks[index] == 0) continue;
    const ChunkForm* per_layer = view.PerLayer(index);
    return view.Base(index).end + (per_layer ? per_layer->end * layers : SizeForm{});
  }
  return {};
}

struct StepAndTransient {
  SizeForm step;
  MaxForm transient;  // while micro-batches run, or at the end of the step: the layout overlays the two
};

StepAndTransient Sum(const StageView& view, double micro_batch) {
  StepAndTransient stage;
  const SizeForm running = Frames(view, micro_batch) + Rings(view, micro_batch);
  for (int place = 0; place < kPlaces; ++place) {
    const double chunks = view.slots.chunks[place];
    if (chunks == 0) continue;
    stage.step += view.Base(place).step * chunks;
    if (const ChunkForm* per_layer = view.PerLayer(place)) stage.step += per_layer->step * view.slots.layers[place];
    for (const SizeForm& scratch : view.Transient(place).scratch.forms()) stage.transient.Add(running + scratch);
  }
  stage.transient.Add(End(view));
  return stage;
}

}  // namespace

BoundTerms::BoundTerms(const PlanForms& forms, const std::vector<StageSlots>& slots, double micro_batch) {
  MaxForm all;
  for (const StageSlots& stage_slots : slots) {
    const StepAndTransient stage = Sum({forms, stage_slots}, micro_batch);
    for (const SizeForm& form : stage.transient.forms()) {
      const SizeForm total = form + stage.step;
      all.Add({0, total.sample * micro_batch + total.fixed, total.shard});
    }
  }
  for (const SizeForm& form : all.forms()) points_.push_back({form.fixed, form.shard});
}

double BoundTerms::At(double dp) const {
  const double share = 1.0 / dp;
  double most = 0;
  for (const Point& point : points_) most = std::max(most, point.fixed + point.shard * share);
  return most;
}

MemoryModel::FormKey MemoryModel::KeyOf(const Strategy& s) {
  return {s.tp, s.pp, s.dp, s.dp_outer, s.zero, s.sequence_parallel, static_cast<int>(s.recompute),
          static_cast<int>(s.schedule), s.flash_attention, s.overlap_grad_reduce, s.overlap_param_gather,
          s.reduce_in_backward, s.tp_async, s.bucket_layers, s.prefetch, s.rings, s.recv_slots, s.send_slots,
          s.frame_pool, s.fp32_grads, s.cp, s.ep};
}

const PlanForms* MemoryModel::Forms(const Strategy& strategy) {
  const Strategy key = FormStrategy(model_, strategy);
  auto found = forms_.find(KeyOf(key));
  if (found == forms_.end()) found = forms_.emplace(KeyOf(key), ReadPlanForms(model_, work_, key)).first;
  return std::get_if<PlanForms>(&found->second);
}

const std::vector<StageSlots>& MemoryModel::Slots(const Strategy& s, int64_t micro_batches) {
  const SlotKey key{s.pp, s.vpp, static_cast<int>(s.schedule), micro_batches, s.recv_slots, s.send_slots,
                    s.count_embedding, s.count_head};
  auto found = slots_.find(key);
  if (found == slots_.end()) {
    const std::vector<LayerRange> chunks = BalanceLayers(model_.layers, s);
    found = slots_.emplace(key, CountSlots(s, chunks, micro_batches, NeedsStageForms(model_))).first;
  }
  return found->second;
}

double MemoryModel::ArenaBound(const Strategy& strategy, int64_t micro_batches) {
  const PlanForms* forms = Forms(strategy);
  if (forms == nullptr) return 0;
  const double dp = strategy.zero > 0 ? strategy.dp : 1;
  return BoundTerms(*forms, Slots(strategy, micro_batches), strategy.micro_batch).At(dp);
}

}  // namespace orrery
