// SPDX-License-Identifier: Apache-2.0
// Starts programs with their output in files.
#include "tests/cli/run_plan.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace orrery {
namespace {

constexpr unsigned kLongest = 120;  // seconds; a run that takes longer hangs

void Redirect(int descriptor, const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(127);
}

Outcome Start(const std::vector<std::string>& words,
              const std::map<std::string, std::string>& environment) {
  const std::string out = ScratchFolder() + "/stdout", err = ScratchFolder() + "/stderr";
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    Redirect(STDOUT_FILENO, out);
    Redirect(STDERR_FILENO, err);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    alarm(kLongest);
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  int status = 0;
  rusage used{};
  wait4(child, &status, 0, &used);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadText(out), ReadText(err),
          static_cast<double>(used.ru_maxrss) / 1024};
}

}  // namespace

std::string ProgramPath(const std::string& name) {
  return std::string(ORRERY_BINARY_DIR) + "/bin/" + name;
}

std::string DataPath(const std::string& name) {
  return std::string(ORRERY_SOURCE_DIR) + "/tests/cli/data/" + name;
}

std::string ScratchFolder() {
  static const struct Folder {
    Folder() : name((std::filesystem::temp_directory_path() / "plan-test-XXXXXX").string()) {
      if (mkdtemp(name.data()) == nullptr) abort();
    }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(name, ignored);
    }
    std::string name;
  } folder;
  return folder.name;
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string Written(const std::string& name) { return ReadText(ScratchFolder() + "/" + name); }

std::vector<std::string> With(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string ReadText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

Outcome RunPlan(const std::vector<std::string>& arguments,
                const std::map<std::string, std::string>& environment) {
  std::vector<std::string> words = {ProgramPath("plan")};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return Start(words, environment);
}

Outcome RunShell(const std::string& line) {
  return Start({"/bin/bash", "-o", "pipefail", "-c", line}, {{"PLAN", ProgramPath("plan")}});
}

std::string Folded(const std::string& text) {
  std::istringstream words(text);
  std::string folded;
  for (std::string word; words >> word;) folded += (folded.empty() ? "" : " ") + word;
  return folded;
}

}  // namespace orrery
