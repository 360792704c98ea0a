// SPDX-License-Identifier: Apache-2.0
// How far a study is, on standard error: a line that changes on a terminal, lines one below the other in a log.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace orrery::cli {

struct StudyProgressOptions {
  std::string speaker;       // "plan sweep": begins each line of a log
  int64_t rows = 0;          // of the study
  int64_t rows_before = 0;   // there already, no part of the rate
  bool on_terminal = false;  // who looks; else a log is written
  double first_line_s = 2;   // in a log; from then on at twice the time, at most a minute apart
};

// Ends with its scope, and then leaves nothing on a terminal.
class StudyProgress {
 public:
  // `count`: rows that are there now, of all processes; called from a thread of its own.
  StudyProgress(StudyProgressOptions options, std::function<int64_t()> count);
  ~StudyProgress();

 private:
  void Show();
  std::string Line(double seconds) const;

  const StudyProgressOptions options_;
  const std::function<int64_t()> count_;
  std::mutex mutex_;  // guards ends_
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread thread_;  // last: it uses all the others; none where no further thread is allowed
};

}  // namespace orrery::cli
