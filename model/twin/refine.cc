// SPDX-License-Identifier: Apache-2.0
// Chooses what is simulated, simulates it on all threads, orders by the outcome.
#include "model/twin/refine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <thread>

#include "model/base/check.h"
#include "model/plan/ir/hazards.h"
#include "model/plan/lower/lower.h"
#include "model/twin/step_predictor.h"

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
  double executed = 1;
  const sim::AxisMask merged = sim::Replicas(plan.mesh);
  for (std::size_t axis = 0; axis < plan.mesh.axes.size(); ++axis) {
    if ((merged >> axis & 1) == 0) executed *= plan.mesh.axes[axis].size;
  }
  const double per_stage = executed / static_cast<double>(plan.programs.size());
  double ops = 0;
  for (const ir::Program& program : plan.programs) ops += ir::ScheduledOps(program);
  return ops * (kOpsPerUnfolded + per_stage) + kOpsPerRoute *
                                                   static_cast<double>(plan.mesh.ranks()) *
                                                   static_cast<double>(plan.groups.size());
}

// One simulation to be.
struct Play {
  std::size_t index = 0;  // into ranked
  ir::Plan plan;
  const Cluster* cluster = nullptr;
  const Setting* setting = nullptr;
  std::optional<SimulatedStep> step;
  StepTime time;  // without interval
  std::string refusal;
};

SimulatedStep Simulate(Play* play) {
  const CostSetting& cost = play->setting->cost;
  const Pricer pricer(cost, play->setting->work.precision);
  sim::SimulationOptions options;
  options.keep_links = true;
  sim::Simulation simulation(play->plan, *play->cluster, pricer,
                             FixedCosts(cost, LayersOf(play->plan)), options);
  SimulatedStep step;
  play->time.total = simulation.Run();
  static_cast<Breakdown&>(play->time) = simulation.breakdown();
  step.ops = simulation.result().ops;
  step.shared = simulation.SharedLinks();
  return step;
}

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
  ir::Plan LowerOne(const Candidate& candidate, const Setting& setting) const {
    LowerResult lowered = Lower(request_.model, setting.work, candidate.strategy);
    auto* plan = std::get_if<ir::Plan>(&lowered);
    ORRERY_CHECK(plan != nullptr, "{} is refused: {}", DescribeLayout(candidate.strategy),
                 std::get<Refusal>(lowered).reason);
    return std::move(*plan);
  }

  void Skip(std::size_t index, double effort, const std::string& why) {
    refinement_.skipped.push_back({static_cast<int>(index) + 1, effort, why});
  }

  // In closed-form order, as long as the budget lasts.
  void Choose() {
    double left = request_.refine_ops;
    for (std::size_t i = 0; i < static_cast<std::size_t>(refinement_.asked); ++i) {
      const Setting& setting = runner_.SettingOf(ranked_[i]);
      Play play{i, LowerOne(ranked_[i], setting), nullptr, &setting, {}, {}};
      const double effort = EffortOf(play.plan);
      if (effort > left) {
        Skip(i, effort,
             fmt::format("all simulations together may take {:.2g}", request_.refine_ops));
        continue;
      }
      left -= effort;
      plays_.push_back(std::move(play));
    }
    for (Play& play : plays_) play.cluster = &ClusterOf(play.setting->nodes);
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
          play.step = Simulate(&play);
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
      if (!play.step) {
        Skip(play.index, EffortOf(play.plan), play.refusal);
        continue;
      }
      ++refinement_.simulated;
      refinement_.disagreement =
          std::max(refinement_.disagreement, std::abs(candidate.time.total / play.time.total - 1));
      Settle(play, &candidate);
    }
    std::sort(refinement_.skipped.begin(), refinement_.skipped.end());
  }

  // One step time in every answer: the simulated one, and what follows from it.
  static void Settle(Play& play, Candidate* candidate) {
    const StepTime closed = candidate->time;
    const double ratio = play.time.total / closed.total;
    candidate->closed_form = closed;
    candidate->time = play.time;
    candidate->time.low = closed.low * ratio;
    candidate->time.high = closed.high * ratio;
    if (std::abs(1 / ratio - 1) > kEnginesDiffer) {
      candidate->time.low = std::min(candidate->time.low, closed.total);
      candidate->time.high = std::max(candidate->time.high, closed.total);
    }
    candidate->tokens_per_second /= ratio;
    candidate->mfu /= ratio;
    if (candidate->price_per_step) *candidate->price_per_step *= ratio;
    if (candidate->price_per_billion_tokens) *candidate->price_per_billion_tokens *= ratio;
    candidate->simulated = std::move(play.step);
  }

  double ValueOf(const Candidate& candidate) const {
    return ObjectiveValue(request_.objective, candidate.time.total, runner_.SettingOf(candidate));
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
