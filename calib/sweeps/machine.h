// SPDX-License-Identifier: Apache-2.0
// Sweeps by machine and group, fitted; and what the model says of a machine without them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calib/sweeps/curve_fit.h"
#include "calib/sweeps/node_form.h"
#include "calib/sweeps/sweep.h"
#include "model/hardware/spec.h"

namespace orrery {

// Topologies of the machines in a set of sweeps: one for all, or by a part of the machine's text
// (given as "TEXT=NAME"; the longest that fits).
class MachineTopologies {
 public:
  // Names of the catalogue or files. Throws InputError.
  explicit MachineTopologies(const std::vector<std::string>& texts);
  const TopologySpec* Find(const std::string& machine) const;  // null: not said

 private:
  std::map<std::string, TopologySpec> by_text_;  // "" for all
};

// The algorithm that a sweep ran: as it says, else the closed form's on that topology, else by
// what is known of the chips in its text. "": cannot be told.
std::string AlgorithmOf(const MeasuredRuns& sweep, const TopologySpec* topology);

// Why the sweep cannot be of this topology: it names another GPU, or ran on more ranks of a node. "": nothing
// contradicts it.
std::string OtherMachine(const MeasuredRuns& sweep, const TopologySpec& topology);

// Rings among the ranks of one node: of the topology's mesh, else 1; 0: none.
int RingsOf(const TopologySpec* topology, int ranks);

// Seconds that the closed form says, from class constants alone. Absent: no topology, more ranks
// than it holds, or a collective that the model does not have.
std::optional<double> ModelTime(const MeasuredRuns& sweep, const TopologySpec* topology,
                                double bytes);

// Pipelining loss of chains over that of all-reduces, by the profiles of the topology; without one, of
// InfiniBand between nodes and of A100 inside one.
double ChainPipelining(const TopologySpec* topology, int nodes);

// What is expected of a sweep before it is measured: the closed form where there is a topology,
// else GenericPrior with the line rate that the machine's text prints ("8x400Gbps").
CurvePrior PriorOf(const MeasuredRuns& sweep, const TopologySpec* topology);

// Of one node, bytes per second; 0: the text says none.
double LineRateIn(const std::string& text);

struct FittedGroup {
  MeasuredRuns runs;  // all sweeps of the group, pooled
  CurveFit fit;
  int protocols = 0;
  std::vector<double> left_out;  // ln(predicted / measured) by point; empty: too few points
};

struct FittedMachine {
  std::string machine;
  const TopologySpec* topology = nullptr;
  std::vector<FittedGroup> groups;
  std::vector<NodeSweep> node_sweeps;  // all-reduce rings of one node
  std::optional<NodeFormFit> node_form;
  std::vector<std::string> notes;  // what could not be fitted, and why
};

// One entry per machine, in order of appearance. The topologies must outlive the answer.
std::vector<FittedMachine> FitMachines(const std::vector<MeasuredRuns>& sweeps,
                                       const MachineTopologies& topologies);
std::vector<FittedMachine> FitMachines(const std::vector<MeasuredRuns>& sweeps,
                                       const MachineTopologies&& topologies) = delete;

// "ring": what every sweep ran that does not say it; "p4d=ring": those on machines with "p4d" in their name.
void NameAlgorithm(const std::string& text, std::vector<MeasuredRuns>* sweeps);

// Sweeps of one machine, collective, algorithm, ranks and nodes as one. Unknown ranks stay apart.
std::vector<MeasuredRuns> PoolSweeps(const std::vector<MeasuredRuns>& sweeps);

}  // namespace orrery
