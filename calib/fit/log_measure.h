// SPDX-License-Identifier: Apache-2.0
// From what a log prints to seconds of one window of a step.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "calib/import/log_facts.h"
#include "calib/import/training_log.h"
#include "calib/validate/case_row.h"

namespace orrery {

struct LogWindow {
  bool micro_step = false;
  measured::StepSize size;                           // of the window
  std::optional<std::pair<int64_t, int64_t>> steps;  // as the log counts; absent: all but the first
};

struct LogMeasurement {
  double seconds = 0;
  int64_t rows = 0;  // lines of the log that it rests on
  std::string how;   // "median of 20 steps"
};

// Times as printed, else rates: their median; of a mean that runs since the start its last value or,
// if the window leaves out the line that the log begins with, the mean between first and last line.
// A micro-step also from the timers forward_microstep and backward_microstep. Throws InputError: the
// log has nothing of this window.
LogMeasurement MeasureLog(const measured::TrainingLog& log, const LogWindow& window);

// Where the time of a window changes for good: mean seconds of the steps before `step` and from it on.
struct LogChange {
  int64_t step = 0;
  double before = 0, after = 0;
};

// The split of the log, without a slow start, that leaves the smallest squares. Absent: the halves differ by less than a
// quarter or than three times the error of their difference, or the log has fewer than four lines.
std::optional<LogChange> ChangeOf(const measured::TrainingLog& log, const LogWindow& window);

// Seconds per rank and step of each kind of work; empty: the log is no trace with operations.
std::map<measured::Work, double> WorkOf(const measured::TrainingLog& log);

// A run of a sheet, with its log.
struct LoggedRun {
  CaseRow row;      // measured_step_s: of its log
  std::string log;  // path
  std::optional<std::pair<int64_t, int64_t>> steps;
  bool predict = false;
  measured::TrainingLog read;
  measured::LogFacts facts;         // what the log says of its machine, release and arguments
  std::string how;                  // "mean of steps 1 to 80, DeepSpeed"
  std::optional<LogChange> change;  // of the whole log
};

}  // namespace orrery
