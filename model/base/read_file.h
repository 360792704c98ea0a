// SPDX-License-Identifier: Apache-2.0
// Files that somebody else may have made, read.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace orrery {

// Why a file is not read, without its name: "it is no regular file".
struct FileError : std::runtime_error {
  FileError(const std::string& why, bool is_missing)
      : std::runtime_error(why), missing(is_missing) {}
  bool missing;  // nothing has this name
};

// kRefuse: for names that a program of ours gives; whoever may write there would choose what is read.
enum class Links { kFollow, kRefuse };

// A regular file, open. A pipe, which would be waited for, and a device, which may never end, are refused at once.
class RegularFile {
 public:
  RegularFile(const std::string& path, Links links);  // throws FileError
  ~RegularFile();
  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&&) = delete;

  int descriptor() const { return file_; }
  mode_t mode() const { return mode_; }
  off_t size() const { return size_; }  // when it was opened
  // Bytes from `at` on, up to `bytes`: fewer only at the file's end. Throws FileError.
  std::size_t Read(void* to, std::size_t bytes, off_t at) const;
  // All of it. Throws FileError, also where it is larger than `most` bytes.
  std::string Text(std::size_t most) const;

 private:
  int file_ = -1;
  mode_t mode_ = 0;
  off_t size_ = 0;
};

// Throws FileError where an open file is no regular one.
void CheckRegular(int descriptor);

}  // namespace orrery
