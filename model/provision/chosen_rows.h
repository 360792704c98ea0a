// SPDX-License-Identifier: Apache-2.0
// Which rows are on the frontier, which of them answer the question, and what keeps its limits.
#pragma once

#include <limits>
#include <utility>
#include <vector>

#include "model/provision/frontier.h"

namespace orrery {

inline bool InTime(const Question& question, Seconds time) {
  return !question.deadline || time <= *question.deadline;
}
inline bool InBudget(const Question& question, Dollars cost) {
  return !question.budget || cost <= *question.budget;
}

// Dollars, and of equal ones (terms are paid whatever a run takes) seconds.
using Price = std::pair<double, double>;
inline constexpr Price kNoPrice = {std::numeric_limits<double>::infinity(),
                                   std::numeric_limits<double>::infinity()};
// Of the runs within the limits.
Price LeastPrice(const Question& question, const std::vector<LeastRun>& runs);

// The cheapest row of each quote that is in time.
std::vector<Price> CheapestRuns(const Question& question, const std::vector<Row>& rows,
                                std::size_t quotes);

// Sorts the rows, cheapest first, of equal cost the faster one, and marks the frontier.
void DrawFrontier(Provisioned* result);

// The rows within the limits and the ties, of a frontier that is drawn.
void Choose(const Question& question, const std::vector<Quote>& quotes, Provisioned* result);

}  // namespace orrery
