// SPDX-License-Identifier: Apache-2.0
// Paths: checked, merged and shared by content.
#include "model/engine/network/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "model/base/check.h"
#include "model/base/diagnostics.h"

namespace orrery::net {
namespace {

std::size_t HashOf(std::span<const LinkUse> uses, double cap) {
  uint64_t hash = std::bit_cast<uint64_t>(cap) * 0x9E3779B97F4A7C15u;
  for (const LinkUse& use : uses) {
    hash ^=
        static_cast<uint64_t>(use.link) * 0xFF51AFD7ED558CCDu + std::bit_cast<uint64_t>(use.weight);
    hash = std::rotl(hash * 0x9E3779B97F4A7C15u, 29);
  }
  return static_cast<std::size_t>(hash);
}

}  // namespace

Network::Network(Wires wires) : wires_(std::move(wires)) {
  capacity_.reserve(wires_.capacity.size());
  for (const BytesPerSecond capacity : wires_.capacity) capacity_.push_back(capacity.value);
  merge_weight_.assign(capacity_.size(), 0.0);
}

Network::~Network() = default;

std::string Network::NameOf(LinkId link) const {
  return wires_.name ? wires_.name(link) : fmt::format("link {}", link);
}

double Network::Alone(std::span<const LinkUse> uses, double cap, const std::string& what) const {
  if (uses.empty() && std::isinf(cap)) {
    throw InputError(fmt::format("{}: no route connects the two ends", what),
                     "the topology must have a path of links between them");
  }
  if (!(cap > 0)) throw InputError(fmt::format("{}: a rate cap of 0 never lets it end", what));
  double alone = cap;
  for (const LinkUse& use : uses) {
    const double capacity = capacity_[static_cast<std::size_t>(use.link)];
    if (!(capacity > 0)) {
      throw InputError(
          fmt::format("{}: its route crosses {}, which has no bandwidth", what, NameOf(use.link)));
    }
    alone = std::min(alone, capacity / use.weight);
  }
  return alone;
}

// Each link once, in order of first appearance.
std::vector<LinkUse> Network::Merge(std::span<const LinkUse> uses) {
  std::vector<LinkUse> merged;
  merged.reserve(uses.size());
  for (const LinkUse& use : uses) {
    ORRERY_CHECK(use.link >= 0 && static_cast<std::size_t>(use.link) < capacity_.size(),
                 "link {} of {}", use.link, capacity_.size());
    ORRERY_CHECK(use.weight > 0 && std::isfinite(use.weight), "weight {} on link {}", use.weight,
                 use.link);
    double& weight = merge_weight_[static_cast<std::size_t>(use.link)];
    if (weight == 0) merged.push_back(use);
    weight += use.weight;
  }
  for (LinkUse& use : merged)
    use.weight = std::exchange(merge_weight_[static_cast<std::size_t>(use.link)], 0.0);
  return merged;
}

PathId Network::AddPath(std::span<const LinkUse> uses, BytesPerSecond cap,
                        const std::string& what) {
  const std::vector<LinkUse> merged = Merge(uses);
  const std::size_t hash = HashOf(merged, cap.value);
  const auto [begin, end] = by_content_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (paths_[At(it->second)].cap == cap.value && std::ranges::equal(UsesOf(it->second), merged))
      return it->second;
  }
  Path path;
  path.alone = Alone(merged, cap.value, what);
  path.cap = cap.value;
  path.first = static_cast<uint32_t>(uses_.size());
  path.count = static_cast<uint32_t>(merged.size());
  const auto id = static_cast<PathId>(paths_.size());
  uses_.insert(uses_.end(), merged.begin(), merged.end());
  paths_.push_back(path);
  by_content_.emplace(hash, id);
  OnNewPath(id);
  return id;
}

PathId Network::AddRoute(std::span<const LinkId> route, BytesPerSecond cap,
                         const std::string& what) {
  std::vector<LinkUse> uses;
  uses.reserve(route.size());
  for (const LinkId link : route) uses.push_back({link, 1.0});
  return AddPath(uses, cap, what);
}

void Network::Flow(std::span<const LinkId> route, Bytes bytes, BytesPerSecond cap, Done done) {
  Start(AddRoute(route, cap, "flow"), bytes, std::move(done));
}

std::span<const LinkUse> Network::UsesOf(PathId path) const {
  const Path& at = paths_[At(path)];
  return {uses_.data() + at.first, at.count};
}

void Network::CheckBytes(Bytes bytes) {
  ORRERY_CHECK(bytes.value >= 0 && std::isfinite(bytes.value), "a job of {} bytes", bytes.value);
}

std::vector<Bytes> Network::Carried() const {
  std::vector<Bytes> carried(capacity_.size());
  for (const Path& path : paths_) {
    for (uint32_t i = path.first; i < path.first + path.count; ++i) {
      carried[static_cast<std::size_t>(uses_[i].link)] += Bytes(path.finished * uses_[i].weight);
    }
  }
  return carried;
}

}  // namespace orrery::net
