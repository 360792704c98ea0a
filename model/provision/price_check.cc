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
// List prices of a GPU lie within a factor of five of each other (V100, offers/, 2026): five times the highest one is none.
constexpr double kMostOfOthers = 5;

// `above`: the highest one.
const NodePrice* OtherPrice(const NodePrice& one, const std::vector<NodePrice>& all, bool of_kind,
                            bool above) {
  const NodePrice* found = nullptr;
  for (const NodePrice& other : all) {
    if (other.gpu != one.gpu || other.quote.offer.file == one.quote.offer.file ||
        other.quote.offer.name == one.quote.offer.name ||
        other.quote.price.kind == PriceKind::kUnclear)
      continue;
    if (of_kind && other.quote.price.kind != one.quote.price.kind) continue;
    const bool further = found == nullptr ||
                         (above ? other.OfGpu() > found->OfGpu() : other.OfGpu() < found->OfGpu());
    if (further) found = &other;
  }
  return found;
}

std::string Of(const NodePrice& price) {
  return fmt::format("{} ({})", price.quote.Name(), ShownPath(price.quote.offer.file));
}

}  // namespace

std::optional<FarBelow> FarBelowOthers(const NodePrice& one, const std::vector<NodePrice>& all) {
  const NodePrice* lowest = OtherPrice(one, all, true, false);
  // Spot prices and commitments are themselves down to a sixth of another vendor's price on demand.
  const double least = lowest != nullptr ? kLeastOfOthers : kLeastOfOthers / 2;
  if (lowest == nullptr) lowest = OtherPrice(one, all, false, false);
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

std::string FarAboveWords(const NodePrice& one, const std::vector<NodePrice>& all) {
  const NodePrice* highest = OtherPrice(one, all, false, true);
  if (highest == nullptr || one.OfGpu().value <= kMostOfOthers * highest->OfGpu().value) return "";
  return fmt::format(
      "{}: {} for a node of {} {} is {:.2g} x the highest other price of this GPU, {} of {}; is it "
      "the price of a month, of several nodes, or in cents?",
      Of(one), Format(one.quote.price.price), one.gpus, one.gpu,
      one.OfGpu().value / highest->OfGpu().value,
      Format(DollarsPerHour(highest->OfGpu().value * one.gpus)), Of(*highest));
}

}  // namespace orrery
