// SPDX-License-Identifier: Apache-2.0
// A record beside a trace, and which of the two is a prediction.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "calib/compare/parts.h"
#include "calib/program/compare/compare_report.h"
#include "tests/compare/testing.h"

namespace orrery::compare {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string OneLine(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// One compute stream and its messages, on two ranks of which the second one computes longer; each kernel names its term.
std::string TermTrace(bool of_run, double compute_us) {
  std::string events;
  const auto add = [&](int rank, const char* name, const char* term, double at, double us) {
    events += fmt::format(
        R"({}{{"ph": "X", "cat": "kernel", "name": "{}", "pid": {}, "tid": 0, "ts": {}, "dur": {}, "args": {{"phase": "forward", "term": "{}"}}}})",
        events.empty() ? "" : ",\n", name, rank, at, us, term);
  };
  for (int rank = 0; rank < 2; ++rank) {
    const double own = compute_us * (rank == 0 ? 0.5 : 1);
    add(rank, "mm", "compute", 0, own);
    add(rank, "all_reduce", "data-parallel communication", own, compute_us + 300e3 - own);
    add(rank, "adam", "optimizer", compute_us + 300e3, 200e3);
  }
  return fmt::format(R"({{"digest": "d", {}"traceEvents": [{}]}})",
                     of_run ? R"("clock_error_us": 0.0, )" : "", events);
}

// A record was held against nothing, and a trace said to be missing that was there.
TEST(RecordAndTrace, ARecordAndATraceHaveKernelsInCommon) {
  const auto record = [](const char* schema) {
    return std::string(R"({"schema": "orrery.)") + schema +
           R"(/1", "digest": "d", "steps": [{"step": 1, "seconds": 1.0}], "prediction": {"step_time_s": 1.0},
"breakdown": {"compute_s": 0.5, "data_exposed_s": 0.1, "bubble_s": 0.2, "optimizer_s": 0.2}})";
  };
  const Comparison c = Beside(TermTrace(false, 700e3), record("run"));
  ASSERT_EQ(c.by_part.size(), 3u);  // of the rank that computes longest
  EXPECT_EQ(c.by_part[0].work, "compute");
  EXPECT_NEAR(c.by_part[0].predicted, 0.7, 1e-9);
  EXPECT_NEAR(c.by_part[0].measured, 0.5, 1e-9);
  for (const Term& term : c.by_part)
    EXPECT_NEAR(term.difference(), term.work == "compute" ? -0.2 : 0, 1e-9) << term.work;
  const std::string text = OneLine(ComparisonText(c));
  EXPECT_THAT(text, HasSubstr("Largest term: compute, 700 ms predicted, 500 ms measured"));
  EXPECT_THAT(text, HasSubstr("two records (--json FILE) or two traces"));
  EXPECT_THAT(text, Not(HasSubstr("With a trace of it")));
}

// Traces that hold the breakdown of their step are compared by it, as records are: bubbles and contention, too. Sums of waits on
// each rank stood in its place.
TEST(RecordAndTrace, TwoTracesHaveTheBreakdownOfTheirRecords) {
  const auto with = [](std::string trace, const char* breakdown) {
    return trace.insert(1, std::string(R"("breakdown": )") + breakdown + ", ");
  };
  const std::string predicted = with(
      TermTrace(false, 700e3),
      R"({"compute_s": 0.7, "data_exposed_s": 0.1, "bubble_s": 0.2, "contention_s": 0.05, "hidden_s": 9})");
  const Comparison c = Beside(
      predicted,
      with(TermTrace(true, 700e3),
           R"({"compute_s": 0.8, "data_exposed_s": 0.1, "bubble_s": 0, "contention_s": 0.0})"));
  ASSERT_EQ(c.by_part.size(), 4u);
  EXPECT_EQ(c.by_part[0].work, "pipeline bubble");
  EXPECT_NEAR(c.by_part[0].predicted, 0.2, 1e-9);
  EXPECT_FALSE(c.by_work.empty());  // kernels as before
  for (const Term& term : c.by_part) EXPECT_NE(term.work, kWaiting);
  // A trace of an older release has no breakdown.
  const Comparison older = Beside(predicted, TermTrace(true, 700e3));
  EXPECT_TRUE(
      std::ranges::any_of(older.by_part, [](const Term& term) { return term.work == kWaiting; }));
}

TEST(RecordAndTrace, WhatIsMissingForTermsIsNamed) {
  const std::string step =
      R"({"schema": "orrery.predict/1", "digest": "d", "prediction": {"step_time_s": 1.0}})";
  EXPECT_THAT(OneLine(ComparisonText(Beside(step, TermTrace(true, 700e3)))),
              AllOf(HasSubstr("With --trace FILE of plan simulate in its place"),
                    Not(HasSubstr("plan run --trace"))));
  const std::string run =
      R"({"schema": "orrery.run/1", "digest": "d", "steps": [{"step": 1, "seconds": 9}]})";
  EXPECT_THAT(OneLine(ComparisonText(Beside(TermTrace(false, 700e3), run))),
              AllOf(HasSubstr("With a trace of it (plan run --trace"),
                    Not(HasSubstr("and --trace FILE of plan simulate"))));
}

TEST(RecordAndTrace, ATraceOfARunIsNoPrediction) {
  const std::string run = TermTrace(true, 700e3);
  for (const std::string& measured : {run, TermTrace(false, 700e3)})
    EXPECT_THAT(ErrorOf(run, measured),
                AllOf(HasSubstr("the first file is a trace of plan run"),
                      HasSubstr("--trace FILE of plan simulate writes it")));
  EXPECT_EQ(ErrorOf(TermTrace(false, 700e3), run), "");
}

}  // namespace
}  // namespace orrery::compare
