// SPDX-License-Identifier: Apache-2.0
// Choices of recomputation as text.
#include "model/plan/lower/names.h"

#include <fmt/format.h>

#include <charconv>

#include "model/base/number_runs.h"

namespace orrery {
namespace {

constexpr int kMostLayers = 100000;

// "5" of "full:5"; nullopt: no whole number from 1 on.
std::optional<int> Count(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || number < 1 || number > kMostLayers) return std::nullopt;
  return number;
}

std::optional<unsigned char> Modules(std::string_view text) {
  for (const auto& [name, value] : kRecomputeNames) {
    if (text == name) return value.modules;
  }
  unsigned char modules = 0;
  while (true) {
    const std::size_t end = text.find('+');
    const std::string_view word = text.substr(0, end);
    unsigned char found = 0;
    for (const auto& [name, module] : kRecomputeModuleNames) {
      if (word == name) found = module;
    }
    if (found == 0) return std::nullopt;
    modules |= found;
    if (end == std::string_view::npos) return modules;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

std::string RecomputeText(const Recompute& recompute) {
  std::string text;
  const Recompute everywhere{recompute.modules};
  for (const auto& [name, value] : kRecomputeNames) {
    if (everywhere == value) text = name;
  }
  if (text.empty()) {
    for (const auto& [name, module] : kRecomputeModuleNames) {
      if ((recompute.modules & module) != 0)
        text += fmt::format("{}{}", text.empty() ? "" : "+", name);
    }
  }
  if (recompute.first > 0) text += fmt::format(":{}", recompute.first);
  if (recompute.every > 1) text += fmt::format("/{}", recompute.every);
  return text;
}

std::optional<Recompute> ReadRecompute(std::string_view text) {
  Recompute recompute;
  if (const std::size_t at = text.find('/'); at != std::string_view::npos) {
    const std::optional<int> every = Count(text.substr(at + 1));
    if (!every) return std::nullopt;
    recompute.every = *every;
    text = text.substr(0, at);
  }
  if (const std::size_t at = text.find(':'); at != std::string_view::npos) {
    const std::optional<int> first = Count(text.substr(at + 1));
    if (!first) return std::nullopt;
    recompute.first = *first;
    text = text.substr(0, at);
  }
  const std::optional<unsigned char> modules = Modules(text);
  if (!modules || (*modules == 0 && (recompute.first > 0 || recompute.every > 1)))
    return std::nullopt;
  recompute.modules = *modules;
  return recompute;
}

namespace {

constexpr std::string_view kDataInside = "tp-cp-dp-pp", kStagesInside = "tp-cp-pp-dp";
constexpr int kMostPlaces = 1 << 16;

std::optional<int32_t> NodeIn(std::string_view text) {
  int32_t node = -1;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), node);
  if (error != std::errc() || rest != text.data() + text.size() || node < 0 || node >= kMostPlaces)
    return std::nullopt;
  return node;
}

}  // namespace

std::string NodeOrderText(const std::vector<int32_t>& nodes) { return RunsText(nodes); }

std::string PlacementText(const Placement& placement) {
  std::string text(placement.stages_inside ? kStagesInside : kDataInside);
  return placement.nodes.empty() ? text : text + ":" + NodeOrderText(placement.nodes);
}

std::optional<Placement> ReadPlacement(std::string_view text) {
  Placement placement;
  if (text.starts_with("tp-")) {
    const std::string_view order = text.substr(0, text.find(':'));
    if (order != kDataInside && order != kStagesInside) return std::nullopt;
    placement.stages_inside = order == kStagesInside;
    if (order.size() == text.size()) return placement;
    text.remove_prefix(order.size() + 1);
  }
  while (true) {
    const std::string_view piece = text.substr(0, text.find(','));
    const std::size_t dots = piece.find("..");
    const std::optional<int32_t> first = NodeIn(piece.substr(0, dots));
    const std::optional<int32_t> last =
        dots == std::string_view::npos ? first : NodeIn(piece.substr(dots + 2));
    if (!first || !last || *last < *first) return std::nullopt;
    for (int32_t node = *first; node <= *last; ++node) placement.nodes.push_back(node);
    if (placement.nodes.size() > kMostPlaces) return std::nullopt;
    if (piece.size() == text.size()) return placement;
    text.remove_prefix(piece.size() + 1);
  }
}

std::string OffloadText(const Offload& offload) {
  std::string text;
  if (offload.optimizer > 0) text = "optimizer";
  if (offload.optimizer > 0 && offload.optimizer < 1) text += fmt::format(":{}", offload.optimizer);
  for (const auto& [on, word] :
       {std::pair{offload.weights, "weights"}, {offload.activations, "activations"}}) {
    if (on) text += fmt::format("{}{}", text.empty() ? "" : "+", word);
  }
  if (offload.activations && offload.activation_layers > 0)
    text += fmt::format(":{}", offload.activation_layers);
  return text.empty() ? "none" : text;
}

std::optional<SkippedLayers> ReadSkippedLayers(std::string_view text) {
  const std::size_t comma = text.find(',');
  if (comma == std::string_view::npos) return std::nullopt;
  const auto count = [](std::string_view number) {
    return number == "0" ? std::optional(0) : Count(number);
  };
  const auto first = count(text.substr(0, comma)), last = count(text.substr(comma + 1));
  return first && last ? std::optional(SkippedLayers{*first, *last}) : std::nullopt;
}

std::optional<Offload> ReadOffload(std::string_view text) {
  Offload offload;
  if (text == "none") return offload;
  while (true) {
    const std::size_t end = text.find('+');
    std::string_view word = text.substr(0, end);
    constexpr std::string_view kShare = "optimizer:";
    constexpr std::string_view kLayers = "activations:";
    if (word == "activations" && !offload.activations) {
      offload.activations = true;
    } else if (word.starts_with(kLayers) && !offload.activations) {
      word.remove_prefix(kLayers.size());
      const auto [rest, error] =
          std::from_chars(word.data(), word.data() + word.size(), offload.activation_layers);
      if (error != std::errc() || rest != word.data() + word.size() ||
          offload.activation_layers < 1)
        return std::nullopt;
      offload.activations = true;
    } else if (word == "weights" && !offload.weights) {
      offload.weights = true;
    } else if (word == "optimizer" && offload.optimizer == 0) {
      offload.optimizer = 1;
    } else if (word.starts_with(kShare) && offload.optimizer == 0) {
      word.remove_prefix(kShare.size());
      const auto [rest, error] =
          std::from_chars(word.data(), word.data() + word.size(), offload.optimizer);
      if (error != std::errc() || rest != word.data() + word.size() || !(offload.optimizer > 0) ||
          offload.optimizer > 1)
        return std::nullopt;
    } else {
      return std::nullopt;
    }
    if (end == std::string_view::npos) return offload;
    text.remove_prefix(end + 1);
  }
}

}  // namespace orrery
