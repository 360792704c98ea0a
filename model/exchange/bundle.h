// SPDX-License-Identifier: Apache-2.0
// The files of an export: what the target reads, the script that starts it on a node, and a launcher's job around it.
//
// Every file carries the program and release it is written for, the command, the prediction with its interval and the
// digest of the plan; what the target cannot be told stands there as a comment. One process group per node: launchers set
// NNODES, NODE_RANK, MASTER_ADDR and MASTER_PORT and start train.sh once per node, or once per GPU with RANK set.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/exchange/model_arguments.h"

namespace orrery::exchange {

struct File {
  std::string name, text;
  bool executable = false;
};

struct Bundle {
  Case layout;
  Target target = kMegatron;
  std::string name;                 // of the job: letters, digits and dashes
  std::vector<std::string> header;  // lines for the top of each file
  std::string digest;               // of the plan; train.sh prints it, so that a log names its plan
  std::string image;                // container; "": the target's
  Export settings;
  ModelExport model;

  const TargetInfo& info() const { return InfoOf(target); }
  // Why the target cannot run the layout at all: a degree that it does not have would make another job of the same files.
  // "": it can.
  std::string Refusal() const;
  // What the target cannot be told, a line each.
  std::vector<std::string> Missing() const;
  // Value of a setting; "": it is not there.
  std::string Get(const std::string& key) const;
  std::string ImageName() const { return image.empty() ? info().image : image; }
};
// Settings and report of a layout for a target.
Bundle MakeBundle(const Case& layout, Target target);

// The target's configuration and train.sh.
std::vector<File> TargetFiles(const Bundle& bundle);

// The program for plain PyTorch builds models of two kinds, like Llama and like GPT-2.
bool TorchHasModel(const ModelSpec& model);

struct Launcher {
  const char* name;
  const char* what;  // one line
  // Around the files of the target; a launcher may put those into its own.
  std::vector<File> (*files)(const Bundle& bundle, const std::vector<File>& files);
  bool picks_machines =
      false;  // whichever the job gets: nothing brings named hosts into the plan's order
};
std::span<const Launcher> Launchers();

// Launchers that write JSON and YAML (aws_batch.cc, kubernetes.cc).
std::vector<File> AwsBatchFiles(const Bundle& bundle, const std::vector<File>& files);
std::vector<File> KubernetesFiles(const Bundle& bundle, const std::vector<File>& files);

// A placement's nodes by place, and places by node: NODE_RANK of node k, which is the k-th host of the job. Empty: nodes
// are in their places.
struct NodePlaces {
  std::vector<int32_t> nodes, places;
  bool any() const { return !nodes.empty(); }
  int32_t first() const { return nodes.empty() ? 0 : nodes.front(); }  // the node of NODE_RANK 0
};
NodePlaces PlacesOf(const Bundle& bundle);
// Bash that stops where the job's hosts, in the array `hosts`, are not those of the plan in its order, told ORRERY_ANY_HOSTS=1
// goes on; "": nodes are in their places, or hosts have no names. `file`: of the messages.
std::string HostsCheck(const Bundle& bundle, const char* file, const std::string& indent = "");
// As the words of a shell's array.
std::string ShellList(const std::vector<int32_t>& numbers);
std::string ShellHosts(const std::vector<std::string>& hosts);

// What --from takes these files for, a name of --framework.
std::string ReadBackAs(const Bundle& bundle);
// Header lines and what is missing as comments that begin with `mark`.
std::string Comments(const Bundle& bundle, const std::string& mark);
// One line of UTF-8 without control characters, in every format: what is none becomes a blank or '?'.
std::string OneLine(std::string_view text);
// A word as a shell takes it.
std::string ShellWord(const std::string& word);

}  // namespace orrery::exchange
