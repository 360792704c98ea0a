// SPDX-License-Identifier: Apache-2.0
// flock, which ends with its process.
#include "runtime/train/snapshot/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "model/base/read_file.h"
#include "runtime/comm/secret.h"
#include "runtime/train/snapshot/files.h"
#include "runtime/train/snapshot/manifest_check.h"

namespace orrery::snapshot {
namespace {

bool Lock(int file) {
  using Clock = std::chrono::steady_clock;
  for (const auto until = Clock::now() + std::chrono::seconds(5);;) {
    if (flock(file, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK) return false;
    if (Clock::now() > until) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  errno = EWOULDBLOCK;
  return false;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder) {
  MakeFolder(folder);
  const std::string path = folder + "/.lock";
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (file_ < 0)
    throw SnapshotError(fmt::format(
        "cannot write '{}': {}", path,
        errno == ELOOP ? "it is a symbolic link, which is not followed" : std::strerror(errno)));
  try {
    CheckRegular(file_);
  } catch (const FileError& error) {
    close(file_);
    throw SnapshotError(fmt::format("cannot write '{}': {}", path, error.what()));
  }
  if (!Lock(file_)) {
    const bool taken = errno == EWOULDBLOCK;
    const std::string why = std::strerror(errno);
    char who[96] = "";
    const ssize_t n = taken ? pread(file_, who, sizeof who - 1, 0) : 0;
    close(file_);
    if (!taken) throw SnapshotError(fmt::format("cannot lock '{}': {}", path, why));
    std::string name(who, n > 0 ? static_cast<std::size_t>(n) : 0);
    if (!name.empty() && name.back() == '\n') name.pop_back();
    throw FolderInUse(fmt::format("another run writes into '{}': {}", folder, PlainText(name)));
  }
  const std::string own = fmt::format("process {} on {}\n", getpid(), comm::OwnHost());
  const bool written = ftruncate(file_, 0) == 0 &&
                       pwrite(file_, own.data(), own.size(), 0) == static_cast<ssize_t>(own.size());
  if (written) return;
  const std::string why = std::strerror(errno);
  close(file_);
  throw SnapshotError(fmt::format("cannot write '{}': {}", path, why));
}

FolderLock::~FolderLock() { close(file_); }

}  // namespace orrery::snapshot
