// SPDX-License-Identifier: Apache-2.0
// The command on one node.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/program/launch/launch.h"

namespace orrery::launch {

// What a node that is left gets to know.
struct Assignment {
  int64_t node = 0, nodes = 1;  // among those that are left
  int64_t first_rank = 0, slots = 1, ranks = 1;
  std::string main_address;
  int port = 0;  // free on the main node a moment ago
  std::string hostfile_text;
};
nlohmann::json AssignmentJson(const Assignment& assignment);
Assignment ReadAssignment(const nlohmann::json& json);

class NodeRun {
 public:
  // Nothing is started where this node has no part in the command.
  NodeRun(const Settings& settings, const Assignment& assignment);
  ~NodeRun();  // kills what is left

  // Of the first process that failed, 0 when all ended well; none: they run. A failure, which kStoppedCode is not,
  // stops the others.
  std::optional<int> Poll();
  void Pass(int signal);  // a request to stop, to all and once: they have all the time they need
  void Stop();            // SIGTERM to all, and SIGKILL ten seconds later

 private:
  std::vector<pid_t> children_;
  int code_ = 0, passed_ = 0;  // passed_: signal
  Clock::time_point kill_at_ = Clock::time_point::max();
};

}  // namespace orrery::launch
