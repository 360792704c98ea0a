// SPDX-License-Identifier: Apache-2.0
// fork, exec, wait.
#include "runtime/launch/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "model/base/diagnostics.h"
#include "runtime/launch/stop_request.h"

namespace orrery::launch {
namespace {

constexpr int kLook = 20;  // milliseconds
constexpr auto kUnkillable = std::chrono::seconds(1);
constexpr std::size_t kMostOutput = std::size_t{1} << 20;

// False: it is closed.
bool Drain(int end, std::string* text) {
  char chunk[4096];
  for (;;) {
    const ssize_t got = read(end, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    if (text->size() < kMostOutput) text->append(chunk, static_cast<std::size_t>(got));
  }
}

// The last line that is an error, else the last: a message goes on with the words that it is about.
std::string LastLine(std::string text) {
  const std::size_t error = text.rfind("error: ");
  if (error != std::string::npos) text.resize(std::min(text.find('\n', error), text.size()));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const std::size_t begin = text.rfind('\n');
  return begin == std::string::npos ? text : text.substr(begin + 1);
}

}  // namespace

pid_t StartChild(const std::vector<std::string>& words, const std::function<void()>& prepare) {
  std::vector<std::string> all = words;
  std::vector<char*> arguments;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0)
    throw InputError(fmt::format("cannot start {}: {}", words[0], std::strerror(errno)),
                     "raise the limit of processes (ulimit -u)");
  if (child > 0) {
    setpgid(child, child);  // whoever comes first
    return child;
  }
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (prepare) prepare();
  ForgetSignals();
  execvp(arguments[0], arguments.data());
  fmt::print(stderr, "cannot start {}: {}\n", all[0], std::strerror(errno));
  std::fflush(stderr);
  _exit(127);
}

std::optional<ChildEnd> PollChild(pid_t child) {
  int status = 0;
  const pid_t got = waitpid(child, &status, WNOHANG);
  if (got == 0 || (got < 0 && errno == EINTR)) return {};
  ChildEnd end;
  end.code = got < 0 ? 1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end;
}

void SignalChild(pid_t child, int number) {
  if (child > 0) kill(-child, number);
}

ChildEnd RunChild(const std::vector<std::string>& words,
                  std::chrono::steady_clock::time_point until,
                  const std::function<void()>& prepare) {
  using Clock = std::chrono::steady_clock;
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
    throw InputError("no pipe", "raise the limit of open files (ulimit -n)");
  const pid_t child = StartChild(words, [&] {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    if (prepare) prepare();
  });
  close(out[1]);
  close(err[1]);
  for (const int end : {out[0], err[0]}) fcntl(end, F_SETFL, O_NONBLOCK);
  ChildEnd end;
  std::string said;
  pollfd events[] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  // What hangs in the system (a dead disk) cannot be killed and is not waited for.
  while (!end.timed_out || Clock::now() < until + kUnkillable) {
    poll(events, 2, kLook);
    if (!Drain(out[0], &end.output)) events[0].fd = -1;
    if (!Drain(err[0], &said)) events[1].fd = -1;
    if (const std::optional<ChildEnd> ended = PollChild(child)) {
      end.code = ended->code;
      break;
    }
    if (end.timed_out || Clock::now() < until) continue;
    end.timed_out = true;
    SignalChild(child, SIGKILL);
  }
  Drain(out[0], &end.output);
  Drain(err[0], &said);
  close(out[0]);
  close(err[0]);
  SignalChild(child, SIGKILL);  // what it has left behind
  end.last_line = LastLine(said.empty() ? end.output : said);
  return end;
}

}  // namespace orrery::launch
