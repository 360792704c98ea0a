// SPDX-License-Identifier: Apache-2.0
// A child process per attempt.
#include "runtime/program/run/supervise.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>

#include "model/program/common/terminal.h"
#include "model/program/common/wait_flags.h"
#include "runtime/launch/hostfile.h"
#include "runtime/launch/mpirun.h"
#include "runtime/launch/remote.h"
#include "runtime/launch/stop_request.h"
#include "runtime/program/run/hosts.h"
#include "runtime/program/run/lives.h"
#include "runtime/train/snapshot/files.h"

namespace orrery::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kFirstWord = 2;  // plan run
constexpr auto kLook = std::chrono::milliseconds(20);
constexpr auto kFirstPause = std::chrono::milliseconds(100);  // before a restart; doubles
constexpr auto kLongestPause = std::chrono::seconds(30);
constexpr auto kBetweenCalls = std::chrono::milliseconds(500);

void Say(const std::string& text) {
  fmt::print(stderr, "plan run: supervisor: {}\n", text);
  std::fflush(stderr);
}

// What became of a child.
struct End {
  bool exited = false;
  int code = 0;  // exit code, or signal
  std::string Why() const {
    if (exited) return fmt::format("exit code {}", code);
    return fmt::format("signal {} ({})", code, strsignal(code));
  }
};

class Supervisor {
 public:
  Supervisor(const RunFlags& flags, const RunJob& job, const CommandLine& line)
      : job_(job),
        words_(line.words().begin() + kFirstWord, line.words().end()),
        json_(flags.json),
        lives_(job, job.save, flags.json.given) {
    Diagnostics diagnostics;
    most_ = ReadInteger(flags.max_restarts, 0, 1'000'000, &diagnostics).value_or(3);
    diagnostics.ThrowIfAny();
    if (flags.host_test.given) test_ = flags.host_test.text;
    if (const auto wait = ReadWait(flags.host_wait, &diagnostics, true)) wait_s_ = *wait;
    diagnostics.ThrowIfAny();
    if (!job.hostfile.empty() && job.comm == Comm::kMpi) watch_.emplace(test_, LimitOf(job));
    for (const FlagInfo& info : flags.set.Describe().flags) {
      if (info.group.starts_with("The layout")) layout_.push_back(info);
    }
  }

  Answer Answered() {
    const ExitCode code = Run();
    if (!lives_.any() || code == ExitCode::kInputError) return {code, ""};
    return Deliver(code, "", lives_.Record(), json_);
  }

 private:
  ExitCode Run() {
    int64_t failures = 0;
    int64_t& behind = behind_;
    bool after_loss = false;
    for (;;) {
      behind = Newest();
      back_.clear();
      if (launch::SignalSeen() != 0) return StoppedBetween();
      if (!FindHosts(after_loss)) return ExitCode::kFailure;
      if (launch::SignalSeen() != 0) return StoppedBetween();
      lives_.Begin(behind);
      killed_.clear();
      const End end = Await(Start());
      launch::PassSignalsTo(0);
      lives_.End(HowItEnded(end));
      // Ended by the supervisor itself, to go on with more hosts.
      if (std::exchange(growing_, false) && end.exited && end.code == launch::kStoppedCode &&
          launch::SignalSeen() == 0) {
        after_loss = false;
        failures = 0;
        continue;
      }
      if (end.exited && (end.code == 0 || end.code == launch::kStoppedCode)) return Code(end.code);
      if (end.exited && end.code >= static_cast<int>(ExitCode::kInputError) &&
          end.code <= static_cast<int>(ExitCode::kCheckFailed))
        return Code(end.code);
      if (launch::SignalSeen() != 0) {
        Say(fmt::format("the run ended with {} when it was asked to stop", end.Why()));
        return ExitCode::kFailure;
      }
      after_loss = true;
      if (Newest() != behind) failures = 0;  // this one is the first behind that snapshot
      if (++failures > most_) {
        Say(fmt::format("gives up: {} failures in a row behind step {}, the last with {}", failures,
                        std::max<int64_t>(Newest(), 0), end.Why()));
        return ExitCode::kFailure;
      }
      Say(fmt::format("the run ended with {}; it continues {}, restart {} of {}", end.Why(),
                      Newest() < 0 ? "from the beginning" : fmt::format("behind step {}", Newest()),
                      failures, most_));
      Pause(failures);
    }
  }

  LifeEnd HowItEnded(const End& end) const {
    const bool stopped = end.exited && end.code == launch::kStoppedCode;
    LifeEnd life{end.Why(), Newest(), !stopped && !(end.exited && end.code == 0)};
    if (end.exited && end.code == 0) life.cause = "done";
    if (stopped && growing_) life.cause = "a host answers again";
    if (stopped && !growing_)
      life.cause = launch::SignalSeen() != 0
                       ? "stopped by " + launch::SignalName(launch::SignalSeen())
                       : "stopped by the time limit or by a signal to its ranks";
    if (!killed_.empty()) life.cause = killed_;
    return life;
  }

  // Seconds that a host has to answer.
  static double LimitOf(const RunJob& job) {
    return std::min(job.timeout_s, AnyHost::kLongestAnswer);
  }
  static ExitCode Code(int code) { return static_cast<ExitCode>(code); }

  // Before the first attempt, or between two.
  ExitCode StoppedBetween() const {
    const std::string next =
        Newest() < 0 ? "nothing was saved" : fmt::format("continue with --resume {}", job_.save);
    Say(fmt::format("stopped by {} while no run was under way; {}",
                    launch::SignalName(launch::SignalSeen()), next));
    return Code(launch::kStoppedCode);
  }

  // Snapshots that the run refused may lie there with higher numbers.
  int64_t Newest() const { return snapshot::LastSaved(job_.save); }

  static void Pause(int64_t failures) {
    const auto pause = std::min<std::chrono::milliseconds>(
        kFirstPause * (int64_t{1} << std::min<int64_t>(failures - 1, 20)), kLongestPause);
    for (const auto until = Clock::now() + pause;
         Clock::now() < until && launch::SignalSeen() == 0;)
      std::this_thread::sleep_for(kLook);
  }

  std::string HostsLeft() const { return job_.save + "/hosts"; }

  // Which hosts do not answer. After a loss they have --host-wait to come back: a host that starts again takes minutes.
  std::vector<LostHost> RollCall(bool after_loss) const {
    const auto begin = Clock::now();
    std::vector<LostHost> lost = watch_->Lost(hosts_);
    if (!after_loss || !reached_ || wait_s_ <= 0) return lost;
    const auto until = begin + std::chrono::duration<double>(wait_s_);
    while (!lost.empty() && Clock::now() < until && launch::SignalSeen() == 0) {
      std::this_thread::sleep_for(kBetweenCalls);
      lost = watch_->Lost(hosts_);
    }
    Say(fmt::format("roll call: {} of {} hosts answer after {:.3g} s", hosts_.size() - lost.size(),
                    hosts_.size(), std::chrono::duration<double>(Clock::now() - begin).count()));
    return lost;
  }

  // The hosts to start on: those of the hostfile, as it stands now, that answer. False: there is none.
  bool FindHosts(bool after_loss) {
    if (job_.hostfile.empty()) return true;
    hosts_ = launch::ReadHostfileOfMpirun(job_.hostfile);
    if (!watch_) return true;
    away_.clear();
    returning_.reset();
    std::vector<LostHost> lost = RollCall(after_loss);
    if (!reached_) reached_ = Reached(lost);
    if (!reached_) lost = LostByEvidence(std::move(lost));
    for (const LostHost& one : lost) {
      Say(fmt::format("host {} is lost: {}", one.host, one.why));
      std::ranges::copy_if(hosts_, std::back_inserter(away_),
                           [&](const auto& host) { return host.host == one.host; });
      std::erase_if(hosts_, [&](const auto& host) { return host.host == one.host; });
    }
    if (!away_.empty()) returning_.emplace(test_, LimitOf(job_));
    if (hosts_.empty()) {
      Say("gives up: no host of the hostfile is left");
      return false;
    }
    launch::WriteHostfile(HostsLeft(), launch::HostfileText(hosts_));
    return true;
  }

  // Whether the way to other hosts is open: one of them answers at all.
  bool Reached(std::vector<LostHost> lost) {
    const auto here = [](const auto& one) { return launch::HostIsHere(one.host); };
    const auto away = static_cast<int64_t>(hosts_.size()) - std::ranges::count_if(hosts_, here);
    std::erase_if(lost, here);
    return static_cast<int64_t>(lost.size()) < away || away == 0 || any_host_.Answers(lost);
  }

  // Where none does: those of which something else says that they are lost. The others are left to mpirun, which may have
  // a way of its own.
  std::vector<LostHost> LostByEvidence(std::vector<LostHost> lost) {
    std::string unknown;
    for (LostHost& one : lost) {
      if (launch::HostIsHere(one.host)) continue;  // asked without a way
      const std::string evidence = any_host_.Evidence(one.host, lives_.said());
      if (evidence.empty() && unknown.empty()) unknown = fmt::format("{}: {}", one.host, one.why);
      if (evidence.empty()) one.why.clear();
      if (evidence != one.why) one.why += "; " + evidence;
    }
    std::erase_if(lost, [](const LostHost& one) { return one.why.empty(); });
    if (!unknown.empty())
      Say(
          fmt::format("no other host answers, and the way to them may be at fault: mpirun tries "
                      "those of which nothing else is known: {}",
                      unknown));
    return lost;
  }

  // The words without a flag and its value.
  static std::vector<std::string> Without(std::vector<std::string> words, const std::string& name,
                                          const std::string& value) {
    for (std::size_t i = 0; i < words.size();) {
      if (words[i] != name && !words[i].starts_with(name + "=")) {
        ++i;
        continue;
      }
      const bool joined = words[i] != name;
      const bool maybe = value.starts_with("[");
      std::size_t n = 1;
      if (!joined && !value.empty() && i + 1 < words.size() &&
          (!maybe || words[i + 1] == "on" || words[i + 1] == "off"))
        n = 2;
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i),
                  words.begin() + static_cast<std::ptrdiff_t>(i + n));
    }
    return words;
  }

  // --json with its file, if it has one.
  std::vector<std::string> WithoutJson(std::vector<std::string> words) const {
    const auto at = std::ranges::find_if(words, [](const std::string& word) {
      return word == "--json" || word.starts_with("--json=");
    });
    if (at == words.end()) return words;
    const auto next = std::next(at);
    const bool file =
        *at == "--json" && next != words.end() && !json_.text.empty() && *next == json_.text;
    words.erase(at, next + (file ? 1 : 0));
    return words;
  }
  // Then it is all that stands there.
  bool JsonOnOutput() const { return json_.given && (json_.text.empty() || json_.text == "-"); }

  std::vector<std::string> Words() const {
    std::vector<std::string> words = words_;
    words = Without(words, "--supervise", "");
    words = Without(words, "--max-restarts", "N");
    words = Without(words, "--host-test", "COMMAND");
    words = Without(words, "--host-wait", "TIME");
    words = Without(words, "--resume", "DIR");
    if (lives_.kept()) {
      words = WithoutJson(words);
      words.push_back("--json=" + lives_.record_file());
    }
    const int64_t room = job_.hostfile.empty() ? job_.ranks() : launch::SlotsOf(hosts_);
    if (room < job_.ranks()) {
      for (const FlagInfo& info : layout_) words = Without(words, info.name, info.value);
      words = Without(words, "--ranks", "N");
      Say(fmt::format("{} of {} ranks are left: the planner picks the layout", room, job_.ranks()));
      words.insert(words.end(), {"--ranks", std::to_string(room), "--best-layout"});
    }
    if (watch_) {
      words = Without(words, "--hostfile", "FILE");
      words.insert(words.end(), {"--hostfile", HostsLeft()});
    }
    if (Newest() >= 0) words.insert(words.end(), {"--resume", job_.save});
    const std::vector<std::string> looks = cli::LooksForRanks();
    words.insert(words.begin(), looks.begin(), looks.end());
    words.insert(words.begin(), launch::OwnProgram());
    return words;
  }

  pid_t Start() const {
    std::vector<std::string> words = Words();
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0)
      throw InputError(fmt::format("cannot start the run: {}", std::strerror(errno)),
                       "raise the limit of processes (ulimit -u)");
    if (child > 0) {
      launch::PassSignalsTo(child);
      return child;
    }
    // What the supervisor blocks stays blocked until the run watches for it: no request is lost between.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setenv(launch::kSupervised, "1", 1);
    setenv(launch::kCauseFile, lives_.cause_file().c_str(), 1);
    if (lives_.kept()) setenv(kStepsFile, lives_.steps_file().c_str(), 1);
    if (const int nothing = JsonOnOutput() ? open("/dev/null", O_WRONLY) : -1; nothing >= 0)
      dup2(nothing, STDOUT_FILENO);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execv(arguments[0], arguments.data());
    _exit(127);
  }

  // A child that somebody stops (SIGSTOP) would never end: after --timeout it is taken for lost.
  // So would one that waits for a host that is gone.
  End Await(pid_t child) {
    auto stopped = Clock::time_point::max();
    for (;;) {
      int status = 0;
      const pid_t got = waitpid(child, &status, WNOHANG | WUNTRACED | WCONTINUED);
      if (got == child && WIFEXITED(status)) return {true, WEXITSTATUS(status)};
      if (got == child && WIFSIGNALED(status)) return {false, WTERMSIG(status)};
      if (got == child && WIFSTOPPED(status)) stopped = Clock::now();
      if (got == child && WIFCONTINUED(status)) stopped = Clock::time_point::max();
      if (got < 0 && errno != EINTR) return {true, 1};
      if (stopped != Clock::time_point::max() &&
          Clock::now() - stopped > std::chrono::duration<double>(job_.timeout_s)) {
        killed_ = fmt::format("stopped for {:.3g} s, then killed", job_.timeout_s);
        Say(fmt::format("the run has been stopped for {:.3g} s: it is killed", job_.timeout_s));
        kill(child, SIGKILL);
        stopped = Clock::time_point::max();
      }
      if (watch_ && reached_) {
        const std::vector<LostHost> lost = watch_->Look(hosts_);
        for (const LostHost& one : lost)
          Say(fmt::format("host {} does not answer any more ({}): the run is killed", one.host,
                          one.why));
        if (!lost.empty()) {
          killed_ = fmt::format("host {} does not answer any more: {}", lost.front().host,
                                lost.front().why);
          kill(child, SIGKILL);
        }
      }
      GrowBack(child);
      std::this_thread::sleep_for(kLook);
    }
  }

  // A run on fewer ranks than it was meant for ends in order once a lost host is back and there is something to go on
  // from: before its first snapshot each return would cost what it has done.
  void GrowBack(pid_t child) {
    if (!returning_ || growing_) return;
    for (const std::string& host : returning_->LookForReturn(away_)) {
      if (std::ranges::find(back_, host) == back_.end()) back_.push_back(host);
    }
    const bool fewer = launch::SlotsOf(hosts_) < job_.ranks();
    if (back_.empty() || !fewer || Newest() == behind_) return;
    for (const std::string& host : back_)
      Say(fmt::format("host {} answers again: the run ends with a snapshot, to go on with it",
                      host));
    growing_ = true;
    kill(child, SIGTERM);
  }

  const RunJob& job_;
  std::vector<std::string> words_;
  Flag json_;
  Lives lives_;
  std::string killed_;  // why the supervisor itself has ended this life; "": it has not
  std::string test_ = "true";
  double wait_s_ = 0;
  std::vector<launch::HostSlots>
      away_;  // of the hostfile, without an answer when this attempt began
  std::optional<HostWatch> returning_;  // asks those
  std::vector<std::string> back_;       // which answer again
  bool growing_ = false;                // the run was ended for them
  int64_t behind_ = -1;                 // newest snapshot when this attempt began
  std::vector<FlagInfo> layout_;        // its flags
  int64_t most_ = 3;
  std::vector<launch::HostSlots> hosts_;  // of this attempt
  std::optional<HostWatch> watch_;        // where ranks may be on several hosts
  bool reached_ = false;                  // whether others have answered at all
  AnyHost any_host_;                      // where they have not
};

}  // namespace

Answer Supervise(const RunFlags& flags, const RunJob& job, const CommandLine& line) {
  return Supervisor(flags, job, line).Answered();
}

}  // namespace orrery::cli
