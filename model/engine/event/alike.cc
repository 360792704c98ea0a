// SPDX-License-Identifier: Apache-2.0
// Colour refinement over ranks, messages, routes, paths and links, and the table of its classes.
#include "model/engine/event/alike.h"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "model/engine/event/index.h"

namespace orrery::sim {
namespace {

using Colour = uint64_t;
using Colours = std::vector<Colour>;

// SplitMix64 (Steele, Lea, Flood 2014).
Colour Stir(Colour z) {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
Colour Mix(Colour a, Colour b) { return Stir(a ^ Stir(b)); }
Colour Mix(Colour a, double b) { return Mix(a, std::bit_cast<Colour>(b)); }

// Sums of stirred colours are those of a multiset: the order in which it is visited does not matter.
class Partition {
 public:
  Partition(const CommunicatorTable& table, const ir::Plan& plan, const PlanTasks& tasks,
            const std::vector<double>& slowdown)
      : table_(table), tasks_(tasks) {
    for (const int64_t rank : table.ranks) {
      const auto stage = At(plan.mesh.Coords(rank)[At(plan.mesh.program_axis)]);
      ranks_.push_back(Mix(Colour{stage}, At(rank) < slowdown.size() ? slowdown[At(rank)] : 1.0));
    }
    for (const Communicator& communicator : table.communicators)
      communicators_.push_back(FirstColour(communicator));
    queues_.assign(At(table.queues), 0);
    for (const Route& route : table.routes) routes_.push_back(Mix(Colour{1}, route.alone));
    for (std::size_t p = 0; p < table.network->paths(); ++p)
      paths_.push_back(Mix(Colour{2}, table.network->CapOf(static_cast<net::PathId>(p)).value));
    links_.assign(table.network->links(), 0);
    for (std::size_t l = 0; l < links_.size(); ++l)
      links_[l] = Mix(Colour{3}, table.network->CapacityOf(static_cast<LinkId>(l)).value);
    used_.assign(links_.size(), 0);
    for (std::size_t p = 0; p < paths_.size(); ++p) {
      for (const net::LinkUse& use : Uses(p)) used_[At(use.link)] = 1;
    }
    Refine();
  }

  const Colours& ranks() const { return ranks_; }
  const Colours& communicators() const { return communicators_; }
  const Colours& queues() const { return queues_; }
  const Colours& routes() const { return routes_; }
  const Colours& paths() const { return paths_; }
  const Colours& links() const { return links_; }
  bool used(std::size_t link) const { return used_[link] != 0; }

 private:
  std::span<const net::LinkUse> Uses(std::size_t path) const {
    return table_.network->UsesOf(static_cast<net::PathId>(path));
  }
  std::size_t Messages(const Communicator& communicator) const {
    return tasks_.lines[At(communicator.line)].messages.size();
  }

  Colour FirstColour(const Communicator& communicator) const {
    Colour colour = Mix(Colour{4}, Colour{At(communicator.line)});
    for (std::size_t i = 0; i < Messages(communicator); ++i) {
      const Exchange& exchange = table_.exchanges[At(communicator.first_exchange) + i];
      for (const double value :
           {exchange.latency, exchange.bytes, exchange.slowdown, exchange.hidden, exchange.price})
        colour = Mix(colour, value);
    }
    return colour;
  }

  static std::size_t Count(const Colours& colours) {
    return std::unordered_set<Colour>(colours.begin(), colours.end()).size();
  }

  // A class is never joined with another: the colours are stable when there are no more of them.
  void Refine() {
    std::size_t before = 0;
    for (;;) {
      std::size_t count = 0;
      // From links to ranks and back: what happens at one end reaches the other in one round.
      ColourLinks();
      ColourPaths();
      ColourRoutes();
      ColourCommunicators();
      ColourQueues();
      ColourRanks();
      for (const Colours* colours :
           {&links_, &paths_, &routes_, &communicators_, &queues_, &ranks_})
        count += Count(*colours);
      if (count == before) return;
      before = count;
    }
  }

  void ColourLinks() {
    Colours sum(links_.size(), 0);
    for (std::size_t p = 0; p < paths_.size(); ++p) {
      for (const net::LinkUse& use : Uses(p)) sum[At(use.link)] += Mix(paths_[p], use.weight);
    }
    for (std::size_t l = 0; l < links_.size(); ++l)
      if (used_[l]) links_[l] = Mix(links_[l], sum[l]);
  }

  void ColourPaths() {
    Colours sum(paths_.size(), 0);
    for (std::size_t p = 0; p < paths_.size(); ++p) {
      for (const net::LinkUse& use : Uses(p)) sum[p] += Mix(links_[At(use.link)], use.weight);
    }
    for (std::size_t r = 0; r < routes_.size(); ++r) {
      EachJob(r, [&](Colour phase, const Route::Job& job) {
        sum[At(job.path)] += Mix(Mix(Mix(routes_[r], Colour{5}), phase), job.bytes);
      });
    }
    for (std::size_t p = 0; p < paths_.size(); ++p) paths_[p] = Mix(paths_[p], sum[p]);
  }

  template <class Visit>
  void EachJob(std::size_t route, Visit visit) const {
    const auto& phases = table_.routes[route].phases;
    for (std::size_t phase = 0; phase < phases.size(); ++phase) {
      for (const Route::Job& job : phases[phase]) visit(Colour{phase}, job);
    }
  }

  // A communicator and those of its exchanges that take a route, by number.
  template <class Visit>
  void EachRouted(Visit visit) const {
    for (std::size_t m = 0; m < communicators_.size(); ++m) {
      const Communicator& communicator = table_.communicators[m];
      for (std::size_t i = 0; i < Messages(communicator); ++i) {
        const int32_t route = table_.exchanges[At(communicator.first_exchange) + i].route;
        if (route >= 0) visit(m, Colour{i}, At(route));
      }
    }
  }

  void ColourRoutes() {
    Colours sum(routes_.size(), 0);
    for (std::size_t r = 0; r < routes_.size(); ++r) {
      EachJob(r, [&](Colour phase, const Route::Job& job) {
        sum[r] += Mix(Mix(paths_[At(job.path)], phase), job.bytes);
      });
    }
    EachRouted([&](std::size_t m, Colour i, std::size_t route) {
      sum[route] += Mix(Mix(communicators_[m], Colour{6}), i);
    });
    for (std::size_t r = 0; r < routes_.size(); ++r) routes_[r] = Mix(routes_[r], sum[r]);
  }

  void ColourCommunicators() {
    Colours sum(communicators_.size(), 0);
    EachRouted([&](std::size_t m, Colour i, std::size_t route) {
      sum[m] += Mix(Mix(routes_[route], Colour{7}), i);
    });
    for (std::size_t direction = 0; direction < table_.of.size(); ++direction) {
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const int32_t m = table_.of[direction][r];
        if (m >= 0) sum[At(m)] += Mix(Mix(ranks_[r], Colour{8}), Colour{direction});
      }
    }
    for (std::size_t m = 0; m < communicators_.size(); ++m) {
      const int32_t in_queue = table_.communicators[m].queue;
      const Colour queue = in_queue < 0 ? 0 : queues_[At(in_queue)];
      communicators_[m] = Mix(Mix(communicators_[m], sum[m]), queue);
    }
  }

  void ColourQueues() {
    Colours sum(queues_.size(), 0);
    for (std::size_t m = 0; m < communicators_.size(); ++m) {
      const int32_t in_queue = table_.communicators[m].queue;
      if (in_queue >= 0) sum[At(in_queue)] += Mix(communicators_[m], Colour{9});
    }
    for (std::size_t c = 0; c < queues_.size(); ++c) queues_[c] = Mix(queues_[c], sum[c]);
  }

  void ColourRanks() {
    for (const std::vector<int32_t>& of : table_.of) {
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const int32_t m = of[r];
        ranks_[r] = Mix(ranks_[r], m < 0 ? Colour{10} : communicators_[At(m)]);
      }
    }
  }

  const CommunicatorTable& table_;
  const PlanTasks& tasks_;
  Colours ranks_, communicators_, queues_, routes_, paths_, links_;
  std::vector<char> used_;  // by link: a path crosses it
};

// Numbers of classes in the order in which they are met.
class Classes {
 public:
  // The class and whether it is new.
  std::pair<int32_t, bool> Of(Colour colour) {
    const auto [at, added] = number_.try_emplace(colour, static_cast<int32_t>(number_.size()));
    return {at->second, added};
  }
  int32_t Known(Colour colour) const {
    const auto at = number_.find(colour);
    return at == number_.end() ? -1 : at->second;
  }
  std::size_t size() const { return number_.size(); }

 private:
  std::unordered_map<Colour, int32_t> number_;
};

class Merger {
 public:
  Merger(const CommunicatorTable& whole, const PlanTasks& tasks, const Partition& partition)
      : whole_(whole), tasks_(tasks), partition_(partition) {}

  CommunicatorTable Build(net::Wires wires) {
    merged_.contention = whole_.contention;
    for (std::size_t r = 0; r < whole_.ranks.size(); ++r) {
      const auto [number, added] = ranks_.Of(partition_.ranks()[r]);
      if (added) {
        merged_.ranks.push_back(whole_.ranks[r]);
        merged_.stands_for.push_back(0);
        first_.push_back(r);
      }
      ++merged_.stands_for[At(number)];
      class_of_rank_.emplace(whole_.ranks[r], number);
    }
    merged_.of.assign(whole_.of.size(), std::vector<int32_t>(first_.size(), -1));
    for (std::size_t direction = 0; direction < whole_.of.size(); ++direction) {
      for (std::size_t r = 0; r < first_.size(); ++r) {
        const int32_t m = whole_.of[direction][first_[r]];
        if (m >= 0) merged_.of[direction][r] = CommunicatorOf(m);
      }
    }
    merged_.queues = static_cast<int32_t>(queues_.size());
    merged_.network = net::MakeNetwork(net::Backend::kFluid, std::move(wires));
    merged_.routes.resize(routes_.size());
    for (std::size_t q = 0; q < route_.size(); ++q)
      merged_.routes[q].alone = whole_.routes[At(route_[q])].alone;
    AddTraffic();
    if (!whole_.link_shares.empty()) {
      for (const int32_t route : route_)
        merged_.link_shares.push_back(whole_.link_shares[At(route)]);
    }
    return std::move(merged_);
  }

 private:
  int32_t CommunicatorOf(int32_t m) {
    const auto [number, added] = communicators_.Of(partition_.communicators()[At(m)]);
    if (!added) return number;
    Communicator communicator = whole_.communicators[At(m)];
    AddMembers(&communicator);
    if (communicator.queue >= 0)
      communicator.queue = queues_.Of(partition_.queues()[At(communicator.queue)]).first;
    const int32_t first =
        std::exchange(communicator.first_exchange, static_cast<int32_t>(merged_.exchanges.size()));
    for (std::size_t i = 0; i < tasks_.lines[At(communicator.line)].messages.size(); ++i) {
      Exchange exchange = whole_.exchanges[At(first) + i];
      if (exchange.route >= 0) exchange.route = RouteOf(exchange.route);
      merged_.exchanges.push_back(exchange);
    }
    merged_.communicators.push_back(communicator);
    return number;
  }

  // One of each class in a collective; sender and receiver stay two, also where they are alike.
  void AddMembers(Communicator* communicator) {
    const auto begin = static_cast<int32_t>(merged_.members.size());
    for (int32_t i = 0; i < communicator->members; ++i) {
      const auto at = class_of_rank_.find(whole_.members[At(communicator->first_member + i)]);
      if (at == class_of_rank_.end()) continue;  // a replica that is not executed
      const int64_t rank = merged_.ranks[At(at->second)];
      const auto from = merged_.members.begin() + begin;
      if (communicator->queue >= 0 &&
          std::find(from, merged_.members.end(), rank) != merged_.members.end())
        continue;
      merged_.members.push_back(rank);
    }
    communicator->first_member = begin;
    communicator->members = static_cast<int32_t>(merged_.members.size()) - begin;
    communicator->needed = communicator->members;
    communicator->first_arrival = merged_.arrivals;
    merged_.arrivals += communicator->needed;
  }

  int32_t RouteOf(int32_t route) {
    const auto [number, added] = routes_.Of(partition_.routes()[At(route)]);
    if (added) route_.push_back(route);
    return number;
  }

  // The first path of each class has the jobs of all routes that use it; a link of each class has the weights of all
  // paths that cross it.
  void AddTraffic() {
    const std::size_t paths = partition_.paths().size();
    std::vector<char> first_path(paths, 0);
    std::vector<int32_t> path_class(paths);
    Classes classes;
    std::vector<net::PathId> first;
    for (std::size_t p = 0; p < paths; ++p) {
      const auto [number, added] = classes.Of(partition_.paths()[p]);
      path_class[p] = number;
      first_path[p] = added;
      if (added) first.push_back(static_cast<net::PathId>(p));
    }
    std::vector<char> kept(partition_.links().size(), 0);
    Classes link_classes;
    for (std::size_t l = 0; l < kept.size(); ++l)
      kept[l] = partition_.used(l) && link_classes.Of(partition_.links()[l]).second;
    std::vector<std::vector<net::LinkUse>> uses(first.size());
    for (std::size_t p = 0; p < paths; ++p) {
      for (const net::LinkUse& use : whole_.network->UsesOf(static_cast<net::PathId>(p))) {
        if (kept[At(use.link)]) uses[At(path_class[p])].push_back(use);
      }
    }
    std::vector<net::PathId> path(first.size());
    for (std::size_t c = 0; c < first.size(); ++c)
      path[c] = merged_.network->AddPath(uses[c], whole_.network->CapOf(first[c]), "traffic");
    for (std::size_t r = 0; r < whole_.routes.size(); ++r) {
      const int32_t number = routes_.Known(partition_.routes()[r]);
      if (number < 0) continue;
      Route& route = merged_.routes[At(number)];
      const auto& phases = whole_.routes[r].phases;
      if (route.phases.size() < phases.size()) route.phases.resize(phases.size());
      for (std::size_t phase = 0; phase < phases.size(); ++phase) {
        for (const Route::Job& job : phases[phase]) {
          if (first_path[At(job.path)])
            route.phases[phase].push_back({path[At(path_class[At(job.path)])], job.bytes});
        }
      }
    }
  }

  const CommunicatorTable& whole_;
  const PlanTasks& tasks_;
  const Partition& partition_;
  Classes ranks_, communicators_, queues_, routes_;
  std::vector<std::size_t> first_;                      // by class of ranks, into the whole table
  std::unordered_map<int64_t, int32_t> class_of_rank_;  // by rank of the plan
  std::vector<int32_t> route_;                          // by class: one of them
  CommunicatorTable merged_;
};

}  // namespace

CommunicatorTable MergeAlike(CommunicatorTable whole, const ir::Plan& plan, const PlanTasks& tasks,
                             const std::vector<double>& slowdown, net::Wires wires,
                             bool keep_whole) {
  if (whole.cores > 0 || whole.rates || whole.ranks.size() <= 1) return whole;
  const Partition partition(whole, plan, tasks, slowdown);
  CommunicatorTable merged = Merger(whole, tasks, partition).Build(std::move(wires));
  if (merged.ranks.size() == whole.ranks.size()) return whole;
  if (keep_whole) {
    whole.network.reset();
    merged.whole = std::make_shared<const CommunicatorTable>(std::move(whole));
  }
  return merged;
}

}  // namespace orrery::sim
