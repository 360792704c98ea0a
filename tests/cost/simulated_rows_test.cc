// SPDX-License-Identifier: Apache-2.0
// Published runs by the event engine: neither threads nor what is left out changes a time.
#include <gtest/gtest.h>

#include <cmath>

#include "calib/validate/validate.h"

namespace orrery {
namespace {

std::vector<CaseRow> EveryNth(std::size_t n, std::size_t first) {
  const std::vector<CaseRow> rows =
      LoadCases(std::string(ORRERY_SOURCE_DIR) + "/calib/data/published_runs.csv");
  std::vector<CaseRow> some;
  for (std::size_t i = first; i < rows.size(); i += n) some.push_back(rows[i]);
  return some;
}

TEST(SimulatedRows, AreTheSameOnAnyNumberOfThreads) {
  const std::vector<CaseRow> some = EveryNth(23, 0);
  const auto one = PredictCases(some, Engine::kEvent, 1),
             four = PredictCases(some, Engine::kEvent, 4);
  ASSERT_EQ(one.size(), some.size());
  for (std::size_t i = 0; i < some.size(); ++i) {
    EXPECT_EQ(four[i].row.name, some[i].name);
    EXPECT_EQ(four[i].row.notes, one[i].row.notes);
    EXPECT_EQ(four[i].row.refused, one[i].row.refused);
    EXPECT_EQ(four[i].outside, one[i].outside);
    EXPECT_EQ(four[i].predicted_mem_gib, one[i].predicted_mem_gib);
    ASSERT_EQ(four[i].time.has_value(), one[i].time.has_value());
    if (!one[i].time) continue;
    EXPECT_EQ(four[i].time->total, one[i].time->total);
    EXPECT_EQ(four[i].time->low, one[i].time->low);
    EXPECT_EQ(four[i].time->high, one[i].time->high);
  }
}

TEST(SimulatedRows, HaveTheSameTotalWithoutTerms) {
  const std::vector<CaseRow> some = EveryNth(31, 5);
  const auto terms = PredictCases(some, Engine::kEvent);
  const auto totals = PredictCases(some, Engine::kEvent, 0, false);
  for (std::size_t i = 0; i < some.size(); ++i) {
    SCOPED_TRACE(some[i].name);
    ASSERT_EQ(totals[i].time.has_value(), terms[i].time.has_value());
    if (!terms[i].time) continue;
    EXPECT_NEAR(totals[i].time->total, terms[i].time->total, 1e-10 * terms[i].time->total);
    EXPECT_NEAR(totals[i].time->low, terms[i].time->low, 1e-10 * terms[i].time->low);
    EXPECT_FALSE(std::isnan(terms[i].time->compute));
    EXPECT_TRUE(std::isnan(totals[i].time->compute));  // nobody takes it for a figure
  }
}

}  // namespace
}  // namespace orrery
