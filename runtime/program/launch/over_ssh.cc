// SPDX-License-Identifier: Apache-2.0
// A child per host: the agent, and behind it a shell that starts this program.
//
// Who a node is, and the run's secret, go through the agent's standard input: whoever lists processes reads the words of all. As
// long as it is open the node may run; its end, of this process too, ends the node as SIGTERM does.
#include "runtime/program/launch/over_ssh.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "model/base/diagnostics.h"
#include "runtime/launch/child.h"
#include "runtime/launch/mpirun.h"
#include "runtime/launch/remote.h"
#include "runtime/launch/stop_request.h"
#include "runtime/program/launch/launch.h"

namespace orrery::launch {
namespace {

constexpr int kAgentFailed = 255;                       // ssh(1), "EXIT STATUS"
constexpr auto kShortGrace = std::chrono::seconds(10);  // for the others, behind the main node
constexpr auto kLongGrace = std::chrono::seconds(20);   // until they are killed

std::string NewSecret() {
  std::random_device random;
  std::string text;
  for (int i = 0; i < 4; ++i) text += fmt::format("{:08x}", random());
  return text;
}

// Names of one machine per place; the table of launchers reads them as Slurm's list.
std::string List(const std::vector<HostSlots>& hosts) {
  std::string list;
  for (const HostSlots& host : hosts) list += (list.empty() ? "" : ",") + host.host;
  return list;
}

constexpr char kBegun[] = "plan-launch-has-begun\n";  // the first that a node's shell prints

// POSIX sh. Lines NAME=VALUE up to an empty one are settings; `export` takes them as they are.
std::string Script(const std::vector<std::string>& words) {
  std::error_code error;
  std::string start;
  for (const std::string& word : words) start += Quoted(word) + " ";
  return "echo plan-launch-has-begun\n"
         "while IFS= read -r line && [ -n \"$line\" ]; do export \"$line\"; done\n"
         "cd " +
         Quoted(std::filesystem::current_path(error).string()) +
         " || exit 2\n"
         "exec 3<&0\n" +
         start +
         "</dev/null 3<&- & run=$!\n"
         "{ cat <&3; kill -TERM $run; } >/dev/null 2>&1 & watch=$!\n"
         "exec 3<&- </dev/null\n"
         "wait $run; code=$?\n"
         "kill $watch 2>/dev/null\n"
         "exit $code\n";
}

class Remote {
 public:
  Remote(const SshJob& job, const std::string& secret, std::size_t index)
      : host_(job.hosts[index].host), index_(index), here_(HostIsHere(host_)) {
    std::vector<std::string> words = {OwnProgram()};
    if (index == 0) words.insert(words.end(), job.main_words.begin(), job.main_words.end());
    words.insert(words.end(), job.words.begin(), job.words.end());
    std::array<int, 2> ends{}, out{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0)
      throw InputError(fmt::format("no pipe: {}", std::strerror(errno)),
                       "raise the limit of open files (ulimit -n)");
    input_ = ends[1];
    child_ = StartChild(OnHost(host_, Script(words)), [&] {
      dup2(ends[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
    });
    close(ends[0]);
    close(out[1]);
    output_ = out[0];
    fcntl(output_, F_SETFL, O_NONBLOCK);
    const std::string settings = fmt::format(
        "ORRERY_SECRET={}\nORRERY_LAUNCH_MAIN={}\nORRERY_LAUNCH_PORT={}\nORRERY_LAUNCH_HOSTS={}\n"
        "ORRERY_LAUNCH_INDEX={}\nORRERY_LAUNCH_NODES={}\nORRERY_LAUNCH_SLOTS={}\n"
        "ORRERY_LAUNCH_NAME={}\n\n",
        secret, job.main, job.port, List(job.hosts), index, job.hosts.size(),
        job.hosts[index].slots, host_);
    unsent_ = settings;
    fcntl(input_, F_SETFL, O_NONBLOCK);
  }
  ~Remote() {
    CloseInput();
    close(output_);
    if (!code_) SignalChild(child_, SIGKILL);
  }
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;

  void CloseInput() {
    if (input_ >= 0) close(input_);
    input_ = -1;
  }

  // The exit code, once it has ended.
  std::optional<int> Poll() {
    if (code_) return code_;
    Send();
    const auto end = PollChild(child_);
    PassOn();  // what it had printed by then
    if (end) {
      code_ = end->code;
      if (*code_ == kAgentFailed && !here_) {
        Say(fmt::format("host {} (index {}) is not reached: the agent ended with exit code {}",
                        host_, index_, kAgentFailed));
      } else if (*code_ != 0 && index_ > 0 && !killed_) {
        Say(fmt::format("host {} (index {}) ended with exit code {}", host_, index_, *code_));
      }
    }
    return code_;
  }
  // Not reached until the deadline: that is its end.
  void Miss(double deadline_s) {
    if (begun_ || code_) return;
    Say(fmt::format("host {} (index {}) is not reached in {:.3g} s", host_, index_, deadline_s));
    Kill();
    code_ = kAgentFailed;
  }
  bool reached() const { return begun_; }
  // Of a node that is not to blame: that is no end of its own.
  void Kill() {
    killed_ = true;
    SignalChild(child_, SIGKILL);
  }

 private:
  // A list of many hosts is longer than a pipe has room for.
  void Send() {
    while (input_ >= 0 && !unsent_.empty()) {
      const ssize_t sent = write(input_, unsent_.data(), unsent_.size());
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno != EAGAIN) CloseInput();
      if (sent <= 0) return;
      unsent_.erase(0, static_cast<std::size_t>(sent));
    }
  }

  // To standard output, but for the first line.
  void PassOn() {
    char chunk[4096];
    for (ssize_t got = 0; (got = read(output_, chunk, sizeof chunk)) > 0;) {
      std::string text(chunk, static_cast<std::size_t>(got));
      if (!begun_) {
        before_ += text;
        const std::size_t at = before_.find(kBegun);
        if (at == std::string::npos) {
          if (before_.size() > kMostBefore) before_.erase(0, before_.size() - kMostBefore / 2);
          continue;
        }
        begun_ = true;
        text = before_.substr(at + sizeof kBegun - 1);
      }
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    }
  }

  static constexpr std::size_t kMostBefore = 65536;  // bytes that a login shell may print

  std::string host_;
  std::size_t index_;
  bool here_, begun_ = false, killed_ = false;
  std::string before_;
  int input_ = -1, output_ = -1;
  pid_t child_ = -1;
  std::string unsent_;
  std::optional<int> code_;
};

}  // namespace

int RunOverSsh(const SshJob& job) {
  signal(SIGPIPE, SIG_IGN);
  const std::string secret = job.secret.empty() ? NewSecret() : job.secret;
  std::vector<std::unique_ptr<Remote>> nodes;
  for (std::size_t i = 0; i < job.hosts.size(); ++i)
    nodes.push_back(std::make_unique<Remote>(job, secret, i));
  const auto close_all = [&] {
    for (const auto& node : nodes) node->CloseInput();
  };
  bool stopped = false;
  std::optional<Clock::time_point> over;  // when the main node ended
  const auto begin = Clock::now();
  for (;;) {
    if (Clock::now() - begin > std::chrono::duration<double>(job.deadline_s)) {
      for (const auto& node : nodes) node->Miss(job.deadline_s);
    }
    bool left = false;
    for (const auto& node : nodes) left = !node->Poll() || left;
    if (!left) break;
    if (nodes.front()->Poll() && !over) over = Clock::now();
    if (SignalSeen() != 0 && !stopped) {
      stopped = true;
      close_all();
      for (const auto& node : nodes)
        if (!node->reached()) node->Kill();
    }
    // Without the main node nobody tells the others the end.
    if (over && (!nodes.front()->reached() || Clock::now() - *over > kShortGrace)) close_all();
    if (over && (Clock::now() - *over > kLongGrace || !nodes.front()->reached())) {
      for (const auto& node : nodes)
        if (!node->Poll()) node->Kill();
    }
    std::this_thread::sleep_for(kLook);
  }
  if (!nodes.front()->reached()) return stopped ? kStoppedCode : kTooFewCode;
  return nodes.front()->Poll().value_or(1);
}

}  // namespace orrery::launch
