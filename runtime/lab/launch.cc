// SPDX-License-Identifier: Apache-2.0
// Enters namespaces and becomes the program that is wanted there.
#include "runtime/lab/launch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/lab/error.h"

namespace orrery::lab {
namespace {

std::string InQuotes(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// What mpirun calls in place of ssh: host, then the words of a shell command.
std::string WriteAgent(const State& state, const std::string& self) {
  const std::string path = FolderOf(state.settings.name) + "/agent";
  std::ofstream file(path);
  file << "#!/bin/sh\nhost=$1\nshift\nexec " << InQuotes(self) << " enter \"$host\" --name "
       << InQuotes(state.settings.name) << " -- /bin/sh -c \"$*\"\n";
  file.close();
  if (!file) throw LabError(fmt::format("cannot write {}", path));
  return path;
}

[[noreturn]] void Exec(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  throw LabError(fmt::format("cannot start {}: {}", words[0], std::strerror(errno)),
                 words[0] == "mpirun" ? "install openmpi-bin" : "");
}

}  // namespace

std::vector<std::string> MpirunWords(const State& state, int64_t ranks, const std::string& agent,
                                     const std::vector<std::string>& command) {
  const Settings& s = state.settings;
  const int64_t slots = (ranks + s.nodes - 1) / s.nodes;
  std::string hosts;
  for (int node = 0; node < s.nodes; ++node)
    hosts += fmt::format("{}{}:{}", node > 0 ? "," : "", s.HostName(node), slots);
  const std::vector<std::pair<std::string, std::string>> settings = {
      {"plm", "rsh"},
      {"plm_rsh_agent", "/bin/sh " + agent},
      {"plm_rsh_no_tree_spawn", "1"},
      {"orte_tmpdir_base", FolderOf(s.name) + "/tmp"},
      {"oob_tcp_if_include", "ctl0"},
      {"pml", "ob1"},
      {"btl", slots > 1 ? "tcp,self,vader" : "tcp,self"},
      {"btl_tcp_if_include", "eth0"},
      // Above its eager limit OpenMPI asks before it sends, and the answer queues behind bulk data.
      {"btl_tcp_eager_limit", "262144"},
      {"btl_tcp_rndv_eager_limit", "262144"},
      // Nodes share cores, which OpenMPI cannot see: to it they are machines with cores to spare.
      {"mpi_yield_when_idle", "1"},
  };
  // In one session: with a scheduling group per session, a rank that yields in a session of its own
  // yields to nobody.
  std::vector<std::string> words = {
      "mpirun", "--leave-session-attached", "--oversubscribe", "--bind-to", "none",
      "-np",    std::to_string(ranks),      "-host",           hosts};
  for (const auto& [name, value] : settings) words.insert(words.end(), {"--mca", name, value});
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

void ExecOnNode(const State& state, int node, const std::vector<std::string>& command) {
  EnterNamespace(state.NamespacePath(node));
  const std::string host =
      node == state.settings.nodes ? state.settings.HeadName() : state.settings.HostName(node);
  if (unshare(CLONE_NEWUTS | CLONE_NEWIPC) != 0 || sethostname(host.c_str(), host.size()) != 0)
    throw LabError(fmt::format("cannot become {}: {}", host, std::strerror(errno)),
                   "run it as root");
  setenv(kTokenVariable, state.id.c_str(), 1);
  Exec(command);
}

void ExecRanks(const State& state, int64_t ranks, const std::string& self,
               const std::vector<std::string>& command) {
  const char* path = std::getenv("PATH");
  const std::string programs = std::filesystem::path(self).parent_path();
  setenv("PATH", (programs + ":" + (path == nullptr ? "/usr/bin:/bin" : path)).c_str(), 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  setenv("OMP_NUM_THREADS", "1", 0);
  ExecOnNode(state, state.settings.nodes,
             MpirunWords(state, ranks, WriteAgent(state, self), command));
}

namespace {

volatile pid_t g_mpirun = 0;
void PassOn(int number) { kill(g_mpirun, number); }

// A descriptor that is readable once the process has ended.
Descriptor Watch(pid_t process) {
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
}

}  // namespace

int RunRanks(const State& state, int64_t ranks, const std::string& self,
             const std::vector<std::string>& command) {
  const Descriptor keeper = Watch(state.keeper);
  const pid_t child = fork();
  if (child < 0) throw LabError(fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    try {
      ExecRanks(state, ranks, self, command);
    } catch (const LabError& error) {
      fmt::print(stderr, "plan lab: error: {}\n", error.what());
      if (!error.hint.empty()) fmt::print(stderr, "  hint: {}\n", error.hint);
    }
    _exit(1);
  }
  g_mpirun = child;
  for (const int number : {SIGTERM, SIGHUP}) std::signal(number, PassOn);
  std::signal(SIGINT, SIG_IGN);  // a terminal sends it to mpirun, too, which ends its ranks
  const Descriptor ranks_end = Watch(child);
  pollfd watched[] = {{ranks_end.get(), POLLIN, 0}, {keeper.get(), POLLIN, 0}};
  while (poll(watched, keeper.get() < 0 ? 1 : 2, -1) < 0 && errno == EINTR) {
  }
  const bool lost = watched[0].revents == 0 && !state.Alive();
  if (lost) {
    for (const pid_t process : ProcessesOf(state.id)) kill(process, SIGKILL);
    kill(child, SIGKILL);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (lost)
    throw LabError(fmt::format("the switch of lab '{}' has stopped; its ranks were ended",
                               state.settings.name),
                   "`plan lab up` builds it anew");
  constexpr int kBySignal = 128;
  return WIFEXITED(status) ? WEXITSTATUS(status) : kBySignal + WTERMSIG(status);
}

}  // namespace orrery::lab
