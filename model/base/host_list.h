// SPDX-License-Identifier: Apache-2.0
// Lists of hosts as Slurm writes them, and the lines of hostfiles.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

// The names in Slurm's short form ("gpu[08-10,12],login"), at most `most`. Empty where it is none: then `why`, if given, says
// so ("the '[' of 'gpu[08' is never closed").
std::vector<std::string> ExpandHosts(const std::string& text, std::size_t most = 65536,
                                     std::string* why = nullptr);

// A line of a hostfile: "node[0-3] slots=8" of Open MPI and DeepSpeed, "node0:8" of MPICH.
struct HostLine {
  std::string hosts;  // for ExpandHosts()
  std::string slots;  // as it stands there; "": not said
  int line = 0;
};
// Without comments and empty lines.
std::vector<HostLine> HostLinesOf(std::string_view text);

}  // namespace orrery
