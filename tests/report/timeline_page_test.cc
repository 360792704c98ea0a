// SPDX-License-Identifier: Apache-2.0
// The timelines of pages: every pass and message of a simulated and of a measured step, waits told from work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "tests/cli/run_plan.h"
#include "tests/report/page_reader.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

struct TimelineAnswer {
  std::string html;
  json answer;
};

TimelineAnswer OpenTimeline(std::vector<std::string> words) {
  const std::string page = ScratchFolder() + "/page.html", record = ScratchFolder() + "/page.json";
  words.insert(words.end(), {"--html", page, "--json", record});
  const Outcome outcome = RunPlan(words);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return {ReadText(page), json::parse(ReadText(record), nullptr, false)};
}

// Of a message, until its last partner has come.
double Waits(const json& span) {
  return span.contains("met_s") ? span["met_s"].get<double>() - span["start_s"].get<double>() : 0;
}

bool IsWait(const PageMark& mark) {
  const auto name = mark.attributes.find("class");
  return name != mark.attributes.end() && name->second == "wait";
}

TEST(TimelinePage, HasEveryPassOfEveryStage) {
  const TimelineAnswer made =
      OpenTimeline({"simulate", "--model", "gpt2-xl", "--topology", "aws-p4d", "--nodes", "2",
                    "--pp", "4", "--tp", "1", "--micro-batch", "2", "--global-batch", "64"});
  const json& answer = made.answer;
  const json& timeline = answer["timeline"];
  ASSERT_EQ(timeline["joined"], 0);
  const auto micro_batches = answer["prediction"]["micro_batches"].get<std::size_t>();
  std::set<int> stages;
  for (const json& lane : timeline["lanes"]) {
    double last = 0;
    std::size_t forward = 0, backward = 0;
    for (const json& span : lane["spans"]) {
      EXPECT_GE(span["start_s"].get<double>(), last - 1e-12);
      if (lane["compute"]) last = span["end_s"];
      EXPECT_LE(span["end_s"].get<double>(), timeline["seconds"].get<double>() + 1e-12);
      forward += span["phase"] == "forward";
      backward += span["phase"] == "backward";
    }
    if (!lane["compute"]) continue;
    stages.insert(lane["stage"].get<int>());
    EXPECT_EQ(forward, micro_batches);
    EXPECT_EQ(backward, micro_batches);
  }
  EXPECT_EQ(stages.size(), 4u);
  std::size_t marks = 0, waits = 0, spans = 0, waiting = 0;
  for (const json& lane : timeline["lanes"]) {
    spans += lane["spans"].size();
    for (const json& span : lane["spans"]) waiting += Waits(span) > 0;
  }
  for (const PageMark& mark : MarksOf(made.html)) {
    if (mark.section != "timeline" || mark.tag != "rect") continue;
    ++(IsWait(mark) ? waits : marks);
    const std::string& value = mark.attributes.at("data-v");
    const double x = std::stod(mark.attributes.at("x")) / 1e4 * timeline["seconds"].get<double>();
    EXPECT_NEAR(x, std::stod(value), 1e-6 * timeline["seconds"].get<double>());
  }
  EXPECT_EQ(marks, spans);
  EXPECT_EQ(waits, waiting);
}

// The last stage's gradient norm waits for the other stages' a third of the step; it was drawn as an optimizer at work.
TEST(TimelinePage, WaitsAreNotDrawnAsWork) {
  const TimelineAnswer made =
      OpenTimeline({"simulate", "--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "1",
                    "--tp", "1", "--pp", "4", "--micro-batch", "8", "--global-batch", "64"});
  const json& timeline = made.answer["timeline"];
  const double step = timeline["seconds"];
  double longest = 0;
  for (const json& lane : timeline["lanes"]) {
    double waits = 0;
    for (const json& span : lane["spans"]) {
      const double drawn = span["end_s"].get<double>() - span["start_s"].get<double>();
      EXPECT_LE(span["busy_s"].get<double>(), drawn - Waits(span) + 1e-12);
      // Of what is drawn as one pass hardly anything is a wait.
      if (lane["compute"]) {
        EXPECT_LT(drawn - Waits(span) - span["busy_s"].get<double>(), 0.01 * step) << span;
        waits += Waits(span);
      }
    }
    longest = std::max(longest, waits);
  }
  EXPECT_GT(longest, 0.1 * step);
  double drawn = 0;
  for (const PageMark& mark : MarksOf(made.html)) {
    if (mark.section != "timeline" || !IsWait(mark)) continue;
    EXPECT_EQ(mark.attributes.at("height"), "3");  // told from work without colour
    drawn = std::max(drawn, std::stod(mark.attributes.at("width")) / 1e4 * step);
  }
  EXPECT_GT(drawn, 0.1 * step);
  EXPECT_THAT(made.html, AllOf(HasSubstr("a thin line in front of a message is its wait"),
                               HasSubstr("message waits for its partners</li>")));
}

// Both ranks say of each reduction when the later of them came.
void ExpectRanksMeet(const json& timeline) {
  EXPECT_TRUE(timeline["meetings_known"]);
  std::map<int, std::vector<std::pair<double, double>>> came;  // by rank: start, met
  for (const json& lane : timeline["lanes"]) {
    for (const json& span : lane["spans"]) {
      if (span.contains("met_s") && span["name"] == "all_reduce")
        came[lane["rank"]].emplace_back(span["start_s"], span["met_s"]);
    }
  }
  ASSERT_FALSE(came[0].empty());
  ASSERT_EQ(came[0].size(), came[1].size());
  for (std::size_t i = 0; i < came[0].size(); ++i) {
    const double later = std::max(came[0][i].first, came[1][i].first);
    for (const int rank : {0, 1}) EXPECT_NEAR(came[rank][i].second, later, 1e-9) << i;
  }
}

// The page of a run shows each op of its trace, at the same time on every rank.
TEST(TimelinePage, OfARunIsItsTrace) {
  const std::string trace = ScratchFolder() + "/trace.json";
  const TimelineAnswer made =
      OpenTimeline({"run", "--model", "linear-20-1", "--global-batch", "8", "--dp", "2", "--comm",
                    "local", "--steps", "3", "--trace", trace});
  const json& timeline = made.answer["timeline"];
  EXPECT_EQ(timeline["step"], 3);
  EXPECT_EQ(timeline["ranks"], 2);
  EXPECT_EQ(timeline["joined"], 0);
  using Op = std::tuple<int, std::string, std::string, int, int64_t>;  // to the nanosecond
  std::multiset<Op> traced, drawn;
  const auto nanoseconds = [](double seconds) { return std::llround(1e9 * seconds); };
  const json events = json::parse(ReadText(trace))["traceEvents"];
  for (const json& event : events) {
    if (event["ph"] != "X") continue;
    traced.emplace(event["pid"], event["name"], event["args"]["phase"],
                   event["args"]["micro_batch"], nanoseconds(1e-6 * event["dur"].get<double>()));
  }
  std::set<int> ranks;
  for (const json& lane : timeline["lanes"]) {
    ranks.insert(lane["rank"].get<int>());
    for (const json& span : lane["spans"]) {
      const double start = span["start_s"], end = span["end_s"];
      EXPECT_GE(start, 0);
      EXPECT_LE(end, timeline["seconds"].get<double>() + 1e-12);
      drawn.emplace(lane["rank"], span["name"], span["phase"], span["micro_batch"],
                    nanoseconds(end - start));
    }
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1}));
  EXPECT_EQ(drawn, traced);
  std::size_t marks = 0;
  for (const PageMark& mark : MarksOf(made.html))
    marks += mark.section == "timeline" && mark.tag == "rect" && !IsWait(mark);
  EXPECT_EQ(marks, drawn.size());
  ExpectRanksMeet(timeline);
  EXPECT_THAT(made.html, HasSubstr("Step 3 as it ran: a lane for each rank"));
}

// Thousands of ops a rank and many ranks: passes, then the first and the last of them.
TEST(TimelinePage, OfALargeRunStaysSmall) {
  const TimelineAnswer made =
      OpenTimeline({"run", "--model", "linear-20-1", "--dp", "4", "--global-batch", "2048",
                    "--micro-batch", "1", "--steps", "1", "--comm", "local"});
  const json& timeline = made.answer["timeline"];
  std::size_t spans = 0;
  for (const json& lane : timeline["lanes"]) spans += lane["spans"].size();
  EXPECT_GT(spans, 100u);
  EXPECT_LT(spans, 4900u);
  EXPECT_GT(timeline["joined"].get<int>(), 1000);
  EXPECT_THAT(made.html, HasSubstr("in the middle of their lanes are joined"));
  EXPECT_LT(made.html.size(), 2'000'000u);
  EXPECT_EQ(Differences(made.html, made.answer), "");
}

}  // namespace
}  // namespace orrery
