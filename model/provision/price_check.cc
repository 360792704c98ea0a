// SPDX-License-Identifier: Apache-2.0
// Compares prices of the same GPUs.
#include "model/provision/price_check.h"

#include <fmt/format.h>

#include "model/arch/data_root.h"
#include "model/base/text.h"

namespace orrery {
namespace {

// The price of one GPU taken for that of a node of eight is an eighth; the lowest published price of a GPU is a quarter of the
// next one of its kind (V100, offers/, 2026; tests/provision compares them all).
constexpr double kLeastOfOthers = 0.2;

const NodePrice* LowestOther(const NodePrice& one, const std::vector<NodePrice>& all,
                             bool of_kind) {
  const NodePrice* lowest = nullptr;
  for (const NodePrice& other : all) {
    if (other.gpu != one.gpu || other.quote.offer.file == one.quote.offer.file ||
        other.quote.offer.name == one.quote.offer.name ||
        other.quote.price.kind == PriceKind::kUnclear)
      continue;
    if (of_kind && other.quote.price.kind != one.quote.price.kind) continue;
    if (lowest == nullptr || other.OfGpu() < lowest->OfGpu()) lowest = &other;
  }
  return lowest;
}

std::string Of(const NodePrice& price) {
  return fmt::format("{} ({})", price.quote.Name(), ShownPath(price.quote.offer.file));
}

}  // namespace

std::optional<FarBelow> FarBelowOthers(const NodePrice& one, const std::vector<NodePrice>& all) {
  const NodePrice* lowest = LowestOther(one, all, true);
  // Spot prices and commitments are themselves down to a sixth of another vendor's price on demand.
  const double least = lowest != nullptr ? kLeastOfOthers : kLeastOfOthers / 2;
  if (lowest == nullptr) lowest = LowestOther(one, all, false);
  if (lowest == nullptr) return std::nullopt;
  const double ratio = one.OfGpu() / lowest->OfGpu();
  if (ratio >= least) return std::nullopt;
  return FarBelow{*lowest, ratio};
}

std::string FarBelowWords(const NodePrice& one, const FarBelow& below) {
  return fmt::format(
      "{}: {} for a node of {} {} is {:.2g} x the lowest other price of this GPU, {} of {}; is it "
      "the price of one GPU, or of a commitment?",
      Of(one), Format(one.quote.price.price), one.gpus, one.gpu, below.ratio,
      Format(DollarsPerHour(below.other.OfGpu().value * one.gpus)), Of(below.other));
}

}  // namespace orrery
