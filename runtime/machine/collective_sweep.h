// SPDX-License-Identifier: Apache-2.0
// Times the collectives of the communicator among processes of this machine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace orrery::machine {

struct CollectiveTime {
  std::string collective;  // as model/collectives names it
  int64_t ranks = 0, bytes = 0;
  double seconds = 0;  // of one call, mean over calls and ranks, in the fastest pass
  double spread = 0;   // by how much the slowest pass took longer, relative
};

// Three passes of this program's own `all_reduce ...`, started by mpirun. Empty: there is no mpirun.
// Throws std::runtime_error when a pass fails.
std::vector<CollectiveTime> SweepCollectives(int64_t cores,
                                             const std::function<void(const std::string&)>& note);

}  // namespace orrery::machine
