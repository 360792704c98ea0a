// SPDX-License-Identifier: Apache-2.0
// Losses that are no numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "calib/import/training_log.h"

namespace orrery::measured {

struct LossFault {
  std::string value;  // "NaN" or "infinite", of the first
  int64_t step = -1;  // that its line is of; -1: the log does not count
  int line =
      0;  // of the first since which all are none; where the last is a number, of the first at all
  std::size_t lines = 0;  // that print none, from there
  bool lasts = false;     // the last loss is none, too
};

// Of any text with losses: "lm loss: nan", "{'loss': nan", "loss -inf". Absent: every loss is a number.
std::optional<LossFault> LossFaultOf(const TrainingLog& log);
// "the loss is NaN since step 120 (line 14)".
std::string WordsOf(const LossFault& fault);

}  // namespace orrery::measured
