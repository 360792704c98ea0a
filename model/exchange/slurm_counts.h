// SPDX-License-Identifier: Apache-2.0
// Nodes, tasks and GPUs of a script's directives, next to what its training command says of them.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "model/exchange/document.h"

namespace orrery::exchange {

struct JobCounts {
  Document* document;
  std::map<std::string, Setting> unknown = {};  // by key, with the reason
  std::size_t of_command = 0;                   // the first settings, which are its launcher's
  bool agents = false;                          // a task starts the ranks of its node
  bool spread = false;                          // srun starts it, as often as the directives say
  bool step = false;                            // srun says on how many nodes

  // A count of the job. Where the command takes fewer, a step on part of the nodes or ranks on part of a node's GPUs, that
  // stays, with a note.
  void Add(const std::string& key, const std::string& value, const Location& where);
  // "4", or a count that is not known here.
  void AddNodes(const std::string& count, const Location& where);
};

// Options of Slurm's directives.
class SlurmCounts {
 public:
  void Take(const Setting& option, JobCounts* counts);
  // After all of them: what follows from several.
  void Count(JobCounts* counts) const;

 private:
  void CountHosts(JobCounts* counts) const;
  void CountTasks(JobCounts* counts) const;
  void CountGpus(JobCounts* counts) const;
  void CheckTasks() const;
  void CheckGpus(const JobCounts& counts) const;
  void TakeTasks(JobCounts* counts) const;

  std::optional<Setting> tasks_;              // on each node: ranks
  std::optional<Setting> hosts_, gpus_;       // of the job: a list, all GPUs
  std::optional<Setting> per_task_;           // GPUs
  std::optional<Setting> nodes_, each_gpus_;  // that directives say: nodes, and GPUs of each
  std::optional<Setting> all_, each_;         // tasks of the job, and on each node if it is one
};

}  // namespace orrery::exchange
