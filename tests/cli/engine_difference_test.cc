// SPDX-License-Identifier: Apache-2.0
// Where the engines differ, answers name the term and the link behind it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "model/program/common/candidate_report.h"

namespace orrery::report {
namespace {

using testing::HasSubstr;
using testing::Not;

// Simulated, with `contention` seconds on top of a closed form of 2 s.
Prediction Contended(double contention) {
  StepTime closed;
  closed.compute = 1.5;
  closed.data = 0.5;
  closed.total = closed.Total();
  closed.low = 1.8;
  closed.high = 2.1;
  StepTime time = closed;
  time.contention = contention;
  time.total = time.Total();
  Prediction prediction;
  prediction.SetTime(WithInterval(time, closed));
  prediction.closed_form = closed;
  prediction.simulated = SimulatedStep{
      .ops = 100, .shared = {{CommAxis::kData, contention, "leaf0 -> n0.nic0", {}, false}}};
  return prediction;
}

TEST(EngineDifference, IsNamedAboveFivePercent) {
  EXPECT_EQ(EngineDifference(Contended(0.05)), "");
  EXPECT_EQ(
      EngineDifference(Contended(0.2)),
      "2.20 s simulated, 2.00 s in closed form. Largest difference: contention (+200 ms); "
      "data-parallel communication fills leaf0 -> n0.nic0 by itself. The interval covers both");
}

TEST(EngineDifference, SaysWhoSharesTheLink) {
  Prediction prediction = Contended(0.2);
  prediction.simulated->shared[0].shared_with = {CommAxis::kPipeline};
  prediction.simulated->shared[0].same_axis = true;
  EXPECT_THAT(
      EngineDifference(prediction),
      HasSubstr("data-parallel communication shares leaf0 -> n0.nic0 with transfers between "
                "stages and other groups of the same axis"));
}

TEST(EngineDifference, WithoutABreakdownNamesNoTerm) {
  Prediction prediction = Contended(0.2);
  prediction.time.compute = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(EngineDifference(prediction),
            "2.20 s simulated, 2.00 s in closed form. The interval covers both");
}

TEST(EngineDifference, OfAPerturbedStepIsThePerturbationsAlone) {
  Prediction prediction = Contended(0.2);
  prediction.simulated->perturbed = true;
  EXPECT_EQ(EngineDifference(prediction), "");
  EXPECT_TRUE(CandidateJson(prediction)["engines_differ"].is_null());
}

// Simulated, with `seconds` more of a term than a closed form of 2 s.
Prediction Differing(double Breakdown::*term, double seconds) {
  Prediction prediction = Contended(0);
  StepTime time = *prediction.closed_form;
  time.*term += seconds;
  time.total = time.Total();
  prediction.SetTime(WithInterval(time, *prediction.closed_form));
  prediction.simulated = SimulatedStep{.ops = 100, .shared = {}};
  return prediction;
}

// Each term has a reason; none has that of another, and the interval covers both engines.
TEST(EngineDifference, GivesAReasonForEachTerm) {
  std::set<std::string> reasons;
  for (const BreakdownTerm& term : BreakdownTerms()) {
    if (term.seconds == &Breakdown::contention) continue;
    const std::string words = EngineDifference(Differing(term.seconds, 0.3));
    EXPECT_THAT(words, HasSubstr(std::string("Largest difference: ") + term.name + " (+300 ms); "));
    EXPECT_THAT(words, HasSubstr("the closed form"));
    EXPECT_THAT(words, testing::EndsWith(". The interval covers both"));
    reasons.insert(words.substr(words.find("; ")));
  }
  EXPECT_GE(reasons.size(), 5u);
}

TEST(EngineDifference, ReasonsAreThoseOfTheSimulatedStep) {
  Prediction data = Differing(&Breakdown::data, 0.3);
  EXPECT_THAT(EngineDifference(data), HasSubstr("wait for the one before on their channel"));
  data.time.data_hidden -= 0.3;
  EXPECT_THAT(EngineDifference(data),
              HasSubstr("of the same messages 300 ms less hide behind kernels"));
  data.simulated->uneven.axes = {CommAxis::kData};
  EXPECT_THAT(EngineDifference(data), HasSubstr("take longer between some ranks than between"));
  Prediction bubble = Differing(&Breakdown::bubble, -0.3);
  EXPECT_THAT(EngineDifference(bubble), HasSubstr("stages are alike"));
  bubble.simulated->uneven.stages = 1.5;
  EXPECT_THAT(EngineDifference(bubble), HasSubstr("busiest stage take 1.50 times"));
  Prediction host = Differing(&Breakdown::host, 0.3);
  host.simulated->uneven.host = 1.9;
  EXPECT_THAT(EngineDifference(host), HasSubstr("a host issues the step in 1.90 s"));
}

TEST(EngineDifference, ClaimsNoIntervalThatDoesNotCoverBoth) {
  Prediction prediction = Contended(0.2);
  prediction.time.low = 2.1;
  EXPECT_THAT(EngineDifference(prediction), Not(HasSubstr("covers")));
}

}  // namespace
}  // namespace orrery::report
