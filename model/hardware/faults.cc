// SPDX-License-Identifier: Apache-2.0
// Finds links by name, slows them, and takes NICs out.
#include "model/hardware/faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "model/base/check.h"
#include "model/hardware/node_template.h"

namespace orrery {
namespace {

constexpr std::size_t kMostSuggested = 4;
constexpr std::size_t kMostCompared = 20'000;  // names, for the nearest ones

// "a -> b" and "a > b" as "a>b".
std::string PlainLink(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    if (c == ' ') continue;
    if (c == '>' && plain.ends_with('-')) plain.pop_back();
    plain += c;
  }
  return plain;
}

bool MatchesGlob(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++, resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1, t = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

// The patterns of one direction each.
std::vector<std::string> Directions(std::string_view pattern) {
  const std::size_t both = pattern.find("<->");
  if (both == std::string_view::npos) return {PlainLink(pattern)};
  const std::string a = PlainLink(pattern.substr(0, both)), b = PlainLink(pattern.substr(both + 3));
  return {a + ">" + b, b + ">" + a};
}

// A GPU keeps those of its nearest NICs that work, in their order; those that have lost all turn to
// the next nearest, spread evenly.
std::vector<std::vector<int>> NicsLeft(const Cluster& cluster, const std::vector<char>& works) {
  std::vector<std::vector<int>> left = NearestNics(cluster.spec.node, works);
  std::vector<std::vector<int>> kept;
  for (std::size_t gpu = 0; gpu < left.size(); ++gpu) {
    kept.push_back(cluster.node_template->NearestNics(static_cast<int>(gpu)));
    std::erase_if(kept[gpu], [&](int nic) { return !works[static_cast<std::size_t>(nic)]; });
    if (!kept[gpu].empty()) left[gpu].clear();
  }
  TurnApart(&left);
  for (std::size_t gpu = 0; gpu < left.size(); ++gpu) {
    if (!kept[gpu].empty()) left[gpu] = std::move(kept[gpu]);
  }
  return left;
}

}  // namespace

NoRoute::NoRoute(int64_t from, int64_t to, int64_t isolated_node, const std::string& action)
    : InputError(
          fmt::format("{}{}no route from rank {} to rank {}: every NIC of node {} has failed",
                      action, action.empty() ? "" : ": ", from, to, isolated_node),
          "a node reaches others while one of its NICs works"),
      from_(from),
      to_(to),
      node_(isolated_node) {}

std::vector<LinkId> MatchLinks(const Cluster& cluster, std::string_view pattern) {
  const std::vector<std::string> wanted = Directions(pattern);
  std::vector<LinkId> found;
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    const auto link = static_cast<LinkId>(i);
    const std::string name = PlainLink(cluster.LinkName(link));
    if (std::ranges::any_of(wanted, [&](const auto& want) { return MatchesGlob(want, name); }))
      found.push_back(link);
  }
  return found;
}

std::string SuggestLink(const Cluster& cluster, std::string_view pattern) {
  const std::string wanted = PlainLink(pattern);
  std::vector<std::string> names, of_device;
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    const auto link = static_cast<LinkId>(i);
    const Link& ends = cluster.links[i];
    if (names.size() < kMostCompared) names.push_back(cluster.LinkName(link));
    if (of_device.size() < kMostSuggested &&
        (cluster.DeviceName(ends.from) == wanted || cluster.DeviceName(ends.to) == wanted))
      of_device.push_back(cluster.LinkName(link));
  }
  if (!of_device.empty()) {
    return fmt::format("'{}' is a device; links of it are '{}'", pattern,
                       fmt::join(of_device, "', '"));
  }
  std::string hint = SuggestName(pattern, names);
  if (!hint.empty() || names.empty()) return hint;
  return fmt::format("links are named like '{}'; `plan topo {}` shows the devices", names.front(),
                     cluster.spec.name);
}

void DegradeLinks(std::span<const LinkId> links, double share, Cluster* cluster) {
  ORRERY_CHECK(share > 0 && share <= 1, "links at {} of their rate", share);
  for (const LinkId id : links) {
    Link& link = cluster->links[static_cast<std::size_t>(id)];
    link.capacity *= share;
    link.left *= share;
  }
}

void FailNics(std::span<const NicOfNode> nics, Cluster* cluster) {
  const auto per_node = static_cast<int64_t>(cluster->spec.node.nics.size());
  std::map<int64_t, std::vector<char>> works;
  for (const NicOfNode& at : nics) {
    ORRERY_CHECK(at.node >= 0 && at.node < cluster->nodes && at.nic >= 0 && at.nic < per_node,
                 "NIC {} of node {}", at.nic, at.node);
    auto& node = works.try_emplace(at.node, std::vector<char>(per_node, 1)).first->second;
    node[static_cast<std::size_t>(at.nic)] = 0;
  }
  auto faults = std::make_shared<NicFaults>();
  for (const auto& [node, left] : works) faults->nearest.emplace(node, NicsLeft(*cluster, left));
  for (Link& link : cluster->links) {
    for (const VertexId end : {link.from, link.to}) {
      const Device& device = cluster->devices[static_cast<std::size_t>(end)];
      if (device.kind != DeviceKind::kNic || !works.contains(device.node)) continue;
      if (!works[device.node][static_cast<std::size_t>(device.index)])
        link.capacity = BytesPerSecond(0);
    }
  }
  cluster->faults = std::move(faults);
}

}  // namespace orrery
