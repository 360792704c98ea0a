// SPDX-License-Identifier: Apache-2.0
// Simulates on all threads, looks for what may still be faster, orders by the outcome.
#include "model/twin/refine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>
#include <thread>
#include <tuple>

#include "model/base/parallel.h"

namespace orrery {
namespace {

// Closer step times are equal: what differs is rounding.
constexpr double kSameSimulatedTime = 1e-6;

// Simulated at a time while looking for what is faster than the best so far.
constexpr std::size_t kBatch = 4;
// Layouts simulated beyond those that must be, per layout that must be.
constexpr std::size_t kBeyond = 4;
// Share of the budget that rows leave to them, however large the rows are.
constexpr double kLeftForOthers = 0.5;

// What the answer ranks one layout of: nodes, batch, degrees, micro-batch.
auto RowOf(const Candidate& candidate) {
  const Strategy& s = candidate.strategy;
  return std::tuple(candidate.nodes, candidate.global_batch, s.tp, s.pp, s.data_parallel(),
                    s.micro_batch);
}

std::vector<Candidate*> PointersTo(std::vector<Candidate>* candidates) {
  std::vector<Candidate*> pointers;
  for (Candidate& candidate : *candidates) pointers.push_back(&candidate);
  return pointers;
}

class Refiner {
 public:
  Refiner(const SearchRequest& request, Runner* runner, CandidateSimulator* simulator)
      : request_(request), runner_(*runner), simulator_(*simulator) {}

  Refinement Run(std::vector<Candidate>* ranked, std::vector<Candidate>* others) {
    refinement_.asked = static_cast<int>(ranked->size());
    std::vector<Candidate> pool = *ranked;
    simulator_.Simulate(PointersTo(&pool), true);
    SimulateOthers(others, &pool);
    SimulateRivals(ranked->size(), &pool);
    Order(&pool);
    *others = pool;
    if (pool.size() > ranked->size()) pool.resize(ranked->size());
    *ranked = std::move(pool);
    refinement_.ranked_by_simulation = true;
    for (const Candidate& candidate : *ranked) {
      refinement_.ranked_by_simulation &= candidate.simulated.has_value();
      refinement_.disagreement =
          std::max(refinement_.disagreement,
                   std::abs(candidate.ClosedForm().total / candidate.time.total - 1));
    }
    refinement_.simulated = simulator_.simulated();
    return std::move(refinement_);
  }

 private:
  // Into the pool as well; those beyond the budget are left out of the answer.
  void SimulateOthers(std::vector<Candidate>* others, std::vector<Candidate>* pool) {
    std::set<std::string> known;
    for (const Candidate& candidate : *pool) known.insert(NameOf(candidate));
    std::vector<Candidate> fresh;
    for (Candidate& other : *others) {
      if (!known.contains(NameOf(other))) fresh.push_back(std::move(other));
    }
    simulator_.Simulate(PointersTo(&fresh));
    Join(&fresh, pool);
  }

  static std::string NameOf(const Candidate& candidate) {
    return fmt::format("{} {} {}", candidate.nodes, candidate.global_batch,
                       DescribeLayout(candidate.strategy));
  }

  // First what may beat the fastest so far, among all strategies, then what may displace the last row, among the best
  // of each.
  void SimulateRivals(std::size_t rows, std::vector<Candidate>* pool) {
    std::set<std::string> known;
    for (const Candidate& candidate : *pool) known.insert(NameOf(candidate));
    std::size_t left = kBeyond * rows;
    bool fits = true, missed = false;  // the budget; what may win was left out
    for (const bool every : {true, false}) {
      const std::size_t place = every ? 1 : rows;
      for (bool any = true; any && fits && left > 0;) {
        std::vector<Candidate> batch;
        while (batch.size() < std::min(kBatch, left)) {
          auto rival = runner_.NextBelow(ClosedFormThatReaches(place, *pool), every);
          if (!rival) break;
          if (known.insert(NameOf(*rival)).second) batch.push_back(std::move(*rival));
        }
        any = !batch.empty();
        left -= batch.size();
        fits = simulator_.Simulate(PointersTo(&batch));
        const double first = ValueAt(1, *pool), shrunk = LeastRatio(*pool);
        missed |= every && std::ranges::any_of(batch, [&](const Candidate& c) {
                    return !c.settled() && ValueOf(c, shrunk * c.ClosedForm().total) < first;
                  });
        Join(&batch, pool);
      }
      if (every)
        refinement_.open = missed || runner_.AnyBelow(ValueAt(1, *pool), LeastRatio(*pool));
    }
  }

  static void Join(std::vector<Candidate>* candidates, std::vector<Candidate>* pool) {
    for (Candidate& candidate : *candidates) {
      if (candidate.settled()) pool->push_back(std::move(candidate));
    }
  }

  // The objective by the closed form below which a layout may reach a place among the rows of the pool.
  double ClosedFormThatReaches(std::size_t place, const std::vector<Candidate>& pool) const {
    return ValueAt(place, pool) / LeastRatio(pool);
  }
  double ValueAt(std::size_t place, std::vector<Candidate> pool) const {
    Order(&pool);
    return ValueOf(pool[std::min(place, pool.size()) - 1]);
  }
  // Of a simulated step to its closed form.
  static double LeastRatio(const std::vector<Candidate>& pool) {
    double least = 1;
    for (const Candidate& candidate : pool)
      least = std::min(least, candidate.time.total / candidate.ClosedForm().total);
    return least;
  }

  double ValueOf(const Candidate& candidate, double seconds) const {
    return ObjectiveValue(request_, seconds, runner_.JobOf(candidate),
                          candidate.strategy.data_parallel());
  }
  double ValueOf(const Candidate& candidate) const {
    return ValueOf(candidate, candidate.time.total);
  }

  // As Rank::step.
  double StepOf(const Candidate& candidate, double seconds) const {
    return request_.input.limited() || request_.run
               ? ObjectiveValue(Objective::kTime, seconds, runner_.JobOf(candidate))
               : 0;
  }

  // The fastest of each row, best first, nearly full ones below all others; closer than kSameSimulatedTime: in the closed form's order.
  void Order(std::vector<Candidate>* pool) const {
    const auto nearly_full = [](const Candidate& c) { return c.memory->nearly_full; };
    std::ranges::stable_sort(*pool, {}, [&](const Candidate& c) {
      return std::tuple(nearly_full(c), ValueOf(c), StepOf(c, c.time.total));
    });
    if (!runner_.variants()) {
      std::set<decltype(RowOf(pool->front()))> seen;
      std::erase_if(*pool, [&](const Candidate& c) { return !seen.insert(RowOf(c)).second; });
    }
    std::ranges::stable_sort(*pool, {}, [&](const Candidate& c) {
      const double closed = c.ClosedForm().total;
      return std::tuple(nearly_full(c), ValueOf(c, closed), StepOf(c, closed));
    });
    for (std::size_t i = 0; i < pool->size(); ++i) (*pool)[i].closed_rank = static_cast<int>(i) + 1;
    for (auto at = pool->begin(); at != pool->end(); ++at) {
      auto before = at;
      while (before != pool->begin() && nearly_full(*at) == nearly_full(*std::prev(before)) &&
             ValueOf(*at) <
                 ValueOf(*std::prev(before)) - kSameSimulatedTime * std::abs(ValueOf(*at)))
        --before;
      std::rotate(before, at, std::next(at));
    }
  }

  const SearchRequest& request_;
  Runner& runner_;
  CandidateSimulator& simulator_;
  Refinement refinement_;
};

}  // namespace

const Cluster& CandidateSimulator::ClusterOf(int64_t nodes) {
  const auto at = clusters_.find(nodes);
  if (at != clusters_.end()) return at->second;
  return clusters_.emplace(nodes, BuildCluster(request_.topology, nodes, request_.gpus_per_node))
      .first->second;
}

bool CandidateSimulator::Simulate(std::span<Candidate* const> candidates, bool rows) {
  bool all = true;
  std::vector<std::pair<Candidate*, const Cluster*>> works;
  for (Candidate* candidate : candidates) {
    if (candidate->settled()) continue;
    const bool alike = sim::MergesReplicas(*candidate->plan, ClusterOf(candidate->nodes));
    const double effort = SimulationEffort(*candidate->plan, candidate->strategy, alike);
    if (effort <= request_.most_effort) {  // else Settle() says so, at no cost
      if (!rows && effort > left_) {
        all = false;
        continue;
      }
      left_ -= effort;
    }
    works.emplace_back(candidate, &ClusterOf(candidate->nodes));
  }
  std::atomic<std::size_t> next{0};
  const int wanted = request_.threads > 0 ? request_.threads
                                          : static_cast<int>(std::thread::hardware_concurrency());
  OnThreads(std::min(wanted, static_cast<int>(works.size())), [&](int) {
    for (std::size_t i = next++; i < works.size(); i = next++) {
      const auto& [candidate, cluster] = works[i];
      Settle(runner_.JobOf(*candidate), *candidate->plan, *cluster, candidate);
      if (request_.progress)
        request_.progress("simulating",
                          static_cast<double>(i + 1) / static_cast<double>(works.size()));
    }
  });
  for (const auto& [candidate, cluster] : works) simulated_ += candidate->simulated.has_value();
  if (rows) left_ = std::max(left_, kLeftForOthers * request_.refine_ops);
  return all;
}

Refinement Refine(const SearchRequest& request, Runner* runner, CandidateSimulator* simulator,
                  std::vector<Candidate>* ranked, std::vector<Candidate>* others) {
  return Refiner(request, runner, simulator).Run(ranked, others);
}

}  // namespace orrery
