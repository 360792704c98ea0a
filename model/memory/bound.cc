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

  bool Empty(int place) const {
    return !forms.by_stage() && slots.layers[place] == 0 && forms.chunks[place].none;
  }
  const ChunkForm& Base(int place) const {
    if (forms.by_stage()) return forms.stages[slots.stage];
    return Empty(place) ? *forms.chunks[place].none : forms.chunks[place].base;
  }
  const ChunkForm* PerLayer(int place) const {
    return forms.by_stage() ? nullptr : &forms.chunks[place].per_layer;
  }
  const ChunkForm& Transient(int place, double layers) const {
    if (layers == 0 && Empty(place)) return *forms.chunks[place].none;
    return forms.by_stage() ? forms.stages[slots.stage] : forms.chunks[place].Transient(layers);
  }
  const ChunkForm& Transient(int place) const { return Transient(place, slots.most_layers[place]); }
  // Null: all layers are alike.
  const ChunkForms* Taken(int place) const {
    return forms.taken && !Empty(place) ? &forms.taken->chunks[place] : nullptr;
  }
  // At most, of frames with so many layers.
  double TakenLayers(const FrameCount& count) const {
    const Recompute& recompute = forms.recompute;
    const double first =
        recompute.first > 0 ? std::min(count.layers, recompute.first * count.frames) : count.layers;
    return first / recompute.every;
  }
};

// Every chunk of the stage is recomputed to its last layer.
bool TakesAll(const PlanForms& forms, const StageSlots& slots) {
  return forms.taken && forms.recompute.every == 1 &&
         std::ranges::all_of(slots.most_layers,
                             [&](double layers) { return layers <= forms.recompute.first; });
}

SizeForm FramesAt(const StageView& view, int group, const Moment& moment) {
  SizeForm sum;
  for (const FrameCount& count : moment.frames) {
    const SizeForm& base = view.Base(count.place).frames[group][count.kind];
    const ChunkForms* taken = view.Taken(count.place);
    sum +=
        (taken != nullptr ? Min(base, taken->base.frames[group][count.kind]) : base) * count.frames;
    const ChunkForm* per_layer = view.PerLayer(count.place);
    if (per_layer == nullptr) continue;
    const double layers = taken != nullptr ? view.TakenLayers(count) : 0;
    sum += per_layer->frames[group][count.kind] * (count.layers - layers);
    if (taken == nullptr) continue;
    // What the call under way brings forth counts as held all through it, and the ops of plain layers take off their own.
    const SizeForm& of_taken = taken->per_layer.frames[group][count.kind];
    const bool from_forward = count.kind < static_cast<int>(FrameKind::kBB);
    sum += (from_forward ? of_taken : Min(of_taken, per_layer->frames[group][count.kind])) * layers;
  }
  return sum;
}

// Slots beyond those in use, of the group's largest frame.
SizeForm Slack(const StageView& view, int group, const Moment& moment) {
  SizeForm largest;
  for (const FrameCount& count : moment.frames) {
    const SizeForm& base = view.Base(count.place).frames[group][count.kind];
    if (base.sample > largest.sample) largest = base;
  }
  return largest * view.slots.slack[group];
}

SizeForm Frames(const StageView& view, double micro_batch) {
  SizeForm frames;
  for (int group = 0; group < kSlackGroups; ++group) {
    SizeForm most;
    for (const Moment& moment : view.slots.moments) {
      const SizeForm sum = FramesAt(view, group, moment) + Slack(view, group, moment);
      if (sum.At(micro_batch, 1) > most.At(micro_batch, 1)) most = sum;
    }
    frames += most;
  }
  return frames;
}

const SizeForm& Largest(const MaxForm& form, double micro_batch) {
  const SizeForm* most = &form.forms().front();
  for (const SizeForm& other : form.forms()) {
    if (other.At(micro_batch, 2) > most->At(micro_batch, 2)) most = &other;
  }
  return *most;
}

// Rings are shared by the chunks of a stage: a slot holds at least what the fullest chunk puts there.
SizeForm Rings(const StageView& view, double micro_batch) {
  SizeForm most;
  for (int place = 0; place < kPlaces; ++place) {
    if (view.slots.chunks[place] == 0) continue;
    SizeForm sum;
    for (const MaxForm& slot : view.Transient(place).rings) {
      if (!slot.forms().empty()) sum += Largest(slot, micro_batch);
    }
    if (sum.At(micro_batch, 2) > most.At(micro_batch, 2)) most = sum;
  }
  return most;
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
    const bool whole = layers > 0 && per_layer != nullptr;
    return (whole ? view.forms.chunks[index].base : view.Base(index)).end +
           (per_layer ? per_layer->end * layers : SizeForm{});
  }
  return {};
}

SizeForm Step(const StageView& view) {
  SizeForm step;
  for (int place = 0; place < kPlaces; ++place) {
    const double chunks = view.slots.chunks[place];
    if (chunks == 0) continue;
    step += view.Base(place).step * chunks;
    if (const ChunkForm* per_layer = view.PerLayer(place))
      step += per_layer->step * view.slots.layers[place];
  }
  return step;
}

}  // namespace

void BoundTerms::Add(const SizeForm& form, double micro_batch) {
  const Point point{form.sample * micro_batch + form.fixed, form.shard};
  for (const Point& known : points_) {
    if (known.fixed >= point.fixed && known.shard >= point.shard) return;
  }
  std::erase_if(points_, [&](const Point& known) {
    return point.fixed >= known.fixed && point.shard >= known.shard;
  });
  points_.push_back(point);
}

// While micro-batches run: the layout keeps room for the fullest moment of every part.
void BoundTerms::AddLayout(const PlanForms& forms, const StageSlots& slots, double micro_batch) {
  const StageView view{forms, slots};
  const SizeForm running = Step(view) + Frames(view, micro_batch) + Rings(view, micro_batch);
  for (int place = 0; place < kPlaces; ++place) {
    if (slots.chunks[place] == 0) continue;
    for (const SizeForm& scratch : view.Transient(place).scratch.forms())
      Add(running + scratch, micro_batch);
  }
}

// Call by call: what is in flight then, and the ops of that call.
void BoundTerms::AddCalls(const PlanForms& forms, const StageSlots& slots, double micro_batch) {
  const StageView view{forms, slots};
  const SizeForm step = Step(view);
  for (const Moment& moment : slots.moments) {
    const SizeForm held = step + FramesAt(view, 0, moment);
    const double further = std::max(0.0, moment.layers - 3);
    for (const OpForm& op : view.Transient(moment.place, moment.layers).ops[moment.call]) {
      Add(held + op.bytes + op.per_layer * further, micro_batch);
    }
  }
}

// ... or at the end of the step, over which the layout lays the same bytes.
BoundTerms::BoundTerms(const PlanForms& plan_forms, const std::vector<StageSlots>& slots,
                       double micro_batch) {
  points_.reserve(8);
  for (const StageSlots& stage_slots : slots) {
    const PlanForms& forms = TakesAll(plan_forms, stage_slots) ? *plan_forms.taken : plan_forms;
    if (forms.static_layout) {
      AddLayout(forms, stage_slots, micro_batch);
    } else {
      AddCalls(forms, stage_slots, micro_batch);
    }
    const StageView view{forms, stage_slots};
    Add(Step(view) + End(view), micro_batch);
  }
}

double BoundTerms::At(double dp) const {
  const double share = 1.0 / dp;
  double most = 0;
  for (const Point& point : points_) most = std::max(most, point.fixed + point.shard * share);
  return most;
}

MemoryModel::FormKey MemoryModel::KeyOf(const Strategy& s) {
  return {s.tp,
          s.pp,
          s.dp,
          s.dp_outer,
          s.zero,
          s.sequence_parallel,
          s.recompute.modules,
          s.recompute.first,
          s.recompute.every,
          s.recompute_unread,
          s.whole_logits,
          static_cast<int>(s.schedule),
          s.flash_attention,
          s.overlap_grad_reduce,
          s.overlap_param_gather,
          s.reduce_in_backward,
          s.tp_async,
          s.bucket_layers,
          s.prefetch,
          s.rings,
          s.recv_slots,
          s.send_slots,
          s.frame_pool,
          s.fp32_grads,
          s.scatter_gather,
          s.cp,
          s.ep,
          static_cast<int>(s.context.method),
          s.context.inner,
          s.context.zigzag,
          s.offload.optimizer > 0,
          s.offload.activations,
          s.offload.weights,
          s.reduce_once,
          s.fp8_weights};
}

namespace {

// Both ends on one stage have one table; forms are read from stages that each hold one end.
void LeaveOutHeadTable(PlanForms* forms) {
  if (forms == nullptr) return;
  if (forms->taken) {
    PlanForms taken = *forms->taken;
    LeaveOutHeadTable(&taken);
    forms->taken = std::make_shared<const PlanForms>(std::move(taken));
  }
  ChunkForms& last = forms->chunks[static_cast<int>(ChunkPlace::kLast)];
  last.base.step = forms->chunks[static_cast<int>(ChunkPlace::kMiddle)].base.step;
  if (last.none) last.none->step = {};
}

}  // namespace

std::variant<PlanForms, Refusal> MemoryModel::Mixture(const Strategy& strategy) {
  Strategy alike = strategy;
  alike.recompute = Recompute::kNone;
  const PlanForms* plain = Forms(alike);
  alike.recompute = {strategy.recompute.modules};
  const PlanForms* taken = Forms(alike);
  if (plain == nullptr || taken == nullptr) return Refusal{};
  PlanForms forms = *plain;
  forms.taken = std::make_shared<const PlanForms>(*taken);
  forms.recompute = strategy.recompute;
  return forms;
}

const PlanForms* MemoryModel::Forms(const Strategy& strategy) {
  const Strategy small = FormStrategy(model_, strategy);
  FormKey key = KeyOf(small);
  key.back() = strategy.schedule == PipelineSchedule::kZeroBubbleV;
  std::unique_lock lock(mutex_);
  auto found = forms_.find(key);
  if (found == forms_.end()) {
    lock.unlock();  // lowering takes long; a second thread may do the same work, with the same result
    const bool mixed = small.recompute.partial() && !NeedsStageForms(model_);
    std::variant<PlanForms, Refusal> forms =
        mixed ? Mixture(small) : ReadPlanForms(model_, work_, small, allocation_);
    if (strategy.schedule == PipelineSchedule::kZeroBubbleV && model_.tied_embeddings)
      LeaveOutHeadTable(std::get_if<PlanForms>(&forms));
    lock.lock();
    found = forms_.emplace(key, std::move(forms)).first;
  }
  return std::get_if<PlanForms>(&found->second);
}

const std::vector<StageSlots>& MemoryModel::Slots(const Strategy& s, int64_t micro_batches) {
  const SlotKey key{{s.pp, s.vpp, static_cast<int>(s.schedule), micro_batches, s.recv_slots,
                     s.send_slots, s.count_embedding, s.count_head},
                    s.layout ? *s.layout : std::vector<int>{}};
  std::unique_lock lock(mutex_);
  auto found = slots_.find(key);
  if (found == slots_.end()) {
    lock.unlock();
    const std::vector<LayerRange> chunks = BalanceLayers(model_.layers, s);
    std::vector<StageSlots> slots = CountSlots(s, chunks, micro_batches, NeedsStageForms(model_));
    lock.lock();
    found = slots_.emplace(key, std::move(slots)).first;
  }
  return found->second;
}

double MemoryModel::AllocatedBound(const Strategy& strategy, int64_t micro_batches) {
  const PlanForms* forms = Forms(strategy);
  if (forms == nullptr) return 0;
  const double dp = strategy.zero > 0 ? static_cast<double>(strategy.shards()) : 1;
  return BoundTerms(*forms, Slots(strategy, micro_batches), strategy.micro_batch).At(dp);
}

}  // namespace orrery
