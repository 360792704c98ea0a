// SPDX-License-Identifier: Apache-2.0
// `plan run` as a process of its own.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/run_plan.h"
#include "tests/runtime_data/testing.h"

namespace orrery::snapshot {

inline void Sleep(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

inline std::vector<std::string> Words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// `plan run` in the background, what it says in a file.
class Job {
  using Clock = std::chrono::steady_clock;

 public:
  Job(const train::Folder& folder, const std::string& arguments, const std::string& storage = "")
      : output_(folder / "output") {
    train::WriteBytes(output_, "");
    std::vector<std::string> words = Words(arguments);
    words.insert(words.begin(), ProgramPath("plan-run"));
    child_ = fork();
    if (child_ != 0) return;
    signal(SIGINT, SIG_DFL);  // tests may run where it is ignored
    const int file = open(output_.c_str(), O_WRONLY | O_APPEND);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    if (!storage.empty()) {
      setenv("ORRERY_TEST_STORAGE", storage.c_str(), 1);
      setenv("LD_PRELOAD", ORRERY_SLOW_STORAGE, 1);
    }
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  ~Job() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

  pid_t child() const { return child_; }
  std::string output() const { return ReadText(output_); }
  bool Says(const std::string& text, int from = 0) const {
    return output().find(text, static_cast<std::size_t>(from)) != std::string::npos;
  }
  bool Await(const std::string& text, std::size_t from = 0) {
    const auto until = Clock::now() + std::chrono::seconds(60);
    while (Clock::now() < until && child_ > 0) {
      if (output().find(text, from) != std::string::npos) return true;
      siginfo_t ended{};
      waitid(P_PID, static_cast<id_t>(child_), &ended, WEXITED | WNOHANG | WNOWAIT);
      if (ended.si_pid == child_) return output().find(text, from) != std::string::npos;
      Sleep(2);
    }
    return false;
  }
  // Its exit code; -1: a signal, or no end within two minutes.
  int End() {
    int status = 0;
    const auto until = Clock::now() + std::chrono::seconds(120);
    while (waitpid(child_, &status, WNOHANG) == 0) {
      if (Clock::now() > until) return -1;
      Sleep(5);
    }
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  std::string output_;
  pid_t child_ = -1;
};

}  // namespace orrery::snapshot
