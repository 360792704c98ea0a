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

struct Claim {
  std::string path, flag;
  Location where;
};

struct Known {
  std::mutex mutex;
  std::map<FileId, std::string> inputs;  // by the name that each was read by first
  std::map<FileId, Claim> outputs;
} known;

thread_local int looking_through = 0;

// Devices, pipes and terminals are read and written at once.
std::optional<FileId> IdOf(const struct stat& found) {
  if (!S_ISREG(found.st_mode)) return std::nullopt;
  return FileId{found.st_dev, found.st_ino};
}

std::optional<FileId> IdOf(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) return std::nullopt;
  return IdOf(found);
}

std::string Why(const std::string& path, const std::string& input) {
  return path == input ? "this command reads it"
                       : fmt::format("this command reads that file, as '{}'", input);
}

[[noreturn]] void RefuseClaim(const Claim& claim, const std::string& input) {
  throw InputError(
      {{claim.where,
        fmt::format("{}: cannot write '{}': {}", claim.flag, claim.path, Why(claim.path, input)),
        fmt::format("another file for {}", claim.flag)}});
}

void Note(const std::optional<FileId>& id, const std::string& name) {
  if (!id || looking_through > 0) return;
  const std::lock_guard lock(known.mutex);
  known.inputs.try_emplace(*id, name);
  if (const auto claim = known.outputs.find(*id); claim != known.outputs.end())
    RefuseClaim(claim->second, name);
}

}  // namespace

void ForgetInputs() {
  const std::lock_guard lock(known.mutex);
  known.inputs.clear();
  known.outputs.clear();
}

void NoteInput(int descriptor, const std::string& name) {
  struct stat found {};
  if (fstat(descriptor, &found) == 0) Note(IdOf(found), name);
}

void NoteInput(const std::string& path) { Note(IdOf(path), path); }

void ClaimOutput(const std::string& path, const std::string& flag, const Location& where) {
  const std::optional<FileId> id = IdOf(path);
  if (!id) return;
  const Claim claim{path, flag, where};
  const std::lock_guard lock(known.mutex);
  if (const auto input = known.inputs.find(*id); input != known.inputs.end())
    RefuseClaim(claim, input->second);
  known.outputs.try_emplace(*id, claim);
}

std::string WhyInput(const std::string& path) {
  const std::optional<FileId> id = IdOf(path);
  if (!id) return "";
  const std::lock_guard lock(known.mutex);
  const auto input = known.inputs.find(*id);
  return input == known.inputs.end() ? "" : Why(path, input->second);
}

LookingThrough::LookingThrough() { ++looking_through; }
LookingThrough::~LookingThrough() { --looking_through; }

}  // namespace orrery
