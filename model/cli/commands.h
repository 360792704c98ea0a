// SPDX-License-Identifier: Apache-2.0
// The commands of `plan`: one file each, one row each in the table of commands.cc.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/cli/answer.h"
#include "model/cli/command_line.h"
#include "model/cli/flags.h"

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

// Replaces this process by the program `plan-NAME` that stands beside it, if there is one; `words`
// are its arguments. Returns when there is none. Throws InputError when it cannot be started.
void ExecBeside(const std::string& name, const std::vector<std::string>& words);
std::string PathBeside(const std::string& name);  // "" when there is none

// Answers a command line.
Answer Run(const CommandLine& line);
// Run() with errors on standard error and the answer on standard output. The exit code.
int Main(std::vector<std::string> words, Answer (*run)(const CommandLine& line) = Run);
// Main() of the program plan-`command`, whose own words follow behind "plan command". Short forms
// ({"-n", "--ranks"}) are written out, up to a "--".
int ProgramMain(const char* command, int argc, char** argv, Answer (*run)(const CommandLine& line),
                std::initializer_list<std::pair<const char*, const char*>> short_forms = {});

#define ORRERY_COMMAND(Name)                                    \
  Answer Run##Name(const CommandLine& line, std::size_t first); \
  Description Describe##Name();
ORRERY_COMMAND(Search)
ORRERY_COMMAND(Predict)
ORRERY_COMMAND(Show)
ORRERY_COMMAND(Topo)
ORRERY_COMMAND(List)
ORRERY_COMMAND(Completion)
ORRERY_COMMAND(Help)
ORRERY_COMMAND(Version)
#undef ORRERY_COMMAND
Description DescribeSimulate();   // plan-simulate runs it
Description DescribeRun();        // plan-run runs it
Description DescribeLab();        // plan-lab runs it
Description DescribeBench();      // plan-bench runs it
Description DescribeValidate();   // plan-validate runs it
Description DescribeCalibrate();  // plan-calibrate runs it
Description DescribeCompare();    // plan-compare runs it

}  // namespace orrery::cli
