// SPDX-License-Identifier: Apache-2.0
// The table of launchers: which variables of the environment say who a process is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace orrery::launch {

// One per process of a run, or one per node of a job.
enum class Counts { kRanks, kNodes };

struct LauncherRow {
  const char* name;
  Counts counts;
  bool mpi;                           // its processes are MPI's ranks
  const char* index;                  // variable: this process, from 0
  const char* size;                   // how many; null: from `hosts`, or nobody says
  const char* local_index = nullptr;  // on this machine
  const char* local_size = nullptr;
  const char* address = nullptr;  // of the first
  const char* port = nullptr;
  const char* hosts = nullptr;      // names, as "node[0-3,7]"
  const char* host_file = nullptr;  // path of a file of names
};

// In the order in which they are asked: what runs inside comes before what it runs in.
std::span<const LauncherRow> Launchers();

// The first row of this kind whose variables are set, and which counts more than one process where
// it says so; null: none.
const LauncherRow* FindLauncher(Counts counts);

// The value of a variable, "" where it is not set or the name is null; as a number, -1 likewise.
std::string Variable(const char* name);
int64_t NumberOf(const char* name);

// The names in Slurm's short form ("gpu[08-10,12],login"), at most `most`. Empty where it is none.
std::vector<std::string> ExpandHosts(const std::string& text, std::size_t most = 65536);

// Of a job whose launcher names no port: the same on all its nodes, 20000 to 39999.
int PortOfJob(const std::string& job);

}  // namespace orrery::launch
