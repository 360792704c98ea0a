// SPDX-License-Identifier: Apache-2.0
// Threads take chunks of rows in turn; chunk c belongs to process c mod the number of processes.
#include "model/program/plan/study_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "model/base/parallel.h"
#include "model/base/text.h"

namespace orrery::cli {
namespace {

constexpr int64_t kChunk = 32;

class Runner {
 public:
  Runner(const Study& study, const StudyRunOptions& options, const std::vector<bool>& done,
         const std::function<void(const std::vector<StudyRow>&)>& sink)
      : study_(study), options_(options), done_(done), sink_(sink) {
    for (int64_t row = 0; row < study.rows(); ++row) todo_ += Mine(row / kChunk) && !Done(row);
  }

  int64_t Run() {
    std::thread progress;
    try {
      if (options_.show_progress) progress = std::thread([this] { ShowProgress(); });
    } catch (const std::system_error&) {
      // No further thread is allowed: the rows matter more.
    }
    OnThreads(options_.threads, [this](int) { Work(); });
    {
      const std::lock_guard lock(mutex_);
      finished_ = true;
    }
    ended_.notify_all();
    if (progress.joinable()) progress.join();
    if (failure_) std::rethrow_exception(failure_);
    return rows_;
  }

 private:
  bool Done(int64_t row) const { return !done_.empty() && done_[static_cast<std::size_t>(row)]; }
  bool Mine(int64_t chunk) const { return chunk % options_.place.size == options_.place.rank; }

  void Work() {
    try {
      StudyPredictor predictor(study_, options_.engine);
      for (;;) {
        const int64_t chunk = next_++ * options_.place.size + options_.place.rank;
        if (chunk * kChunk >= study_.rows() || stop_) return;
        std::vector<StudyRow> rows;
        const int64_t end = std::min((chunk + 1) * kChunk, study_.rows());
        for (int64_t row = chunk * kChunk; row < end; ++row) {
          if (!Done(row)) rows.push_back(predictor.Predict(row));
        }
        if (rows.empty()) continue;
        sink_(rows);
        rows_ += static_cast<int64_t>(rows.size());
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      stop_ = true;
    }
  }

  void ShowProgress() {
    const auto begin = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, std::chrono::seconds(1), [this] { return finished_; })) {
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      const double rate = static_cast<double>(rows_) / seconds;
      const double left = rate > 0 ? static_cast<double>(todo_ - rows_) / rate : 0;
      fmt::print(stderr, "\r\033[K{} of {} rows{}, {:.0f} rows/s, {} left", rows_.load(), todo_,
                 options_.place.size > 1 ? " of this process" : "", rate, Format(Seconds(left)));
      std::fflush(stderr);
    }
    fmt::print(stderr, "\r\033[K");
  }

  const Study& study_;
  const StudyRunOptions& options_;
  const std::vector<bool>& done_;
  const std::function<void(const std::vector<StudyRow>&)>& sink_;
  int64_t todo_ = 0;
  std::atomic<int64_t> next_ = 0, rows_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;  // guards the two below
  bool finished_ = false;
  std::exception_ptr failure_;
  std::condition_variable ended_;
};

}  // namespace

int64_t RunStudy(const Study& study, const StudyRunOptions& options, const std::vector<bool>& done,
                 const std::function<void(const std::vector<StudyRow>&)>& sink) {
  return Runner(study, options, done, sink).Run();
}

}  // namespace orrery::cli
