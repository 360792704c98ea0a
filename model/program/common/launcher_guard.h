// SPDX-License-Identifier: Apache-2.0
// Ranks end when what started them is killed: mpirun cannot tell them then.
#pragma once

#include <string>

namespace orrery::cli {

// Under mpirun or mpiexec: from here on this process ends with exit code 1 and a message, spoken by `speaker`, as soon as the
// one that started it is gone. Elsewhere, and a second time, does nothing. Uses the signal SIGRTMIN + 7.
void EndWithLauncher(const std::string& speaker);

// For programs that take the signal themselves: its number; whether the launcher is gone (false where there is none); the end
// that EndWithLauncher gives a process.
int LauncherSignal();
bool LauncherIsGone();
[[noreturn]] void EndAlone();

// From here on requests to stop (SIGTERM, SIGUSR1, SIGINT) wait until the program takes them: before they do what a signal does to
// whoever has not said otherwise, and the libraries of MPI alone load for a third of a second. First thing in main, and in
// front of exec, which keeps them waiting.
void HoldStopRequests();
// `plan COMMAND`: those that take requests to stop.
bool TakesStopRequests(const std::string& command);

}  // namespace orrery::cli
