// SPDX-License-Identifier: Apache-2.0
// Collects what is wrong with an input and reads the files that may be wrong.
#include "model/base/diagnostics.h"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string_view>

#include "model/base/any_file.h"
#include "model/base/input_files.h"
#include "model/base/record_named.h"

namespace orrery {
namespace {

constexpr std::size_t kMostKept = 1000;

struct Recorder {
  std::atomic<bool> on = false;
  std::mutex mutex;
  std::vector<SourcePtr> sources;
} recorder;

}  // namespace

InputError::InputError(std::vector<Diagnostic> diagnostics)
    : diagnostics_(std::move(diagnostics)), what_(Render(diagnostics_, /*colour=*/false)) {}

InputError::InputError(std::string message, std::string hint)
    : InputError(std::vector<Diagnostic>{{Location{}, std::move(message), std::move(hint)}}) {}

void Diagnostics::Error(Location where, std::string message, std::string hint) {
  if (list_.size() >= kMostKept) return;
  // Both parts of one flag may have the same fault.
  if (!list_.empty()) {
    const Diagnostic& last = list_.back();
    if (last.where.source == where.source && last.where.line == where.line &&
        last.where.column == where.column && last.message == message && last.hint == hint)
      return;
  }
  list_.push_back({std::move(where), std::move(message), std::move(hint)});
}

void Diagnostics::ThrowIfAny() {
  if (!list_.empty()) throw InputError(list_);
}

SourcePtr ReadSource(const std::string& path, std::size_t max_bytes) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw InputError(fmt::format("cannot read '{}': it is a directory", path), "name a file");
  }
  AnyFile file(path);
  if (file.descriptor() < 0)
    throw InputError(fmt::format("cannot open '{}': {}", path, std::strerror(errno)));
  NoteInput(file.descriptor(), path);
  auto source = std::make_shared<Source>();
  source->name = path;
  char chunk[1 << 16];
  long read = 0;
  while ((read = file.Read(chunk, sizeof chunk)) > 0) {
    const auto got = static_cast<std::size_t>(read);
    if (std::memchr(chunk, 0, got)) {
      const bool gzip =
          source->text.empty() && std::string_view(chunk, got).starts_with("\x1f\x8b");
      throw InputError(fmt::format("'{}' is not a text file: it holds NUL bytes", path),
                       gzip ? "gzip -dc in front: it is compressed" : "");
    }
    if (source->text.size() + got > max_bytes) {
      throw InputError(
          fmt::format("'{}' is larger than {} bytes, the most that is read", path, max_bytes));
    }
    source->text.append(chunk, got);
  }
  if (read < 0) throw InputError(fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  if (recorder.on) {
    const std::lock_guard lock(recorder.mutex);
    recorder.sources.push_back(source);
  }
  return source;
}

void RecordSources() { recorder.on = true; }

void RecordNamed(const std::string& path) {
  if (recorder.on) ReadSource(path);
}

std::vector<SourcePtr> RecordedSources() {
  const std::lock_guard lock(recorder.mutex);
  return recorder.sources;
}

}  // namespace orrery
