// SPDX-License-Identifier: Apache-2.0
// The table of launchers: which variables of the environment say who a process is.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace orrery::launch {

// How its processes, which are the ranks, find each other.
enum class Meets {
  kMpi,        // by MPI
  kTcp,        // over TCP
  kTcpSecret,  // over TCP if there is a secret; without one each process is started by hand
  kNode,       // not at all: it counts machines, on which something else starts ranks
};

struct LauncherRow {
  const char* name;
  Meets meets;
  const char* index;                  // variable: this process, from 0
  const char* size;                   // how many
  const char* local_index = nullptr;  // on this machine
  const char* local_size = nullptr;
  const char* first = nullptr;       // the index that is rank 0, where it need not be 0
  const char* address = nullptr;     // of rank 0; not set there by all
  const char* port = "MASTER_PORT";  // likewise
  const char* hosts = nullptr;       // names, as "node[0-3,7]": the first is rank 0's
  const char* job = nullptr;  // names the job: its port is made of this where there is no other
  // Of machines, where a process per machine is not the rule:
  const char* node_index = nullptr;  // this machine, from 0
  const char* nodes = nullptr;       // how many
  const char* slots = nullptr;       // ranks that this machine has room for
  const char* hosts_file = nullptr;  // variable with the path of a list of names; repeated per slot
  const char* node_name = nullptr;   // this machine's name as the launcher has it
};

// In the order in which they are asked: what runs inside comes before what it runs in.
std::span<const LauncherRow> Launchers();

// The first row that meets over TCP and whose variables count more than one process; null: none.
const LauncherRow* FindTcpLauncher();

// The value of a variable, "" where it is not set or the name is null; as a number, -1 likewise.
std::string Variable(const char* name);
int64_t NumberOf(const char* name);
// Of a variable that says where this process stands, and holds no number: "NODE_RANK is 'abc'"; "": there is none.
std::string UnreadPlace();

// Hosts that its list names, and it counts another number of machines: "SLURM_STEP_NUM_NODES is 3, and SLURM_STEP_NODELIST
// names 4: n1, n2, n3, n4"; "": they agree, or one of them is not set.
std::string CountsApart(const LauncherRow& row, const std::vector<std::string>& hosts);
// The first of them: "n1, n2 and 30 more".
std::string NamedHosts(const std::vector<std::string>& hosts);

// The port that a variable names, the next one where torchrun's agent keeps that for itself; nullopt: it is not set. Throws
// InputError: no number of a port.
std::optional<int> PortIn(const char* name);
// Of a job whose launcher names no port: the same on all its nodes, 20000 to 39999.
int PortOfJob(const std::string& job);

}  // namespace orrery::launch
