// SPDX-License-Identifier: Apache-2.0
// Runs the real program and returns what it wrote.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace orrery {

struct Outcome {
  int code = -1;        // exit code; -1: killed by a signal (a crash, or no answer in time)
  std::string out;      // standard output
  std::string err;      // standard error
  double peak_mib = 0;  // of its memory
};

// `plan` of the build folder with these arguments; `environment` adds to ours.
Outcome RunPlan(const std::vector<std::string>& arguments,
                const std::map<std::string, std::string>& environment = {});
// A shell line in which $PLAN is the program; only its exit code and standard output.
Outcome RunShell(const std::string& line);

std::string ProgramPath(const std::string& name);  // "plan" -> build/bin/plan
std::string DataPath(const std::string& name);     // of a file in tests/cli/data
// An empty folder of this process.
std::string ScratchFolder();
void WriteText(const std::string& path, const std::string& text);
std::string ReadText(const std::string& path);
std::string Written(const std::string& name);  // text of a file in ScratchFolder()
std::vector<std::string> With(std::vector<std::string> words, const std::vector<std::string>& more);
// One space in the place of every run of spaces and line ends: texts are wrapped.
std::string Folded(const std::string& text);

}  // namespace orrery
