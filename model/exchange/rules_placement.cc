// SPDX-License-Identifier: Apache-2.0
// Orders of ranks and nodes: arguments of Megatron, NODE_RANK by a launcher's file.
#include <fmt/format.h>

#include <sstream>

#include "model/base/plain_text.h"
#include "model/exchange/rules.h"
#include "model/plan/lower/names.h"

namespace orrery::exchange {

namespace {
// Of nodes in another order: NODE_RANK, which the launcher's file gives them.
Written PlacedNodes(const Case& c) {
  Written written = Say({});
  if (const auto& placement = c.strategy.placement; placement && !placement->nodes.empty()) {
    written.status = Status::kFollows;
    written.why = "the launcher's file numbers the nodes in the order of the placement";
  }
  return written;
}

// From PLACES of a launcher's file, the NODE_RANK of each node. Empty: it is no order of nodes.
std::vector<int32_t> NodesOf(const std::string& text) {
  std::vector<int32_t> nodes;
  std::istringstream words(text);
  std::vector<int64_t> places;
  for (std::string word; words >> word;) {
    int64_t place = 0;
    if (ParseInteger(word, &place) != NumberFault::kNone) return {};
    places.push_back(place);
  }
  nodes.assign(places.size(), -1);
  for (std::size_t node = 0; node < places.size(); ++node) {
    const int64_t place = places[node];
    if (place < 0 || place >= std::ssize(places) || nodes[static_cast<std::size_t>(place)] >= 0)
      return {};
    nodes[static_cast<std::size_t>(place)] = static_cast<int32_t>(node);
  }
  return nodes;
}
}  // namespace

std::optional<Value> PlacementOf(const SettingIndex& settings, const Setting* inside) {
  const Setting* places = settings.Find("PLACES");
  const std::vector<int32_t> nodes =
      places == nullptr ? std::vector<int32_t>() : NodesOf(places->value);
  if (nodes.empty() && inside == nullptr) return std::nullopt;
  return From(inside != nullptr ? inside : places, PlacementText({inside != nullptr, nodes}));
}

Cell MegatronPlacement(const char* key, const char* on) {
  return Rule(
      [key, on](const Case& c) {
        Written written = PlacedNodes(c);
        if (!c.strategy.stages_inside()) return written;
        // Asserted by Megatron-Bridge (training/config.py, ConfigContainer.validate).
        if (*on != '\0' && c.strategy.zero >= 2)
          return No("Megatron-FSDP takes no other order of ranks than tp-cp-dp-pp");
        written.status = Status::kWritten;
        written.settings.push_back(Set(key, std::string(on)));
        return written;
      },
      [key, on](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting* inside = settings.Find(key);
        if (inside != nullptr && *on != '\0' && inside->value != on) inside = nullptr;
        return PlacementOf(settings, inside);
      });
}

Cell OtherPlacement() {
  return Rule(
      [](const Case& c) {
        return c.strategy.stages_inside() ? No("numbers ranks as tp-cp-dp-pp") : PlacedNodes(c);
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        return PlacementOf(settings, nullptr);
      });
}

}  // namespace orrery::exchange
