// SPDX-License-Identifier: Apache-2.0
// Programs inside a lab: one on one node, or ranks on all nodes with OpenMPI's mpirun.
#pragma once

#include <string>
#include <vector>

#include "runtime/lab/state.h"

namespace orrery::lab {

// The words of mpirun for `ranks` ranks of `command`, spread over the nodes in blocks.
std::vector<std::string> MpirunWords(const State& state, int64_t ranks, const std::string& agent,
                                     const std::vector<std::string>& command);

// Both replace this process, and return only by throwing LabError. `self`: the path of plan-lab.
[[noreturn]] void ExecOnNode(const State& state, int node, const std::vector<std::string>& command);
[[noreturn]] void ExecRanks(const State& state, int64_t ranks, const std::string& self,
                            const std::vector<std::string>& command);
// ExecRanks() in a child process; the exit code of its mpirun. Ranks whose network is gone wait for ever: when the
// lab's switch ends first, all processes of the lab are ended and LabError says so.
int RunRanks(const State& state, int64_t ranks, const std::string& self,
             const std::vector<std::string>& command);

}  // namespace orrery::lab
