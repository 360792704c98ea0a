// SPDX-License-Identifier: Apache-2.0
// Lines that several ranks print on one step, as one sample.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "calib/import/training_log.h"

namespace orrery::measured {

// Who prints a line; -1: not said.
struct Printer {
  int64_t task = -1, rank = -1;  // task: of srun --label, which starts the ranks of a node
  auto operator<=>(const Printer&) const = default;
};

// By the label that a launcher puts in front of a line: "[rank2]:" is torchrun's of a rank of its node, as "[default2]:" is,
// "1: [rank2]:" that of srun --label's task 1.
Printer PrinterOf(std::string_view text);
// Of labels that count the ranks of all nodes: "5: " is that of srun's task 5, "[1,5]<stdout>:" of mpirun's rank 5. -1: none.
int64_t RankOfAll(std::string_view text);

// What stands behind such labels.
std::string_view WithoutLabels(std::string_view text);

// Milliseconds of "2026-02-01 10:00:10,000", by the clock of whoever prints it.
std::optional<int64_t> TimeIn(std::string_view text);

class RankLines {
 public:
  // `unique`: no two ranks have one number, as they have where each node counts its own.
  RankLines(TrainingLog* log, bool unique) : log_(*log), unique_(unique) {}

  // Ranks take each step together. One that counts from an earlier step again, or says a step twice, is of a job that has
  // restarted: its lines are of the next life. `time`: when it was printed, in milliseconds, by the printer's clock.
  void Add(const Printer& printer, std::optional<int64_t> time, StepSample step);

 private:
  struct Last {
    int64_t step = 0, life = 0;
  };
  int64_t LifeOfNew(int64_t step) const;
  bool IsLate(int64_t life, std::optional<int64_t> time, int64_t step);

  TrainingLog& log_;
  bool unique_;
  int64_t newest_ = 0;  // life of any rank
  std::map<Printer, Last> last_;
  std::map<std::pair<int64_t, int64_t>, std::size_t> samples_;  // by life and step
  std::map<int64_t, std::map<int64_t, int64_t>> times_;         // likewise: when first printed, ms
};

}  // namespace orrery::measured
