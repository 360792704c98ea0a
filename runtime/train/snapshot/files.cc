// SPDX-License-Identifier: Apache-2.0
// Writing aside, flushing, renaming.
#include "runtime/train/snapshot/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <utility>

#include "model/base/read_file.h"

namespace orrery::snapshot {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBuffer = std::size_t{1} << 20;
constexpr std::size_t kUncached = std::size_t{64} << 20;  // in one call

std::string Hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

// What a snapshot is made of is read where it lies, whoever has made it.
template <class Act>
auto Reading(const std::string& path, Act act) {
  try {
    return act(RegularFile(path, Links::kRefuse));
  } catch (const FileError& error) {
    throw SnapshotError(fmt::format("cannot read '{}': {}", path, error.what()));
  }
}

// Of a snapshot's folder by its name; -1: it is none.
int64_t StepOf(const std::string& name) {
  if (!name.starts_with("step-")) return -1;
  const int64_t step = std::atoll(name.c_str() + 5);
  return name == StepFolder(step) ? step : -1;
}

int64_t LatestOf(const std::string& folder) {  // -1: it names none
  constexpr std::size_t kMost = 4096;
  const std::string path = folder + "/" + kLatestName;
  try {
    const std::string text = RegularFile(path, Links::kRefuse).Text(kMost);
    return StepOf(text.substr(0, text.find('\n')));
  } catch (const FileError& error) {
    if (error.missing) return -1;
    throw SnapshotError(fmt::format("cannot read '{}': {}", path, error.what()));
  }
}

}  // namespace

void DiskBuffer::Resize(std::size_t bytes) {
  if (bytes > room_) {
    room_ = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    bytes_.reset();  // first: both would be twice the memory
    bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, room_)));
    if (bytes_ == nullptr) {
      room_ = size_ = 0;
      throw std::bad_alloc();
    }
  }
  size_ = bytes;
}

WholeFile::WholeFile(std::string path)
    : path_(std::move(path)), part_(path_ + ".part"), hash_(XXH3_createState()) {
  XXH3_128bits_reset(hash_);
  buffer_.reserve(kBuffer);
  unlink(part_.c_str());  // of a run that was killed; or a link or a pipe, which is not written to
  file_ = open(part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file_ >= 0) return;
  XXH3_freeState(hash_);
  Fail();
}

WholeFile::~WholeFile() {
  if (file_ >= 0) {
    close(file_);
    unlink(part_.c_str());
  }
  XXH3_freeState(hash_);
}

void WholeFile::Fail() const {
  throw SnapshotError(fmt::format("cannot write '{}': {}", path_, std::strerror(errno)));
}

void WholeFile::Write(const void* from, std::size_t bytes) {
  XXH3_128bits_update(hash_, from, bytes);
  const auto* at = static_cast<const std::byte*>(from);
  if (buffer_.size() + bytes >= kBuffer) {  // large: as it lies there
    Flush();
    const std::size_t done = WriteUncached(at, bytes);
    WriteAll(at + done, bytes - done);
  } else {
    buffer_.insert(buffer_.end(), at, at + bytes);
  }
  bytes_ += static_cast<int64_t>(bytes);
}

// From memory to the disk, past the page cache: the kernel's copy would cost a core more than all else
// that a snapshot does, and nobody reads the file soon. Returns how much of it was written: 0 where the
// file system or the alignment of memory or file does not allow it.
std::size_t WholeFile::WriteUncached(const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kBlock = DiskBuffer::kAlignment;
  const std::size_t whole = bytes / kBlock * kBlock;
  if (reinterpret_cast<std::uintptr_t>(from) % kBlock != 0 || bytes_ % int64_t{kBlock} != 0)
    return 0;
  const int flags = fcntl(file_, F_GETFL);
  if (flags < 0 || fcntl(file_, F_SETFL, flags | O_DIRECT) != 0) return 0;
  std::size_t done = 0;
  while (done < whole) {
    const ssize_t n = write(file_, from + done, std::min(whole - done, kUncached));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL) break;  // of a file system that only says so now
    if (n < 0) Fail();
    done += static_cast<std::size_t>(n);
    if (n % static_cast<ssize_t>(kBlock) != 0) break;  // the disk is nearly full
  }
  if (fcntl(file_, F_SETFL, flags) != 0) Fail();
  return done;
}

void WholeFile::PadTo(int64_t multiple) {
  const std::vector<std::byte> zeros(
      static_cast<std::size_t>((multiple - bytes_ % multiple) % multiple));
  Write(zeros.data(), zeros.size());
}

void WholeFile::Flush() {
  WriteAll(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void WholeFile::WriteAll(const std::byte* from, std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t n = write(file_, from + done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail();
    done += static_cast<std::size_t>(n);
  }
}

void WholeFile::Commit() {
  Flush();
  if (fsync(file_) != 0) Fail();
  const int closed = close(std::exchange(file_, -1));
  if (closed != 0 || std::rename(part_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    unlink(part_.c_str());
    errno = error;
    Fail();
  }
  SyncFolder(fs::path(path_).parent_path());
}

std::string WholeFile::Hash() const { return Hex(XXH3_128bits_digest(hash_)); }

std::string HashOf(const std::string& text) { return Hex(XXH3_128bits(text.data(), text.size())); }

std::string HashOfFile(const std::string& path) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(),
                                                                      XXH3_freeState);
  XXH3_128bits_reset(hash.get());
  return Reading(path, [&](const RegularFile& file) {
    std::vector<std::byte> buffer(kBuffer);
    int64_t at = 0;
    for (;;) {
      const std::size_t n = file.Read(buffer.data(), buffer.size(), at);
      if (n == 0) return Hex(XXH3_128bits_digest(hash.get()));
      XXH3_128bits_update(hash.get(), buffer.data(), n);
      at += static_cast<int64_t>(n);
    }
  });
}

std::string ReadWhole(const std::string& path) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // more than any manifest
  return Reading(path, [](const RegularFile& file) { return file.Text(kMost); });
}

void ReadPart(const std::string& path, int64_t at, std::vector<std::byte>* out) {
  const std::size_t n = Reading(path, [&](const RegularFile& file) {
    return file.Read(out->data(), out->size(), static_cast<off_t>(at));
  });
  if (n == out->size()) return;
  throw SnapshotError(fmt::format("'{}' ends within the bytes from {} on", path, at));
}

void MakeFolder(const std::string& path) {
  std::error_code error;
  // "link/" is the folder behind a link.
  std::string bare = path;
  while (bare.size() > 1 && bare.ends_with('/')) bare.pop_back();
  if (fs::is_symlink(bare, error))
    throw SnapshotError(
        fmt::format("cannot write into '{}': it is a symbolic link, which is not followed", path));
  fs::create_directories(path, error);
  if (!error && !fs::is_directory(path)) error = std::make_error_code(std::errc::not_a_directory);
  if (!error && access(path.c_str(), W_OK | X_OK) != 0) error = {errno, std::generic_category()};
  if (error) throw SnapshotError(fmt::format("cannot write into '{}': {}", path, error.message()));
}

void SyncFolder(const std::string& path) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool good = folder >= 0 && (fsync(folder) == 0 || errno == EINVAL);  // EINVAL: no such need
  const int error = errno;
  if (folder >= 0) close(folder);
  if (!good) throw SnapshotError(fmt::format("cannot write '{}': {}", path, std::strerror(error)));
}

std::string StepFolder(int64_t step) { return fmt::format("step-{:08}", step); }

std::vector<int64_t> StepsIn(const std::string& folder) {
  std::vector<int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const int64_t step = StepOf(it->path().filename());
    std::error_code ignored;
    if (step >= 0 && fs::exists(it->path() / kManifestName, ignored)) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

int64_t LastSaved(const std::string& folder) {
  const std::vector<int64_t> steps = StepsIn(folder);
  const int64_t latest = LatestOf(folder);
  if (std::ranges::find(steps, latest) != steps.end()) return latest;
  return steps.empty() ? -1 : steps.front();
}

std::string StepFileIn(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (StepOf(it->path().filename()) >= 0 && !fs::is_directory(it->path(), ignored))
      return it->path().string();
  }
  return "";
}

std::string WithoutManifest(const std::string& folder) {
  const int64_t latest = LatestOf(folder);
  if (latest < 0) return "";
  std::error_code error;
  const fs::path path = fs::path(folder) / StepFolder(latest);
  return fs::is_directory(path, error) && !fs::exists(path / kManifestName, error) ? path.string()
                                                                                   : "";
}

namespace {

// A folder of a run, and no link to one that somebody has moved elsewhere.
bool IsOwnFolder(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() == fs::file_type::directory;
}

}  // namespace

void RemoveStep(const std::string& folder, int64_t step) {
  const fs::path path = fs::path(folder) / StepFolder(step);
  std::error_code ignored;  // what cannot be removed does no harm
  if (fs::is_symlink(path, ignored)) fs::remove(path, ignored);  // what it points to stays
  if (!IsOwnFolder(path)) return;
  fs::remove(path / kManifestName, ignored);
  fs::remove_all(path, ignored);
}

void Prune(const std::string& folder, std::size_t keep, const std::vector<int64_t>& refused) {
  const std::vector<int64_t> steps = StepsIn(folder);
  std::size_t usable = 0;
  for (const int64_t step : steps) {
    if (std::ranges::find(refused, step) != refused.end()) continue;
    if (++usable > keep && IsOwnFolder(fs::path(folder) / StepFolder(step)))
      RemoveStep(folder, step);
  }
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const int64_t step = StepOf(it->path().filename());
    const bool unfinished =
        step >= 0 && std::ranges::find(steps, step) == steps.end() && IsOwnFolder(it->path());
    if (unfinished) RemoveStep(folder, step);
  }
}

}  // namespace orrery::snapshot
