// SPDX-License-Identifier: Apache-2.0
// Opens without waiting, then looks at what it has opened: the name may be another file's by then.
#include "model/base/read_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace orrery {
namespace {

constexpr std::size_t kReadAtOnce = std::size_t{1} << 20;

[[noreturn]] void FailRead(int error) {
  throw FileError(std::strerror(error), error == ENOENT || error == ENOTDIR);
}

struct stat RegularOr(int descriptor) {
  struct stat about {};
  if (fstat(descriptor, &about) != 0) FailRead(errno);
  if (!S_ISREG(about.st_mode)) throw FileError("it is no regular file", false);
  return about;
}

}  // namespace

void CheckRegular(int descriptor) { RegularOr(descriptor); }

RegularFile::RegularFile(const std::string& path, Links links) {
  const bool follow = links == Links::kFollow;
  file_ =
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (follow ? 0 : O_NOFOLLOW));
  if (file_ < 0 && errno == ELOOP && !follow)
    throw FileError("it is a symbolic link, which is not followed", false);
  if (file_ < 0) FailRead(errno);
  try {
    const struct stat about = RegularOr(file_);
    mode_ = about.st_mode;
    size_ = about.st_size;
  } catch (...) {
    close(file_);
    throw;
  }
}

RegularFile::~RegularFile() {
  if (file_ >= 0) close(file_);
}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : file_(std::exchange(other.file_, -1)), mode_(other.mode_), size_(other.size_) {}

std::size_t RegularFile::Read(void* to, std::size_t bytes, off_t at) const {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t n =
        pread(file_, static_cast<char*>(to) + done, bytes - done, at + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) FailRead(errno);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

std::string RegularFile::Text(std::size_t most) const {
  std::string text;
  for (;;) {
    // A byte more than it may have: it says whether there is more.
    const std::size_t room = std::min(kReadAtOnce, most + 1 - text.size());
    const std::size_t before = text.size();
    text.resize(before + room);
    const std::size_t n = Read(text.data() + before, room, static_cast<off_t>(before));
    text.resize(before + n);
    if (text.size() > most)
      throw FileError(fmt::format("it is larger than {} bytes, the most that is read", most),
                      false);
    if (n < room) return text;
  }
}

}  // namespace orrery
