// SPDX-License-Identifier: Apache-2.0
// mpirun as a child process, its error output read line by line.
#include "runtime/launch/mpirun.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "runtime/launch/stop_request.h"

namespace orrery::launch {
namespace {

constexpr std::string_view kError = ": error: ";

// Only small words go through: what mpirun's own banners are made of is dropped.
class ErrorLines {
 public:
  explicit ErrorLines(std::string speaker) : speaker_(std::move(speaker)) {}

  void Take(const std::string& line) {
    const std::size_t at = line.find("process rank ");
    int rank = 0, pid = 0, signal = 0;
    char node[256] = "";
    if (at != std::string::npos &&
        std::sscanf(line.c_str() + at,
                    "process rank %d with PID %d on node %255s exited on signal %d", &rank, &pid,
                    node, &signal) == 4) {
      killed_ = fmt::format("rank {} on {}: ended by signal {} ({})", rank, node, signal,
                            strsignal(signal));
      killed_by_ = signal;
      return;
    }
    if (line.starts_with("---")) in_banner_ = !in_banner_;
    const bool of_message = line.starts_with("  ") && !in_banner_;
    const bool error =
        !in_banner_ && !line.starts_with("[") &&
        line.find(kError) != std::string::npos;  // "plan run", a file, the command line
    if (line.starts_with("plan") || error || of_message) {
      if (error && !own_) TakeCause(line.substr(line.find(kError) + kError.size()));
      own_ = own_ || error;
      stopped_ = stopped_ || line.find(": stopped by ") != std::string::npos;
      Print(Named(line));
      return;
    }
    const bool banner = line.empty() || line.starts_with("---") || line.starts_with("[");
    if (!banner) rest_.push_back(line);
  }

  // The exit code; why it failed, unless a rank has said so. `signal`: that ended mpirun itself; 0: none did. `note`: of the end
  // of rank 0 on request.
  int Conclude(int code, int signal, const std::string& note) {
    if (code == 0 || code == kStoppedCode) return code;  // mpirun's banners say nothing of it
    // A request does that to who is only starting: no rank has begun a step then.
    const int by = signal != 0 ? signal : killed_by_;
    if (!own_ && SignalSeen() != 0 && (by == SIGTERM || by == SIGUSR1)) {
      // The requests that still come end mpirun, too, once its ranks have ended in order and said so.
      if (!stopped_)
        Print(fmt::format("{}: stopped by {} while ranks were starting; nothing was saved",
                          speaker_, SignalName(SignalSeen())));
      return kStoppedCode;
    }
    // Somebody has asked mpirun itself to stop.
    if (!own_ && !note.empty()) {
      if (!stopped_) Print(Named(note));
      return kStoppedCode;
    }
    if (!own_) Explain(code, signal);
    const bool of_ranks = std::ranges::none_of(rest_, IsOfDaemons);  // or of the agent
    return of_ranks && code <= 4 ? code : 1;
  }

  const std::string& why() const { return why_; }

 private:
  void Explain(int code, int signal) {
    if (signal != 0)
      return Fail(fmt::format("mpirun was ended by signal {} ({}), and its ranks with it", signal,
                              strsignal(signal)));
    if (!killed_.empty()) return Fail(killed_);
    // A page of what may be the matter follows; what its agent said stands in front.
    if (const auto at = std::ranges::find_if(rest_, IsOfDaemons); at != rest_.end())
      return Fail(fmt::format("{}: {}", kNoDaemons,
                              at == rest_.begin()
                                  ? "is mpirun's installation there, under the same path?"
                                  : fmt::format("{}", fmt::join(rest_.begin(), at, "; "))));
    for (const std::string& line : rest_) Print(line);
    if (rest_.empty())
      return Fail(fmt::format("mpirun ended with exit code {}, and its ranks with it", code));
    TakeCause(rest_.front());
  }
  void TakeCause(const std::string& why) {
    WriteCause(why);
    why_ = why;
  }
  static bool IsOfDaemons(const std::string& line) {  // of Open MPI 4 and 5
    return line.find("unable to reliably start one or more daemons") != std::string::npos;
  }
  void Fail(const std::string& why) {
    TakeCause(why);
    Print(fmt::format("{}{}{}", speaker_, kError, why));
  }
  // Ranks were told by SIGUSR1 whatever came here; where nothing did, somebody sent it to a rank.
  static std::string Named(std::string line) {
    const std::size_t at = line.find(kAnySignal);
    if (at != std::string::npos)
      line.replace(at, std::string_view(kAnySignal).size(),
                   SignalSeen() != 0 ? SignalName(SignalSeen()) : "SIGUSR1");
    return line;
  }
  static void Print(const std::string& line) {
    fmt::print(stderr, "{}\n", line);
    std::fflush(stderr);
  }

  std::string speaker_, why_;
  bool own_ = false, in_banner_ = false;  // of mpirun, between two ruled lines
  bool stopped_ = false;                  // a rank has said that it ends on request
  std::string killed_;
  int killed_by_ = 0;  // signal
  std::vector<std::string> rest_;
};

// A file of this process alone, which goes with it.
class EndNote {
 public:
  EndNote() {
    std::error_code none;
    path_ = (std::filesystem::temp_directory_path(none) / "orrery-end-XXXXXX").string();
    const int file = mkstemp(path_.data());
    if (file >= 0) close(file);
    if (file < 0) path_.clear();  // then nothing is known of the ranks' end
  }
  ~EndNote() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  EndNote(const EndNote&) = delete;
  EndNote& operator=(const EndNote&) = delete;

  const std::string& path() const { return path_; }
  std::string Text() const {
    std::ifstream file(path_);
    std::string line;
    std::getline(file, line);
    return line;
  }

 private:
  std::string path_;
};

[[noreturn]] void Become(std::vector<std::string> all, const std::string& speaker, int error_end) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  ForgetSignals();
  setpgid(0, 0);  // a SIGTERM to the group of the run ends it by way of its ranks
  dup2(error_end, STDERR_FILENO);
  // Ranks read nothing: mpirun would take the caller's input for the first of them.
  if (const int nothing = open("/dev/null", O_RDONLY); nothing >= 0) dup2(nothing, STDIN_FILENO);
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  std::vector<char*> arguments;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  fmt::print(stderr, "{}: error: cannot start {}: {}\n", speaker, all[0], std::strerror(errno));
  _exit(1);
}

// Names of variables that ranks on other machines need as well.
std::vector<std::string> Forwarded() {
  std::vector<std::string> names;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    for (const char* prefix : {"NCCL_", "ORRERY_", "MASTER_"}) {
      if (text.starts_with(prefix)) names.emplace_back(text.substr(0, text.find('=')));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

void ReadLines(int end, ErrorLines* lines) {
  std::string pending;
  char chunk[4096];
  for (;;) {
    const ssize_t got = read(end, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    pending.append(chunk, static_cast<std::size_t>(got));
    for (std::size_t at; (at = pending.find('\n')) != std::string::npos;) {
      lines->Take(pending.substr(0, at));
      pending.erase(0, at + 1);
    }
  }
  if (!pending.empty()) lines->Take(pending);
}

}  // namespace

std::string FindMpirun() { return FindProgram("mpirun"); }

std::string FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = std::getenv("PATH");
  std::string folders = path == nullptr ? "/usr/bin" : path;
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string candidate = folders.substr(begin, end - begin) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    begin = end + 1;
  }
  return "";
}

void WriteEndNote(const std::string& text) {
  const char* const path = std::getenv(kEndNote);
  // Where it is, and nowhere else: rank 0 may be on another machine.
  const int file = path == nullptr ? -1 : open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return;
  if (write(file, text.data(), text.size()) < 0) (void)ftruncate(file, 0);
  close(file);
}

void WriteCause(const std::string& text) {
  const char* const path = std::getenv(kCauseFile);
  const int file = path == nullptr ? -1 : open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return;
  if (write(file, text.data(), text.size()) < 0) (void)ftruncate(file, 0);
  close(file);
}

std::string OwnProgram() {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self);
  return length > 0 ? std::string(self, static_cast<std::size_t>(length)) : "/proc/self/exe";
}

std::vector<std::string> MpirunWords(const std::string& mpirun, int64_t ranks,
                                     const std::vector<std::string>& words,
                                     const RankHosts& hosts) {
  std::vector<std::string> all = {mpirun,  "--oversubscribe",     "--bind-to", "none",
                                  "--mca", "mpi_yield_when_idle", "1"};
  const std::vector<std::string> forwarded = Forwarded();
  const auto add = [&](int64_t count, const std::vector<std::string>& where) {
    all.insert(all.end(), {"-np", std::to_string(count), "-x", "OMP_NUM_THREADS"});
    for (const std::string& name : forwarded) all.insert(all.end(), {"-x", name});
    all.insert(all.end(), where.begin(), where.end());
    all.insert(all.end(), words.begin(), words.end());
  };
  if (hosts.placed.empty()) {
    add(ranks, hosts.hostfile.empty() ? std::vector<std::string>{}
                                      : std::vector<std::string>{"--hostfile", hosts.hostfile});
    return all;
  }
  // A program for each: mpirun numbers ranks by program, whatever order it takes the hosts in.
  for (std::size_t i = 0; i < hosts.placed.size(); ++i) {
    const HostSlots& one = hosts.placed[i];
    if (i > 0) all.emplace_back(":");
    add(one.slots, {"--host", fmt::format("{}:{}", one.host, one.slots)});
  }
  return all;
}

int RunMpirun(const std::string& mpirun, int64_t ranks, const std::vector<std::string>& words,
              const std::string& speaker, const RankHosts& hosts, std::string* why) {
  int ends[2];
  if (pipe(ends) != 0) return 1;
  const EndNote note;
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    setenv(kOwnMpirun, "1", 1);
    if (!note.path().empty()) setenv(kEndNote, note.path().c_str(), 1);
    Become(MpirunWords(mpirun, ranks, words, hosts), speaker, ends[1]);
  }
  close(ends[1]);
  PassSignalsTo(child);
  ErrorLines lines(speaker);
  ReadLines(ends[0], &lines);
  close(ends[0]);
  siginfo_t ended{};  // nobody signals a number that is free again
  while (waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  PassSignalsTo(0);
  int status = 0;
  waitpid(child, &status, 0);
  const int code = lines.Conclude(WIFEXITED(status) ? WEXITSTATUS(status) : 1,
                                  WIFSIGNALED(status) ? WTERMSIG(status) : 0, note.Text());
  if (why != nullptr) *why = lines.why();
  return code;
}

}  // namespace orrery::launch
