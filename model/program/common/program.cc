// SPDX-License-Identifier: Apache-2.0
// From a program's words to its answer and exit code.
#include "model/program/common/program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace orrery::cli {

std::string PathBeside(const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos) return "";
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = (self.parent_path() / ("plan-" + name)).string();
  return !error && access(path.c_str(), X_OK) == 0 ? path : "";
}

void ExecBeside(const std::string& name, const std::vector<std::string>& words) {
  const std::string path = PathBeside(name);
  if (path.empty()) return;
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv(path.c_str(), arguments.data());
  throw InputError(fmt::format("cannot start {}: {}", path, std::strerror(errno)));
}

int Main(std::vector<std::string> words, Answer (*run)(const CommandLine& line)) {
  const CommandLine line(std::move(words));
  try {
    return static_cast<int>(WriteOut(run(line)));
  } catch (const InputError& error) {
    fmt::print(stderr, "{}", Render(error.diagnostics(), ColourOnErrors()));
    return static_cast<int>(ExitCode::kInputError);
  } catch (const std::exception& error) {  // out of memory, a file system that vanishes
    fmt::print(stderr, "plan: {}\n", error.what());
    return static_cast<int>(ExitCode::kFailure);
  }
}

int ProgramMain(const char* command, int argc, char** argv, Answer (*run)(const CommandLine& line),
                std::initializer_list<std::pair<const char*, const char*>> short_forms) {
  std::vector<std::string> words = {"plan", command};
  words.insert(words.end(), argv + std::min(argc, 1), argv + argc);
  const auto own = std::find(words.begin(), words.end(), "--");
  for (const auto& [letter, name] : short_forms)
    std::replace(words.begin(), own, std::string(letter), std::string(name));
  return Main(std::move(words), run);
}

}  // namespace orrery::cli
