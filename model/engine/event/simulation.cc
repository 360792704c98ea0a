// SPDX-License-Identifier: Apache-2.0
// Sets a step up, plays it, and names the links that its messages share.
#include "model/engine/event/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "model/engine/event/index.h"
#include "model/engine/network/wires.h"
#include "model/plan/ir/hazards.h"

namespace orrery::sim {
namespace {

constexpr double kMostOps = 20'000'000;  // of one stage: its tasks take a gigabyte
constexpr double kMostExecuted = 300'000'000;

void RefuseHuge(const ir::Plan& plan, bool merge_replicas) {
  const double most = MostOps(plan);
  const int64_t executed = ExecutedRanks(plan.mesh, merge_replicas);
  if (most <= kMostOps && most * static_cast<double>(executed) <= kMostExecuted) return;
  throw InputError(
      fmt::format("the step has {:.2g} ops on each of {} executed rank{}: too many to simulate",
                  most, executed, executed == 1 ? "" : "s"),
      "fewer micro-batches (--global-batch, --micro-batch) or fewer --nodes; without "
      "--all-ranks and perturbations replicas are executed once");
}

constexpr std::array kAxes = {CommAxis::kTensor, CommAxis::kData, CommAxis::kPipeline};

std::size_t Index(CommAxis axis) { return static_cast<std::size_t>(axis); }

// Which axes keep which links busy.
class LinkLoad {
 public:
  LinkLoad(const SimulatedRun& run, const Cluster& cluster, std::size_t rank)
      : run_(run), cluster_(cluster), rank_(rank) {
    for (const LineMessages& line : run.tasks.lines) {
      axes_.push_back(line.line.axis >= 0
                          ? AxisOfTransfer(run.plan, line.line.axis)
                          : AxisOfGroup(run.plan, run.plan.groups[At(line.line.group)]));
    }
  }

  std::vector<SharedLink> Find() const {
    std::array<double, kAxes.size()> beyond{};
    const StageTasks& stage = StageOf(rank_);
    for (std::size_t t = 0; t < stage.tasks.size(); ++t) {
      const Task& task = stage.tasks[t];
      if (task.line < 0) continue;
      const Exchange& exchange = ExchangeOf(task, rank_);
      if (exchange.route < 0) continue;
      const TaskSpan& span = run_.timeline[rank_][t];
      beyond[Index(axes_[At(task.line)])] +=
          std::max(0.0, span.end - span.met - (1.0 - exchange.hidden) * exchange.price);
    }
    std::vector<SharedLink> found;
    for (const CommAxis axis : kAxes) {
      if (beyond[Index(axis)] <= kTells * run_.result.seconds) continue;
      found.push_back({axis, beyond[Index(axis)], "", {}});
      if (!run_.meetings.link_shares.empty()) Name(&found.back());
    }
    return found;
  }

 private:
  static constexpr double kTells = 1e-4;  // of the step

  const StageTasks& StageOf(std::size_t r) const {
    return run_.tasks
        .stages[At(run_.plan.mesh.Coords(run_.result.ranks[r])[At(run_.plan.mesh.program_axis)])];
  }
  const Meeting& MeetingOf(const Task& task, std::size_t r) const {
    return run_.meetings.meetings[At(run_.meetings.of[At(2 * task.line + task.receives)][r])];
  }
  const Exchange& ExchangeOf(const Task& task, std::size_t r) const {
    return run_.meetings.exchanges[At(MeetingOf(task, r).first_exchange + task.message)];
  }

  // The link of this axis' own traffic that is loaded most.
  void Name(SharedLink* shared) const {
    const std::vector<double> own = SecondsOnLinks(shared->axis, true);
    std::array<std::vector<double>, kAxes.size()> all;
    for (const CommAxis axis : kAxes) all[Index(axis)] = SecondsOnLinks(axis, false);
    std::size_t fullest = 0;
    double most = 0;
    for (std::size_t link = 0; link < own.size(); ++link) {
      double load = 0;
      for (const std::vector<double>& seconds : all) load += seconds[link];
      if (own[link] <= 0 || load <= most) continue;
      most = load, fullest = link;
    }
    if (most <= 0) return;
    shared->link = net::LinkName(cluster_, static_cast<LinkId>(fullest));
    for (const CommAxis axis : kAxes) {
      if (axis != shared->axis && all[Index(axis)][fullest] > 0)
        shared->shared_with.push_back(axis);
    }
  }

  // By link: seconds at full rate that messages of an axis keep it busy; of this rank's meetings only, or of all.
  std::vector<double> SecondsOnLinks(CommAxis axis, bool own) const {
    std::vector<double> through(run_.meetings.routes.size(), 0.0);
    for (std::size_t r = 0; r < run_.result.ranks.size(); ++r) {
      if (own && r != rank_) continue;
      for (const Task& task : StageOf(r).tasks) {
        if (task.line < 0 || axes_[At(task.line)] != axis) continue;
        const Exchange& exchange = ExchangeOf(task, r);
        if (exchange.route >= 0)
          through[At(exchange.route)] += exchange.bytes / (own ? 1 : MeetingOf(task, r).needed);
      }
    }
    std::vector<double> seconds(cluster_.links.size(), 0.0);
    for (std::size_t route = 0; route < through.size(); ++route) {
      if (through[route] <= 0) continue;
      for (const LinkTraffic& use : run_.meetings.link_shares[route])
        seconds[At(use.link)] +=
            use.occupied * through[route] / cluster_.links[At(use.link)].capacity.value;
    }
    return seconds;
  }

  const SimulatedRun& run_;
  const Cluster& cluster_;
  const std::size_t rank_;
  std::vector<CommAxis> axes_;  // by line
};

}  // namespace

AxisMask Replicas(const ir::Mesh& mesh) {
  unsigned mask = 0;
  for (const char* name : {"dp", "dpo"}) {
    const int axis = mesh.AxisIndex(name);
    if (axis >= 0) mask |= 1u << axis;
  }
  return static_cast<AxisMask>(mask);
}

int64_t ExecutedRanks(const ir::Mesh& mesh, bool merge_replicas) {
  const AxisMask merged = merge_replicas ? Replicas(mesh) : 0;
  int64_t executed = 1;
  for (std::size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    if ((merged >> axis & 1) == 0) executed *= mesh.axes[axis].size;
  }
  return executed;
}

double MostOps(const ir::Plan& plan) {
  double most = 0;
  for (const ir::Program& program : plan.programs) most = std::max(most, ir::ScheduledOps(program));
  return most;
}

Simulation::Simulation(const ir::Plan& plan, const Cluster& cluster, const CostSetting& prices,
                       const SimulationOptions& options)
    : plan_(plan),
      cluster_(cluster),
      pricer_(prices, plan),
      fixed_(FixedCosts(prices, LayersOf(plan))),
      options_(options) {
  RefuseHuge(plan, options.merge_replicas);
  MeetingOptions meetings;
  meetings.contention = options.contention;
  meetings.backend = options.backend;
  meetings.keep_links = options.keep_links;
  meetings.log_rates = options.log_rates && options.contention;
  if (options.merge_replicas) meetings.merged = Replicas(plan.mesh);
  tasks_ = MakeTasks(plan, pricer_);
  meetings_ =
      MakeMeetings(plan, tasks_, cluster, net::WiresOf(cluster), pricer_.messages, meetings);
}

double Simulation::Run() {
  result_ = Execute(plan_, tasks_, &meetings_, options_.perturbation,
                    options_.record ? &timeline_ : nullptr);
  return result_.seconds + fixed_;
}

StepTime Simulation::time() const {
  StepTime time{breakdown()};
  time.total = result_.seconds + fixed_;
  time.low = time.high = std::numeric_limits<double>::quiet_NaN();
  return time;
}

std::vector<SharedLink> Simulation::SharedLinks() const {
  if (!meetings_.contention || timeline_.empty()) return {};
  const SimulatedRun run = Played();
  return LinkLoad(run, cluster_, BusiestRank(run)).Find();
}

}  // namespace orrery::sim
