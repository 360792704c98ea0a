// SPDX-License-Identifier: Apache-2.0
// The words in front of a training program: torchrun, mpirun, srun, deepspeed, accelerate, and what they say of the job.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/exchange/hostfile.h"
#include "model/exchange/shell.h"

namespace orrery::exchange {

// "-x", "--xyz"
bool IsOption(const std::string& text);
// "args.json", a file by its name.
bool IsArgumentsFile(const std::string& text);
// A whole number above 0.
bool IsWhole(const std::string& text);

// A count of nodes as it is to be read: what is no number has `unresolved`, with the reason.
Setting CountedNodes(Setting count);

// Words of a scheduler's directive behind its first `front` letters, up to '#'; "-N4" is "-N 4".
Words DirectiveWords(const Word& comment, std::size_t front);

// The whole name of an option of sbatch or srun, behind two dashes (any beginning that is one option's alone) or behind one (its
// first letter). "": they have none.
std::string SlurmOption(std::string_view name, bool dashes);
// "N" and "nodes".
bool SameSlurmOption(std::string_view one, std::string_view other);
// What stands behind an option of srun ("-N", "--nodes"): its value; another word, as it takes none or only one that is
// attached; nobody knows.
enum class OptionTakes { kValue, kNothing, kUnknown };
OptionTakes SrunOptionTakes(const std::string& option);
// Options of a directive by their whole names; those that Slurm does not have, which keep their dashes, also go to `unknown`.
Settings SlurmOptions(const Words& words, Settings* unknown = nullptr);
// The one that is nearly spelt like that; "": none.
std::string SlurmOptionLike(std::string_view name);
// Of qsub, by their letter.
bool IsPbsOption(std::string_view name);

// GPUs that Slurm's options ask for: "8" and "h100:8" of --gpus-per-node, "gpu:h100:8(S:0-1),nvme:1" of --gres (`list`). "":
// none, or no number. `type`, if given, takes "h100".
std::string GpusIn(const std::string& text, bool list, std::string* type = nullptr);
// Throws InputError: of two kinds, which plans do not have on a node.
void CheckOneKind(const Setting& gpus);

// Nodes of LSF's "BSUB -nnodes 4"; "": another directive.
std::string BsubNodes(const Word& comment);

// Its command, whose "train" takes TrainingArguments, as options or in a file.
bool StartsLlamaFactory(const std::string& text);

// Position of the training program in a command; words.size(): there is none.
std::size_t ProgramOf(const Words& words);

struct LaunchSays {
  std::vector<Hostfile> hostfiles;
  // NNODES, GPUS_PER_NODE, WORLD (ranks, where nobody says how many a node has), and Accelerate's own by the keys of its
  // file. Those with `unresolved` are for messages.
  Settings settings;
  bool torch = false;       // torchrun or its like starts the ranks
  bool accelerate = false;  // accelerate does
  bool deepspeed = false;   // its launcher does
  bool all_gpus = false;    // it starts a rank on each GPU that it finds
  bool srun = false;        // srun starts them
  // What it is told: NNODES, TASKS, TASKS_PER_NODE, GPUS_PER_NODE, STEP_GPUS (all), GPUS_PER_TASK. Known numbers alone.
  std::map<std::string, Setting> step = {};
  std::map<std::string, Setting> agents = {};  // NNODES and GPUS_PER_NODE of torchrun
  Settings job = {};                           // options of salloc or sbatch in front of it
  std::optional<Setting> steps = {};           // srun starts it for each of so many nodes
  Settings gpus = {};                          // options of srun that ask for GPUs
  Settings unknown = {};                       // options that srun does not have
  std::optional<Setting> one_node = {};        // torchrun starts one node, by what `said` says
  std::optional<Setting> fills = {};           // processes that mpirun starts slot by slot
  std::optional<Setting> processes = {};       // of mpirun, all
};
LaunchSays LaunchOf(std::span<const Word> words);

}  // namespace orrery::exchange
