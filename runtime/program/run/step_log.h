// SPDX-License-Identifier: Apache-2.0
// Records of a run's steps in a memory that does not grow with them: the first thousands are kept, the rest is in a file
// without a name (TMPDIR or /tmp), which is gone with the process. Where no file can be written, memory takes them all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <vector>

namespace orrery::cli {

// Records of equal size.
class RecordFile {
 public:
  explicit RecordFile(std::size_t bytes) : bytes_(bytes) {}
  ~RecordFile();
  RecordFile(RecordFile&& other) noexcept;
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  void Add(const void* record);
  int64_t size() const { return filed_ + static_cast<int64_t>(tail_.size() / bytes_); }
  bool filed() const { return filed_ > 0; }
  // `count` records from number `first` on. Throws std::runtime_error: the file cannot be read.
  void Read(int64_t first, int64_t count, void* to) const;

 private:
  void MoveTail();

  std::size_t bytes_;
  std::vector<std::byte> tail_;  // behind those of the file
  int64_t filed_ = 0;
  int file_ = -1;
  bool refused_ = false;  // no file takes more
};

template <class T>
class StepLog {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  StepLog() : file_(sizeof(T)) {}
  void Add(const T& record) { file_.Add(&record); }
  int64_t size() const { return file_.size(); }
  bool filed() const { return file_.filed(); }
  std::vector<T> Part(int64_t first, int64_t count) const {
    std::vector<T> part(static_cast<std::size_t>(count));
    file_.Read(first, count, part.data());
    return part;
  }
  void ForEach(const std::function<void(const T&)>& see) const {
    constexpr int64_t kAtOnce = 4096;
    for (int64_t first = 0; first < size(); first += kAtOnce)
      for (const T& record : Part(first, std::min(kAtOnce, size() - first))) see(record);
  }

 private:
  RecordFile file_;
};

// Calls its argument with each row of values, the same rows whenever it is called.
using Rows = std::function<void(const std::function<void(std::span<const double>)>&)>;

// The median of each column, as Median() of model/base/median.h has it, in a memory that does not grow with the rows; 0 of none.
std::vector<double> MediansOf(const Rows& rows, std::size_t columns);

}  // namespace orrery::cli
