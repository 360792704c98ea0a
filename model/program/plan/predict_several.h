// SPDX-License-Identifier: Apache-2.0
// `plan predict` with lists: one row for each combination of values.
#pragma once

#include <vector>

#include "model/program/common/answer.h"
#include "model/program/plan/study.h"

namespace orrery::cli {

struct SeveralPredictions {
  const Study& study;
  Engine engine;
  const Flag &json, &bundle;
  std::vector<const Flag*> of_one_layout;  // refused where they are given
};

// Rows have the engine of a single prediction. Throws InputError.
Answer PredictSeveral(const SeveralPredictions& asked);

}  // namespace orrery::cli
