// SPDX-License-Identifier: Apache-2.0
// Nodes, tasks and GPUs of a script's directives, next to what its training command says of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "model/exchange/document.h"

namespace orrery::exchange {

struct JobCounts {
  Document* document;
  std::map<std::string, Setting> unknown = {};   // by key, with the reason
  std::size_t of_command = 0;                    // the first settings, which are its launcher's
  bool agents = false;                           // a task starts the ranks of its node
  bool spread = false;                           // srun starts it, as often as the directives say
  bool step = false;                             // srun says on how many nodes
  bool srun = false;                             // srun starts it
  bool slurm = false;                            // options of Slurm say the job
  std::map<std::string, Setting> of_srun = {};   // see LaunchSays::step
  std::map<std::string, Setting> of_agent = {};  // see LaunchSays::agents
  std::optional<Setting> one_node = {};          // see LaunchSays
  std::optional<Setting> fills = {};             // see LaunchSays
  std::optional<Setting> ranks = {};             // that mpirun or srun starts, where it is known

  // A count of the job. Where the command takes fewer, a step on part of the nodes or ranks on part of a node's GPUs, that
  // stays, with a note.
  void Add(const std::string& key, const std::string& value, const Location& where);
  // "4", or a count that is not known here.
  void AddNodes(const std::string& count, const Location& where);
  // Ranks that fill so many slots of each node, `by` whose line: fewer than all are on the first nodes.
  void FillSlots(int64_t slots, const Location& by);
  // Throws InputError: a launcher of one node, and a job of several.
  void CheckOneNode() const;
  // WORLD_SIZE, which only torchrun and its like overwrite. Throws InputError: other ranks are started.
  void CheckWorldSize(const std::string& value, const Location& where) const;
};

// The kind of GPUs that an option of Slurm names. Throws InputError: two of them.
void TakeKind(const Setting& option, Document* document);

// Options of Slurm's directives.
class SlurmCounts {
 public:
  void Take(const Setting& option, JobCounts* counts);
  // After all of them: what follows from several.
  void Count(JobCounts* counts);

 private:
  void CountHosts(JobCounts* counts) const;
  void CountTasks(JobCounts* counts) const;
  void CountGpus(JobCounts* counts) const;
  void CheckTasks() const;
  void CheckGpus(const JobCounts& counts) const;
  void FillSlots(JobCounts* counts) const;
  void TakeStep(JobCounts* counts) const;

  // Tasks of srun on each node that it takes.
  struct Step {
    int64_t nodes = 0, each = 0;       // 0: not known
    const Setting* by = nullptr;       // that says how many tasks; null: nobody, one is a default
    const Setting* ignored = nullptr;  // --ntasks-per-node next to the job's tasks
  };
  Step StepOf(const JobCounts& counts) const;
  static void TakeAgents(const Step& step, JobCounts* counts);
  static void TakeRanks(const Step& step, JobCounts* counts);
  // GPUs of a node that srun asks for, at most those of the job.
  std::optional<Setting> GpusOfStep(const Step& step, const JobCounts& counts) const;

  std::optional<Setting> tasks_;              // on each node: ranks
  std::optional<Setting> hosts_, gpus_;       // of the job: a list, all GPUs
  std::optional<Setting> per_task_;           // GPUs
  std::optional<Setting> per_gpu_;            // tasks
  std::optional<Setting> nodes_, each_gpus_;  // that directives say: nodes, and GPUs of each
  std::optional<Setting> all_, each_;         // tasks of the job, and on each node if it is one
};

}  // namespace orrery::exchange
