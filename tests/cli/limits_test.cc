// SPDX-License-Identifier: Apache-2.0
// Numbers beyond what is taken: the range is said, and nothing else happens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/json_of.h"

namespace orrery {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::vector<std::string> kSearch = {"--model",  "gpt2-xl", "--topology",
                                          "dgx-h100", "--nodes", "1"};
const std::vector<std::string> kRun = {"run", "--model", "gpt2-micro", "--ranks",
                                       "1",   "--steps", "1"};

std::string Refused(const std::vector<std::string>& words) {
  const Outcome outcome = RunPlan(words);
  EXPECT_EQ(outcome.code, 2) << outcome.out << outcome.err;
  return Folded(outcome.err);
}

// Above 1e303 "a fault of this program", below it prices of 300 digits.
TEST(Limits, ANodeCostsSoMuchAtMost) {
  for (const char* price : {"1e305USD/h", "1e300USD/h", "100001USD/h"}) {
    const std::string error = Refused(With(kSearch, {"--tokens", "2T", "--node-price", price}));
    EXPECT_THAT(error, HasSubstr("--node-price takes 0 to 100000USD/h")) << price;
  }
  EXPECT_EQ(
      RunPlan(With(kSearch, {"--refine", "0", "--tokens", "2T", "--node-price", "100000USD/h"}))
          .code,
      0);
}

// "No layout is possible: global batch does not divide", with the caret at --nodes.
TEST(Limits, ARunThatNeverEndsSaysWhy) {
  for (const char* rate : {"1B/s", "1e-9GB/s", "1e-18GB/s"}) {
    const std::string error =
        Refused(With(kSearch, {"--refine", "0", "--tokens", "2T", "--storage", rate}));
    EXPECT_THAT(error,
                HasSubstr("a run of 2.00 trillion tokens does not finish: a checkpoint takes"))
        << rate;
    EXPECT_THAT(error, HasSubstr("(--storage)"));
    EXPECT_THAT(error, Not(HasSubstr("divide")));
  }
}

// Clocks overflowed: "not all ranks have started after 1e+10 s", within two.
TEST(Limits, WaitsEndWithinAYear) {
  for (const char* time : {"1e10s", "300000d", "1e18s", "1e300s"}) {
    for (const char* flag : {"--timeout", "--time-limit"}) {
      const std::string error = Refused(With(kRun, {flag, time}));
      EXPECT_THAT(error, HasSubstr(std::string(flag) + " is too long")) << time;
      EXPECT_THAT(error, HasSubstr(std::string(flag) + " takes up to 366d"));
    }
  }
  EXPECT_THAT(Refused(With(kRun, {"--timeout", "0s"})), HasSubstr("--timeout is no time"));
  EXPECT_EQ(RunPlan(With(kRun, {"--timeout", "366d"})).code, 0);
}

// Seeds beyond 2^62 were all the same.
TEST(Limits, SeedsBeyondTheRangeAreRefused) {
  for (const char* seed : {"18446744073709551615", "18446744073709551616", "1e30",
                           "99999999999999999999999", "4611686018427387905"}) {
    const std::string error = Refused(With(kRun, {"--seed", seed}));
    EXPECT_THAT(error, HasSubstr(std::string("--seed: ") + seed + " is too large"));
    EXPECT_THAT(error, HasSubstr("--seed takes a whole number from 0 to 4611686018427387904"));
  }
  EXPECT_THAT(Refused(With(kRun, {"--seed", "-1e30"})), HasSubstr("is too small"));
  EXPECT_EQ(RunPlan(With(kRun, {"--seed", "4611686018427387904"})).code, 0);
}

// "A fault of this program": the number of a text has a lower end, too.
TEST(Limits, ALittleOfAnythingIsRefusedWithItsRange) {
  for (const char* little : {"1e-308", "5e-324", "1e-320", "1e-400", "1e-300"}) {
    const std::string text = little;
    EXPECT_THAT(Refused(With(kSearch, {"--tokens", "2T", "--budget", text + "USD"})),
                HasSubstr("--budget takes 0.01USD to 1,000,000 MUSD"));
    EXPECT_THAT(Refused({"provision", "--model", "gpt2-xl", "--tokens", "2T", "--offers", "aws",
                         "--budget", text + "USD"}),
                HasSubstr("--budget takes 0.01USD to 1,000,000 MUSD"));
    EXPECT_THAT(Refused(With(kSearch, {"--tokens", "2T", "--node-price", text + "USD/h"})),
                HasSubstr("--node-price takes 0 to 100000USD/h"));
    EXPECT_THAT(Refused(With(kSearch, {"--tokens", "2T", "--storage", text + "GB/s"})),
                HasSubstr("at least 1e-9B/s, up to 1e9TB/s"));
    EXPECT_THAT(Refused(With(kSearch, {"--memory-limit", text + "GiB"})),
                HasSubstr("at least 1e-9B, up to 1e9PiB"));
    EXPECT_THAT(Refused({"check", "--compute", text + "GFLOP/s"}),
                HasSubstr("at least 1e-9FLOP/s, up to 1e9EFLOP/s"));
    EXPECT_THAT(Refused(With(kRun, {"--timeout", text + "s"})),
                HasSubstr("--timeout takes up to 366d"));
    for (const char* flag : {"--deadline", "--setup"})
      EXPECT_THAT(Refused(With(kSearch, {"--tokens", "2T", flag, text + "d"})),
                  HasSubstr("0, or 1e-9ns to "));
  }
  EXPECT_EQ(RunPlan(With(kSearch, {"--refine", "0", "--tokens", "2T", "--budget", "0.01USD"})).code,
            0);
}

// Detection and restart of "1e300min+1e300min" were refused in the same words, twice.
TEST(Limits, AFaultOfTwoPartsIsSaidOnce) {
  const std::string error = Refused(With(kSearch, {"--tokens", "2T", "--recovery", "40d+40d"}));
  EXPECT_EQ(error.find("error:"), error.rfind("error:")) << error;
  EXPECT_THAT(Refused(With(kSearch, {"--tokens", "2T", "--recovery", "40d+50d"})),
              testing::AllOf(HasSubstr(" 40d is not "), HasSubstr(" 50d is not ")));
}

TEST(Limits, EveryRangeIsSaid) {
  const std::pair<std::vector<std::string>, const char*> kCases[] = {
      {With(kSearch, {"--global-batch", "9223372036854775807"}),
       "--global-batch takes a whole number from 1 to 1099511627776"},
      {{"--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "1e30"},
       "--nodes takes a whole number from 1 to 1099511627776"},
      {With(kRun, {"--warmup", "1e30"}), "--warmup takes a whole number from 0 to"},
      {With(kSearch, {"--memory-limit", "1e300GiB"}), "at most 1e9PiB"},
      {With(kSearch, {"--memory-limit", "1e30PiB"}), "at most 1e9PiB"},
      {With(kSearch, {"--tokens", "2T", "--budget", "1e308MUSD"}), "more than 1,000,000 MUSD"},
      {{"check", "--compute", "1e300GFLOP/s"}, "at most 1e9EFLOP/s"},
      {With({"simulate"},
            With(kSearch, {"--pp", "8", "--micro-batch", "1", "--global-batch", "1048576"})),
       "at most"},
  };
  for (const auto& [words, range] : kCases) EXPECT_THAT(Refused(words), HasSubstr(range));
}

// What is in the way is the number of micro-batches, which said "a plan has to of calls each".
TEST(Limits, ABatchOfMorePassesThanAPlanHasSaysSo) {
  const Outcome outcome = RunPlan(With(kSearch, {"--global-batch", "2147483648"}));
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  const std::string text = Folded(outcome.out);
  EXPECT_THAT(text, HasSubstr("smaller micro-batches would take less memory, but 2,147,483,648 "
                              "sequences on 8 GPUs are more of them than a plan can have (at most "
                              "2,097,151 per step): a smaller --global-batch"));
  EXPECT_THAT(text, HasSubstr("micro-batches per step are more than a plan can have; for example"));
  EXPECT_THAT(text, Not(HasSubstr("a plan has to of calls")));
}

// 768 ms simulated on 16 nodes, 764 on 8; the closed forms have them the other way round.
TEST(MoreNodes, ThatMakeAStepSlowerAreNamedByTheTimeOfTheAnswer) {
  const std::vector<std::string> job = {"--model", "gpt2-xl", "--topology",     "aws-p3-16xl",
                                        "--nodes", "16",      "--global-batch", "64"};
  const Outcome whole = RunPlan(job);
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_THAT(Folded(whole.out), HasSubstr("More nodes make this step slower: "));
  EXPECT_THAT(Folded(whole.out), HasSubstr(" simulated on 16 nodes, "));
  EXPECT_THAT(RunPlan(With(job, {"--quiet"})).out, HasSubstr("; faster on 8 nodes: "));
  const auto json = nlohmann::json::parse(RunPlan(With(job, {"--json"})).out);
  const auto& fewer = json.at("faster_on_fewer_nodes");
  EXPECT_LT(fewer.at("step_time_s"), fewer.at("step_time_of_all_s"));
  EXPECT_EQ(fewer.at("step_time_of_all_s"), json.at("ranked")[0].at("step_time_s"));
}

nlohmann::json ErrorIn(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << text;
  if (json.is_discarded()) return {};
  EXPECT_EQ(json.value("schema", ""), "orrery.error/1");
  return json;
}

// Standard output was empty: who reads it waits for a document.
TEST(ErrorDocument, ARunThatFailsWhileItRunsHasOne) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--ranks", "1", "--lr", "1e300"},
        {"--ranks", "2", "--dp", "2", "--timeout", "1ms"},
        {"--ranks", "2", "--dp", "2", "--timeout", "1ms", "--comm", "local"}}) {
    const Outcome outcome =
        RunPlan(With({"run", "--model", "gpt2-micro", "--steps", "3", "--json"}, more));
    EXPECT_EQ(outcome.code, 1);
    const nlohmann::json error = ErrorIn(outcome.out);
    EXPECT_EQ(error.value("exit_code", 0), 1);
    const std::string message = error.at("errors")[0].value("message", "");
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_FALSE(message.empty());
  }
}

TEST(ErrorDocument, GoesIntoTheFileOfJson) {
  const std::string file = ScratchFolder() + "/error.json";
  const std::vector<std::string> wrong = {"predict", "--model", "nope", "--json", file};
  EXPECT_EQ(RunPlan(wrong).code, 2);
  EXPECT_THAT(ErrorIn(Written("error.json")).at("errors")[0].value("message", ""),
              HasSubstr("nope"));
  EXPECT_EQ(RunPlan({"predict", "--model", "nope", "--json=" + ScratchFolder() + "/two.json"}).code,
            2);
  ErrorIn(Written("two.json"));
}

// An input that was not read yet, and another program's file, stay as they are.
TEST(ErrorDocument, GoesOntoNoOtherFile) {
  const std::string text = "{\"schema\": \"orrery.predict/1\"}\n";
  WriteText(ScratchFolder() + "/input.json", text);
  EXPECT_EQ(RunPlan({"diff", ScratchFolder() + "/absent.json", ScratchFolder() + "/input.json",
                     "--json", ScratchFolder() + "/input.json"})
                .code,
            2);
  EXPECT_EQ(Written("input.json"), text);
  WriteText(ScratchFolder() + "/notes.txt", "mine\n");
  EXPECT_EQ(RunPlan({"predict", "--model", "nope", "--json", ScratchFolder() + "/notes.txt"}).code,
            2);
  EXPECT_EQ(Written("notes.txt"), "mine\n");
}

// "unknown flag '--json'".
TEST(Json, IsAnsweredByHelpCompletionAndLab) {
  const std::pair<std::vector<std::string>, const char*> kCases[] = {
      {{"help", "--json"}, "orrery.help/1"},
      {{"help", "predict", "--json"}, "orrery.help/1"},
      {{"help", "lab", "--json"}, "orrery.help/1"},
      {{"predict", "--help", "--json"}, "orrery.help/1"},
      {{"lab", "--help", "--json"}, "orrery.help/1"},
      {{"--help", "--json"}, "orrery.help/1"},
      {{"completion", "bash", "--json"}, "orrery.completion/1"},
      {{"lab", "status", "--json"}, "orrery.lab/1"},
      {{"launch", "--show", "--json"}, "orrery.launch-place/1"},
      {{"list", "models", "--template", "--json"}, "orrery.template/1"},
      {{"sweep", "--template", "--json"}, "orrery.template/1"},
      {{"provision", "--offer-template", "--json"}, "orrery.template/1"},
  };
  for (const auto& [words, schema] : kCases) {
    const Outcome outcome = RunPlan(words);
    EXPECT_EQ(outcome.code, 0) << words[0] << outcome.err;
    EXPECT_EQ(nlohmann::json::parse(outcome.out, nullptr, false).value("schema", ""), schema)
        << words[0];
  }
}

TEST(Json, DoesNotGoWithCalibrateWhichSaysSo) {
  const Outcome outcome = RunPlan({"calibrate", "runs.csv", "--json"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(Folded(outcome.err), HasSubstr("error: --json does not go with plan calibrate "));
  ErrorIn(outcome.out);
}

// The first line is a heading in these, or half of a file.
TEST(Quiet, IsTheAnswerAndNoHeading) {
  const std::string folder = ScratchFolder();
  ASSERT_EQ(RunPlan(With({"predict"}, With(kSearch, {"--json", folder + "/p.json"}))).code, 0);
  ASSERT_EQ(RunPlan(With({"simulate"}, With(kSearch, {"--json", folder + "/s.json"}))).code, 0);
  const auto quiet = [](std::vector<std::string> words) {
    words.emplace_back("--quiet");
    return RunPlan(words).out;
  };
  EXPECT_THAT(quiet({"compare", folder + "/p.json", folder + "/s.json"}),
              testing::MatchesRegex("Step time: .* predicted, .* measured: [^\n]*\n"));
  EXPECT_THAT(quiet({"bench", "--simulate", "all_reduce", "--topology", "dgx-h100", "--nodes", "1",
                     "-b", "1M", "-e", "4M"}),
              testing::MatchesRegex("all_reduce on dgx-h100: .* = 8 ranks: 4.00 MiB in .* GB/s bus "
                                    "bandwidth\n"));
  EXPECT_THAT(quiet({"bench", "all_reduce", "--ranks", "1", "-b", "1K", "-e", "1K"}),
              testing::MatchesRegex("all_reduce on 1 rank: 1.00 KiB in .* results right\n"));
  EXPECT_EQ(quiet({"check"}), "all inside: 1 rank\n");
  std::istringstream published(
      ReadText(std::string(ORRERY_SOURCE_DIR) + "/calib/data/published_runs.csv"));
  std::string runs;
  for (std::string line; runs.size() < 8000 && std::getline(published, line);) runs += line + "\n";
  WriteText(folder + "/runs.csv", runs);
  EXPECT_THAT(quiet({"validate", folder + "/runs.csv"}),
              testing::MatchesRegex("[0-9]+ rows?.*: step time off by [^\n]*interval\n"));
  EXPECT_THAT(quiet({"provision", "--published"}),
              testing::MatchesRegex("[0-9]+ published goodputs: [^\n]*\n"));
  EXPECT_THAT(quiet(With({"export", "--to", "megatron", "--out", folder + "/job"}, kSearch)),
              testing::MatchesRegex("tp [^\n]* files in [^\n]*\n"));
  EXPECT_THAT(quiet({"launch", "--show"}), testing::MatchesRegex("[^\n]*: node [^\n]*, port .*\n"));
  EXPECT_THAT(quiet({"check", "--compute", "1e6EFLOP/s"}), HasSubstr("bad: "));
  EXPECT_THAT(quiet({"list", "models"}), testing::MatchesRegex("[^\n]*, gpt2-xl, [^\n]*\n"));
  EXPECT_THAT(quiet({"list"}), testing::MatchesRegex("[0-9]+ models, [^\n]*\n"));
  for (const std::vector<std::string>& file :
       {std::vector<std::string>{"list", "models", "--template"},
        {"sweep", "--template"},
        {"provision", "--offer-template"},
        {"completion", "bash"},
        {"list", "gpus", "--json"},
        {"discover"}})
    EXPECT_EQ(quiet(file), RunPlan(file).out) << file[0];
}

TEST(Limits, ThatAPlanIsNearlyFullIsSaidInOneLine) {
  const std::vector<std::string> words = {"predict",
                                          "--model",
                                          "gpt2-xl",
                                          "--topology",
                                          "aws-p4d",
                                          "--nodes",
                                          "1",
                                          "--dp",
                                          "8",
                                          "--zero",
                                          "1",
                                          "--json",
                                          "--seq-len",
                                          "1024",
                                          "--micro-batch",
                                          "4",
                                          "--global-batch",
                                          "32",
                                          "--framework",
                                          "megatron"};
  const double needs = JsonOf(words)["prediction"]["memory"]["total_bytes"];
  std::vector<std::string> quiet = words;
  std::ranges::replace(quiet, std::string("--json"), std::string("--quiet"));
  const auto limited = [&](double room) {
    return RunPlan(With(quiet, {"--memory-limit",
                                std::to_string(std::llround((needs + room) / 1e6)) + "MB"}))
        .out;
  };
  EXPECT_THAT(limited(1e7), HasSubstr(", nearly full"));
  EXPECT_THAT(limited(20e9), Not(HasSubstr("nearly full")));
}

// A model of 21 parameters has no hidden size: no published run lies at a distance from it.
TEST(Nearest, NoRunIsNearToAModelWithoutLayersOfTheirKind) {
  const std::string text = Folded(
      RunPlan({"predict", "--from", std::string(ORRERY_SOURCE_DIR) + "/scenarios/seeds/s8.yaml"})
          .out);
  EXPECT_THAT(text, HasSubstr("Nearest published runs: none can be compared"));
  EXPECT_THAT(text, Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace orrery
