// SPDX-License-Identifier: Apache-2.0
// Threads take chunks of rows in turn; chunk c belongs to process c mod the number of processes.
#include "model/program/plan/study_run.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include "model/base/parallel.h"

namespace orrery::cli {
namespace {

constexpr int64_t kChunk = 32;

class Runner {
 public:
  Runner(const Study& study, const StudyRunOptions& options, const std::vector<bool>& done,
         const std::function<void(const std::vector<StudyRow>&)>& sink)
      : study_(study), options_(options), done_(done), sink_(sink) {}

  int64_t Run() {
    OnThreads(options_.threads, [this](int) { Work(); });
    if (failure_) std::rethrow_exception(failure_);
    return rows_;
  }

 private:
  bool Done(int64_t row) const { return !done_.empty() && done_[static_cast<std::size_t>(row)]; }

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

  const Study& study_;
  const StudyRunOptions& options_;
  const std::vector<bool>& done_;
  const std::function<void(const std::vector<StudyRow>&)>& sink_;
  std::atomic<int64_t> next_ = 0, rows_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;  // guards failure_
  std::exception_ptr failure_;
};

}  // namespace

int64_t RunStudy(const Study& study, const StudyRunOptions& options, const std::vector<bool>& done,
                 const std::function<void(const std::vector<StudyRow>&)>& sink) {
  return Runner(study, options, done, sink).Run();
}

}  // namespace orrery::cli
