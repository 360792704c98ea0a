// SPDX-License-Identifier: Apache-2.0
// Packs rings and chains: Held-Karp under lengths that grow with load, then local search.
#include "model/hardware/mesh_rings.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>

#include "model/hardware/rings.h"

namespace orrery::net {
namespace {

constexpr int kMostGpus = 10;   // Held-Karp takes 2^n n^2 steps
constexpr int kMostRings = 16;  // in one list
constexpr int kMostTimes = 3;   // links are doubled and tripled for rings that use them in part
constexpr double kSteps = 2e6;  // of Held-Karp for one list, each of its walks laid anew in turn
constexpr double kNear = 0.99;  // of the fastest list
constexpr double kSteepness = 6.0;
constexpr double kNever = std::numeric_limits<double>::infinity();

std::size_t Index(int i) { return static_cast<std::size_t>(i); }

// The cheapest walk through all GPUs from a given one. `length(a, b)`: of a step; `last(b)`: of
// ending at b. Empty: there is none.
template <class Length, class Last>
Order ShortestWalk(int gpus, int start, Length length, Last last) {
  const std::size_t sets = std::size_t{1} << gpus;
  std::vector<double> best(sets * Index(gpus), kNever);
  std::vector<int> before(best.size(), -1);
  const auto at = [gpus](std::size_t set, int end) { return set * Index(gpus) + Index(end); };
  best[at(std::size_t{1} << start, start)] = 0;
  for (std::size_t set = 1; set < sets; ++set) {
    for (int end = 0; end < gpus; ++end) {
      const double here = best[at(set, end)];
      if (here == kNever) continue;
      for (int next = 0; next < gpus; ++next) {
        if ((set >> next & 1) != 0) continue;
        const std::size_t to = at(set | std::size_t{1} << next, next);
        const double there = here + length(end, next);
        if (there < best[to]) best[to] = there, before[to] = end;
      }
    }
  }
  int end = -1;
  double least = kNever;
  for (int i = 0; i < gpus; ++i) {
    const double whole = best[at(sets - 1, i)] + last(i);
    if (whole < least) least = whole, end = i;
  }
  Order walk;
  for (std::size_t set = sets - 1; end >= 0;) {
    walk.push_back(end);
    const int previous = before[at(set, end)];
    set ^= std::size_t{1} << end;
    end = previous;
  }
  std::ranges::reverse(walk);
  return walk;
}

// A list of walks and the load that it puts on every link.
class Packing {
 public:
  Packing(const LinkTable& links, int count, bool closed)
      : links_(links),
        closed_(closed),
        count_(count),
        load_(links.count.size(), 0),
        ends_(Index(links.gpus), 0) {}

  // False: no walk exists.
  bool Grow() {
    for (int i = 0; i < count_; ++i) {
      walks_.push_back(Find(closed_ ? 0 : i % links_.gpus, 0));
      if (walks_.back().empty()) return false;
      Put(walks_.back(), 1);
    }
    return true;
  }

  // Lays walks anew, one after the other, and returns the best list that came up.
  std::vector<Order> Improve(double good_enough) {
    std::vector<Order> best = walks_;
    std::pair<bool, double> least = Quality();
    const double steps = std::ldexp(static_cast<double>(links_.gpus * links_.gpus), links_.gpus);
    const int sweeps = std::max(4, static_cast<int>(std::min(200.0, kSteps / (steps * count_))));
    for (int sweep = 0, idle = 0; sweep < sweeps && 4 * idle < sweeps; ++sweep, ++idle) {
      for (Order& walk : walks_) {
        if (!least.first && least.second <= good_enough) return best;
        Put(walk, -1);
        walk = Find(walk.front(), 0.3);
        Put(walk, 1);
        if (Quality() < least) least = Quality(), best = walks_, idle = -1;
      }
    }
    return best;
  }

 private:
  double Load(int from, int to) const {
    return static_cast<double>(load_[Index(from * links_.gpus + to)]) / links_(from, to);
  }

  // The fullest link; first of all, chains must end everywhere.
  std::pair<bool, double> Quality() const {
    double fullest = 0;
    for (int a = 0; a < links_.gpus; ++a) {
      for (int b = 0; b < links_.gpus; ++b) {
        if (a != b && links_(a, b) > 0) fullest = std::max(fullest, Load(a, b));
      }
    }
    const auto [fewest, most] = std::ranges::minmax(ends_);
    return {!closed_ && most - fewest > 1, fullest};
  }

  // `noise` shuffles walks that are about as long, so that the search does not stand still.
  Order Find(int start, double noise) {
    std::vector<double> length(load_.size(), kNever);
    for (int a = 0; a < links_.gpus; ++a) {
      for (int b = 0; b < links_.gpus; ++b) {
        if (a == b || links_(a, b) == 0) continue;
        const double full = Load(a, b) + 0.5 / links_(a, b);
        length[Index(a * links_.gpus + b)] =
            std::exp(kSteepness * std::min(full, 64.0)) / links_(a, b) * (1 + noise * Random());
      }
    }
    const auto step = [&](int a, int b) { return length[Index(a * links_.gpus + b)]; };
    const double dear = std::exp(kSteepness * 80.0);
    return ShortestWalk(links_.gpus, start, step, [&](int end) {
      if (closed_) return step(end, start);
      return dear * ends_[Index(end)];
    });
  }

  void Put(const Order& walk, int by) {
    for (std::size_t i = 1; i < walk.size(); ++i)
      load_[Index(walk[i - 1] * links_.gpus + walk[i])] += by;
    if (closed_) load_[Index(walk.back() * links_.gpus + walk.front())] += by;
    ends_[Index(walk.back())] += closed_ ? 0 : by;
  }

  // 0 to 1; the same on every machine.
  double Random() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state_ >> 40) / static_cast<double>(1 << 24);
  }

  const LinkTable& links_;
  bool closed_;
  int count_;
  std::vector<int> load_, ends_;  // ends: chains that end at each GPU
  std::vector<Order> walks_;
  uint64_t state_ = 1;
};

// Every ring leaves each GPU once: no list is faster than the links of the poorest GPU.
int MostRings(const LinkTable& links) {
  int most = std::numeric_limits<int>::max();
  for (int a = 0; a < links.gpus; ++a) {
    int own = 0;
    for (int b = 0; b < links.gpus; ++b) own += links(a, b);
    most = std::min(most, own);
  }
  return most;
}

LinkTable TableOf(const NodeSpec& node, const std::vector<int>& gpus) {
  const auto n = static_cast<int>(gpus.size());
  LinkTable links{n, std::vector<int>(gpus.size() * gpus.size(), 0)};
  const auto place = [&](int gpu) {
    return static_cast<int>(std::ranges::find(gpus, gpu) - gpus.begin());
  };
  for (const MeshLink& link : node.mesh) {
    const int a = place(link.a), b = place(link.b);
    if (a == n || b == n) continue;
    links.count[Index(a * n + b)] += link.count;
    links.count[Index(b * n + a)] += link.count;
  }
  return links;
}

// Every link as so many. Counts lose what they have in common: the rings are the same.
std::vector<MeshLink> ListOf(const LinkTable& links, int times) {
  int common = 0;
  for (const int count : links.count) common = std::gcd(common, count);
  std::vector<MeshLink> list;
  for (int a = 0; a < links.gpus; ++a) {
    for (int b = a + 1; b < links.gpus; ++b) {
      if (links(a, b) > 0) list.push_back({a, b, links(a, b) / common * times});
    }
  }
  return list;
}

// The same shares by fewer rings where all of them occur several times.
std::vector<Order> Thinned(std::vector<Order> rings) {
  std::map<Order, int> times;
  for (const Order& ring : rings) ++times[ring];
  int common = 0;
  for (const auto& [ring, occurs] : times) common = std::gcd(common, occurs);
  rings.clear();
  for (const auto& [ring, occurs] : times) rings.insert(rings.end(), Index(occurs / common), ring);
  return rings;
}

bool IsComplete(const LinkTable& links) {
  for (int a = 0; a < links.gpus; ++a) {
    for (int b = 0; b < links.gpus; ++b) {
      if (a != b && (links(a, b) == 0 || links(a, b) != links(0, 1))) return false;
    }
  }
  return true;
}

// Start, one up, two down, three up and so on: with an even number of GPUs every step is another
// distance, so that the walks from all starts together take every link once (Walecki 1892).
std::vector<Order> Zigzags(int gpus, int count) {
  std::vector<Order> walks(Index(count));
  for (int i = 0; i < count; ++i) {
    for (int k = 0; k < gpus; ++k) {
      const int away = k % 2 == 1 ? (k + 1) / 2 : -(k / 2);
      walks[Index(i)].push_back((i + away + gpus) % gpus);
    }
  }
  return walks;
}

// Rings in turn, each from another GPU to the one before it.
std::vector<Order> CutOpen(const std::vector<Order>& rings, int count) {
  std::vector<Order> chains;
  for (int i = 0; !rings.empty() && i < count; ++i) {
    Order chain = rings[Index(i) % rings.size()];
    const auto start = std::ranges::find(chain, i % static_cast<int>(chain.size()));
    std::rotate(chain.begin(), start, chain.end());
    chains.push_back(std::move(chain));
  }
  return chains;
}

}  // namespace

double RateOfRings(const LinkTable& links, const std::vector<Order>& rings) {
  std::vector<int> load(links.count.size(), 0);
  double fullest = 0;
  for (const Order& ring : rings) {
    for (std::size_t i = 0; i < ring.size(); ++i) {
      const int from = ring[i], to = ring[(i + 1) % ring.size()];
      const int on_link = ++load[Index(from * links.gpus + to)];
      fullest = std::max(fullest, static_cast<double>(on_link) / links(from, to));
    }
  }
  return rings.empty() ? 0 : static_cast<double>(rings.size()) / fullest;
}

std::vector<Order> PackRings(const LinkTable& links) {
  const int most = MostRings(links);
  std::vector<Order> best;
  double rate = 0;
  const auto take_if_faster = [&](std::vector<Order> rings) {
    if (kNear * RateOfRings(links, rings) <= rate) return;
    rate = RateOfRings(links, rings);
    best = std::move(rings);
  };
  const auto enough = [&] { return rate >= kNear * most; };
  for (int times = 1; times <= kMostTimes && !enough(); ++times)
    take_if_faster(Thinned(FindRings(ListOf(links, times), links.gpus)));
  if (links.gpus > kMostGpus) return best;
  for (int count = 2; count <= kMostRings && !enough(); ++count) {
    Packing packing(links, count, true);
    if (!packing.Grow()) break;
    take_if_faster(packing.Improve(static_cast<double>(count) / most));
  }
  return best;
}

std::vector<Order> PackChains(const LinkTable& links, int count) {
  if (IsComplete(links) && links.gpus % 2 == 0) return Zigzags(links.gpus, count);
  if (links.gpus > kMostGpus) return CutOpen(FindRings(ListOf(links, 1), links.gpus), count);
  Packing packing(links, count, false);
  if (!packing.Grow()) return {};
  // No list can do better: all links of the poorest GPU, each walk but those that end there.
  const double least =
      static_cast<double>(count) * (links.gpus - 1) / (links.gpus * std::max(1, MostRings(links)));
  return packing.Improve(least);
}

const std::vector<Order>& MeshRings::Rings(const NodeSpec& node, const std::vector<int>& gpus) {
  const auto [at, added] = known_.try_emplace({gpus, 0});
  if (added && !node.mesh.empty()) at->second = PackRings(TableOf(node, gpus));
  return at->second;
}

const std::vector<Order>& MeshRings::Chains(const NodeSpec& node, const std::vector<int>& gpus,
                                            int count) {
  const auto [at, added] = known_.try_emplace({gpus, count});
  if (added && !node.mesh.empty()) at->second = PackChains(TableOf(node, gpus), count);
  return at->second;
}

}  // namespace orrery::net
