// SPDX-License-Identifier: Apache-2.0
// A file without a name, and medians by counting digits.
#include "runtime/program/run/step_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace orrery::cli {
namespace {

constexpr std::size_t kKept = 16'384;  // records in memory

int OpenUnnamed() {
  const char* given = std::getenv("TMPDIR");
  const std::string folder = given != nullptr && *given != '\0' ? given : "/tmp";
  const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0) return file;
  std::string name = folder + "/orrery-steps-XXXXXX";  // of a file system without such files
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) unlink(name.c_str());
  return named;
}

// Of as many bytes as asked for; false: not all.
template <class Call, class Byte>
bool Whole(Call call, int file, Byte* at, std::size_t bytes, off_t where) {
  while (bytes > 0) {
    const ssize_t n = call(file, at, bytes, where);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n, where += n, bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

// Whole numbers in the order of the values.
uint64_t KeyOf(double value) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  const auto bits = std::bit_cast<uint64_t>(value);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

double ValueOf(uint64_t key) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  return std::bit_cast<double>((key & kSign) != 0 ? key ^ kSign : ~key);
}

// Finds the value that has `rank` smaller ones: each pass over the values decides 16 bits of its key, the highest first, by
// counting those that begin like it.
class Selection {
 public:
  static constexpr int kDigit = 16, kPasses = 64 / kDigit;

  explicit Selection(int64_t rank) : rank_(rank), counts_(std::size_t{1} << kDigit) {}

  void Count(uint64_t key) {
    if (shift_ + kDigit < 64 && key >> (shift_ + kDigit) != begin_) return;
    ++counts_[key >> shift_ & (counts_.size() - 1)];
  }
  void EndPass() {
    std::size_t digit = 0;
    while (digit + 1 < counts_.size() && counts_[digit] <= rank_) rank_ -= counts_[digit++];
    begin_ = begin_ << kDigit | digit;
    shift_ -= kDigit;
    std::ranges::fill(counts_, 0);
  }
  double value() const { return ValueOf(begin_); }

 private:
  int64_t rank_;
  int shift_ = 64 - kDigit;
  uint64_t begin_ = 0;
  std::vector<int64_t> counts_;
};

}  // namespace

RecordFile::~RecordFile() {
  if (file_ >= 0) close(file_);
}

RecordFile::RecordFile(RecordFile&& other) noexcept
    : bytes_(other.bytes_),
      tail_(std::move(other.tail_)),
      filed_(std::exchange(other.filed_, 0)),
      file_(std::exchange(other.file_, -1)),
      refused_(other.refused_) {}

void RecordFile::Add(const void* record) {
  const auto* at = static_cast<const std::byte*>(record);
  tail_.insert(tail_.end(), at, at + bytes_);
  if (tail_.size() >= kKept * bytes_ && !refused_) MoveTail();
}

void RecordFile::MoveTail() {
  if (file_ < 0) file_ = OpenUnnamed();
  refused_ = file_ < 0 ||
             !Whole(pwrite, file_, tail_.data(), tail_.size(), filed_ * static_cast<off_t>(bytes_));
  if (refused_) return;
  filed_ += static_cast<int64_t>(tail_.size() / bytes_);
  tail_.clear();
}

void RecordFile::Read(int64_t first, int64_t count, void* to) const {
  auto* at = static_cast<std::byte*>(to);
  const int64_t in_file = std::clamp<int64_t>(filed_ - first, 0, count);
  const std::size_t bytes = static_cast<std::size_t>(in_file) * bytes_;
  if (!Whole(pread, file_, at, bytes, first * static_cast<off_t>(bytes_)))
    throw std::runtime_error("the records of the first steps cannot be read again");
  if (count == in_file) return;
  const auto skipped = static_cast<std::size_t>(first + in_file - filed_) * bytes_;
  std::memcpy(at + bytes, tail_.data() + skipped, static_cast<std::size_t>(count) * bytes_ - bytes);
}

std::vector<double> MediansOf(const Rows& rows, std::size_t columns) {
  int64_t count = 0;
  rows([&](std::span<const double>) { ++count; });
  if (count == 0) return std::vector<double>(columns, 0);
  std::vector<Selection> upper(columns, Selection(count / 2)),
      lower(columns, Selection((count - 1) / 2));
  for (int pass = 0; pass < Selection::kPasses; ++pass) {
    rows([&](std::span<const double> row) {
      for (std::size_t c = 0; c < columns; ++c) {
        const uint64_t key = KeyOf(row[c]);
        upper[c].Count(key);
        lower[c].Count(key);
      }
    });
    for (std::size_t c = 0; c < columns; ++c) upper[c].EndPass(), lower[c].EndPass();
  }
  std::vector<double> medians;
  for (std::size_t c = 0; c < columns; ++c)
    medians.push_back(count % 2 == 1 ? upper[c].value()
                                     : (lower[c].value() + upper[c].value()) / 2);
  return medians;
}

}  // namespace orrery::cli
