// SPDX-License-Identifier: Apache-2.0
// The keeper of a lab: a child process that builds the network, says so, and runs the switch.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <random>

#include "model/base/diagnostics.h"
#include "runtime/lab/error.h"
#include "runtime/lab/state.h"
#include "runtime/lab/switch_loop.h"

namespace orrery::lab {
namespace {

constexpr int kReport = 3;  // descriptor to say "ready" or what is wrong
// The lock, until the lab can be found by its state: a `down` after a killed `up` waits so long.
constexpr int kLock = 4;
constexpr char kReady = '\n';

// Blocks the signals that end a program, and tells whether one has come meanwhile.
class Undisturbed {
 public:
  Undisturbed() {
    sigemptyset(&ends_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends_, number);
    sigprocmask(SIG_BLOCK, &ends_, &before_);
  }
  ~Undisturbed() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  static bool Interrupted() {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1 ||
           sigismember(&pending, SIGHUP) == 1;
  }

 private:
  sigset_t ends_, before_;
};

std::string NewId() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

void AddNeighbours(const Settings& settings, int self, bool data) {
  for (int node = 0; node <= settings.nodes; ++node) {
    const int number = node == settings.nodes ? kMostNodes : node;
    if (number == self) continue;
    AddNeighbour("ctl0", ControlAddress(number), MacOf(true, number));
    if (data && number != kMostNodes)
      AddNeighbour("eth0", DataAddress(number), MacOf(false, number));
  }
}

// The namespaces of all nodes and of the head, and their devices.
struct World {
  std::vector<Descriptor> namespaces;
  Wiring wiring;
};

World Build(const Settings& settings) {
  World world;
  for (int node = 0; node < settings.nodes; ++node) {
    world.namespaces.push_back(EnterNewNamespace());
    world.wiring.data.push_back(MakeTap("eth0", MacOf(false, node), DataAddress(node), true));
    world.wiring.control.push_back(MakeTap("ctl0", MacOf(true, node), ControlAddress(node)));
    AddNeighbours(settings, node, true);
  }
  world.namespaces.push_back(EnterNewNamespace());
  world.wiring.control.push_back(
      MakeTap("ctl0", MacOf(true, kMostNodes), ControlAddress(kMostNodes)));
  AddNeighbours(settings, kMostNodes, false);
  return world;
}

PortCounters* SharedCounters(const Settings& settings) {
  const std::string path = FolderOf(settings.name) + "/counters";
  const Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR));
  const auto size = static_cast<std::size_t>(settings.nodes) * sizeof(PortCounters);
  if (file.get() >= 0 && ftruncate(file.get(), static_cast<off_t>(size)) == 0) {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory != MAP_FAILED) return static_cast<PortCounters*>(memory);
  }
  throw LabError(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
}

void Report(const std::string& text) {
  if (write(kReport, text.data(), text.size()) < 0) _exit(1);  // nobody waits any more
}

// Away from the caller's terminal, files and folder. `report` and `lock` become kReport and kLock.
void Detach(int report, int lock) {
  setsid();
  if (chdir("/") != 0) _exit(1);
  const int nothing = open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, fd);
  const int high_report = fcntl(report, F_DUPFD, kLock + 1);
  const int high_lock = fcntl(lock, F_DUPFD, kLock + 1);
  dup2(high_report, kReport);
  dup2(high_lock, kLock);
  close_range(kLock + 1, ~0U, 0);
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_NAME, "lab-switch");
}

[[noreturn]] void Keep(State state, int report, int lock) {
  Detach(report, lock);
  try {
    const World world = Build(state.settings);
    PortCounters* counters = SharedCounters(state.settings);
    state.keeper = getpid();
    state.keeper_started = StartOf(getpid());
    for (const Descriptor& space : world.namespaces) state.namespaces.push_back(space.get());
    WriteState(state);
    Report(std::string(1, kReady));
    close(kReport);
    close(kLock);
    RunSwitch(state.settings, world.wiring, counters);
  } catch (const LabError& error) {
    Report(fmt::format("{}{}{}", error.what(), kReady, error.hint));
  } catch (const std::exception& error) {
    Report(error.what());
  }
  _exit(0);
}

// What the keeper says; "" when it has ended without a word.
std::string Await(int end) {
  std::string text;
  char chunk[512];
  for (;;) {
    const ssize_t got = read(end, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(chunk, static_cast<std::size_t>(got));
  }
}

void MakeFolder(const Settings& settings) {
  const std::string folder = FolderOf(settings.name);
  if (mkdir(folder.c_str(), S_IRWXU) != 0 || mkdir((folder + "/tmp").c_str(), S_IRWXU) != 0)
    throw LabError(fmt::format("cannot make {}: {}", folder, std::strerror(errno)));
  std::ofstream(TopologyFile(settings)) << TopologyYaml(settings);
}

void StartKeeper(const State& state, const Lock& lock) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw LabError("no pipe");
  const pid_t child = fork();
  if (child < 0) throw LabError(fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (child == 0) Keep(state, ends[1], lock.descriptor());
  close(ends[1]);
  const std::string said = Await(ends[0]);
  close(ends[0]);
  if (said == std::string(1, kReady)) return;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const std::size_t end = said.find(kReady);
  throw LabError(said.empty() ? "the switch has ended at its start" : said.substr(0, end),
                 end == std::string::npos ? "" : said.substr(end + 1));
}

}  // namespace

State BringUp(const Settings& settings, bool* already) {
  const Undisturbed undisturbed;
  const Lock lock;
  *already = false;
  if (const std::optional<State> state = ReadState(settings.name); state && state->Alive()) {
    *already = state->settings == settings;
    if (*already) return *state;
    throw InputError(
        fmt::format("a lab '{}' is up already: {}", settings.name, Describe(state->settings)),
        "`plan lab down` first, or give this one another --name");
  }
  Remove(settings.name);
  State state;
  state.settings = settings;
  state.id = NewId();
  try {
    MakeFolder(settings);
    StartKeeper(state, lock);
    if (Undisturbed::Interrupted()) throw LabError("interrupted");
  } catch (...) {
    Remove(settings.name);
    RemoveLabsFolder();
    throw;
  }
  return *ReadState(settings.name);
}

}  // namespace orrery::lab
