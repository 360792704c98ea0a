// SPDX-License-Identifier: Apache-2.0
// Variables that a scheduler sets for a job by the directives of its script.
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

#include "model/base/plain_text.h"
#include "model/exchange/command_settings.h"
#include "model/exchange/launch_words.h"
#include "model/exchange/shell_effects.h"

namespace orrery::exchange {
namespace {

struct JobCount {
  int64_t number = 0;
  Location where;
};

void Set(const JobCount& count, std::initializer_list<const char*> names, ShellScript* script) {
  if (count.number < 1) return;
  for (const char* name : names)
    script->variables[name] = {{{std::to_string(count.number), count.where, ""}}, false};
}

}  // namespace

// sbatch(1), OUTPUT ENVIRONMENT VARIABLES. Ranges, and what the options leave to Slurm, stay unknown.
void SetJobVariables(const std::vector<Token>& tokens, const std::vector<Token>& comments,
                     ShellScript* script) {
  ShellScript directives;
  AddComments(tokens, comments, &directives);
  JobCount nodes, tasks, each, gpus;
  const std::map<std::string, JobCount*, std::less<>> options = {{"nodes", &nodes},
                                                                 {"N", &nodes},
                                                                 {"ntasks", &tasks},
                                                                 {"n", &tasks},
                                                                 {"ntasks-per-node", &each}};
  constexpr std::string_view kSlurm = "SBATCH";
  for (const Word& comment : directives.comments) {
    if (!comment.text.starts_with(kSlurm) || !comment.unresolved.empty()) continue;
    for (const Setting& setting : SlurmOptions(DirectiveWords(comment, kSlurm.size()))) {
      const bool list = setting.key == "gres";
      const auto option = options.find(setting.key);
      const std::string text =
          list || setting.key == "gpus-per-node" ? GpusIn(setting.value, list) : setting.value;
      JobCount* const count = list || setting.key == "gpus-per-node" ? &gpus
                              : option == options.end()              ? nullptr
                                                                     : option->second;
      int64_t number = 0;
      if (count != nullptr && ParseInteger(text, &number) == NumberFault::kNone)
        *count = {number, setting.where};
    }
  }
  constexpr int64_t kMost = 1 << 24;
  if (tasks.number == 0 && nodes.number > 0 && nodes.number < kMost && each.number < kMost)
    tasks = {nodes.number * each.number, each.where};
  Set(nodes, {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}, script);
  Set(tasks, {"SLURM_NTASKS", "SLURM_NPROCS"}, script);
  Set(each, {"SLURM_NTASKS_PER_NODE"}, script);
  Set(gpus, {"SLURM_GPUS_ON_NODE"}, script);
}

}  // namespace orrery::exchange
