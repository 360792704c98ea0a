// SPDX-License-Identifier: Apache-2.0
// Drops links and traffic that cannot change any date.
#include "model/engine/event/path_table.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <unordered_map>
#include <utility>

#include "model/engine/network/fluid.h"

namespace orrery::sim {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value, uint64_t odd) {
  hash = (hash ^ value) * odd;
  return hash ^ (hash >> 29);
}

struct UseHash {
  uint64_t a = 0, b = 0;
  bool operator==(const UseHash&) const = default;
};
struct HashOfHash {
  std::size_t operator()(const UseHash& hash) const { return static_cast<std::size_t>(hash.a); }
};

}  // namespace

int32_t PathTable::Add(int32_t communicator, net::Traffic traffic, const Occupation& occupation,
                       const std::string& what) {
  for (std::size_t phase = 0; phase < traffic.size(); ++phase) {
    for (net::Channel& channel : traffic[phase]) {
      Entry entry;
      entry.communicator = communicator;
      entry.route = routes_;
      entry.phase = static_cast<int32_t>(phase);
      entry.bytes = channel.share;
      entry.share = occupation.share;
      entry.wire = occupation.wire;
      const double least = phase < occupation.least.size() ? occupation.least[phase] : 0;
      entry.cap = least > 0 ? entry.bytes / least : net::kNoCap.value;
      entry.uses = std::move(channel.uses);
      entry.what = what;
      entries_.push_back(std::move(entry));
    }
  }
  return routes_++;
}

std::vector<int32_t> PathTable::Owners() const {
  std::vector<int32_t> owners(capacity_.size(), -1);
  for (const Entry& entry : entries_) {
    for (const net::LinkUse& use : entry.uses) {
      int32_t& owner = owners[static_cast<std::size_t>(use.link)];
      owner = owner == -1 || owner == entry.communicator ? entry.communicator : -2;
    }
  }
  return owners;
}

// Two links that the same paths use with the same weights: the wider one never binds.
std::vector<char> PathTable::Redundant() const {
  std::vector<UseHash> hashes(capacity_.size());
  std::vector<LinkId> used;
  constexpr std::size_t kAhead = 8;  // uses: hashes of a large cluster are not in the cache
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    const std::vector<net::LinkUse>& uses = entries_[e].uses;
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (i + kAhead < uses.size())
        __builtin_prefetch(&hashes[static_cast<std::size_t>(uses[i + kAhead].link)], 1);
      const net::LinkUse& use = uses[i];
      UseHash& hash = hashes[static_cast<std::size_t>(use.link)];
      if (hash == UseHash{}) used.push_back(use.link);
      const uint64_t value = (e + 1) * 0x9E3779B97F4A7C15u ^ std::bit_cast<uint64_t>(use.weight);
      hash.a = Mix(hash.a, value, 0xFF51AFD7ED558CCDu);
      hash.b = Mix(hash.b, value, 0xC4CEB9FE1A85EC53u);
    }
  }
  std::unordered_map<UseHash, LinkId, HashOfHash> narrowest;
  for (const LinkId link : used) {
    const auto [at, added] = narrowest.try_emplace(hashes[static_cast<std::size_t>(link)], link);
    if (!added && capacity_[static_cast<std::size_t>(link)] <
                      capacity_[static_cast<std::size_t>(at->second)]) {
      at->second = link;
    }
  }
  std::vector<char> redundant(capacity_.size(), 1);
  for (const auto& [hash, link] : narrowest) redundant[static_cast<std::size_t>(link)] = 0;
  return redundant;
}

bool PathTable::IsApart(const Entry& entry, const std::vector<int32_t>& owners) const {
  return std::ranges::all_of(entry.uses, [&](const net::LinkUse& use) {
    return owners[static_cast<std::size_t>(use.link)] == entry.communicator;
  });
}

// Entries of one route, simulated on their own: time is linear in the bytes.
double PathTable::AloneSeconds(std::size_t begin, std::size_t end) const {
  double total = 0;
  for (std::size_t e = begin; e < end;) {
    std::size_t phase_end = e;
    while (phase_end < end && entries_[phase_end].phase == entries_[e].phase) ++phase_end;
    std::unordered_map<LinkId, LinkId> numbers;
    net::Wires wires;
    for (std::size_t i = e; i < phase_end; ++i) {
      for (const net::LinkUse& use : entries_[i].uses) {
        if (!numbers.try_emplace(use.link, static_cast<LinkId>(wires.capacity.size())).second)
          continue;
        wires.capacity.push_back(capacity_[static_cast<std::size_t>(use.link)]);
      }
    }
    net::FluidNetwork network(std::move(wires));
    constexpr double kSize = 1e9;
    for (; e < phase_end; ++e) {
      std::vector<net::LinkUse> uses = entries_[e].uses;
      for (net::LinkUse& use : uses) use.link = numbers.at(use.link);
      network.Start(network.AddPath(uses, BytesPerSecond(entries_[e].cap), entries_[e].what),
                    Bytes(kSize * entries_[e].bytes), [] {});
    }
    network.Run();
    total += network.Now().value / kSize;
  }
  return total;
}

// A path over a dead link is refused even where it would not be simulated.
void PathTable::CheckWires(const Entry& entry, net::Network* network) const {
  const bool dead = std::ranges::any_of(entry.uses, [&](const net::LinkUse& use) {
    return !(capacity_[static_cast<std::size_t>(use.link)].value > 0);
  });
  if (dead || entry.uses.empty()) network->AddPath(entry.uses, net::kNoCap, entry.what);  // throws
}

std::vector<Route> PathTable::Register(net::Network* network, bool set_apart,
                                       std::vector<std::vector<net::LinkUse>>* path_uses) const {
  std::vector<Route> routes(static_cast<std::size_t>(routes_));
  for (const Entry& entry : entries_) CheckWires(entry, network);
  const std::vector<int32_t> owners = Owners();
  const std::vector<char> redundant = Redundant();
  std::vector<net::LinkUse> uses;
  for (std::size_t begin = 0; begin < entries_.size();) {
    std::size_t end = begin;
    bool apart = set_apart;
    for (; end < entries_.size() && entries_[end].route == entries_[begin].route; ++end) {
      apart = apart && IsApart(entries_[end], owners);
    }
    Route& route = routes[static_cast<std::size_t>(entries_[begin].route)];
    if (apart) route.alone = AloneSeconds(begin, end);
    for (; begin < end; ++begin) {
      const Entry& entry = entries_[begin];
      if (apart) continue;
      uses.clear();
      for (const net::LinkUse& use : entry.uses) {
        if (!redundant[static_cast<std::size_t>(use.link)]) uses.push_back(use);
      }
      route.phases.resize(static_cast<std::size_t>(entry.phase) + 1);
      const net::PathId path = network->AddPath(uses, BytesPerSecond(entry.cap), entry.what);
      route.phases.back().push_back({path, entry.bytes});
      // Entries of one path agree on the links left out, too: their twins are on the path.
      if (path_uses == nullptr) continue;
      path_uses->resize(std::max(path_uses->size(), static_cast<std::size_t>(path) + 1));
      (*path_uses)[static_cast<std::size_t>(path)] = entry.uses;
    }
  }
  return routes;
}

std::vector<LinkShares> PathTable::TakeLinkShares() {
  std::vector<LinkKind> kinds;  // apart from all else of a link: paths touch links in no order
  kinds.reserve(cluster_.links.size());
  for (const auto& link : cluster_.links) kinds.push_back(link.kind);
  const auto of_links = std::make_shared<const std::vector<LinkKind>>(std::move(kinds));
  std::vector<std::vector<RouteLinks::Part>> parts(static_cast<std::size_t>(routes_));
  for (Entry& entry : entries_)
    parts[static_cast<std::size_t>(entry.route)].push_back(
        {std::move(entry.uses), entry.bytes, entry.wire, entry.share});
  entries_.clear();
  std::vector<LinkShares> shares;
  shares.reserve(parts.size());
  for (std::vector<RouteLinks::Part>& of_route : parts)
    shares.push_back(std::make_shared<const RouteLinks>(std::move(of_route), of_links));
  return shares;
}

}  // namespace orrery::sim
