// SPDX-License-Identifier: Apache-2.0
// Adds up size forms and slot counts.
#include "model/memory/bound.h"

#include <algorithm>
#include <array>
#include <cstdint>

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

// Those of recomputed layers alone where every chunk of the stage is recomputed to its last layer.
const PlanForms& FormsOf(const PlanForms& forms, const StageSlots& slots) {
  if (!forms.taken || forms.recompute.every != 1) return forms;
  const auto taken = [&](double layers) { return layers <= forms.recompute.first; };
  return std::ranges::all_of(slots.most_layers, taken) ? *forms.taken : forms;
}

// The forms of a stage's chunks, by place.
struct PlaceForms {
  const StageView& view;
  std::array<const ChunkForm*, kPlaces> base{}, per_layer{};
  std::array<const ChunkForms*, kPlaces> taken{};

  explicit PlaceForms(const StageView& of) : view(of) {
    for (int place = 0; place < kPlaces; ++place) {
      if (of.slots.chunks[place] == 0) continue;
      base[place] = &of.Base(place);
      per_layer[place] = of.PerLayer(place);
      taken[place] = of.Taken(place);
    }
  }
};

SizeForm FramesAt(const PlaceForms& forms, int group, const Moment& moment) {
  SizeForm sum;
  for (const FrameCount& count : moment.frames) {
    const SizeForm& base = forms.base[count.place]->frames[group][count.kind];
    const ChunkForm* per_layer = forms.per_layer[count.place];
    const ChunkForms* taken = forms.taken[count.place];
    if (taken == nullptr) {
      sum += base * count.frames;
      if (per_layer != nullptr) sum += per_layer->frames[group][count.kind] * count.layers;
      continue;
    }
    sum += Min(base, taken->base.frames[group][count.kind]) * count.frames;
    if (per_layer == nullptr) continue;
    const double layers = forms.view.TakenLayers(count);
    sum += per_layer->frames[group][count.kind] * (count.layers - layers);
    // What the call under way brings forth counts as held all through it, and the ops of plain layers take off their own.
    const SizeForm& of_taken = taken->per_layer.frames[group][count.kind];
    const bool from_forward = count.kind < static_cast<int>(FrameKind::kBB);
    sum += (from_forward ? of_taken : Min(of_taken, per_layer->frames[group][count.kind])) * layers;
  }
  return sum;
}

// Slots beyond those in use, of the group's largest frame.
SizeForm Slack(const PlaceForms& forms, int group, const Moment& moment) {
  const double slack = forms.view.slots.slack[group];
  if (slack == 0) return {};
  SizeForm largest;
  for (const FrameCount& count : moment.frames) {
    const SizeForm& base = forms.base[count.place]->frames[group][count.kind];
    if (base.sample > largest.sample) largest = base;
  }
  return largest * slack;
}

SizeForm Frames(const PlaceForms& forms, double micro_batch) {
  SizeForm frames;
  for (int group = 0; group < kSlackGroups; ++group) {
    if (!forms.view.forms.holds[group]) continue;
    SizeForm most;
    double bytes = 0;
    for (const Moment& moment : forms.view.slots.moments) {
      const SizeForm sum = FramesAt(forms, group, moment) + Slack(forms, group, moment);
      const double at = sum.At(micro_batch, 1);
      if (at > bytes) most = sum, bytes = at;
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
SizeForm Rings(const std::array<const RingSums::Sum*, kPlaces>& places, double micro_batch) {
  SizeForm most;
  for (const RingSums::Sum* place : places) {
    if (place != nullptr && place->rings.At(micro_batch, 2) > most.At(micro_batch, 2))
      most = place->rings;
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

SizeForm Step(const StageView& view, SizeForm ChunkForm::*part = &ChunkForm::step) {
  SizeForm step, once;  // the latter: of the chunk that has most of it
  for (int place = 0; place < kPlaces; ++place) {
    const double chunks = view.slots.chunks[place];
    if (chunks == 0) continue;
    if (view.Base(place).once.fixed > once.fixed) once = view.Base(place).once;
    step += view.Base(place).*part * chunks;
    if (const ChunkForm* per_layer = view.PerLayer(place))
      step += per_layer->*part * view.slots.layers[place];
  }
  return part == &ChunkForm::step ? step + once : step;
}

}  // namespace

void BoundTerms::Add(const SizeForm& form, double micro_batch) {
  const Point point{form.sample * micro_batch + form.fixed, form.shard};
  std::size_t kept =
      0;  // no point covers another: none is left out in front of one that covers this one
  for (const Point& known : points_) {
    if (known.fixed >= point.fixed && known.shard >= point.shard) return;
    if (point.fixed < known.fixed || point.shard < known.shard) points_[kept++] = known;
  }
  points_.resize(kept);
  points_.push_back(point);
}

// While micro-batches run: the layout keeps room for the peak of every part.
void BoundTerms::AddLayout(const PlanForms& forms, const StageSlots& slots, double micro_batch,
                           const SizeForm& held, RingSums* rings) {
  const StageView view{forms, slots};
  std::array<const RingSums::Sum*, kPlaces> places{};
  for (int place = 0; place < kPlaces; ++place) {
    if (slots.chunks[place] != 0)
      places[place] = &rings->Of(place, view.Transient(place), micro_batch);
  }
  const SizeForm running = held + Rings(places, micro_batch);
  for (const RingSums::Sum* place : places) {
    if (place == nullptr) continue;
    for (const SizeForm& scratch : place->scratch) Add(running + scratch, micro_batch);
  }
}

// Call by call: what is in flight then, and the ops of that call.
void BoundTerms::AddCalls(const PlanForms& forms, const StageSlots& slots, double micro_batch,
                          const SizeForm& step, const SizeForm* frames) {
  const StageView view{forms, slots};
  for (const Moment& moment : slots.moments) {
    const SizeForm held = step + *frames++;
    const double further = std::max(0.0, moment.layers - 3);
    for (const OpForm& op : view.Transient(moment.place, moment.layers).ops[moment.call])
      Add(held + op.bytes + op.per_layer * further, micro_batch);
  }
}

const RingSums::Sum& RingSums::Of(int place, const ChunkForm& chunk, double micro_batch) {
  constexpr std::uintptr_t kSpread = 0x9E3779B97F4A7C15;  // 2^64 over the golden ratio
  Sum& sum = kept_[place][(reinterpret_cast<std::uintptr_t>(&chunk) * kSpread) >> (64 - kKeptBits)];
  if (sum.chunk == &chunk && sum.micro_batch == micro_batch) return sum;
  sum.chunk = &chunk, sum.micro_batch = micro_batch, sum.rings = {};
  for (const MaxForm& slot : chunk.rings) {
    if (!slot.forms().empty()) sum.rings += Largest(slot, micro_batch);
  }
  sum.scratch.clear();
  const auto covers = [&](const SizeForm& a, const SizeForm& b) {
    return a.sample * micro_batch + a.fixed >= b.sample * micro_batch + b.fixed &&
           a.shard >= b.shard;
  };
  for (const SizeForm& form : chunk.scratch.forms()) {
    if (std::ranges::any_of(sum.scratch, [&](const SizeForm& o) { return covers(o, form); }))
      continue;
    std::erase_if(sum.scratch, [&](const SizeForm& o) { return covers(form, o); });
    sum.scratch.push_back(form);
  }
  return sum;
}

void FrameSums::Set(const PlanForms& plan_forms, const std::vector<StageSlots>& slots,
                    double micro_batch) {
  forms_.clear();
  for (const StageSlots& stage_slots : slots) {
    const StageView view{FormsOf(plan_forms, stage_slots), stage_slots};
    const PlaceForms places(view);
    if (plan_forms.static_layout) {
      forms_.push_back(Frames(places, micro_batch));
      continue;
    }
    for (const Moment& moment : stage_slots.moments) forms_.push_back(FramesAt(places, 0, moment));
  }
}

// ... or at the end of the step, over which the layout lays the same bytes.
void BoundTerms::Set(const PlanForms& plan_forms, const std::vector<StageSlots>& slots,
                     double micro_batch, const FrameSums& frames, RingSums* rings) {
  points_.clear();
  const SizeForm* sum = frames.forms().data();
  for (const StageSlots& stage_slots : slots) {
    const PlanForms& forms = FormsOf(plan_forms, stage_slots);
    const StageView view{forms, stage_slots};
    const SizeForm step = Step(view);
    if (forms.static_layout) {
      AddLayout(forms, stage_slots, micro_batch, step + *sum++, rings);
    } else {
      const SizeForm late =
          stage_slots.before_gradients ? Step(view, &ChunkForm::late) : SizeForm{};
      AddCalls(forms, stage_slots, micro_batch, step - late, sum);
      sum += stage_slots.moments.size();
    }
    Add(step + End(view), micro_batch);
  }
}

void GroupTerms::Start(const std::vector<StageSlots>& slots, double micro_batch) {
  slots_ = &slots;
  micro_batch_ = micro_batch;
  frames_used_ = terms_used_ = 0;
}

const BoundTerms& GroupTerms::Of(const PlanForms& forms) {
  for (std::size_t i = 0; i < terms_used_; ++i) {
    if (terms_[i].first == &forms) return terms_[i].second;
  }
  std::size_t number = 0;
  while (number < frames_used_ && frames_[number].first != forms.frames) ++number;
  if (number == frames_used_) {
    if (frames_used_ == frames_.size()) frames_.emplace_back();
    frames_[frames_used_].first = forms.frames;
    frames_[frames_used_++].second.Set(forms, *slots_, micro_batch_);
  }
  if (terms_used_ == terms_.size()) terms_.emplace_back();
  auto& [of, terms] = terms_[terms_used_++];
  of = &forms;
  terms.Set(forms, *slots_, micro_batch_, frames_[number].second, &rings_);
  return terms;
}

namespace {

template <class Numbers>
std::uint64_t HashOf(const Numbers& numbers, std::uint64_t hash) {
  for (const auto number : numbers)
    hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x100000001B3;
  return hash ^ (hash >> 32);
}
constexpr std::uint64_t kHashStart = 0xCBF29CE484222325;

}  // namespace

std::size_t MemoryModel::Spread::operator()(const FormKey& key) const {
  return HashOf(key, kHashStart);
}
std::size_t MemoryModel::Spread::operator()(const SlotKey& key) const {
  return HashOf(key.second, HashOf(key.first, kHashStart));
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
          s.whole_embedding,
          s.whole_head,
          s.free_head,
          s.reduces_apart * 32 + s.gathers_kept * 16 + s.split_products * 8 +
              static_cast<int>(s.adapter_split) * 2 + s.adapter_gathers,
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
          static_cast<int>(s.offload.optimizer > 0) + static_cast<int>(s.gradients_on_host),
          s.offload.activations,
          s.offload.weights,
          s.reduce_once,
          s.fp8_weights};
}

namespace {

// Both ends on one stage have one table; forms are read from stages that each hold one end.
void LeaveOutHeadTable(PlanForms* forms) {
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
  forms.taken = {std::shared_ptr<const PlanForms>(), taken};  // elements of forms_ never move
  for (int group = 0; group < kSlackGroups; ++group) forms.holds[group] |= taken->holds[group];
  forms.recompute = strategy.recompute;
  return forms;
}

void MemoryModel::CountFrames(PlanForms* forms) {
  const auto same = std::ranges::find_if(
      frames_, [&](const PlanForms* other) { return SameFrames(*forms, *other); });
  forms->frames = static_cast<int>(same - frames_.begin());
  if (same == frames_.end()) frames_.push_back(forms);
}

std::variant<PlanForms, Refusal> MemoryModel::MakeForms(const Strategy& small) {
  if (small.schedule == PipelineSchedule::kZeroBubbleV) {
    Strategy straight = small;
    straight.schedule = PipelineSchedule::kZeroBubble;
    const PlanForms* same = Forms(straight);
    if (same == nullptr) return Refusal{};
    PlanForms forms = *same;
    LeaveOutHeadTable(&forms);
    return forms;
  }
  const bool mixed = small.recompute.partial() && !NeedsStageForms(model_);
  return mixed ? Mixture(small) : ReadPlanForms(model_, work_, small, allocation_);
}

const PlanForms* MemoryModel::Forms(const Strategy& strategy) {
  Strategy small = FormStrategy(model_, strategy);
  // All else of a V is as in a pipeline that ends on its last stage.
  if (strategy.schedule == PipelineSchedule::kZeroBubbleV && model_.tied_embeddings)
    small.schedule = PipelineSchedule::kZeroBubbleV;
  const FormKey key = KeyOf(small);
  std::unique_lock lock(mutex_);
  auto found = forms_.find(key);
  if (found == forms_.end()) {
    lock.unlock();  // lowering takes long; a second thread may do the same work, with the same result
    std::variant<PlanForms, Refusal> forms = MakeForms(small);
    lock.lock();
    const auto [kept, fresh] = forms_.emplace(key, std::move(forms));
    if (auto* made = std::get_if<PlanForms>(&kept->second); made != nullptr && fresh)
      CountFrames(made);
    found = kept;
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
  GroupTerms terms;
  terms.Start(Slots(strategy, micro_batches), strategy.micro_batch);
  return terms.Of(*forms).At(dp);
}

}  // namespace orrery
