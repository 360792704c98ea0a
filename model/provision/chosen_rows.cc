// SPDX-License-Identifier: Apache-2.0
// Draws the frontier and picks the rows that answer.
#include "model/provision/chosen_rows.h"

#include <algorithm>
#include <limits>

namespace orrery {
namespace {

constexpr double kSameTime = 1e-6;  // a second in two weeks is no choice

}  // namespace

Price LeastPrice(const Question& question, const std::vector<LeastRun>& runs) {
  Price price = kNoPrice;
  for (const LeastRun& run : runs) {
    if (InTime(question, run.time) && InBudget(question, run.cost))
      price = std::min(price, Price{run.cost.value, run.time.value});
  }
  return price;
}

std::vector<Price> CheapestRuns(const Question& question, const std::vector<Row>& rows,
                                std::size_t quotes) {
  std::vector<Price> cheapest(quotes, kNoPrice);
  for (const Row& row : rows) {
    if (InTime(question, row.run.time))
      cheapest[row.quote] =
          std::min(cheapest[row.quote], Price{row.run.cost.value, row.run.time.value});
  }
  return cheapest;
}

void DrawFrontier(Provisioned* result) {
  std::ranges::stable_sort(result->rows, [](const Row& a, const Row& b) {
    return std::pair(a.run.cost.value, a.run.time.value) <
           std::pair(b.run.cost.value, b.run.time.value);
  });
  result->frontier.clear();
  double fastest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < result->rows.size(); ++i) {
    Row& row = result->rows[i];
    row.on_frontier = row.run.time.value < fastest * (1 - kSameTime);
    if (!row.on_frontier) continue;
    fastest = row.run.time.value;
    result->frontier.push_back(i);
  }
}

void Choose(const Question& question, const std::vector<Quote>& quotes, Provisioned* result) {
  const auto in_time = [&](const Row& row) { return InTime(question, row.run.time); };
  const auto in_budget = [&](const Row& row) { return InBudget(question, row.run.cost); };
  for (const std::size_t i : result->frontier) {
    const Row& row = result->rows[i];
    if (!result->cheapest && in_time(row)) result->cheapest = i;
    if (!result->sure && question.deadline &&
        row.run.ProbabilityWithin(*question.deadline) >= kSure)
      result->sure = i;
    if (in_budget(row)) result->fastest = i;  // ever faster along the frontier
    if (question.budget && row.run.ProbabilityWithin(quotes[row.quote], row.nodes + row.run.spares,
                                                     *question.budget) >= kSure)
      result->fastest_sure = i;
  }
  result->feasible = std::ranges::any_of(result->frontier, [&](std::size_t i) {
    return in_time(result->rows[i]) && in_budget(result->rows[i]);
  });
  if (!result->cheapest) return;
  const Row& best = result->rows[*result->cheapest];
  for (Row& row : result->rows) {
    row.tie = in_time(row) && row.run.low_cost <= best.run.high_cost &&
              best.run.low_cost <= row.run.high_cost;
  }
}

}  // namespace orrery
