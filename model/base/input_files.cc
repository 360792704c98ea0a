// SPDX-License-Identifier: Apache-2.0
// Knows files by device and inode: links and other spellings of a path are the same file.
#include "model/base/input_files.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace orrery {
namespace {

using FileId = std::pair<dev_t, ino_t>;

struct OutputClaim {
  std::string path, flag;
  Location where;
};

struct CommandFiles {
  std::mutex mutex;
  std::map<FileId, std::string> inputs;  // by the name that each was read by first
  std::map<FileId, OutputClaim> outputs;
} command_files;

thread_local int looking_through = 0;

// Devices, pipes and terminals are read and written at once.
std::optional<FileId> FileIdOf(const struct stat& found) {
  if (!S_ISREG(found.st_mode)) return std::nullopt;
  return FileId{found.st_dev, found.st_ino};
}

std::optional<FileId> FileIdOf(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) return std::nullopt;
  return FileIdOf(found);
}

std::string WhyKept(const std::string& path, const std::string& input) {
  return path == input ? "this command reads it"
                       : fmt::format("this command reads that file, as '{}'", input);
}

[[noreturn]] void RefuseOutput(const OutputClaim& claim, const std::string& input) {
  throw InputError({{claim.where,
                     fmt::format("{}: cannot write '{}': {}", claim.flag, claim.path,
                                 WhyKept(claim.path, input)),
                     fmt::format("another file for {}", claim.flag)}});
}

void NoteFile(const std::optional<FileId>& id, const std::string& name) {
  if (!id || looking_through > 0) return;
  const std::lock_guard lock(command_files.mutex);
  command_files.inputs.try_emplace(*id, name);
  if (const auto claim = command_files.outputs.find(*id); claim != command_files.outputs.end())
    RefuseOutput(claim->second, name);
}

}  // namespace

void ForgetInputs() {
  const std::lock_guard lock(command_files.mutex);
  command_files.inputs.clear();
  command_files.outputs.clear();
}

void NoteInput(int descriptor, const std::string& name) {
  struct stat found {};
  if (fstat(descriptor, &found) == 0) NoteFile(FileIdOf(found), name);
}

void NoteInput(const std::string& path) { NoteFile(FileIdOf(path), path); }

void ClaimOutput(const std::string& path, const std::string& flag, const Location& where) {
  const std::optional<FileId> id = FileIdOf(path);
  if (!id) return;
  const OutputClaim claim{path, flag, where};
  const std::lock_guard lock(command_files.mutex);
  if (const auto input = command_files.inputs.find(*id); input != command_files.inputs.end())
    RefuseOutput(claim, input->second);
  command_files.outputs.try_emplace(*id, claim);
}

std::vector<std::string> InputNames() {
  const std::lock_guard lock(command_files.mutex);
  std::vector<std::string> names;
  for (const auto& [id, name] : command_files.inputs) names.push_back(name);
  return names;
}

std::string WhyInput(const std::string& path) {
  const std::optional<FileId> id = FileIdOf(path);
  if (!id) return "";
  const std::lock_guard lock(command_files.mutex);
  const auto input = command_files.inputs.find(*id);
  return input == command_files.inputs.end() ? "" : WhyKept(path, input->second);
}

LookingThrough::LookingThrough() { ++looking_through; }
LookingThrough::~LookingThrough() { --looking_through; }

}  // namespace orrery
