// SPDX-License-Identifier: Apache-2.0
// Sets a step up, plays it, and names the links that its messages share.
#include "model/engine/event/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "model/engine/event/alike.h"
#include "model/engine/event/critical_path.h"
#include "model/engine/event/index.h"
#include "model/engine/event/parts.h"
#include "model/engine/network/wires.h"
#include "model/hardware/node_order.h"
#include "model/plan/ir/hazards.h"

namespace orrery::sim {
namespace {

constexpr double kMostOps = 20'000'000;  // of one stage: its tasks take a gigabyte
constexpr double kMostExecuted = 300'000'000;

void RefuseHuge(const ir::Plan& plan, int64_t executed) {
  const double most = MostOps(plan);
  if (most <= kMostOps && most * static_cast<double>(executed) <= kMostExecuted) return;
  throw InputError(
      fmt::format("the step has {:.2g} ops on each of {} executed rank{}: too many to simulate (at "
                  "most {:.0e} on each and {:.0e} on all)",
                  most, executed, executed == 1 ? "" : "s", kMostOps, kMostExecuted),
      "fewer micro-batches (--global-batch, --micro-batch) or fewer --nodes; without "
      "--all-ranks and perturbations replicas are executed once");
}

std::size_t Index(CommAxis axis) { return static_cast<std::size_t>(axis); }

constexpr double kNoise = 1e-12;  // of the step: sums of differences that cancelled

// Seconds by which a message takes longer than its price.
double BeyondPrice(const Exchange& exchange, const TaskSpan& span) {
  if (exchange.route < 0) return 0;
  const double price = (1.0 - exchange.hidden) * exchange.price;
  const double beyond = span.end - span.met - price;
  return beyond > 1e-9 * price ? beyond : 0;
}

std::optional<Cluster> Placed(const ir::Plan& plan, const Cluster& cluster) {
  if (plan.nodes.empty()) return std::nullopt;
  CheckNodeOrder(plan.nodes, cluster.nodes, cluster.summary.domain_nodes);
  Cluster placed = cluster;
  placed.order = plan.nodes;
  return placed;
}

// So many ranks are routed and compared one by one in a moment; of more the first replica stands for all.
constexpr int64_t kMostUnlike = 128;

// What of each rank of a replica lies on the nodes, or domains, that hold it is the same on all of them. Else replicas have other
// neighbours: of 6 replicas of stages on nodes of 8 GPUs some send inside the node and share fewer NICs; of tensor groups of 5
// some are on one node.
bool SameNeighbours(const ir::Plan& plan, const Cluster& cluster,
                    int64_t (Cluster::*place)(int64_t) const) {
  const AxisMask merged = Replicas(plan.mesh);
  const auto in_first = [&](int64_t rank) {
    std::vector<int> coords = plan.mesh.Coords(rank);
    for (std::size_t axis = 0; axis < coords.size(); ++axis)
      if ((merged >> axis & 1) != 0) coords[axis] = 0;
    return plan.mesh.Rank(coords);
  };
  using Ranks = std::map<int64_t, int64_t>;  // of the first replica: how many of their copies
  std::map<int64_t, Ranks> ranks_on;
  for (int64_t rank = 0; rank < plan.mesh.ranks(); ++rank)
    ++ranks_on[(cluster.*place)(rank)][in_first(rank)];
  std::map<int64_t, const Ranks*> of_rank;
  for (const auto& [where, ranks] : ranks_on) {
    for (const auto& [rank, copies] : ranks) {
      const auto [at, first] = of_rank.emplace(rank, &ranks);
      if (!first && *at->second != ranks) return false;
    }
  }
  return true;
}

// Ranks on slow nodes take longer; then replicas are not alike.
SimulationOptions OnNodes(SimulationOptions options, const ir::Plan& plan, const Cluster& cluster) {
  const std::vector<double>& slow = cluster.spec.slowdown;
  options.merge_replicas &= MergesReplicas(plan, cluster);
  if (slow.empty()) return options;
  std::vector<double>& of_rank = options.perturbation.slowdown;
  of_rank.resize(At(plan.mesh.ranks()), 1.0);
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
    const auto node = At(cluster.NodeOf(static_cast<int64_t>(rank)));
    if (node < slow.size()) of_rank[rank] *= slow[node];
  }
  return options;
}

// Where messages of the critical path meet others.
class LinkLoad {
 public:
  LinkLoad(const SimulatedRun& run, const Cluster& cluster, AxisMask merged)
      : run_(run),
        whole_(run.communicators.whole ? *run.communicators.whole : run.communicators),
        cluster_(cluster),
        merged_(merged) {
    for (const LineMessages& line : run.tasks.lines) {
      axes_.push_back(line.line.axis >= 0
                          ? AxisOfTransfer(run.plan, line.line.axis)
                          : AxisOfGroup(run.plan, run.plan.groups[At(line.line.group)]));
    }
    const auto program_axis = At(run.plan.mesh.program_axis);
    const auto stage_of = [&](int64_t rank) {
      return &run.tasks.stages[At(run.plan.mesh.Coords(rank)[program_axis])];
    };
    for (const int64_t rank : run.result.ranks) stages_.push_back(stage_of(rank));
    for (const int64_t rank : whole_.ranks) all_stages_.push_back(stage_of(rank));
    AddLoad();
  }

  // `contention`: seconds to spread over the links.
  std::vector<SharedLink> Find(double contention) const {
    std::map<std::pair<CommAxis, LinkId>, double> beyond;
    double sum = 0;
    for (const PathTask& at :
         TasksOfPath(run_.plan, run_.tasks, run_.communicators, run_.timeline)) {
      const Task& task = StageOf(at.rank).tasks[At(at.task)];
      if (task.line < 0) continue;
      const Exchange& exchange = ExchangeOf(task, at.rank);
      const double seconds = BeyondPrice(exchange, run_.timeline[at.rank][At(at.task)]);
      if (seconds <= 0) continue;
      beyond[{axes_[At(task.line)], FullestLink(exchange.route)}] += seconds;
      sum += seconds;
    }
    std::vector<SharedLink> found;
    for (const auto& [where, seconds] : beyond)
      found.push_back(Describe(where.first, where.second, contention * seconds / sum));
    std::ranges::stable_sort(found, std::greater<>(), &SharedLink::seconds);
    return found;
  }

 private:
  const StageTasks& StageOf(std::size_t r) const { return *stages_[r]; }
  const Communicator& CommunicatorOf(const Task& task, std::size_t r) const {
    return run_.communicators
        .communicators[At(run_.communicators.of[At(2 * task.line + task.receives)][r])];
  }
  const Exchange& ExchangeOf(const Task& task, std::size_t r) const {
    return run_.communicators.exchanges[At(CommunicatorOf(task, r).first_exchange + task.message)];
  }

  // Of a route, the link that the messages of the step keep busy longest; -1: not known.
  LinkId FullestLink(int32_t route) const {
    LinkId fullest = -1;
    double most = 0;
    if (run_.communicators.link_shares.empty()) return fullest;
    run_.communicators.link_shares[At(route)]->Each([&](const LinkTraffic& use) {
      double load = 0;
      for (const std::vector<double>& seconds : load_) load += seconds[At(use.link)];
      if (load > most) most = load, fullest = use.link;
    });
    return fullest;
  }

  SharedLink Describe(CommAxis axis, LinkId link, double seconds) const {
    SharedLink shared{axis, seconds, "", {}};
    if (link < 0) return shared;
    shared.link = net::LinkName(cluster_, link);
    for (const CommAxis other : kCommAxes) {
      if (other != axis && load_[Index(other)][At(link)] > 0) shared.shared_with.push_back(other);
    }
    shared.same_axis = SeveralGroups(axis, link);
    return shared;
  }

  // Whether messages of more than one group of the axis cross the link.
  bool SeveralGroups(CommAxis axis, LinkId link) const {
    std::set<int64_t> groups;  // of transfers, sender and receiver
    for (const Communicator& communicator : whole_.communicators) {
      if (axes_[At(communicator.line)] != axis || !Crosses(communicator, link)) continue;
      groups.insert(communicator.queue >= 0 ? communicator.queue
                                            : -1 - int64_t{communicator.first_member});
      if (groups.size() > 1 || CopyOnItsNodes(communicator)) return true;
    }
    return false;
  }

  bool Crosses(const Communicator& communicator, LinkId link) const {
    const std::size_t messages = run_.tasks.lines[At(communicator.line)].messages.size();
    for (std::size_t i = 0; i < messages; ++i) {
      if (Crosses(whole_.exchanges[At(communicator.first_exchange) + i].route, link)) return true;
    }
    return false;
  }

  bool Crosses(int32_t route, LinkId link) const {
    return route >= 0 && whole_.link_shares[At(route)]->Uses(link);
  }

  // Whether a copy of the group, in a replica that is not executed, has ranks on the same nodes: it uses the same links.
  bool CopyOnItsNodes(const Communicator& communicator) const {
    const Line& line = run_.tasks.lines[At(communicator.line)].line;
    const AxisMask own = line.axis >= 0 ? 0 : run_.plan.groups[At(line.group)].axes;
    const unsigned free = merged_ & ~unsigned{own};
    const auto is_copy = [&](int64_t member, int64_t rank) {
      const std::vector<int> a = run_.plan.mesh.Coords(member), b = run_.plan.mesh.Coords(rank);
      for (std::size_t axis = 0; axis < a.size(); ++axis) {
        if (a[axis] != b[axis] && (free >> axis & 1) == 0) return false;
      }
      return member != rank;
    };
    const int64_t per_node = cluster_.gpus_per_node;
    for (int32_t i = 0; free != 0 && i < communicator.members; ++i) {
      const int64_t member = whole_.members[At(communicator.first_member + i)];
      const int64_t first = cluster_.NodeOf(member) * per_node;
      const int64_t end = std::min(first + per_node, run_.plan.mesh.ranks());
      for (int64_t rank = first; rank < end; ++rank) {
        if (is_copy(member, rank)) return true;
      }
    }
    return false;
  }

  // Of all ranks, also those that others stand for.
  void AddLoad() {
    std::array<std::vector<double>, kCommAxes.size()>
        through;  // by route, bytes per executed member
    for (std::vector<double>& bytes : through) bytes.assign(whole_.routes.size(), 0.0);
    std::map<const StageTasks*, std::vector<MessageCount>> counts;
    for (const StageTasks& stage : run_.tasks.stages) counts[&stage] = CountMessages(stage);
    for (std::size_t r = 0; r < whole_.ranks.size(); ++r) {
      for (const MessageCount& count : counts.at(all_stages_[r])) {
        const Communicator& communicator =
            whole_.communicators[At(whole_.of[At(2 * count.line + count.receives)][r])];
        const Exchange& exchange =
            whole_.exchanges[At(communicator.first_exchange + count.message)];
        if (exchange.route >= 0)
          through[Index(axes_[At(count.line)])][At(exchange.route)] +=
              count.times * exchange.bytes / communicator.needed;
      }
    }
    for (const CommAxis axis : kCommAxes) {
      std::vector<double>& seconds = load_[Index(axis)];
      seconds.assign(cluster_.links.size(), 0.0);
      for (std::size_t route = 0; route < whole_.link_shares.size(); ++route) {
        const double bytes = through[Index(axis)][route];
        if (bytes <= 0) continue;
        whole_.link_shares[route]->Each([&](const LinkTraffic& use) {
          seconds[At(use.link)] +=
              use.occupied * bytes / cluster_.links[At(use.link)].capacity.value;
        });
      }
    }
  }

  const SimulatedRun& run_;
  const CommunicatorTable& whole_;  // with those that others stand for
  const Cluster& cluster_;
  const AxisMask merged_;                      // replicas that are not executed
  std::vector<CommAxis> axes_;                 // by line
  std::vector<const StageTasks*> stages_;      // by executed rank
  std::vector<const StageTasks*> all_stages_;  // by rank of whole_
  // By axis and link: seconds at full rate that messages keep it busy.
  std::array<std::vector<double>, kCommAxes.size()> load_;
};

}  // namespace

std::vector<std::string> SharedWith(const SharedLink& link) {
  std::vector<std::string> others;
  for (const CommAxis axis : link.shared_with) others.emplace_back(AxisWords(axis));
  if (link.same_axis) others.emplace_back("other groups of the same axis");
  return others;
}

bool MergesReplicas(const ir::Plan& plan, const Cluster& cluster) {
  if (!cluster.spec.slowdown.empty()) return false;
  return plan.mesh.ranks() > kMostUnlike || (SameNeighbours(plan, cluster, &Cluster::NodeOf) &&
                                             SameNeighbours(plan, cluster, &Cluster::DomainOf));
}

int64_t ExecutedRanks(const ir::Mesh& mesh, bool merge_replicas) {
  const AxisMask merged = merge_replicas ? Replicas(mesh) : 0;
  int64_t executed = 1;
  for (std::size_t axis = 0; axis < mesh.plain(); ++axis) {
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
      placed_(Placed(plan, cluster)),
      cluster_(placed_ ? *placed_ : cluster),
      pricer_(prices, plan),
      fixed_(FixedCosts(prices, LayersOf(plan))),
      options_(OnNodes(options, plan, cluster_)) {
  const bool alike = options_.merge_alike && options.backend == net::Backend::kFluid &&
                     options_.perturbation.jitter <= 0;
  // Who is alike shows when all are routed: until then a stage is enough to refuse.
  RefuseHuge(plan, alike ? 1 : ExecutedRanks(plan.mesh, options_.merge_replicas));
  CommunicatorOptions communicators;
  communicators.contention = options.contention;
  communicators.backend = options.backend;
  communicators.keep_links = options.keep_links;
  communicators.log_rates = options.log_rates && options.contention;
  if (options_.merge_replicas) communicators.merged = Replicas(plan.mesh);
  tasks_ = MakeTasks(plan, pricer_);
  communicators_ = MakeCommunicators(plan, tasks_, cluster_, net::WiresOf(cluster_),
                                     pricer_.messages, communicators);
  if (alike) {
    communicators_ =
        MergeAlike(std::move(communicators_), plan, tasks_, options_.perturbation.slowdown,
                   net::WiresOf(cluster_), options.keep_links);
    RefuseHuge(plan, static_cast<int64_t>(communicators_.ranks.size()));
  }
  options_.record &=
      MostOps(plan) * static_cast<double>(communicators_.ranks.size()) <= options.most_recorded;
}

double Simulation::Run() {
  result_ = Execute(plan_, tasks_, &communicators_, options_.perturbation,
                    options_.record ? &timeline_ : nullptr);
  if (options_.record && options_.terms) {
    if (Contended()) RunWithoutContention();
    breakdown_ = BreakdownOfRank(busiest());
  }
  return result_.seconds + fixed_;
}

StepTime Simulation::time() const {
  StepTime time{breakdown()};
  time.total = result_.seconds + fixed_;
  time.low = time.high = std::numeric_limits<double>::quiet_NaN();
  return time;
}

const StageTasks& Simulation::StageOfRank(std::size_t rank) const {
  return tasks_.stages[At(plan_.mesh.Coords(result_.ranks[rank])[At(plan_.mesh.program_axis)])];
}

bool Simulation::Contended() const {
  if (!communicators_.contention) return false;
  for (std::size_t r = 0; r < timeline_.size(); ++r) {
    const std::vector<Task>& tasks = StageOfRank(r).tasks;
    for (std::size_t t = 0; t < tasks.size(); ++t) {
      if (tasks[t].line < 0) continue;
      const Communicator& communicator =
          communicators_
              .communicators[At(communicators_.of[At(2 * tasks[t].line + tasks[t].receives)][r])];
      const Exchange& exchange =
          communicators_.exchanges[At(communicator.first_exchange + tasks[t].message)];
      if (BeyondPrice(exchange, timeline_[r][t]) > 0) return true;
    }
  }
  return false;
}

// The same tasks once more: cheap, since nothing is unfolded or routed again, and no message meets a link.
void Simulation::RunWithoutContention() {
  Reference reference{WithoutContention(communicators_, net::Wires{}), {}, {}};
  reference.result =
      Execute(plan_, tasks_, &reference.communicators, options_.perturbation, &reference.timeline);
  // Rarely a delay makes a step shorter, as it reorders messages: then the step stands as it is.
  if (reference.result.seconds < result_.seconds) reference_ = std::move(reference);
}

Breakdown Simulation::BreakdownOfRank(std::size_t rank) const {
  Breakdown booked;
  if (reference_) {
    const SimulatedRun run{plan_,
                           tasks_,
                           reference_->communicators,
                           reference_->timeline,
                           reference_->result,
                           options_.perturbation};
    booked = BreakdownOf(run, rank, fixed_);
    booked.contention = result_.seconds - reference_->result.seconds;
  } else {
    booked = BreakdownOf(Played(), rank, fixed_);
  }
  const auto clean = [&](double& seconds) {
    if (std::abs(seconds) < kNoise * result_.seconds) seconds = 0;
  };
  for (const BreakdownTerm& term : BreakdownTerms()) clean(booked.*term.seconds);
  for (const CommAxis axis : kCommAxes) clean(booked.*HiddenOf(axis));
  return booked;
}

std::vector<SharedLink> Simulation::SharedLinks() const {
  if (breakdown_.contention <= 0) return {};
  const SimulatedRun run = Played();
  const AxisMask merged = options_.merge_replicas ? Replicas(plan_.mesh) : AxisMask{0};
  return LinkLoad(run, cluster_, merged).Find(breakdown_.contention);
}

}  // namespace orrery::sim
