// SPDX-License-Identifier: Apache-2.0
// Branch and bound over the orders of nodes.
#include "model/twin/placement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "model/base/diagnostics.h"
#include "model/plan/lower/balance.h"

namespace orrery {
namespace {

constexpr double kSame = 1e-9;  // relative: no gain
constexpr double kNear = 1.05;  // of the best: worth a simulation
constexpr std::size_t kMostNear = 5;
constexpr std::size_t kMostLayouts = 32;
constexpr int kMostExchanged = 96;  // nodes of which pairs are exchanged
constexpr double kLargest = std::numeric_limits<double>::infinity();

Strategy WithPlacement(const Strategy& layout, Placement placement) {
  Strategy placed = layout;
  placed.placement = std::make_shared<const Placement>(std::move(placement));
  return placed;
}

// Seconds of a layout by what a placement does to it.
class PlacedPrice {
 public:
  PlacedPrice(StepPredictor* predictor, const Strategy& variant)
      : predictor_(predictor), variant_(variant) {}

  double Of(const Stretches& stretches, std::vector<std::vector<double>> slow) {
    const auto [at, added] = known_.try_emplace({stretches, std::move(slow)}, 0.0);
    if (!added) return at->second;
    const auto priced = predictor_->Predict(variant_, at->first.first, at->first.second);
    if (const auto* refusal = std::get_if<Refusal>(&priced))
      throw InputError(refusal->reason, refusal->hint);
    return at->second = std::get<StepTime>(priced).total;
  }

 private:
  StepPredictor* predictor_;
  const Strategy& variant_;
  std::map<std::pair<Stretches, std::vector<std::vector<double>>>, double> known_;
};

// The orders of nodes under one variant.
class OrderSearch {
 public:
  OrderSearch(const Job& job, StepPredictor* predictor, const Strategy& variant,
              const PlacementOptions& options)
      : nodes_(static_cast<int>(job.cluster.nodes)),
        node_rate_(job.cluster.node_rate()),
        uplinks_(UplinksOf(*job.topology, job.cluster.nodes)),
        slowdown_(SlowdownOf(job)),
        variant_(variant),
        traffic_(variant, job.cluster.gpus_per_node),
        price_(predictor, variant),
        most_(options.most) {
    if (job.cluster.domain_nodes > 1) uplinks_.clear(), fixed_ = true;
    FindClasses();
    FindEdges();
  }

  // Appends orders that take less than `limit` to `found`, each less than the one before; the last one is the best.
  void Run(double limit, std::vector<std::pair<double, std::vector<int32_t>>>* found) {
    best_ = limit, found_ = found;
    std::vector<int32_t> plain(static_cast<std::size_t>(nodes_));
    std::iota(plain.begin(), plain.end(), 0);
    Try(plain);
    bound_ = kLargest;
    if (fixed_ || classes_.size() < 2) {
      bound_ = best_;
      return;
    }
    for (std::vector<int32_t>& seed : Seeds(plain)) {
      Try(seed);
      Exchange(std::move(seed));
    }
    Place(0, 0);
    bound_ = std::min(bound_, best_);
  }

  double bound() const { return bound_; }
  bool exact() const { return !cut_short_; }
  int64_t looked_at() const { return looked_at_; }

 private:
  struct Class {
    std::vector<int32_t> nodes;
    std::size_t used = 0;
    double slowdown = 1;
    std::vector<double> shares;  // by uplinks
    int part = -1;               // the only uplinks it is below; -1: none or several
  };
  struct End {
    PlacedKind kind;
    int other;
    double count;
    bool from_other;
  };

  void FindClasses() {
    std::map<std::pair<std::vector<double>, double>, std::size_t> known;
    for (int32_t node = 0; node < nodes_; ++node) {
      const auto n = static_cast<std::size_t>(node);
      std::vector<double> shares;
      for (const Uplinks& part : uplinks_) shares.push_back(part.share[n]);
      const double slow = slowdown_.empty() ? 1.0 : slowdown_[n];
      const auto [at, added] = known.try_emplace({shares, slow}, classes_.size());
      if (added) {
        Class made{{}, 0, slow, shares, -1};
        const auto below = [](double share) { return share > 0; };
        if (std::ranges::count_if(shares, below) == 1)
          made.part = static_cast<int>(std::ranges::find_if(shares, below) - shares.begin());
        classes_.push_back(std::move(made));
      }
      classes_[at->second].nodes.push_back(node);
    }
    // Parts with as many nodes of each speed behind equal uplinks are alike; classes below several parts tie them down.
    for (std::size_t p = 0; p < uplinks_.size(); ++p) {
      std::vector<double> alike = {uplinks_[p].rate.value};
      bool alone = true;
      std::map<std::pair<double, double>, double> members;
      for (const Class& one : classes_) {
        if (one.shares[p] <= 0) continue;
        alone = alone && one.part == static_cast<int>(p);
        members[{one.slowdown, one.shares[p]}] += static_cast<double>(one.nodes.size());
      }
      for (const auto& [what, count] : members)
        alike.insert(alike.end(), {what.first, what.second, count});
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
      for (const PlacedTraffic::Edge& edge : traffic_.edges(kind)) {
        const bool later = edge.from > edge.to;
        ends_[static_cast<std::size_t>(std::max(edge.from, edge.to))].push_back(
            {kind, std::min(edge.from, edge.to), edge.count, !later});
      }
    }
  }

  void Try(const std::vector<int32_t>& order) {
    std::vector<double> slow;
    if (!slowdown_.empty()) slow = InOrder(slowdown_, order);
    const double seconds = price_.Of(traffic_.StretchesOf(order, uplinks_, node_rate_),
                                     traffic_.SlowReplicas(slow, StagesWait(variant_)));
    if (seconds >= best_ * (1 - kSame)) return;
    best_ = seconds;
    found_->emplace_back(seconds, order);
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
      }
    }
  }

  // Of all orders that begin with the first `placed` nodes, no more than any of them takes.
  double Least(int placed) {
    Stretches stretches;
    stretches.fill(1);
    for (unsigned k = 0; k < kPlacedKinds; ++k) {
      const double busiest = traffic_.busiest(static_cast<PlacedKind>(k));
      if (busiest <= 0) continue;
      for (std::size_t p = 0; p < uplinks_.size(); ++p) {
        const double most = std::max(loads_[k][2 * p], loads_[k][2 * p + 1]);
        stretches[k] =
            std::max(stretches[k], most / uplinks_[p].rate.value * node_rate_.value / busiest);
      }
    }
    if (slowdown_.empty()) return price_.Of(stretches, {});
    std::vector<double> slow(static_cast<std::size_t>(nodes_),
                             *std::ranges::min_element(slowdown_));
    for (int place = 0; place < placed; ++place)
      slow[static_cast<std::size_t>(place)] =
          classes_[at_[static_cast<std::size_t>(place)]].slowdown;
    return price_.Of(stretches, traffic_.SlowReplicas(slow, StagesWait(variant_)));
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
        kind.insert(kind.end(), {one.slowdown, one.shares[static_cast<std::size_t>(one.part)]});
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
      const double at_least = Least(place + 1);
      if (at_least < best_ * (1 - kSame)) Place(place + 1, at_least);
      Count(place, -1);
      if (one.part >= 0) --touched_[static_cast<std::size_t>(one.part)];
      --one.used;
    }
  }

  const int nodes_;
  const BytesPerSecond node_rate_;
  std::vector<Uplinks> uplinks_;
  const std::vector<double> slowdown_;
  const Strategy& variant_;
  const PlacedTraffic traffic_;
  PlacedPrice price_;
  const int64_t most_;
  bool fixed_ = false;
  std::vector<Class> classes_;
  std::vector<std::vector<double>> alike_;  // by uplinks: equal where they are interchangeable
  std::vector<std::vector<End>> ends_;      // by place: edges with places before it
  std::array<std::vector<double>, kPlacedKinds> loads_;  // out of and into each part
  std::vector<int> touched_;                             // by uplinks: nodes placed
  std::vector<std::size_t> at_;                          // class by place
  double best_ = 0;
  std::vector<std::pair<double, std::vector<int32_t>>>* found_ = nullptr;
  double bound_ = 0;
  bool cut_short_ = false;
  int64_t looked_at_ = 0;
};

// Speeds that stages may have together: all combinations of those of the nodes, where they are few; else the faster ones
// in front or behind.
std::vector<std::vector<double>> SpeedsOfStages(const std::vector<double>& slowdown, int stages) {
  const std::set<double> of_nodes(slowdown.begin(), slowdown.end());
  const std::vector<double> factors(of_nodes.begin(), of_nodes.end());
  std::vector<std::vector<double>> speeds;
  if (std::pow(factors.size(), stages) <= static_cast<double>(kMostLayouts)) {
    std::vector<std::size_t> turn(static_cast<std::size_t>(stages), 0);
    for (bool more = true; more;) {
      std::vector<double> one;
      for (const std::size_t f : turn) one.push_back(factors[f]);
      speeds.push_back(std::move(one));
      std::size_t digit = 0;
      while (digit < turn.size() && ++turn[digit] == factors.size()) turn[digit++] = 0;
      more = digit < turn.size();
    }
    return speeds;
  }
  for (const double slow : factors) {
    for (int count = 1; count < stages; ++count) {
      std::vector<double> one(static_cast<std::size_t>(stages), factors.front());
      std::fill(one.end() - count, one.end(), slow);
      speeds.push_back(one);
      std::ranges::reverse(one);
      speeds.push_back(std::move(one));
    }
  }
  return speeds;
}

std::vector<std::vector<int>> LayoutsBySpeed(const Job& job, StepPredictor* predictor,
                                             const Strategy& layout) {
  const auto found = predictor->Table(KeyOf(job.model, layout));
  const auto* table = std::get_if<const LayerTable*>(&found);
  if (table == nullptr) return {};
  const auto pass = [](const LayerTime& time) {
    return time.forward.busy() + time.backward.busy();
  };
  const double layer = pass((*table)->layer);
  std::set<std::vector<int>> layouts;
  for (const std::vector<double>& speeds : SpeedsOfStages(SlowdownOf(job), layout.pp)) {
    layouts.insert(BalancedLayout(job.model.layers + job.model.decoder_layers, layout.pp,
                                  layout.vpp, pass((*table)->embedding) / layer,
                                  pass((*table)->head) / layer, speeds));
  }
  layouts.erase(std::vector<int>{});
  std::vector<std::vector<int>> some(layouts.begin(), layouts.end());
  if (some.size() > kMostLayouts) some.resize(kMostLayouts);
  return some;
}

bool Fits(const Job& job, const Strategy& layout) {
  return ReportMemory(LowerLegal(job, layout), LimitsOf(job), Communicators(layout)).fits;
}

std::vector<Strategy> Variants(const Job& job, StepPredictor* predictor, Strategy layout,
                               const PlacementOptions& options) {
  layout.placement = nullptr;
  std::vector<Strategy> layouts = {layout};
  if (options.layers && layout.pp > 1 && !SlowdownOf(job).empty()) {
    const bool fitted = Fits(job, layout);
    for (std::vector<int>& layers : LayoutsBySpeed(job, predictor, layout)) {
      Strategy other = layout;
      other.layout = std::make_shared<const std::vector<int>>(std::move(layers));
      if (CheckStrategy(job.model, job.work, other)) continue;
      if (!fitted || Fits(job, other)) layouts.push_back(std::move(other));
    }
  }
  std::vector<Strategy> variants;
  for (const bool stages_inside : {false, true}) {
    if (stages_inside &&
        (!options.axes || layout.pp == 1 || layout.data_parallel() == 1 || layout.cp > 1))
      continue;
    for (const Strategy& one : layouts)
      variants.push_back(WithPlacement(one, Placement{stages_inside, {}}));
  }
  return variants;
}

}  // namespace

std::vector<Strategy> PlacementVariants(const Job& job, const Strategy& layout,
                                        const PlacementOptions& options) {
  StepPredictor predictor(job);
  return Variants(job, &predictor, layout, options);
}

double PlacedSeconds(const Job& job, const Strategy& strategy) {
  const auto priced = StepPredictor(job).Predict(strategy);
  if (const auto* refusal = std::get_if<Refusal>(&priced))
    throw InputError(refusal->reason, refusal->hint);
  return std::get<StepTime>(priced).total;
}

PlacementFound FindPlacement(const Job& job, const Strategy& layout,
                             const PlacementOptions& options) {
  StepPredictor predictor(job);
  PlacementFound found{.strategy = layout, .bound = kLargest, .exact = true};
  found.strategy.placement = nullptr;
  const auto plain = predictor.Predict(WithPlacement(found.strategy, {}));
  if (const auto* refusal = std::get_if<Refusal>(&plain))
    throw InputError(refusal->reason, refusal->hint);
  found.plain = found.seconds = std::get<StepTime>(plain).total;
  std::vector<std::pair<double, Strategy>> all;
  for (const Strategy& variant : Variants(job, &predictor, layout, options)) {
    OrderSearch search(job, &predictor, variant, options);
    std::vector<std::pair<double, std::vector<int32_t>>> orders;
    search.Run(found.seconds * kNear, &orders);
    found.exact = found.exact && search.exact();
    found.bound = std::min(found.bound, search.bound());
    found.looked_at += search.looked_at();
    for (auto& [seconds, order] : orders) {
      Placement placement = *variant.placement;
      if (!std::ranges::is_sorted(order)) placement.nodes = std::move(order);
      const bool same = placement.plain() && variant.layout == layout.layout;
      if (!same) all.emplace_back(seconds, WithPlacement(variant, std::move(placement)));
      found.seconds = std::min(found.seconds, seconds);
    }
  }
  std::ranges::stable_sort(all, {}, &std::pair<double, Strategy>::first);
  for (auto& [seconds, strategy] : all) {
    if (seconds > found.seconds * kNear || found.near.size() > kMostNear) break;
    if (strategy.placement->plain()) strategy.placement = nullptr;
    found.near.push_back(std::move(strategy));
  }
  if (found.seconds < found.plain * (1 - kSame)) {
    found.strategy = found.near.front();
    found.near.erase(found.near.begin());
  } else {
    found.seconds = found.plain;
  }
  found.bound = found.exact ? found.seconds : std::min(found.bound, found.seconds);
  return found;
}

PlacementChoice ChoosePlacement(const Job& job, const Strategy& layout,
                                const PlacementOptions& options) {
  PlacementChoice choice{.found = FindPlacement(job, layout, options)};
  const Cluster cluster = ClusterOf(job);
  const auto settled = [&](const Strategy& one) {
    Prediction prediction =
        PredictionOf(job, one, std::get<StepTime>(StepPredictor(job).Predict(one)));
    Settle(job, LowerLegal(job, one), cluster, &prediction);
    return prediction;
  };
  Strategy plain = layout;
  plain.placement = nullptr;
  choice.strategy = plain;
  choice.placed = choice.plain = settled(plain);
  std::vector<Strategy> candidates = choice.found.near;
  const bool better = choice.found.seconds < choice.found.plain;
  if (better) candidates.insert(candidates.begin(), choice.found.strategy);
  const bool simulates = choice.plain.simulated.has_value();
  if (!simulates) candidates.resize(better ? 1 : 0);
  double left = job.most_effort;
  for (std::size_t i = 0; i < candidates.size() && (i == 0 || left > 0); ++i) {
    Prediction placed = settled(candidates[i]);
    left -= SimulationEffort(LowerLegal(job, candidates[i]), cluster.spec.slowdown.empty());
    if (placed.simulated.has_value() != simulates) continue;
    choice.simulated += simulates ? 1 : 0;
    if (placed.time.total >= choice.placed.time.total * (1 - kSame)) continue;
    choice.strategy = candidates[i];
    choice.placed = std::move(placed);
  }
  choice.refuted = better && !choice.strategy.placement && choice.strategy.layout == plain.layout;
  return choice;
}

}  // namespace orrery
