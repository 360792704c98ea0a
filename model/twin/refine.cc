// SPDX-License-Identifier: Apache-2.0
// Chooses what is simulated, simulates it on all threads, orders by the outcome.
#include "model/twin/refine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <thread>

#include "model/plan/ir/hazards.h"

namespace orrery {
namespace {

// Closer step times are equal: what differs is rounding.
constexpr double kSameTime = 1e-6;

// Executed ops that take as long as unfolding one, and as routing one rank's traffic of one group:
// 0.14 us of one core each.
constexpr double kOpsPerUnfolded = 2;
constexpr double kOpsPerRoute = 20;

// What a simulation takes, in ops: unfolding each stage, executing its ranks, routing for all
// ranks.
double EffortOf(const ir::Plan& plan) {
  const double per_stage = static_cast<double>(sim::ExecutedRanks(plan.mesh, true)) /
                           static_cast<double>(plan.programs.size());
  double ops = 0;
  for (const ir::Program& program : plan.programs) ops += ir::ScheduledOps(program);
  return ops * (kOpsPerUnfolded + per_stage) + kOpsPerRoute *
                                                   static_cast<double>(plan.mesh.ranks()) *
                                                   static_cast<double>(plan.groups.size());
}

// One simulation to be.
struct Play {
  std::size_t index = 0;  // into ranked
  const Job* job = nullptr;
  ir::Plan plan;
  const Cluster* cluster = nullptr;
  StepTime time;  // without interval
  SimulatedStep step;
  std::string refusal;  // "": none
};

class Refiner {
 public:
  Refiner(const SearchRequest& request, const Runner& runner, std::vector<Candidate>* ranked)
      : request_(request), runner_(runner), ranked_(*ranked) {
    refinement_.asked = static_cast<int>(
        std::min<std::size_t>(ranked_.size(), static_cast<std::size_t>(request.refine)));
  }

  Refinement Run() {
    for (std::size_t i = 0; i < ranked_.size(); ++i)
      ranked_[i].closed_rank = static_cast<int>(i) + 1;
    Choose();
    SimulateAll();
    Collect();
    if (refinement_.simulated == refinement_.asked) Order();
    return std::move(refinement_);
  }

 private:
  void Skip(std::size_t index, double effort, const std::string& why) {
    refinement_.skipped.push_back({static_cast<int>(index) + 1, effort, why});
  }

  // In closed-form order, as long as the budget lasts.
  void Choose() {
    double left = request_.refine_ops;
    for (std::size_t i = 0; i < static_cast<std::size_t>(refinement_.asked); ++i) {
      const Job& job = runner_.JobOf(ranked_[i]);
      Play play{i, &job, LowerLegal(job, ranked_[i].strategy)};
      const double effort = EffortOf(play.plan);
      if (effort > left) {
        Skip(i, effort,
             fmt::format("all simulations together may take {:.2g}", request_.refine_ops));
        continue;
      }
      left -= effort;
      plays_.push_back(std::move(play));
    }
    for (Play& play : plays_) play.cluster = &ClusterOf(play.job->cluster.nodes);
  }

  const Cluster& ClusterOf(int64_t nodes) {
    const auto at = clusters_.find(nodes);
    if (at != clusters_.end()) return at->second;
    return clusters_.emplace(nodes, BuildCluster(request_.topology, nodes, request_.gpus_per_node))
        .first->second;
  }

  void SimulateAll() {
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t i = next++; i < plays_.size(); i = next++) {
        Play& play = plays_[i];
        try {
          play.time = SimulateStep(play.plan, *play.cluster, play.job->prices(), &play.step);
        } catch (const InputError& error) {  // such as no route between two ranks
          play.refusal = error.what();
        }
      }
    };
    const int wanted = request_.threads > 0 ? request_.threads
                                            : static_cast<int>(std::thread::hardware_concurrency());
    std::vector<std::thread> pool;
    for (int t = 1; t < std::min(wanted, static_cast<int>(plays_.size())); ++t)
      pool.emplace_back(work);
    work();
    for (std::thread& thread : pool) thread.join();
  }

  void Collect() {
    for (Play& play : plays_) {
      Candidate& candidate = ranked_[play.index];
      if (!play.refusal.empty()) {
        Skip(play.index, EffortOf(play.plan), play.refusal);
        continue;
      }
      ++refinement_.simulated;
      refinement_.disagreement =
          std::max(refinement_.disagreement, std::abs(candidate.time.total / play.time.total - 1));
      TakeSimulated(play.time, std::move(play.step), &candidate);
    }
    std::sort(refinement_.skipped.begin(), refinement_.skipped.end());
  }

  double ValueOf(const Candidate& candidate) const {
    return ObjectiveValue(request_.objective, candidate.time.total, runner_.JobOf(candidate));
  }

  void Order() {
    refinement_.ranked_by_simulation = true;
    for (int i = 1; i < refinement_.asked; ++i) {
      const auto at = ranked_.begin() + i;
      auto before = at;
      while (before != ranked_.begin() &&
             ValueOf(*at) < ValueOf(*std::prev(before)) - kSameTime * std::abs(ValueOf(*at)))
        --before;
      std::rotate(before, at, std::next(at));
    }
  }

  const SearchRequest& request_;
  const Runner& runner_;
  std::vector<Candidate>& ranked_;
  std::map<int64_t, Cluster> clusters_;  // by nodes
  std::vector<Play> plays_;
  Refinement refinement_;
};

}  // namespace

Refinement Refine(const SearchRequest& request, const Runner& runner,
                  std::vector<Candidate>* ranked) {
  return Refiner(request, runner, ranked).Run();
}

}  // namespace orrery
