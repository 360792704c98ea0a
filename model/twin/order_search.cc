// SPDX-License-Identifier: Apache-2.0
// Branch and bound over the orders of nodes.
#include "model/twin/order_search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

namespace orrery {
namespace {

constexpr double kAnyTime = std::numeric_limits<double>::infinity();
constexpr int kMostExchanged = 96;      // nodes of which pairs are exchanged
constexpr std::size_t kMostKept = 6;    // orders near the best
constexpr int kMostShuffled = 12;       // orders that no rule makes
constexpr std::size_t kMostStarts = 8;  // orders with layers, the fastest ones

// The orders of nodes under one variant.
class OrderSearch {
 public:
  OrderSearch(const Job& job, SplitSearch* splits, const Strategy& variant,
              const OrderOptions& options)
      : nodes_(static_cast<int>(job.cluster.nodes)),
        node_rate_(job.cluster.node_rate()),
        uplinks_(NarrowUplinks(*job.topology, job.cluster)),
        slowdown_(SlowdownOf(job)),
        memory_(job.topology->gpu_memory),
        variant_(variant),
        traffic_(variant, job.cluster.gpus_per_node),
        splits_(*splits),
        most_(options.most),
        fixed_(!options.search || job.cluster.domain_nodes > 1),
        given_(OrderOf(job, variant)) {
    if (job.cluster.domain_nodes > 1) uplinks_.clear();
    FindClasses();
    FindEdges();
  }

  OrdersFound Run(double limit) {
    Look(limit);
    found_.bound = bound_, found_.exact = !cut_short_, found_.looked_at = looked_at_;
    std::ranges::stable_sort(found_.orders, {}, &PlacedOrder::seconds);
    std::erase_if(found_.orders, [&](const PlacedOrder& order) {
      return order.seconds > found_.orders.front().seconds * kNearPlacement;
    });
    return std::move(found_);
  }

 private:
  void Look(double limit) {
    best_ = limit;
    if (splits_.all()) Together();
    Try(given_);
    if (fixed_ || classes_.size() < 2) {
      bound_ = std::min(bound_, best_);
      return;
    }
    for (std::vector<int32_t>& seed : Seeds(given_)) {
      Try(seed);
      Exchange(std::move(seed));
    }
    Place(0, LeastOfAll());
    bound_ = std::min(bound_, best_);
  }

  struct Class {
    std::vector<int32_t> nodes;
    std::size_t used = 0;
    double slowdown = 1;
    double memory = 0;           // of a GPU, where nodes differ
    std::vector<double> shares;  // by uplinks
    int part = -1;               // the only uplinks it is below; -1: none or several
  };
  struct End {
    PlacedKind kind;
    int other;
    double count;
    bool from_other;
    int hop;
  };

  void FindClasses() {
    std::map<std::tuple<std::vector<double>, double, double>, std::size_t> known;
    for (int32_t node = 0; node < nodes_; ++node) {
      const auto n = static_cast<std::size_t>(node);
      std::vector<double> shares;
      for (const Uplinks& part : uplinks_) shares.push_back(part.share[n]);
      const double slow = slowdown_.empty() ? 1.0 : slowdown_[n];
      // Nodes behind those named have the memory of the topology's own GPU.
      const double memory = n < memory_.size() ? memory_[n].capacity.value : 0.0;
      const auto [at, added] = known.try_emplace({shares, slow, memory}, classes_.size());
      if (added) {
        Class made{{}, 0, slow, memory, shares, -1};
        const auto below = [](double share) { return share > 0; };
        if (std::ranges::count_if(shares, below) == 1)
          made.part = static_cast<int>(std::ranges::find_if(shares, below) - shares.begin());
        classes_.push_back(std::move(made));
      }
      classes_[at->second].nodes.push_back(node);
      class_of_.push_back(at->second);
    }
    // Parts with as many nodes of each speed behind equal uplinks are alike; classes below several parts tie them down.
    for (std::size_t p = 0; p < uplinks_.size(); ++p) {
      std::vector<double> alike = {uplinks_[p].rate.value};
      bool alone = true;
      std::map<std::array<double, 3>, double> members;
      for (const Class& one : classes_) {
        if (one.shares[p] <= 0) continue;
        alone = alone && one.part == static_cast<int>(p);
        members[{one.slowdown, one.memory, one.shares[p]}] += static_cast<double>(one.nodes.size());
      }
      for (const auto& [what, count] : members)
        alike.insert(alike.end(), {what[0], what[1], what[2], count});
      if (!alone) alike.push_back(-1 - static_cast<double>(p));
      alike_.push_back(std::move(alike));
    }
    touched_.assign(uplinks_.size(), 0);
    at_.assign(static_cast<std::size_t>(nodes_), 0);
  }

  void FindEdges() {
    ends_.resize(static_cast<std::size_t>(nodes_));
    for (unsigned k = 0; k < kPlacedKinds; ++k) {
      const auto kind = static_cast<PlacedKind>(k);
      loads_[k].assign(2 * uplinks_.size(), 0.0);
      through_[k].assign(static_cast<std::size_t>(traffic_.stages()) * uplinks_.size(), 0);
      for (const PlacedTraffic::Edge& edge : traffic_.edges(kind)) {
        const bool later = edge.from > edge.to;
        ends_[static_cast<std::size_t>(std::max(edge.from, edge.to))].push_back(
            {kind, std::min(edge.from, edge.to), edge.count, !later, edge.hop});
      }
    }
  }

  void Try(const std::vector<int32_t>& order) {
    const Stretches stretches = StretchesUnder(order);
    const SlowStages slow = SlowUnder(order);
    const SplitSearch::Found& found = splits_.Best(stretches, slow, best_, order);
    if (!found.exact) {
      const double bound = splits_.Bound(slow);
      if (bound < std::min(found.seconds, best_))
        cut_short_ = true, bound_ = std::min(bound_, bound);
    }
    Keep(found, order);
    if (found.seconds < best_ * (1 - kSamePlacement)) {
      best_ = found.seconds;
      splits_.Hint(found.layers);
    }
  }

  // An order with a split of the layers.
  struct Joint {
    std::vector<int32_t> order;
    SplitSearch::Found split;
  };

  SlowStages SlowUnder(const std::vector<int32_t>& order) const {
    const std::vector<double> slowdown = slowdown_.empty() ? slowdown_ : InOrder(slowdown_, order);
    return traffic_.SlowReplicas(slowdown, StagesWait(variant_));
  }
  Stretches StretchesUnder(const std::vector<int32_t>& order) const {
    return traffic_.StretchesOf(order, uplinks_, node_rate_);
  }

  // The best layers depend on the order, and the other way round: the layers that suit one order may make another one the
  // best. From each start, the better ones first, one and then the other changes until neither gets better.
  void Together() {
    std::vector<std::vector<int32_t>> orders = {given_};
    if (!fixed_ && classes_.size() > 1) {
      for (std::vector<int32_t>& seed : Seeds(given_))
        if (std::ranges::find(orders, seed) == orders.end()) orders.push_back(std::move(seed));
    }
    std::vector<Joint> starts;
    for (const std::vector<int32_t>& order : orders) {
      const SlowStages slow = SlowUnder(order);
      const Stretches stretches = StretchesUnder(order);
      for (const LayersOfChunks& layers : splits_.Starts(slow)) {
        const double seconds = splits_.SecondsOf(stretches, slow, layers, kAnyTime, order);
        if (seconds < kAnyTime) starts.push_back({order, {seconds, layers, false}});
      }
    }
    std::ranges::stable_sort(starts, {}, [](const Joint& one) { return one.split.seconds; });
    starts.resize(std::min(starts.size(), kMostStarts));
    for (Joint& start : starts) Alternate(std::move(start));
    if (orders.size() > 1) Shuffled();
  }

  // Orders that no rule makes, while steps are left: what starts by rule find may depend on which nodes count as alike.
  void Shuffled() {
    std::mt19937 random(1);
    std::vector<int32_t> order = given_;
    for (int start = 0; start < kMostShuffled && splits_.MayClimb(); ++start) {
      for (std::size_t n = order.size(); n > 1; --n) std::swap(order[n - 1], order[random() % n]);
      const SlowStages slow = SlowUnder(order);
      const Stretches stretches = StretchesUnder(order);
      for (const LayersOfChunks& layers : splits_.Starts(slow)) {
        const double seconds = splits_.SecondsOf(stretches, slow, layers, kAnyTime, order);
        if (seconds < kAnyTime) Alternate({order, {seconds, layers, false}});
      }
    }
  }

  void Alternate(Joint one) {
    do {
      one.split = splits_.Climbed(StretchesUnder(one.order), SlowUnder(one.order),
                                  std::move(one.split), one.order);
    } while (!fixed_ && ExchangeUnder(&one));
    Keep(one.split, one.order);
    if (one.split.seconds >= best_ * (1 - kSamePlacement)) return;
    best_ = one.split.seconds;
    splits_.Hint(one.split.layers);
  }

  // Pairs are exchanged while that helps, the layers stay. False: nothing helps, or no more may be priced.
  bool ExchangeUnder(Joint* one) {
    if (nodes_ > kMostExchanged) return false;
    std::vector<int32_t>& order = one->order;
    bool any = false;
    for (bool better = true; better;) {
      better = false;
      for (std::size_t a = 0; a < order.size(); ++a) {
        for (std::size_t b = a + 1; b < order.size(); ++b) {
          if (ClassOf(order[a]) == ClassOf(order[b])) continue;
          if (!splits_.MayClimb()) return false;
          std::swap(order[a], order[b]);
          const double seconds = splits_.SecondsOf(StretchesUnder(order), SlowUnder(order),
                                                   one->split.layers, one->split.seconds, order);
          if (seconds < one->split.seconds) {
            one->split.seconds = seconds, better = any = true;
          } else {
            std::swap(order[a], order[b]);
          }
        }
      }
    }
    return any;
  }
  std::size_t ClassOf(int32_t node) const { return class_of_[static_cast<std::size_t>(node)]; }

  // The best, and some of those near it, each with another time: what differs in time differs in messages or stages.
  void Keep(const SplitSearch::Found& found, const std::vector<int32_t>& order) {
    std::vector<PlacedOrder>& kept = found_.orders;
    if (!(found.seconds < best_ * kNearPlacement)) return;
    const auto place = std::ranges::lower_bound(kept, found.seconds * (1 - kSamePlacement), {},
                                                &PlacedOrder::seconds);
    if (place != kept.end() && place->seconds <= found.seconds * (1 + kSamePlacement)) return;
    kept.insert(place, {found.seconds, order, found.layers});
    if (kept.size() > kMostKept) kept.pop_back();
  }

  // Nodes of one part next to each other; the same with slow ones last, and first.
  std::vector<std::vector<int32_t>> Seeds(const std::vector<int32_t>& plain) const {
    const auto of = [&](const std::vector<double>& values, int32_t node) {
      return values.empty() ? 1.0 : values[static_cast<std::size_t>(node)];
    };
    const auto part = [&](int32_t node) {
      std::vector<double> shares;
      for (const Uplinks& one : uplinks_)
        shares.push_back(-one.share[static_cast<std::size_t>(node)]);
      return shares;
    };
    std::vector<std::vector<int32_t>> seeds(3, plain);
    std::ranges::stable_sort(seeds[0], {}, part);
    seeds[1] = seeds[2] = seeds[0];
    std::ranges::stable_sort(seeds[1], {}, [&](int32_t node) { return of(slowdown_, node); });
    std::ranges::stable_sort(seeds[2], {}, [&](int32_t node) { return -of(slowdown_, node); });
    return seeds;
  }

  // Pairs are exchanged while that helps.
  void Exchange(std::vector<int32_t> order) {
    if (nodes_ > kMostExchanged) return;
    for (bool better = true; better;) {
      better = false;
      for (std::size_t a = 0; a < order.size(); ++a) {
        for (std::size_t b = a + 1; b < order.size(); ++b) {
          if (++looked_at_ > most_ / 2) return;
          const double before = best_;
          std::swap(order[a], order[b]);
          Try(order);
          if (best_ < before) {
            better = true;
          } else {
            std::swap(order[a], order[b]);
          }
        }
      }
    }
  }

  // Traffic that the node at `place` adds with those before it, or takes away again.
  void Count(int place, double sign) {
    const Class& here = classes_[at_[static_cast<std::size_t>(place)]];
    for (const End& end : ends_[static_cast<std::size_t>(place)]) {
      const Class& other = classes_[at_[static_cast<std::size_t>(end.other)]];
      const Class& from = end.from_other ? other : here;
      const Class& to = end.from_other ? here : other;
      for (std::size_t p = 0; p < uplinks_.size(); ++p) {
        std::vector<double>& loads = loads_[end.kind];
        if (to.shares[p] == 0) loads[2 * p] += sign * end.count * from.shares[p];
        if (from.shares[p] == 0) loads[2 * p + 1] += sign * end.count * to.shares[p];
        if ((to.shares[p] == 0) != (from.shares[p] == 0))
          through_[end.kind][static_cast<std::size_t>(end.hop) * uplinks_.size() + p] +=
              sign > 0 ? 1 : -1;
      }
    }
  }

  // Of what is placed already: no message is stretched less when the others are.
  Stretches LeastStretches() const {
    std::array<std::vector<double>, kPlacedKinds> loads;
    for (unsigned k = 0; k < kPlacedKinds; ++k) {
      const double busiest = traffic_.busiest(static_cast<PlacedKind>(k));
      for (std::size_t p = 0; p < uplinks_.size() && busiest > 0; ++p) {
        const double most = std::max(loads_[k][2 * p], loads_[k][2 * p + 1]);
        loads[k].push_back(most / uplinks_[p].rate.value * node_rate_.value / busiest);
      }
    }
    return traffic_.Stretched(loads, [&](PlacedKind kind, std::size_t stage, std::size_t part) {
      return through_[kind][stage * uplinks_.size() + part] > 0;
    });
  }

  // Of all orders that begin with the first `placed` nodes, no more than any of them takes.
  double Least(int placed) {
    const Stretches stretches = LeastStretches();
    if (slowdown_.empty()) return splits_.Least(stretches, {}, best_);
    std::vector<double> slow(static_cast<std::size_t>(nodes_),
                             *std::ranges::min_element(slowdown_));
    for (int place = 0; place < placed; ++place)
      slow[static_cast<std::size_t>(place)] =
          classes_[at_[static_cast<std::size_t>(place)]].slowdown;
    return splits_.Least(stretches, traffic_.SlowReplicas(slow, StagesWait(variant_)), best_);
  }

  // No message is stretched, and of the slow nodes the slowest alone counts, at the place where it costs least.
  double LeastOfAll() {
    Stretches stretches;
    if (slowdown_.empty()) return splits_.Least(stretches, {}, best_);
    const auto [fastest, slowest] = std::ranges::minmax(slowdown_);
    std::vector<double> slow(static_cast<std::size_t>(nodes_), fastest);
    double least = std::numeric_limits<double>::infinity();
    for (double& place : slow) {
      place = slowest;
      least = std::min(
          least,
          splits_.Least(stretches, traffic_.SlowReplicas(slow, StagesWait(variant_)), best_));
      place = fastest;
    }
    return least;
  }

  std::vector<int32_t> Order() const {
    std::vector<std::size_t> taken(classes_.size(), 0);
    std::vector<int32_t> order;
    for (const std::size_t of : at_) order.push_back(classes_[of].nodes[taken[of]++]);
    return order;
  }

  // `least`: of what is placed already.
  void Place(int place, double least) {
    if (place == nodes_) {
      Try(Order());
      return;
    }
    std::set<std::vector<double>> fresh;
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      Class& one = classes_[c];
      if (one.used == one.nodes.size()) continue;
      if (one.part >= 0 && touched_[static_cast<std::size_t>(one.part)] == 0) {
        std::vector<double> kind = alike_[static_cast<std::size_t>(one.part)];
        kind.insert(kind.end(),
                    {one.slowdown, one.memory, one.shares[static_cast<std::size_t>(one.part)]});
        if (!fresh.insert(std::move(kind)).second) continue;
      }
      if (looked_at_ >= most_) {
        cut_short_ = true;
        bound_ = std::min(bound_, least);
        return;
      }
      ++looked_at_;
      ++one.used;
      if (one.part >= 0) ++touched_[static_cast<std::size_t>(one.part)];
      at_[static_cast<std::size_t>(place)] = c;
      Count(place, 1);
      const double at_least = std::max(least, Least(place + 1));
      if (at_least < best_ * (1 - kSamePlacement)) Place(place + 1, at_least);
      Count(place, -1);
      if (one.part >= 0) --touched_[static_cast<std::size_t>(one.part)];
      --one.used;
    }
  }

  const int nodes_;
  const BytesPerSecond node_rate_;
  std::vector<Uplinks> uplinks_;
  const std::vector<double> slowdown_;
  const std::vector<GpuMemory>& memory_;  // by node; empty: all alike
  const Strategy& variant_;
  const PlacedTraffic traffic_;
  SplitSearch& splits_;
  const int64_t most_;
  const bool fixed_;
  const std::vector<int32_t> given_;
  std::vector<Class> classes_;
  std::vector<std::size_t> class_of_;       // by node
  std::vector<std::vector<double>> alike_;  // by uplinks: equal where they are interchangeable
  std::vector<std::vector<End>> ends_;      // by place: edges with places before it
  std::array<std::vector<double>, kPlacedKinds> loads_;  // out of and into each part
  std::array<std::vector<int>, kPlacedKinds> through_;   // by stage and part: edges that leave it
  std::vector<int> touched_;                             // by uplinks: nodes placed
  std::vector<std::size_t> at_;                          // class by place
  double best_ = 0;
  OrdersFound found_;
  double bound_ = std::numeric_limits<double>::infinity();
  bool cut_short_ = false;
  int64_t looked_at_ = 0;
};

}  // namespace

OrdersFound SearchOrders(const Job& job, SplitSearch* splits, const Strategy& variant,
                         const OrderOptions& options) {
  OrderSearch search(job, splits, variant, options);
  return search.Run(options.limit);
}

}  // namespace orrery
