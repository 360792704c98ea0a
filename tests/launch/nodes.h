// SPDX-License-Identifier: Apache-2.0
// A shell script that stands for the nodes of a job: each is a process in the background.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/cli/run_plan.h"

namespace orrery {

// Node I runs `command(I, words)`, with the words of its line; out.I and err.I get what it says, "code I C" comes out. A line
// may be empty (the node is absent) or begin with "sleep S;" (it is late). `environment`: shell lines before all.
inline Outcome RunNodes(
    const std::string& environment, const std::vector<std::string>& lines,
    const std::function<std::string(std::size_t, const std::string&)>& command) {
  std::string script =
      fmt::format("{}\ncd '{}'; rm -f out.* err.* hosts.* *.json\n", environment, ScratchFolder());
  std::string wait;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    std::string before, words = lines[i];
    if (words.starts_with("sleep")) {
      before = words.substr(0, words.find(';') + 1);
      words = words.substr(words.find(';') + 1);
    }
    script += fmt::format("( {} exec {} >out.{} 2>err.{} ) & p{}=$!\n", before, command(i, words),
                          i, i, i);
    wait += fmt::format("wait $p{}; echo code {} $?\n", i, i);
  }
  return RunShell(script + wait);
}

}  // namespace orrery
