// SPDX-License-Identifier: Apache-2.0
// What every program does around its answer: errors, exit codes, programs that stand beside it.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "model/program/common/answer.h"
#include "model/program/common/command_line.h"

namespace orrery::cli {

// Replaces this process by the program `plan-NAME` that stands beside it, if there is one; `words`
// are its arguments. Returns when there is none. Throws InputError when it cannot be started.
void ExecBeside(const std::string& name, const std::vector<std::string>& words);
std::string PathBeside(const std::string& name);  // "" when there is none

// The words of the command that runs, without those of every command.
const std::vector<std::string>& WordsOfCommand();

// A whole command in this process: its answer in `out`, errors in `err`; returns the exit code and throws nothing.
// With `--json` an error is a document of schema orrery.error/1, too: in `out`, or in the file. No program reads standard input.
int Main(std::vector<std::string> words, Answer (*run)(const CommandLine& line), std::string* out,
         std::string* err);
// The same on standard output and standard error.
int Main(std::vector<std::string> words, Answer (*run)(const CommandLine& line));
// What --help prints, with --json as a document of schema orrery.help/1.
Answer HelpAnswer(std::string text, const Flag& json);
// The document of an error, of a command that ends without an answer, where it is on standard error already; out at once. Of several
// ranks one calls it.
void DeliverFailure(const std::string& why, ExitCode code);
// Main() of the program plan-`command`, whose own words follow behind "plan command". Short forms
// ({"-n", "--ranks"}) are written out, up to a "--".
int ProgramMain(const char* command, int argc, char** argv, Answer (*run)(const CommandLine& line),
                std::initializer_list<std::pair<const char*, const char*>> short_forms = {});

}  // namespace orrery::cli
