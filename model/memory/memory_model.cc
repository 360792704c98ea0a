// SPDX-License-Identifier: Apache-2.0
// Finds the forms and slots of a strategy, and keeps them.
#include <algorithm>
#include <cstdint>

#include "model/memory/bound.h"

namespace orrery {
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
  forms.frames_by_sample &= taken->frames_by_sample;
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
    const int64_t walked = WalkedForSlots(s, micro_batches);
    std::vector<StageSlots> slots = walked < micro_batches
                                        ? SlotsOfMore(Slots(s, walked), s, micro_batches)
                                        : CountSlots(s, BalanceLayers(model_.layers, s),
                                                     micro_batches, NeedsStageForms(model_));
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
