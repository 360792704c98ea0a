// SPDX-License-Identifier: Apache-2.0
// A file of tokens, mapped into memory.
//
// NAME.bin with llm.c's header (magic 20240520, version 1: uint16; 20240801, version 7: uint32): as
// the header says. NAME.u16, NAME.u32: little-endian numbers, nothing else. NAME.bin without that
// header: uint16 when the vocabulary fits, else uint32. Any other name: text, one token a byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/data/data_source.h"
#include "runtime/data/mapped_file.h"

namespace orrery::train {

class TokenFile {
 public:
  // Throws DataError, with the file and the byte at fault: unreadable, truncated, of odd size, or
  // of another format.
  TokenFile(std::string path, int64_t vocab);

  const std::string& path() const { return path_; }
  int64_t tokens() const { return tokens_; }
  int width() const { return width_; }  // bytes a token
  // Tokens [first, first + out.size()). Throws DataError for tokens beyond the vocabulary, and when
  // the file has become shorter.
  void Copy(int64_t first, std::span<uint32_t> out) const;
  // Copy's check for the first `most` bytes, without copying.
  void Check(int64_t most) const;

 private:
  void ReadFormat();
  void ReadHeader();
  void CheckWhole() const;
  uint32_t Token(int64_t index) const;
  [[noreturn]] void Fail(const std::string& what) const;
  [[noreturn]] void FailAt(int64_t index) const;

  std::string path_;
  int64_t vocab_;
  std::unique_ptr<const MappedFile> file_;
  int64_t begin_ = 0;  // of the tokens
  int width_ = 1;
  int64_t tokens_ = 0;
};

}  // namespace orrery::train
