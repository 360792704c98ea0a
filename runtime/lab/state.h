// SPDX-License-Identifier: Apache-2.0
// What is known of a lab outside its own process: a folder $XDG_RUNTIME_DIR/orrery-lab/NAME (or
// /tmp/orrery-lab-UID/NAME) with state.json, counters, topology, temporary files of its ranks.
//
// Everything else (namespaces, TAP devices) belongs to the keeper, the process that runs the
// switch, and ends with it. Processes of a lab carry ORRERY_LAB=<id> in their environment, so that
// they are found even when the keeper is gone.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/lab/netns.h"
#include "runtime/lab/settings.h"

namespace orrery::lab {

inline constexpr char kTokenVariable[] = "ORRERY_LAB";

struct State {
  Settings settings;
  std::string id;  // of this very lab
  pid_t keeper = 0;
  int64_t keeper_started = 0;   // clock ticks since boot: tells it from a later one of that number
  std::vector<int> namespaces;  // the keeper's descriptors: each node, then the head

  bool Alive() const;
  std::string NamespacePath(int node) const;  // settings.nodes: the head
};

// All labs of this user. Throws LabError when the folder is somebody else's.
std::string LabsFolder();
std::string FolderOf(const std::string& name);
std::string TopologyFile(const Settings& settings);
std::vector<std::string> LabNames();

// While it lives, nobody else of this user changes labs.
class Lock {
 public:
  Lock();
  int descriptor() const { return folder_.get(); }  // a copy holds the lock, too

 private:
  Descriptor folder_;
};

// nullopt: no such lab, or a folder without a readable state (then its id is unknown).
std::optional<State> ReadState(const std::string& name);
void WriteState(const State& state);

int64_t StartOf(pid_t process);    // 0: there is none
double CpuSeconds(pid_t process);  // user and system

// Processes with this lab's id, the keeper's own excepted.
std::vector<pid_t> ProcessesOf(const std::string& id);
// Ends the keeper, all processes of the lab and removes its files. What was ended and removed, as
// text; "" when there was nothing. The caller holds the lock.
std::string Remove(const std::string& name);
void RemoveLabsFolder();  // when it is empty

// `already`: the same lab is up, and stays. Leftovers of a crashed one are removed first. After a
// failure, or SIGINT or SIGTERM meanwhile, nothing is left. Throws LabError; InputError when a
// different lab of that name is up. The caller's process is single-threaded.
State BringUp(const Settings& settings, bool* already);

std::string StatusText(const std::string& name);  // "": all labs of this user

}  // namespace orrery::lab
