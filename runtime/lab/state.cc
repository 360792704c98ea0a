// SPDX-License-Identifier: Apache-2.0
// The folder of labs and their state files.
#include "runtime/lab/state.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/lab/error.h"

namespace orrery::lab {
namespace {

// Fields of /proc/PID/stat behind the program's name, which may hold anything.
std::vector<std::string> StatFields(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos) return {};
  std::istringstream rest(text.substr(end + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}
constexpr std::size_t kStatState = 0, kStatUser = 11, kStatSystem = 12, kStatStart = 19;

// Private to this user, whoever made it.
void MakePrivate(const std::string& folder) {
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    throw LabError(fmt::format("cannot make {}: {}", folder, std::strerror(errno)));
  struct stat facts;
  if (lstat(folder.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode) || facts.st_uid != geteuid() ||
      (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    throw LabError(fmt::format("{} is not a folder of your own", folder),
                   "remove it, or set XDG_RUNTIME_DIR");
  }
}

}  // namespace

bool State::Alive() const { return keeper > 0 && StartOf(keeper) == keeper_started; }

std::string State::NamespacePath(int node) const {
  return fmt::format("/proc/{}/fd/{}", keeper, namespaces.at(static_cast<std::size_t>(node)));
}

std::string LabsFolder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/' && access(runtime, W_OK | X_OK) == 0)
    return std::string(runtime) + "/orrery-lab";
  return fmt::format("/tmp/orrery-lab-{}", geteuid());
}

std::string FolderOf(const std::string& name) { return LabsFolder() + "/" + name; }

std::string TopologyFile(const Settings& settings) {
  return fmt::format("{}/lab-{}.yaml", FolderOf(settings.name), settings.nodes);
}

std::vector<std::string> LabNames() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(LabsFolder(), error))
    if (entry.is_directory(error)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// The folder itself is the lock, so that there is no lock file to leave behind. Whoever removes the
// last lab removes it: then the lock is on nothing and is taken anew.
Lock::Lock() {
  for (;;) {
    const std::string path = LabsFolder();
    MakePrivate(path);
    folder_ = Descriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder_.get() < 0 || flock(folder_.get(), LOCK_EX) != 0) continue;
    struct stat held, found;
    if (fstat(folder_.get(), &held) == 0 && stat(path.c_str(), &found) == 0 &&
        held.st_ino == found.st_ino && held.st_dev == found.st_dev) {
      return;
    }
  }
}

std::optional<State> ReadState(const std::string& name) {
  std::ifstream file(FolderOf(name) + "/state.json");
  if (!file) return std::nullopt;
  try {
    const auto json = nlohmann::json::parse(file);
    State state;
    state.settings = FromJson(json.at("settings").dump());
    state.id = json.at("id");
    state.keeper = json.at("keeper");
    state.keeper_started = json.at("keeper_started");
    state.namespaces = json.at("namespaces").get<std::vector<int>>();
    if (state.settings.name != name || state.settings.nodes < 1 ||
        state.settings.nodes > kMostNodes ||
        state.namespaces.size() != static_cast<std::size_t>(state.settings.nodes) + 1) {
      return std::nullopt;
    }
    return state;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void WriteState(const State& state) {
  const nlohmann::ordered_json json = {
      {"schema", "orrery.lab/1"},
      {"settings", nlohmann::ordered_json::parse(ToJson(state.settings))},
      {"id", state.id},
      {"keeper", state.keeper},
      {"keeper_started", state.keeper_started},
      {"namespaces", state.namespaces}};
  const std::string path = FolderOf(state.settings.name) + "/state.json";
  std::ofstream file(path + ".part");
  file << json.dump(2) << '\n';
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(path + ".part", path, error);
  if (!file || error) throw LabError(fmt::format("cannot write {}", path));
}

int64_t StartOf(pid_t process) {
  const std::vector<std::string> fields = StatFields(process);
  if (fields.size() <= kStatStart || fields[kStatState] == "Z" || fields[kStatState] == "X")
    return 0;
  return std::atoll(fields[kStatStart].c_str());
}

double CpuSeconds(pid_t process) {
  const std::vector<std::string> fields = StatFields(process);
  if (fields.size() <= kStatSystem) return 0;
  const double ticks =
      std::atof(fields[kStatUser].c_str()) + std::atof(fields[kStatSystem].c_str());
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace orrery::lab
