// SPDX-License-Identifier: Apache-2.0
// Starting ranks with mpirun.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/launch/hostfile.h"

namespace orrery::launch {

// The path of a program as a shell finds it; "": there is none.
std::string FindProgram(const std::string& name);
std::string FindMpirun();  // likewise

// Set for ranks of RunMpirun: a request reaches them by way of it, so that its end is a failure.
inline constexpr const char* kOwnMpirun = "ORRERY_OWN_MPIRUN";
// Names a file for their rank 0, which says there how it has ended on request: mpirun, when it is asked to stop itself, hands on
// none of that and ends with 1.
inline constexpr const char* kEndNote = "ORRERY_END_NOTE";
void WriteEndNote(const std::string& text);  // where the variable is set
// Names a file for whoever knows why ranks have failed: "rank 3 on n1: ended by signal 9 (Killed)". The first that says so counts.
inline constexpr const char* kCauseFile = "ORRERY_CAUSE_FILE";
void WriteCause(const std::string& text);  // where the variable is set
// How the cause begins where mpirun has started no rank: it does not reach a host, as the rest says.
inline constexpr const char* kNoDaemons = "mpirun cannot start its daemons on all hosts";
// Set for the run of a supervisor, which passes requests on.
inline constexpr const char* kSupervised = "ORRERY_SUPERVISED";
// How such a rank names a request: which signal it was, RunMpirun knows and says.
inline constexpr const char* kAnySignal = "a signal to stop";

// Where ranks are started.
struct RankHosts {
  std::string hostfile;           // slots are filled in its order; empty: here
  std::vector<HostSlots> placed;  // instead: as many ranks on each, in this order
};

// The command line for it. Variables that begin with NCCL_, ORRERY_ or MASTER_ go with it (-x), for
// ranks on other machines.
std::vector<std::string> MpirunWords(const std::string& mpirun, int64_t ranks,
                                     const std::vector<std::string>& words,
                                     const RankHosts& hosts = {});

// Runs `words` (program first) on `ranks` processes and waits for them. What they
// write to standard output passes through; of their error output only what they say themselves, or
// one message when a rank was killed, spoken by `speaker`. Requests to stop (stop_request.h) go to the ranks. The
// exit code: theirs where it is 0 to 4 or kStoppedCode, else 1; kStoppedCode, too, where a request came while they started, or to mpirun
// itself and they have ended in order. `why`: what was said of a failure; may be null.
int RunMpirun(const std::string& mpirun, int64_t ranks, const std::vector<std::string>& words,
              const std::string& speaker = "plan run", const RankHosts& hosts = {},
              std::string* why = nullptr);
std::string OwnProgram();  // the path of this process's program, to start it again

}  // namespace orrery::launch
