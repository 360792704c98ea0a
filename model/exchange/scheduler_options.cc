// SPDX-License-Identifier: Apache-2.0
// Names of the options of Slurm and PBS, to tell a misspelt one from one that says nothing of the layout.
#include <algorithm>
#include <string_view>
#include <utility>

#include "model/base/edit_distance.h"
#include "model/exchange/command_settings.h"
#include "model/exchange/launch_words.h"

namespace orrery::exchange {
namespace {

// sbatch(1) and srun(1) of Slurm 22.05 to 25.05, those of either.
constexpr std::string_view kSlurmOptions[] = {"account",
                                              "acctg-freq",
                                              "array",
                                              "batch",
                                              "bb",
                                              "bbf",
                                              "bcast",
                                              "bcast-exclude",
                                              "begin",
                                              "chdir",
                                              "cluster-constraint",
                                              "clusters",
                                              "comment",
                                              "compress",
                                              "consolidate-segments",
                                              "constraint",
                                              "container",
                                              "container-id",
                                              "contiguous",
                                              "core-spec",
                                              "cores-per-socket",
                                              "cpu-bind",
                                              "cpu-freq",
                                              "cpus-per-gpu",
                                              "cpus-per-task",
                                              "deadline",
                                              "delay-boot",
                                              "dependency",
                                              "disable-status",
                                              "distribution",
                                              "epilog",
                                              "error",
                                              "exact",
                                              "exclude",
                                              "exclusive",
                                              "export",
                                              "export-file",
                                              "external",
                                              "extra",
                                              "extra-node-info",
                                              "get-user-env",
                                              "gid",
                                              "gpu-bind",
                                              "gpu-freq",
                                              "gpus",
                                              "gpus-per-node",
                                              "gpus-per-socket",
                                              "gpus-per-task",
                                              "gres",
                                              "gres-flags",
                                              "help",
                                              "het-group",
                                              "hint",
                                              "hold",
                                              "ignore-pbs",
                                              "immediate",
                                              "input",
                                              "interactive",
                                              "job-name",
                                              "jobid",
                                              "kill-on-bad-exit",
                                              "kill-on-invalid-dep",
                                              "label",
                                              "licenses",
                                              "mail-type",
                                              "mail-user",
                                              "mcs-label",
                                              "mem",
                                              "mem-bind",
                                              "mem-per-cpu",
                                              "mem-per-gpu",
                                              "mincpus",
                                              "mpi",
                                              "msg-timeout",
                                              "multi-prog",
                                              "network",
                                              "nice",
                                              "no-allocate",
                                              "no-kill",
                                              "no-requeue",
                                              "nodefile",
                                              "nodelist",
                                              "nodes",
                                              "ntasks",
                                              "ntasks-per-core",
                                              "ntasks-per-gpu",
                                              "ntasks-per-node",
                                              "ntasks-per-socket",
                                              "ntasks-per-tres",
                                              "oom-kill-step",
                                              "open-mode",
                                              "output",
                                              "overcommit",
                                              "overlap",
                                              "oversubscribe",
                                              "parsable",
                                              "partition",
                                              "power",
                                              "prefer",
                                              "preserve-env",
                                              "priority",
                                              "profile",
                                              "prolog",
                                              "propagate",
                                              "pty",
                                              "qos",
                                              "quiet",
                                              "quit-on-interrupt",
                                              "reboot",
                                              "relative",
                                              "requeue",
                                              "reservation",
                                              "resv-ports",
                                              "segment",
                                              "send-libs",
                                              "share",
                                              "signal",
                                              "slurmd-debug",
                                              "sockets-per-node",
                                              "spread-job",
                                              "spread-segments",
                                              "stepmgr",
                                              "switches",
                                              "task-epilog",
                                              "task-prolog",
                                              "test-only",
                                              "thread-spec",
                                              "threads",
                                              "threads-per-core",
                                              "time",
                                              "time-min",
                                              "tmp",
                                              "tree-width",
                                              "treewidth",
                                              "tres-bind",
                                              "tres-per-task",
                                              "uid",
                                              "umask",
                                              "unbuffered",
                                              "usage",
                                              "use-min-nodes",
                                              "verbose",
                                              "version",
                                              "wait",
                                              "wait-all-nodes",
                                              "wait-for-children",
                                              "wckey",
                                              "workdir",
                                              "wrap",
                                              "x11"};
// Those of pyxis, which its users take for srun's own (github.com/NVIDIA/pyxis, README.md).
constexpr std::string_view kPyxis[] = {
    "container-entrypoint",    "container-env",          "container-image",
    "container-mount-home",    "container-mounts",       "container-name",
    "container-readonly",      "container-remap-root",   "container-save",
    "container-workdir",       "container-writable",     "no-container-entrypoint",
    "no-container-mount-home", "no-container-remap-root"};
// Of these, none takes the next word: switches, and what takes a value behind '=' alone (srun(1)).
constexpr std::string_view kSrunSwitches[] = {"bcast",
                                              "compress",
                                              "consolidate-segments",
                                              "contiguous",
                                              "disable-status",
                                              "exact",
                                              "exclusive",
                                              "external",
                                              "get-user-env",
                                              "help",
                                              "hold",
                                              "ignore-pbs",
                                              "immediate",
                                              "interactive",
                                              "kill-on-bad-exit",
                                              "label",
                                              "multi-prog",
                                              "nice",
                                              "no-allocate",
                                              "no-kill",
                                              "no-requeue",
                                              "oom-kill-step",
                                              "overcommit",
                                              "overlap",
                                              "oversubscribe",
                                              "parsable",
                                              "preserve-env",
                                              "propagate",
                                              "pty",
                                              "quiet",
                                              "quit-on-interrupt",
                                              "reboot",
                                              "requeue",
                                              "resv-ports",
                                              "send-libs",
                                              "share",
                                              "spread-job",
                                              "spread-segments",
                                              "stepmgr",
                                              "test-only",
                                              "unbuffered",
                                              "usage",
                                              "use-min-nodes",
                                              "verbose",
                                              "version",
                                              "wait-for-children",
                                              "x11",
                                              "container-entrypoint",
                                              "container-mount-home",
                                              "container-readonly",
                                              "container-remap-root",
                                              "container-writable",
                                              "no-container-entrypoint",
                                              "no-container-mount-home",
                                              "no-container-remap-root"};
constexpr std::string_view kSrunSwitchLetters = "EHIKOQRUVXZhklsuv";
constexpr std::string_view kSlurmLetters = "AaBbCcDdEeFGHhIiJKkLlMmNnOopQqrSsTtuVvWwXxZ";
// qsub(1B) of PBS Professional 2022 and Torque 6.
constexpr std::string_view kPbsLetters = "AabCcDdeFfGhIiJjkKLlMmNnoPpqRrSTtuVvWwXxz";

}  // namespace

std::string SlurmOption(std::string_view name, bool dashes) {
  if (!dashes)
    return !name.empty() && kSlurmLetters.find(name[0]) != kSlurmLetters.npos ? std::string(name)
                                                                              : "";
  if (std::ranges::find(kPyxis, name) != std::end(kPyxis)) return std::string(name);
  if (name == "tasks-per-node") return "ntasks-per-node";  // src/common/slurm_opt.c
  // getopt_long(3) takes what only one option begins with.
  std::string found;
  for (const std::string_view option : kSlurmOptions) {
    if (option == name) return std::string(name);
    if (!option.starts_with(name)) continue;
    if (!found.empty()) return "";
    found = option;
  }
  return found;
}

bool SameSlurmOption(std::string_view one, std::string_view other) {
  static constexpr std::pair<std::string_view, std::string_view> kLetters[] = {
      {"N", "nodes"}, {"n", "ntasks"}, {"G", "gpus"}, {"w", "nodelist"}, {"C", "constraint"}};
  const auto whole = [](std::string_view name) {
    const auto row =
        std::ranges::find_if(kLetters, [&](const auto& pair) { return pair.first == name; });
    return row == std::end(kLetters) ? name : row->second;
  };
  return whole(one) == whole(other);
}

OptionTakes SrunOptionTakes(const std::string& option) {
  const bool dashes = option.starts_with("--");
  const std::string name = SlurmOption(std::string_view(option).substr(dashes ? 2 : 1), dashes);
  if (name.empty()) return OptionTakes::kUnknown;
  if (dashes)
    return std::ranges::find(kSrunSwitches, name) != std::end(kSrunSwitches) ? OptionTakes::kNothing
                                                                             : OptionTakes::kValue;
  // Letters in one word: the first that takes a value takes the rest of the word.
  const std::size_t first = name.find_first_not_of(kSrunSwitchLetters);
  return first + 1 == name.size() ? OptionTakes::kValue : OptionTakes::kNothing;
}

Settings SlurmOptions(const Words& words, Settings* unknown) {
  Settings options = OptionsOf(words);
  for (Setting& option : options) {
    const std::string whole = "--" + option.key;
    const bool dashes = std::ranges::any_of(
        words, [&](const Word& word) { return word.text.substr(0, word.text.find('=')) == whole; });
    std::string name = SlurmOption(option.key, dashes);
    if (!name.empty()) {
      option.key = std::move(name);
      continue;
    }
    option.key.insert(0, dashes ? "--" : "-");
    if (unknown != nullptr) unknown->push_back({option.key, "", option.where, ""});
  }
  return options;
}

std::string SlurmOptionLike(std::string_view name) {
  constexpr std::size_t kShortest = 4, kHalfEdits = 4;  // two letters
  if (name.size() < kShortest || name.size() > 40) return "";
  const auto near = std::ranges::find_if(kSlurmOptions, [&](std::string_view option) {
    return HalfEdits(name, option) <= kHalfEdits;
  });
  return near == std::end(kSlurmOptions) ? "" : std::string(*near);
}

bool IsPbsOption(std::string_view name) {
  return !name.empty() && kPbsLetters.find(name[0]) != kPbsLetters.npos;
}

}  // namespace orrery::exchange
