// SPDX-License-Identifier: Apache-2.0
// Programs that this process starts, each with a group of processes of its own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace orrery::launch {

struct ChildEnd {
  int code = 0;  // exit code; 128 + number of a signal; 127: could not be started
  bool timed_out = false;
  std::string output;     // of RunChild: standard output, at most 1 MiB
  std::string last_line;  // of RunChild: of standard error
};

// `prepare` runs in the child in front of the program: settings of its environment. Ends with this
// process. Throws InputError: no process can be made.
pid_t StartChild(const std::vector<std::string>& words, const std::function<void()>& prepare);
// None: it still runs.
std::optional<ChildEnd> PollChild(pid_t child);
// To the whole group; a child that has ended is none.
void SignalChild(pid_t child, int number);

// Runs it to its end, or kills it then, with what it has started.
ChildEnd RunChild(const std::vector<std::string>& words,
                  std::chrono::steady_clock::time_point until,
                  const std::function<void()>& prepare);

}  // namespace orrery::launch
