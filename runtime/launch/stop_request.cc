// SPDX-License-Identifier: Apache-2.0
// Signal handlers that only note.
#include "runtime/launch/stop_request.h"

#include <csignal>
#include <initializer_list>

namespace orrery::launch {
namespace {

volatile std::sig_atomic_t seen = 0, child_process = 0;

void Note(int number) {
  seen = number;
  if (child_process > 0) kill(child_process, SIGUSR1);
}

}  // namespace

void WatchSignals() {
  struct sigaction action {};
  action.sa_handler = Note;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  for (const int number : {SIGTERM, SIGUSR1}) sigaction(number, &action, nullptr);
}

int SignalSeen() { return seen; }

void PassSignalsTo(int child) {
  child_process = child;
  WatchSignals();
}

}  // namespace orrery::launch
