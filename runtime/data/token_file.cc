// SPDX-License-Identifier: Apache-2.0
// Maps token files and checks what they hold.
#include "runtime/data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace orrery::train {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

// llm.c: 256 words, the first three of which are magic number, version and number of tokens.
constexpr int64_t kHeaderBytes = 1024;
constexpr uint32_t kMagicShort = 20240520, kVersionShort = 1;
constexpr uint32_t kMagicWord = 20240801, kVersionWord = 7;

template <class T>
T ReadAs(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void CopyAs(const std::byte* from, std::span<uint32_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = ReadAs<T>(from + i * sizeof(T));
}

// Every second token is 0, and not every first one is: most likely words read as shorts.
bool LooksTwiceAsWide(const std::byte* from, int64_t tokens) {
  bool any = false;
  const int64_t looked = std::min<int64_t>(tokens / 2, 512);
  for (int64_t i = 0; i < looked; ++i) {
    if (ReadAs<uint16_t>(from + 4 * i + 2) != 0) return false;
    any = any || ReadAs<uint16_t>(from + 4 * i) != 0;
  }
  return looked >= 16 && any;
}

}  // namespace

TokenFile::TokenFile(std::string path, int64_t vocab) : path_(std::move(path)), vocab_(vocab) {
  try {
    file_ = std::make_unique<const MappedFile>(path_);
  } catch (const MappingError& error) {
    Fail(error.what());
  }
  if (file_->size() == 0) Fail("is empty, at byte 0");
  ReadFormat();
  CheckWhole();
}

void TokenFile::CheckWhole() const {
  try {
    file_->CheckWhole();
  } catch (const MappingError& error) {
    throw DataError(fmt::format("{}: {}", path_, error.what()));
  }
}

void TokenFile::Fail(const std::string& what) const {
  if (file_ != nullptr) CheckWhole();  // zeros in place of what is gone are no fault of the format
  throw DataError(fmt::format("{}: {}", path_, what));
}

void TokenFile::FailAt(int64_t index) const {
  Fail(fmt::format("token {} at byte {} is beyond the vocabulary of {}", Token(index),
                   begin_ + index * width_, vocab_));
}

void TokenFile::ReadFormat() {
  const bool plain = path_.ends_with(".bin");
  const bool word = path_.ends_with(".u32"), half = path_.ends_with(".u16");
  const uint32_t magic = file_->size() >= 4 ? ReadAs<uint32_t>(file_->bytes()) : 0;
  if (plain && (magic == kMagicShort || magic == kMagicWord)) return ReadHeader();
  if (plain || word || half) width_ = word || (plain && vocab_ > 65536) ? 4 : 2;
  if (file_->size() % width_ != 0) {
    Fail(fmt::format("ends within a token of {} bytes, at byte {}", width_,
                     file_->size() / width_ * width_));
  }
  tokens_ = file_->size() / width_;
  if (plain && width_ == 2 && LooksTwiceAsWide(file_->bytes(), tokens_))
    Fail("every second token is 0, from byte 2 on: uint32 tokens belong in a file named .u32");
}

void TokenFile::ReadHeader() {
  if (file_->size() < kHeaderBytes)
    Fail(
        fmt::format("ends within its header of {} bytes, at byte {}", kHeaderBytes, file_->size()));
  const bool word = ReadAs<uint32_t>(file_->bytes()) == kMagicWord;
  const auto version = ReadAs<uint32_t>(file_->bytes() + 4);
  if (version != (word ? kVersionWord : kVersionShort)) {
    Fail(fmt::format("version {} at byte 4, and only {} is known", version,
                     word ? kVersionWord : kVersionShort));
  }
  width_ = word ? 4 : 2;
  begin_ = kHeaderBytes;
  tokens_ = ReadAs<uint32_t>(file_->bytes() + 8);
  const int64_t expected = begin_ + tokens_ * width_;
  if (file_->size() < expected) {
    Fail(fmt::format("is truncated at byte {}: its header announces {} tokens, {} bytes in all",
                     file_->size(), tokens_, expected));
  }
  if (file_->size() > expected)
    Fail(fmt::format("goes on behind its last token, at byte {}", expected));
}

uint32_t TokenFile::Token(int64_t index) const {
  const std::byte* at = file_->bytes() + begin_ + index * width_;
  if (width_ == 1) return ReadAs<uint8_t>(at);
  return width_ == 2 ? ReadAs<uint16_t>(at) : ReadAs<uint32_t>(at);
}

void TokenFile::Copy(int64_t first, std::span<uint32_t> out) const {
  const std::byte* from = file_->bytes() + begin_ + first * width_;
  if (width_ == 1) CopyAs<uint8_t>(from, out);
  if (width_ == 2) CopyAs<uint16_t>(from, out);
  if (width_ == 4) CopyAs<uint32_t>(from, out);
  CheckWhole();
  const auto wrong = std::find_if(out.begin(), out.end(), [&](uint32_t t) { return t >= vocab_; });
  if (wrong != out.end()) FailAt(first + (wrong - out.begin()));
}

void TokenFile::Check(int64_t most) const {
  uint32_t piece[4096];
  const int64_t end = std::min(tokens_, most / width_);
  for (int64_t first = 0; first < end; first += 4096)
    Copy(first, {piece, static_cast<std::size_t>(std::min<int64_t>(4096, end - first))});
}

}  // namespace orrery::train
