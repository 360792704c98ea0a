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

// FramesAt() where frames have bytes of samples alone, to the last bit.
double SamplesAt(const PlaceForms& forms, int group, const Moment& moment) {
  double sum = 0;
  for (const FrameCount& count : moment.frames) {
    const double base = forms.base[count.place]->frames[group][count.kind].sample;
    const ChunkForm* per_layer = forms.per_layer[count.place];
    const ChunkForms* taken = forms.taken[count.place];
    if (taken == nullptr) {
      sum += base * count.frames;
      if (per_layer != nullptr) sum += per_layer->frames[group][count.kind].sample * count.layers;
      continue;
    }
    sum += std::min(base, taken->base.frames[group][count.kind].sample) * count.frames;
    if (per_layer == nullptr) continue;
    const double layers = forms.view.TakenLayers(count);
    const double plain = per_layer->frames[group][count.kind].sample;
    sum += plain * (count.layers - layers);
    const double of_taken = taken->per_layer.frames[group][count.kind].sample;
    const bool from_forward = count.kind < static_cast<int>(FrameKind::kBB);
    sum += (from_forward ? of_taken : std::min(of_taken, plain)) * layers;
  }
  return sum;
}

SizeForm FramesAt(const PlaceForms& forms, int group, const Moment& moment) {
  if (forms.view.forms.frames_by_sample) return {SamplesAt(forms, group, moment), 0, 0};
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
  if (sum.chunk == &chunk && (sum.alike || sum.micro_batch == micro_batch)) return sum;
  sum.chunk = &chunk, sum.micro_batch = micro_batch;
  sum.rings = chunk.all_rings.value_or(SizeForm{});
  sum.alike = chunk.all_rings && chunk.scratch.forms().size() <= 1;
  for (const MaxForm& slot : chunk.rings) {
    if (chunk.all_rings) break;
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

}  // namespace orrery
