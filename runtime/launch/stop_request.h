// SPDX-License-Identifier: Apache-2.0
// Requests that end a run after its current step, and the exit codes of runs that ended so.
#pragma once

namespace orrery::launch {

// Of a run that was asked to end: a snapshot is there (with --save), start it again.
inline constexpr int kStoppedCode = 85;
// Of a rank that ended because another one failed; that one says why.
inline constexpr int kPeerFailedCode = 86;

// From now on the first SIGTERM or SIGUSR1 is noted, and a second one ends the process as ever.
void WatchSignals();
int SignalSeen();  // its number; 0: none
// As WatchSignals(), and passes what comes on to `child` (0: nobody) as SIGUSR1, which mpirun hands to
// its ranks.
void PassSignalsTo(int child);

}  // namespace orrery::launch
