// SPDX-License-Identifier: Apache-2.0
// Counts rows now and then.
#include "model/program/plan/study_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <system_error>

#include "model/base/parallel.h"
#include "model/base/text.h"

namespace orrery::cli {

StudyProgress::StudyProgress(StudyProgressOptions options, std::function<int64_t()> count)
    : options_(std::move(options)), count_(std::move(count)) {
  try {
    thread_ = StartThread([this] { Show(); });
  } catch (const std::system_error&) {
    // The rows matter more.
  }
}

StudyProgress::~StudyProgress() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::string StudyProgress::Line(double seconds) const {
  const int64_t rows = count_();
  const double rate = static_cast<double>(rows - options_.rows_before) / seconds;
  std::string line = fmt::format("{} of {} rows, {:.0f} rows/s", rows, options_.rows, rate);
  if (rate > 0)
    line +=
        fmt::format(", {} left", Format(Seconds(static_cast<double>(options_.rows - rows) / rate)));
  return line;
}

void StudyProgress::Show() {
  constexpr double kOnTerminal = 1, kMostApart = 60;
  const auto begin = std::chrono::steady_clock::now();
  double due = options_.on_terminal ? kOnTerminal : options_.first_line_s;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_until(lock,
                              begin + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::duration<double>(due)),
                              [this] { return ends_; })) {
    lock.unlock();  // counting takes its time, and the end does not wait
    const std::string line =
        Line(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    if (options_.on_terminal) {
      fmt::print(stderr, "\r\033[K{}", line);
      due += kOnTerminal;
    } else {
      fmt::print(stderr, "{}: {}\n", options_.speaker, line);
      due += std::min(due, kMostApart);
    }
    std::fflush(stderr);
    lock.lock();
  }
  if (options_.on_terminal) fmt::print(stderr, "\r\033[K");
}

}  // namespace orrery::cli
