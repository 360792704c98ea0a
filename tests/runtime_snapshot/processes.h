// SPDX-License-Identifier: Apache-2.0
// Processes of a run.
#pragma once

#include <sys/types.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace orrery {

// Processes of plan-run below another one, the deepest last: those that mpirun or a supervisor has started.
inline std::vector<pid_t> RunsBelow(pid_t parent) {
  std::multimap<pid_t, std::pair<pid_t, std::string>> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    std::ifstream stat(entry.path() / "stat");
    std::string pid, name, state;
    pid_t of = 0;
    if (process > 0 && stat >> pid >> name >> state >> of) children.insert({of, {process, name}});
  }
  std::vector<pid_t> below = {parent}, runs;
  for (std::size_t i = 0; i < below.size(); ++i) {
    const auto [begin, end] = children.equal_range(below[i]);
    for (auto it = begin; it != end; ++it) {
      below.push_back(it->second.first);
      if (it->second.second == "(plan-run)") runs.push_back(it->second.first);
    }
  }
  return runs;
}

}  // namespace orrery
