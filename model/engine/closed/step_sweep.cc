// SPDX-License-Identifier: Apache-2.0
// Keeps the passes of a pipeline and the prices of layers from one layout to the next.
#include "model/engine/closed/step_sweep.h"

#include <array>
#include <cstdint>

#include "model/engine/closed/fold.h"

namespace orrery {
namespace closed {

// All that prices of a layer follow from; the stages are those of the sweep.
struct PricesKey {
  const LayerTable* table = nullptr;
  const DataMessages* data = nullptr;
  bool gathers = false, scatters = false, gather_overlaps = false, scatter_overlaps = false;
  bool frees_head = false;
  bool accumulates = false, fills_bubble = false, weights_on_host = false;
  double shards = 1, gradient_bytes = 0, weight_bytes = 0;
  double on_host = 0,
         sums = 0;  // of gradients, the share that goes there; micro-batches that add up
  bool operator==(const PricesKey&) const = default;
};

struct KeptPrices {
  PricesKey key;
  LayerPrices prices;
};

}  // namespace closed

namespace {

using closed::KeptPrices;
using closed::PricesKey;

PricesKey KeyOf(const LayerTable& table, const PlanOutline& outline, const DataMessages& data) {
  // Without messages in the passes of shardings all are alike, but for whether there are any.
  static const DataMessages one, several;
  const DataMessages* any = data.dp > 1 ? &several : &one;
  return {&table,
          StepSweep::PassesAlike(table, outline) ? any : &data,
          outline.gathers_weights,
          outline.scatters_gradients,
          outline.gather_overlaps,
          outline.scatter_overlaps,
          outline.frees_head,
          outline.accumulates,
          outline.order.fills_bubble,
          outline.weights_on_host,
          outline.shards,
          outline.gradient_bytes,
          outline.weight_bytes,
          outline.gradients_on_host ? outline.states_on_host : 0.0,
          outline.gradients_on_host ? outline.micro_batches : 0.0};
}

constexpr int kPlaceBits = 8;
constexpr std::size_t kPricePlaces =
    1U << kPlaceBits;  // many times the degrees of sharding of a split

// Searches look at layouts of many tables and shardings in turn.
std::size_t PlaceOf(const PricesKey& key) {
  const auto number = reinterpret_cast<std::uintptr_t>(key.data) + key.fills_bubble +
                      2 * key.gathers + 4 * key.scatters +
                      3 * reinterpret_cast<std::uintptr_t>(key.table);
  return (number * 0x9E3779B97F4A7C15ULL) >> (64 - kPlaceBits);
}

}  // namespace

struct StepSweep::Kept {
  const StageMessages* stages = nullptr;
  PlanOutline walked_outline;
  std::optional<closed::Fold> fold;
  StepTime passes;
  bool walks = false;
  const LayerTable* of =
      nullptr;  // whose passes can stand for those of other shardings; null: none
  std::array<KeptPrices, kPricePlaces> prices;

  // Makes the fold.
  void Price(const ClosedForm& form, const LayerTable& table, const PlanOutline& outline,
             const DataMessages& data) {
    const PricesKey key = KeyOf(table, outline, data);
    KeptPrices& known = prices[PlaceOf(key)];
    if (known.key == key) {
      fold.emplace(form, table, outline, data, *stages, outline.micro_batches, known.prices);
    } else {
      fold.emplace(form, table, outline, data, *stages, outline.micro_batches);
      known = {key, fold->prices()};
    }
  }

  void Fold(const ClosedForm& form, const LayerTable& table, const PlanOutline& outline,
            const DataMessages& data) {
    of = PassesAlike(table, outline) ? &table : nullptr;
    Price(form, table, outline, data);
    walks = fold->ByFormula(&passes);
  }
};

StepSweep::StepSweep(const ClosedForm& form) : form_(form), kept_(std::make_unique<Kept>()) {}
StepSweep::~StepSweep() = default;
StepSweep::StepSweep(StepSweep&&) noexcept = default;

bool StepSweep::PassesAlike(const LayerTable& table, const PlanOutline& outline) {
  return !outline.gathers_weights && !outline.scatters_gradients && !outline.gradients_on_host &&
         table.sequence_ranks == 1;
}

bool StepSweep::SurelyWalks(const PlanOutline& outline) {
  return outline.stages > 1 && closed::Uneven(outline, outline.micro_batches) && CanWalk(outline);
}

bool StepSweep::CanWalk(const PlanOutline& outline) {
  return closed::CanWalk(outline, outline.micro_batches);
}

double StepSweep::LeastOnce(const LayerTable& table, const PlanOutline& outline,
                            const DataMessages& data) const {
  return closed::Fold(form_, table, outline, data, *kept_->stages, outline.micro_batches,
                      closed::LayerPrices{})
      .LeastOnce();
}

void StepSweep::Start(const StageMessages& stages) {
  kept_->stages = &stages;
  kept_->of = nullptr;
  for (KeptPrices& known : kept_->prices) known.key.table = nullptr;
}

double StepSweep::Seconds(const LayerTable& table, const PlanOutline& outline,
                          const DataMessages& data) {
  return *Seconds(table, outline, data, closed::kForEver);
}

std::optional<double> StepSweep::Seconds(const LayerTable& table, const PlanOutline& outline,
                                         const DataMessages& data, double most) {
  Kept& kept = *kept_;
  kept.of = nullptr;
  kept.walked_outline = outline;
  kept.Price(form_, table, kept.walked_outline, data);
  if (!kept.fold->WalkedPasses(most, &kept.passes)) return std::nullopt;
  return kept.fold->Total(kept.passes, data);
}

double StepSweep::SecondsAgain(const PlanOutline& outline, const DataMessages& data) {
  kept_->walked_outline = outline;
  return kept_->fold->Total(kept_->passes, data);
}

void StepSweep::NextPipeline() { kept_->of = nullptr; }

std::optional<double> StepSweep::ByFormula(const LayerTable& table, const PlanOutline& outline,
                                           const DataMessages& data, double* least) {
  Kept& kept = *kept_;
  const bool alike = kept.of == &table && PassesAlike(table, outline);
  if (!alike) kept.Fold(form_, table, outline, data);
  const double total = kept.fold->Total(kept.passes, data);
  if (!kept.walks) return total;
  *least = total * (1 - closed::kRounding);
  return std::nullopt;
}

}  // namespace orrery
