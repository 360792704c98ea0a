// SPDX-License-Identifier: Apache-2.0
// A file of somebody else's, mapped into memory for reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "model/base/read_file.h"

namespace orrery {

// What is wrong with the file, without its name: "cannot be read: ...".
struct MappingError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct MappedRange;

// A file that becomes shorter while it is read ends no process: what is gone reads as zeros, and CheckWhole() behind the
// read says so.
class MappedFile {
 public:
  // Throws MappingError: not there, not to be read, no regular file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* bytes() const { return bytes_; }  // null: the file is empty
  int64_t size() const { return size_; }             // bytes, when it was mapped
  // Throws MappingError where the file has become shorter since it was mapped. Call it behind each read.
  void CheckWhole() const;
  bool torn()
      const;  // something that was read was not there: the part of CheckWhole() that costs nothing

 private:
  void Map();
  void Close();

  RegularFile file_;
  const std::byte* bytes_ = nullptr;
  int64_t size_ = 0;
  MappedRange* range_ = nullptr;
};

}  // namespace orrery
