// SPDX-License-Identifier: Apache-2.0
// One thread that waits for signals.
#include "runtime/launch/stop_request.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "model/base/any_file.h"
#include "runtime/launch/mpirun.h"

namespace orrery::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kOneRequest = std::chrono::seconds(3);
constexpr auto kOneKey = std::chrono::milliseconds(500);  // of SIGINT: a key pressed again is meant
constexpr auto kJoinTime = std::chrono::seconds(5);
constexpr auto kStepTime =
    std::chrono::seconds(20);         // without what started it, for the step to end
constexpr long kPause = 200'000'000;  // nanoseconds

std::atomic<int> seen{0}, child_process{0}, joining{0};
std::atomic<int64_t> joining_since{0};  // ticks of Clock
std::atomic<bool> alone{false}, under_way{false};

bool Ignored(int number) {
  struct sigaction now = {};
  return sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

class Watcher {
 public:
  Watcher(std::string speaker, int other, std::function<void()> act)
      : speaker_(std::move(speaker)), other_(other), act_(std::move(act)) {
    sigemptyset(&set_);
    for (const int number : {SIGTERM, SIGUSR1}) sigaddset(&set_, number);
    if (!Ignored(SIGINT)) sigaddset(&set_, SIGINT);
    if (other != 0) sigaddset(&set_, other);
  }
  const sigset_t& set() const { return set_; }

  [[noreturn]] void End(const char* when) const {
    std::fputs(fmt::format("{}: stopped by {} {}\n", speaker_, SignalName(seen), when).c_str(),
               stderr);
    std::_Exit(kStoppedCode);
  }

  [[noreturn]] void Run() {
    for (;;) {
      const timespec pause{0, kPause};
      siginfo_t info{};
      const int number = seen == 0 ? sigwaitinfo(&set_, &info) : sigtimedwait(&set_, &info, &pause);
      if (number == other_ && act_) act_();
      if (number == SIGTERM || number == SIGINT) Take(number);
      // Who passes a request on says which it was.
      const int value = info.si_code == SI_QUEUE ? info.si_value.sival_int : 0;
      if (number == SIGUSR1) RequestStop(value == SIGTERM || value == SIGINT ? value : number);
      if (seen != 0) Follow();
    }
  }

 private:
  void Take(int number) {
    const auto now = Clock::now();
    const bool first = first_ == Clock::time_point();
    if (first) first_ = now;
    if (now - first_ > (number == SIGINT ? Clock::duration(kOneKey) : kOneRequest))
      EndAtOnce(number);
    if (first && number == SIGINT && std::getenv(kSupervised) == nullptr)
      std::fputs(fmt::format("{}: SIGINT: it ends after this step; a second one ends it at once\n",
                             speaker_)
                     .c_str(),
                 stderr);
    RequestStop(number);
  }

  // By the signal itself, as whoever waits for this process expects.
  [[noreturn]] void EndAtOnce(int number) const {
    if (const int child = child_process; child > 0) kill(child, SIGTERM);
    signal(number, SIG_DFL);
    kill(getpid(), number);
    pthread_sigmask(SIG_UNBLOCK, &set_, nullptr);
    for (;;) pause();
  }

  // What a request still waits for.
  void Follow() {
    const auto now = Clock::now();
    if (since_ == Clock::time_point()) since_ = now;
    if (const int child = child_process; child > 0) {
      sigval which{};
      which.sival_int = seen;
      sigqueue(child, SIGUSR1, which);
    }
    const Clock::time_point joins(Clock::duration(joining_since.load()));
    if (joining > 0 && now - since_ > kJoinTime && now - joins > kJoinTime)
      End("while it waited for the others to start; nothing was saved");
    if (alone && !under_way && now - since_ > kStepTime)
      End("and its step did not end; nothing was saved");
  }

  std::string speaker_;
  int other_;
  std::function<void()> act_;
  sigset_t set_{};
  Clock::time_point first_, since_;  // of SIGTERM and SIGINT; of any request
};

}  // namespace

void WatchSignals(const std::string& speaker, int other, std::function<void()> act) {
  auto* watcher =
      new Watcher(speaker, other, std::move(act));  // never freed: its thread has no end
  pthread_sigmask(SIG_BLOCK, &watcher->set(), nullptr);
  std::thread([watcher] { watcher->Run(); }).detach();
  // Nobody may ever write into a pipe that is named as a file, and no step ends meanwhile.
  WhileWaitingForPipes([watcher] {
    if (seen != 0) watcher->End("while it waited for a file; nothing was saved");
  });
}

void RequestStop(int number) {
  if (number == kLauncherGone) alone = true;
  int none = 0;
  seen.compare_exchange_strong(none, number);
  signal(SIGPIPE,
         SIG_IGN);  // who reads may have ended already, and the snapshot is still to be written
}

int SignalSeen() { return seen; }

std::string SignalName(int number) {
  if (number == kLauncherGone) return "the end of what started it";
  if (number == SIGTERM) return "SIGTERM";
  if (number == SIGINT) return "SIGINT";
  // mpirun hands this on whatever came to the run that started it, which puts the name in.
  return std::getenv(kOwnMpirun) != nullptr ? kAnySignal : "SIGUSR1";
}

void PassSignalsTo(int child) { child_process = child; }

void ForgetSignals() {
  for (const int number : {SIGTERM, SIGUSR1, SIGINT, SIGPIPE}) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

WhileJoining::WhileJoining() {
  joining_since = Clock::now().time_since_epoch().count();
  ++joining;
}
WhileJoining::~WhileJoining() { --joining; }

void StopIsUnderWay() { under_way = true; }

}  // namespace orrery::launch
