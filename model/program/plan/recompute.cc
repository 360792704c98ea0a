// SPDX-License-Identifier: Apache-2.0
// Starts this program in a folder that holds a bundle's files.
#include "model/program/plan/recompute.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "model/arch/data_root.h"
#include "model/base/write_file.h"
#include "model/program/common/answer.h"

namespace orrery::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// Its own files and no others: neither the user's nor those of the catalogue.
std::vector<std::string> EnvironmentIn(const std::string& folder) {
  std::vector<std::string> all = {"ORRERY_ROOT=" + folder, "XDG_DATA_HOME=" + folder + "/none",
                                  "PWD=" + folder};
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string entry = *at;
    const std::string name = entry.substr(0, entry.find('='));
    if (name != "ORRERY_ROOT" && name != "XDG_DATA_HOME" && name != "PWD") all.push_back(entry);
  }
  return all;
}

std::vector<char*> Pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// What it says is `out`; errors are part of that.
int RunIn(const std::string& folder, const std::vector<std::string>& words, std::string* out) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw InputError(fmt::format("cannot start a program: {}", std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const std::vector<std::string> environment = EnvironmentIn(folder);
  pid_t child = -1;
  const int error = posix_spawn(&child, RunningProgram().c_str(), &actions, nullptr,
                                Pointers(words).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  char chunk[1 << 16];
  for (ssize_t got = 0; error == 0 && (got = read(ends[0], chunk, sizeof chunk)) != 0;) {
    if (got > 0) {
      out->append(chunk, static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      break;
    }
  }
  close(ends[0]);
  if (error != 0) throw InputError(fmt::format("cannot start a program: {}", std::strerror(error)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : static_cast<int>(ExitCode::kFailure);
}

}  // namespace

BundleFolder::BundleFolder() {
  std::error_code error;
  std::string name = (fs::temp_directory_path(error) / "orrery-XXXXXX").string();
  if (error || mkdtemp(name.data()) == nullptr)
    throw InputError(fmt::format("cannot make a folder for the bundle's files: {}",
                                 error ? error.message() : std::strerror(errno)),
                     "TMPDIR names the folder for it");
  folder_ = name;
  // A catalogue has the folders of all kinds; those that no file was read from are empty.
  for (const char* part : {"scenarios", "topologies", "offers", "calib/profiles"}) {
    const fs::path root = DataRoot();
    fs::create_directories(fs::path(folder_) / part, error);
    for (const auto& entry : fs::recursive_directory_iterator(root / part, error)) {
      if (entry.is_directory(error))
        fs::create_directories(fs::path(folder_) / entry.path().lexically_relative(root), error);
    }
  }
}

BundleFolder::~BundleFolder() {
  std::error_code error;
  fs::remove_all(folder_, error);
}

void BundleFolder::Write(const std::string& path, const std::string& text) {
  const fs::path file = fs::path(folder_) / path;
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  std::string why = error ? error.message() : WriteTextFile(file.string(), text);
  if (!why.empty()) throw InputError(fmt::format("cannot write the bundle's '{}': {}", path, why));
}

void BundleFolder::WriteAll(const Bundle& bundle) {
  for (const auto& [path, text] : bundle.files) Write(path, text);
}

Recomputed BundleFolder::Ask(const std::vector<std::string>& question) const {
  std::vector<std::string> words = {"plan"};
  words.insert(words.end(), question.begin(), question.end());
  words.push_back("--json");
  std::string out;
  Recomputed result;
  result.code = RunIn(folder_, words, &out);
  result.answer = ordered_json::parse(out, nullptr, false);
  if (result.answer.is_discarded()) result.answer = ordered_json::object();
  return result;
}

}  // namespace orrery::cli
