// SPDX-License-Identifier: Apache-2.0
// One step of a plan on a cluster, set up, played and booked: the one way into this engine.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "model/engine/event/parts.h"
#include "model/engine/event/step_breakdown.h"
#include "model/price/pricer.h"

namespace orrery::sim {

struct SimulationOptions {
  bool contention = true;  // false: every message takes its price
  bool merge_replicas =
      true;  // ranks along data axes do the same at the same time: execute the first
  // Of ranks that do the same at the same time, also where some are perturbed, execute one (alike.h): the same dates to
  // rounding. Wants the fluid network and neither jitter nor log_rates.
  bool merge_alike = false;
  bool keep_links = false;  // for links()
  bool log_rates = false;   // for traces
  bool record = true;       // when each task ran: breakdown() and whatever reads the timeline
  bool terms =
      true;  // of what is recorded: breakdown(), which takes a second run where messages contend
  double most_recorded = std::numeric_limits<
      double>::infinity();  // ops of executed ranks: nothing is recorded of more
  net::Backend backend = net::Backend::kFluid;
  Perturbation perturbation;
};

// What messages of an axis that wait for a link cost the step.
struct SharedLink {
  CommAxis axis = CommAxis::kTensor;
  double seconds = 0;  // of Breakdown::contention
  std::string link;    // of their routes the fullest: "n0.nic1 -> leaf2"; "": not known
  std::vector<CommAxis> shared_with;  // other axes whose traffic is on that link, too
  bool same_axis = false;             // other groups of its own axis are
};
// "transfers between stages", "other groups of the same axis". Empty: its group has the link to itself, and more of its
// own traffic crosses it than its price assumes.
std::vector<std::string> SharedWith(const SharedLink& link);

// Plan, cluster and profiles must outlive it.
class Simulation {
 public:
  // Nodes are those of `cluster` in the order of the plan; slow ones slow their ranks, and replicas are then executed one by
  // one. Throws InputError: too many ops, nodes that the cluster does not have; NoRoute: see MakeCommunicators().
  Simulation(const ir::Plan& plan, const Cluster& cluster, const CostSetting& prices,
             const SimulationOptions& options);

  // Seconds of the step, fixed costs included; with options.record also its breakdown. Throws InputError: see
  // Execute(). Once.
  double Run();

  const StepResult& result() const { return result_; }
  bool recorded() const { return options_.record; }
  const Pricer& pricer() const { return pricer_; }
  double fixed() const { return fixed_; }  // seconds outside of the plan
  const PlanTasks& tasks() const { return tasks_; }
  const CommunicatorTable& communicators() const { return communicators_; }
  const Timeline& timeline() const { return timeline_; }
  const ir::Plan& plan() const { return plan_; }
  // Tasks of an executed rank, index into result().ranks.
  const StageTasks& StageOfRank(std::size_t rank) const;
  // The same step with every message at its price, where the terms are read from it: null, the step itself.
  const Timeline* reference_timeline() const {
    return reference_ ? &reference_->timeline : nullptr;
  }
  double reference_seconds() const { return (reference_ ? reference_->result : result_).seconds; }
  std::size_t busiest() const { return BusiestRank(Played()); }
  StepTime time() const;  // with breakdown(), without interval
  // Of the rank that computes longest. Contention is what the step takes longer than one in which every message takes
  // its price: who waits for whom is then part of it, on whatever rank.
  const Breakdown& breakdown() const { return breakdown_; }
  // Of another executed rank, index into result().ranks.
  Breakdown BreakdownOfRank(std::size_t rank) const;
  // Where contention arises, most first: messages of the critical path that take longer than their price. The seconds
  // add up to the term. Wants keep_links.
  std::vector<SharedLink> SharedLinks() const;

 private:
  SimulatedRun Played() const {
    return {plan_, tasks_, communicators_, timeline_, result_, options_.perturbation};
  }

  bool Contended() const;
  void RunWithoutContention();

  // The same step with every message at its price.
  struct Reference {
    CommunicatorTable communicators;
    Timeline timeline;
    StepResult result;
  };

  const ir::Plan& plan_;
  const std::optional<Cluster> placed_;  // where the plan orders the nodes
  const Cluster& cluster_;
  const Pricer pricer_;
  const double fixed_;
  SimulationOptions options_;
  PlanTasks tasks_;
  CommunicatorTable communicators_;
  Timeline timeline_;
  StepResult result_;
  std::optional<Reference> reference_;  // where it is shorter
  Breakdown breakdown_;
};

// Whether the first replica can stand for all: no node is slow, and replicas lie on all nodes in the same way; or there are
// too many ranks to tell them apart.
bool MergesReplicas(const ir::Plan& plan, const Cluster& cluster);
// Ranks that are executed.
int64_t ExecutedRanks(const ir::Mesh& mesh, bool merge_replicas);
// Ops of one rank's step, of the stage with most.
double MostOps(const ir::Plan& plan);

}  // namespace orrery::sim
