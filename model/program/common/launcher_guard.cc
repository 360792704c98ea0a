// SPDX-License-Identifier: Apache-2.0
// The kernel's signal on the death of a parent.
#include "model/program/common/launcher_guard.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace orrery::cli {
namespace {

constexpr int kFailed = 1;
pid_t launcher = 0;
std::string* message = nullptr;  // never freed: the handler reads it

// The signal comes when the thread of the launcher ends that started this process, too.
void EndIfAlone(int /*signal*/) {
  if (LauncherIsGone()) EndAlone();
}

}  // namespace

int LauncherSignal() { return SIGRTMIN + 7; }

bool LauncherIsGone() { return message != nullptr && getppid() != launcher; }

bool TakesStopRequests(const std::string& command) {
  return command == "run" || command == "launch";
}

void HoldStopRequests() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGUSR1}) sigaddset(&set, number);
  struct sigaction keys = {};
  sigaction(SIGINT, nullptr, &keys);
  if (keys.sa_handler != SIG_IGN) sigaddset(&set, SIGINT);  // a job in the background of a script
  sigprocmask(SIG_BLOCK, &set, nullptr);
}

void EndAlone() {
  // Most often standard error was a pipe to the launcher.
  signal(SIGPIPE, SIG_IGN);
  const ssize_t ignored = write(STDERR_FILENO, message->data(), message->size());
  static_cast<void>(ignored);
  _exit(kFailed);
}

void EndWithLauncher(const std::string& speaker) {
  const char* rank = nullptr;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    if (rank == nullptr) rank = std::getenv(name);
  }
  if (rank == nullptr || message != nullptr) return;
  launcher = getppid();
  message = new std::string(
      fmt::format("{}: error: what started rank {} (process {}) has ended, so it ends, too\n",
                  speaker, rank, launcher));
  const int number = LauncherSignal();
  struct sigaction action = {};
  action.sa_handler = EndIfAlone;
  action.sa_flags = SA_RESTART;
  sigaction(number, &action, nullptr);
  prctl(PR_SET_PDEATHSIG, number);
  EndIfAlone(number);  // it may have ended meanwhile
}

}  // namespace orrery::cli
