// SPDX-License-Identifier: Apache-2.0
// Takes a lab down: also one whose keeper has crashed, or that never came up fully.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/lab/state.h"

namespace orrery::lab {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr auto kGrace = milliseconds(3000);  // between asking and killing
constexpr auto kPause = milliseconds(10);

bool HasToken(pid_t process, const std::string& token) {
  std::ifstream file(fmt::format("/proc/{}/environ", process), std::ios::binary);
  std::string word;
  while (std::getline(file, word, '\0'))
    if (word == token) return true;
  return false;
}

void Signal(const std::vector<pid_t>& processes, int number) {
  for (const pid_t process : processes) kill(process, number);
}

// Asks first, so that mpirun cleans up behind itself. Those that appear meanwhile are ended, too.
std::size_t EndProcesses(const std::string& id) {
  std::vector<pid_t> left = ProcessesOf(id);
  const std::size_t count = left.size();
  Signal(left, SIGTERM);
  const auto begin = std::chrono::steady_clock::now();
  for (; !left.empty(); left = ProcessesOf(id)) {
    if (std::chrono::steady_clock::now() - begin > kGrace) Signal(left, SIGKILL);
    std::this_thread::sleep_for(kPause);
  }
  return count;
}

void EndKeeper(const State& state) {
  if (!state.Alive()) return;
  kill(state.keeper, SIGTERM);
  const auto begin = std::chrono::steady_clock::now();
  while (state.Alive()) {
    if (std::chrono::steady_clock::now() - begin > kGrace) kill(state.keeper, SIGKILL);
    std::this_thread::sleep_for(kPause);
  }
}

// OpenMPI keeps shared memory of the ranks of one node in files named after the host; ranks that
// were killed leave them behind.
void RemoveSharedMemory(const std::string& lab) {
  std::error_code error;
  std::vector<fs::path> doomed;
  for (const auto& entry : fs::directory_iterator("/dev/shm", error)) {
    const std::string name = entry.path().filename();
    const std::string prefix = "vader_segment." + lab + "-";
    struct stat facts;
    if (!name.starts_with(prefix) || name.size() == prefix.size()) continue;
    if (std::isdigit(static_cast<unsigned char>(name[prefix.size()])) == 0) continue;
    if (lstat(entry.path().c_str(), &facts) == 0 && facts.st_uid == geteuid())
      doomed.push_back(entry.path());
  }
  for (const fs::path& path : doomed) fs::remove(path, error);
}

}  // namespace

std::vector<pid_t> ProcessesOf(const std::string& id) {
  std::vector<pid_t> found;
  const std::string token = std::string(kTokenVariable) + "=" + id;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (std::isdigit(static_cast<unsigned char>(name[0])) == 0) continue;
    const auto process = static_cast<pid_t>(std::atoi(name.c_str()));
    if (process != getpid() && StartOf(process) != 0 && HasToken(process, token))
      found.push_back(process);
  }
  return found;
}

std::string Remove(const std::string& name) {
  std::error_code error;
  const std::string folder = FolderOf(name);
  if (!fs::is_directory(fs::symlink_status(folder, error))) return "";
  std::string text = "leftovers of a lab that never came up";
  if (const std::optional<State> state = ReadState(name)) {
    const bool alive = state->Alive();
    const std::size_t ended = EndProcesses(state->id);
    EndKeeper(*state);
    text = fmt::format("{} nodes{}{}", state->settings.nodes,
                       alive ? "" : ", whose switch had stopped",
                       ended > 0 ? fmt::format(", {} processes ended", ended) : "");
  }
  RemoveSharedMemory(name);
  fs::remove_all(folder, error);
  return text;
}

void RemoveLabsFolder() {
  std::error_code error;
  fs::remove(LabsFolder(), error);
}

}  // namespace orrery::lab
