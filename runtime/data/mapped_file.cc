// SPDX-License-Identifier: Apache-2.0
// open, fstat, mmap.
#include "runtime/data/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace orrery {

MappedFile::MappedFile(const std::string& path) {
  // A pipe would be waited for without O_NONBLOCK. Links are followed: the caches of HuggingFace's hub consist of them.
  file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) throw MappingError(fmt::format("cannot be read: {}", std::strerror(errno)));
  try {
    Map();
  } catch (...) {
    Close();
    throw;
  }
}

MappedFile::~MappedFile() { Close(); }

void MappedFile::Close() {
  if (bytes_ != nullptr) munmap(const_cast<std::byte*>(bytes_), static_cast<std::size_t>(size_));
  close(file_);
}

void MappedFile::Map() {
  struct stat about {};
  if (fstat(file_, &about) != 0 || !S_ISREG(about.st_mode))
    throw MappingError("is no regular file");
  size_ = about.st_size;
  if (size_ == 0) return;
  void* memory = mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED)
    throw MappingError(fmt::format("cannot be mapped: {}", std::strerror(errno)));
  bytes_ = static_cast<const std::byte*>(memory);
}

void MappedFile::CheckWhole() const {
  struct stat about {};
  if (fstat(file_, &about) != 0 || about.st_size < size_)
    throw MappingError(
        fmt::format("has become shorter while it was read, at byte {}", about.st_size));
}

}  // namespace orrery
