// SPDX-License-Identifier: Apache-2.0
// The commands of `plan`: one file each, one row each in the table of commands.cc.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "model/program/common/answer.h"
#include "model/program/common/command_line.h"
#include "model/program/common/flags.h"

namespace orrery::cli {

struct Command {
  const char* name;     // "": the form with flags only
  const char* summary;  // one line
  Answer (*run)(const CommandLine& line,
                std::size_t first);  // null: a program of its own, plan-NAME
  Description (*describe)();
};

std::span<const Command> Commands();
const Command* FindCommand(const std::string& name);  // null: none
std::vector<std::string> CommandNames();

// Answers a command line.
Answer Run(const CommandLine& line);

#define ORRERY_COMMAND(Name)                                    \
  Answer Run##Name(const CommandLine& line, std::size_t first); \
  Description Describe##Name();
ORRERY_COMMAND(Search)
ORRERY_COMMAND(Predict)
ORRERY_COMMAND(Export)
ORRERY_COMMAND(Provision)
ORRERY_COMMAND(Sweep)
ORRERY_COMMAND(Show)
ORRERY_COMMAND(Topo)
ORRERY_COMMAND(Discover)
ORRERY_COMMAND(List)
ORRERY_COMMAND(Open)
ORRERY_COMMAND(Diff)
ORRERY_COMMAND(Completion)
ORRERY_COMMAND(Help)
ORRERY_COMMAND(Version)
#undef ORRERY_COMMAND

}  // namespace orrery::cli
