// SPDX-License-Identifier: Apache-2.0
// Requests that end a run after its current step, and the exit codes of runs that ended so.
//
// A thread of its own takes the signals; all other threads block them. So no handler runs on the stack of
// a thread that computes: oneDNN's products keep their stack pointer in a buffer of the heap, where the
// frame of a handler would overwrite numbers.
#pragma once

#include <functional>
#include <string>

namespace orrery::launch {

// Of a run that was asked to end: a snapshot is there (with --save), start it again.
inline constexpr int kStoppedCode = 85;
// Of a rank that ended because another one failed; that one says why.
inline constexpr int kPeerFailedCode = 86;
// SignalSeen() of a process that outlives what started it; no signal has this number.
inline constexpr int kLauncherGone = 1001;

// From now on SIGTERM, SIGUSR1 and SIGINT (unless it is ignored, as in a script's background) are noted.
// One request may come as several signals (`timeout` and its process group both deliver one): within three
// seconds they count once, SIGUSR1 at any time; a SIGTERM after that, or a SIGINT after half a second, ends
// the process as ever. Once, before other threads: they inherit what it blocks. `speaker` is named where
// the process is ended: "plan run". The thread also runs `act` for the signal `other`. Throws
// std::system_error: no thread.
void WatchSignals(const std::string& speaker, int other = 0, std::function<void()> act = {});
void RequestStop(int number);        // by this process itself
int SignalSeen();                    // its number; 0: none
std::string SignalName(int number);  // "SIGTERM"

// Requests go on to `child` (0: nobody) as SIGUSR1, which mpirun hands to its ranks: several times a second
// until it ends, for one that is only starting loses signals. Its value is the number of the signal that came.
void PassSignalsTo(int child);
// In a child before exec: signals do what they do by default.
void ForgetSignals();

// While ranks wait for each other they see no request, and those that it has ended never come: a
// request ends the process with kStoppedCode when this object lives five seconds longer.
class WhileJoining {
 public:
  WhileJoining();
  ~WhileJoining();
  WhileJoining(const WhileJoining&) = delete;
  WhileJoining& operator=(const WhileJoining&) = delete;
};
// All ranks have agreed to stop: no time limit any more.
void StopIsUnderWay();

}  // namespace orrery::launch
