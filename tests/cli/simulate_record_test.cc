// SPDX-License-Identifier: Apache-2.0
// The record of `plan simulate` beside that of `plan predict`, and its compressed trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Outcome Plan(const std::string& command, std::vector<std::string> more) {
  std::vector<std::string> words = {
      command, "--model",   "gpt2-small", "--topology",     "dgx-h100", "--nodes",
      "2",     "--pp",      "2",          "--tp",           "2",        "--micro-batch",
      "4",     "--seq-len", "512",        "--global-batch", "64"};
  words.insert(words.end(), more.begin(), more.end());
  return RunPlan(words);
}

json Record(const std::string& command) {
  const Outcome outcome = Plan(command, {"--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return json::parse(outcome.out);
}

// Every key of `one`, as deep as objects go, is in `other`.
void ExpectKeys(const json& one, const json& other, const std::string& place) {
  for (const auto& [key, value] : one.items()) {
    ASSERT_TRUE(other.contains(key)) << place << "/" << key;
    if (value.is_object()) {
      ExpectKeys(value, other[key], place + "/" + key);
    } else if (!other[key].is_null()) {
      EXPECT_EQ(value.type_name(), std::string(other[key].type_name())) << place << "/" << key;
    }
  }
}

TEST(SimulateRecord, HasEveryKeyOfThePrediction) {
  const json predicted = Record("predict"), simulated = Record("simulate");
  ExpectKeys(predicted, simulated, "");
  EXPECT_EQ(simulated["schema"], "orrery.simulate/1");
  EXPECT_EQ(predicted["schema"], "orrery.predict/1");
}

TEST(SimulateRecord, MeansTheSameByThem) {
  const json predicted = Record("predict")["prediction"];
  const json whole = Record("simulate"), simulated = whole["prediction"];
  const double step = simulated["step_time_s"];
  EXPECT_EQ(whole["step_time_s"], step);
  EXPECT_EQ(Record("predict")["digest"], whole["digest"]);
  const auto work = [](const json& record, const char* key) {
    return record[key].get<double>() * record["step_time_s"].get<double>();
  };
  for (const char* key : {"tokens_per_s", "samples_per_s", "mfu"}) {
    EXPECT_NEAR(work(simulated, key), work(predicted, key), 1e-9 * work(predicted, key)) << key;
  }
  double parts = 0;
  for (const auto& [key, seconds] : simulated["breakdown"].items()) {
    EXPECT_GE(seconds.get<double>(), 0) << key;
    if (key != "hidden_s") parts += seconds.get<double>();
  }
  EXPECT_NEAR(parts, step, 1e-9 * step);
  EXPECT_EQ(simulated["memory"], predicted["memory"]);
}

TEST(SimulateRecord, ItsCriticalPathIsTheStep) {
  const json record = Record("simulate");
  double sum = 0;
  for (const auto& [name, seconds] : record["critical_path"]["seconds_by_class"].items())
    sum += seconds.get<double>();
  EXPECT_NEAR(sum, record["played_s"].get<double>(), 1e-9 * sum);
  ASSERT_FALSE(record["critical_path"]["longest_stretches"].empty());
}

TEST(SimulateRecord, ItsLinksAddUpToContention) {
  const json record = Record("simulate");
  double on_links = 0;
  for (const json& link : record["contention_on_links"])
    on_links += link["contention_s"].get<double>();
  EXPECT_NEAR(on_links, record["prediction"]["breakdown"]["contention_s"].get<double>(), 1e-12);
  for (const json& rank : record["ranks"]) {
    EXPECT_LE(rank["memory_peak_bytes"], rank["memory_layout_bytes"]);
    EXPECT_GT(rank["memory_peak_bytes"], 0);
  }
}

TEST(SimulateRecord, HasAnIntervalAndMicroSteps) {
  const json record = Record("simulate"), step = record["prediction"];
  EXPECT_LT(step["step_time_interval_s"][0], step["step_time_s"]);
  EXPECT_GT(step["step_time_interval_s"][1], step["step_time_s"]);
  EXPECT_EQ(record["micro_step_time_s"], Record("predict")["micro_step_time_s"]);
  EXPECT_LT(record["micro_step_time_interval_s"][0], record["micro_step_time_s"]);
}

TEST(SimulateRecord, SaysWhatTheStepWaitsFor) {
  const Outcome outcome = Plan("simulate", {});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Critical path"));
  EXPECT_THAT(outcome.out, HasSubstr("Where the step goes, on rank "));
  EXPECT_THAT(outcome.out, HasSubstr("tokens/s, MFU"));
}

TEST(SimulateRecord, ACompressedTraceHoldsThePlainOne) {
  const std::string folder = ScratchFolder();
  ASSERT_EQ(Plan("simulate", {"--trace", folder + "/a.json"}).code, 0);
  ASSERT_EQ(Plan("simulate", {"--trace", folder + "/a.json.gz"}).code, 0);
  const Outcome plain = RunShell("gzip -dc " + folder + "/a.json.gz");
  ASSERT_EQ(plain.code, 0);
  EXPECT_EQ(plain.out, ReadText(folder + "/a.json"));
  EXPECT_LT(ReadText(folder + "/a.json.gz").size(), plain.out.size() / 5);
}

}  // namespace
}  // namespace orrery
