// SPDX-License-Identifier: Apache-2.0
// Steps whose batch is no whole number of micro-batches, or of rounds of an interleaved pipeline.
//
// A replica's b = ceil(batch / dp) sequences are cut into whole micro-batches of m and one of r = b mod m. The step
// lies between those of floor(b / m) and one more micro-batch: without a pipeline it is the shorter one and a
// micro-step of r; with one it is in between by r / m, or by the rounds of pp micro-batches that are full.
#pragma once

#include <functional>
#include <variant>

#include "calib/validate/case_row.h"

namespace orrery {

using PredictBatch =
    std::function<std::variant<StepTime, Refusal>(const Workload&, const Strategy&, Window)>;

// The row, or the next larger one that is a whole number of micro-batches and rounds.
struct WholeSteps {
  Workload work;
  Strategy strategy;
  bool same = true;  // as the row
};
WholeSteps RoundUp(const CaseRow& row);

// Notes on the row how it was cut.
std::variant<StepTime, Refusal> PredictSteps(CaseRow* row, const PredictBatch& predict);

}  // namespace orrery
