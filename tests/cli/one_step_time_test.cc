// SPDX-License-Identifier: Apache-2.0
// One job, layout and engine have one step time, whichever command is asked; a plan text keeps it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr double kTwelveDigits = 1e-12;  // relative
using Words = std::vector<std::string>;

const Words kCluster = {"--topology", "dgx-a100-80", "--framework", "megatron"};
const Words kJob = {"--model",
                    "gpt2-medium",
                    "--nodes",
                    "2",
                    "--global-batch",
                    "64",
                    "--tp",
                    "4",
                    "--pp",
                    "2",
                    "--zero",
                    "1",
                    "--micro-batch",
                    "2",
                    "--recompute",
                    "selective",
                    "--schedule",
                    "1f1b",
                    "--layout",
                    "2x12",
                    "--sequence-parallel",
                    "on"};

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

json Answer(const Words& words) {
  const Outcome outcome = RunPlan(words + Words{"--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return json::parse(outcome.out, nullptr, false);
}

std::string Saved(const std::string& name, const json& document) {
  const std::string path = ScratchFolder() + "/" + name;
  WriteText(path, document.dump());
  return path;
}

class OneStepTime : public testing::Test {
 protected:
  // As a row of published runs.
  static double Validated(const std::string& engine) {
    const std::string path = ScratchFolder() + "/runs.csv";
    WriteText(path,
              "case,topology,nodes,gpus_per_node,framework,family,layers,hidden,heads,seq_len,ffn,"
              "vocab,tp,pp,dp,zero,micro_batch,global_batch,precision,recompute,flash,optimizer,"
              "seq_parallel,window,measured_step_s\n"
              "one-1,dgx-a100-80,2,8,megatron,gpt,24,1024,16,1024,4096,50257,4,2,2,1,2,64,bf16,"
              "selective,1,adam,1,step,0.3\n");
    const json answer = Answer({"validate", path, "--engine", engine});
    EXPECT_TRUE(answer["cases"][0]["refused"].is_null()) << answer["cases"][0];
    return answer["cases"][0]["predicted_step_s"];
  }

  static double Compared(const std::string& predicted, const std::string& measured) {
    const json answer = Answer({"compare", predicted, measured});
    EXPECT_EQ(answer["predicted_step_s"], answer["measured_step_s"]);
    return answer["measured_step_s"];
  }

  static void ExpectSame(double expected, double actual) {
    EXPECT_NEAR(actual, expected, kTwelveDigits * expected);
  }
};

TEST_F(OneStepTime, InTheClosedForm) {
  const double step =
      Answer(Words{"predict", "--engine", "closed"} + kJob + kCluster)["prediction"]["step_time_s"];
  ExpectSame(step, Answer(kJob + kCluster + Words{"--refine", "0"})["ranked"][0]["step_time_s"]);
  ExpectSame(step, Answer(Words{"simulate"} + kJob + kCluster)["closed_form_step_time_s"]);
  ExpectSame(step, Validated("closed"));
}

// The order of ranks and nodes that is given, with a search as with one layout.
TEST_F(OneStepTime, InAGivenOrderOfRanks) {
  for (const char* order : {"tp-cp-pp-dp", "1,0"}) {
    const Words placement = {"--placement", order};
    const json predicted = Answer(Words{"predict"} + kJob + kCluster + placement);
    const json placed = Answer(kJob + kCluster + placement)["ranked"][0]["placement"];
    EXPECT_EQ(placed["given"], true);
    ExpectSame(placed["step_time_s"], predicted["prediction"]["step_time_s"]);
    ExpectSame(placed["default_step_time_s"], Answer(kJob + kCluster)["ranked"][0]["step_time_s"]);
    // The page of a search draws that order, too.
    const Words page = placement + Words{"--html", ScratchFolder() + "/placed.html"};
    const auto drawn = [](const json& answer) { return answer["timeline"]["seconds"]; };
    ExpectSame(drawn(Answer(kJob + kCluster + page)),
               drawn(Answer(Words{"predict"} + kJob + kCluster + page)));
    const Outcome text = RunPlan(kJob + kCluster + placement);
    EXPECT_THAT(text.out,
                AllOf(HasSubstr("with yours, --placement "), HasSubstr(std::string(order) + "\n")));
  }
  EXPECT_EQ(RunPlan(kJob + kCluster + Words{"--placement", "0,1,2"}).code, 2);
}

TEST_F(OneStepTime, Simulated) {
  const json predicted = Answer(Words{"predict"} + kJob + kCluster);
  EXPECT_EQ(predicted["engine"], "event");
  EXPECT_EQ(predicted["prediction"],
            Answer(Words{"predict", "--engine", "event"} + kJob + kCluster)["prediction"]);
  const json simulated = Answer(Words{"simulate"} + kJob + kCluster);
  const double step = simulated["step_time_s"];
  ExpectSame(step, predicted["prediction"]["step_time_s"]);
  ExpectSame(step, simulated["prediction"]["step_time_s"]);
  ExpectSame(step, Answer(kJob + kCluster)["ranked"][0]["step_time_s"]);
  ExpectSame(step, Validated("event"));
  ExpectSame(step,
             Compared(Saved("predicted.json", predicted), Saved("simulated.json", simulated)));
}

// The flags that name one layout of a search.
Words LayoutOf(const json& row) {
  const json& s = row["strategy"];
  Words words;
  for (const auto& [flag, key] :
       std::vector<std::pair<const char*, const char*>>{{"--tp", "tp"},
                                                        {"--pp", "pp"},
                                                        {"--dp", "dp"},
                                                        {"--dp-outer", "dp_outer"},
                                                        {"--vpp", "vpp"},
                                                        {"--micro-batch", "micro_batch"},
                                                        {"--zero", "zero"}})
    words = words + Words{flag, s[key].dump()};
  if (s.contains("layout")) {
    std::string layers;
    for (const json& chunk : s["layout"]) layers += (layers.empty() ? "" : ",") + chunk.dump();
    words = words + Words{"--layout", layers};
  }
  return words + Words{"--schedule",          s["schedule"],
                       "--recompute",         s["recompute"],
                       "--sequence-parallel", s["sequence_parallel"] == true ? "on" : "off"};
}

// Time, interval, engine, reasons and plan of every row are those of the command that is asked for it alone.
TEST_F(OneStepTime, OfEveryRowOfASearch) {
  for (const Words& job :
       {Words{"--model", "gpt2-medium", "--nodes", "2", "--global-batch", "64"} + kCluster,
        Words{"--model", "megatron-s9", "--nodes", "2"},  // the engines differ by more than 5 %
        Words{"--model", "gpt2-xl", "--nodes", "2", "--topology", "aws-p4d", "--framework", "fsdp",
              "--dp-outer", "2", "--global-batch", "64"}}) {
    const json search = Answer(job);
    ASSERT_FALSE(search["ranked"].empty());
    for (const json& row : search["ranked"]) {
      Words alone;  // what the search fixed is in the row
      for (std::size_t i = 0; i < job.size(); i += 2) {
        if (job[i] != "--dp-outer") alone = alone + Words{job[i], job[i + 1]};
      }
      alone = alone + LayoutOf(row);
      const json predicted = Answer(Words{"predict"} + alone);
      for (const char* key : {"layout", "step_time_s", "step_time_interval_s", "engine",
                              "closed_form_step_time_s", "engines_differ", "not_simulated",
                              "breakdown", "tokens_per_s", "mfu", "memory", "digest", "strategy"})
        EXPECT_EQ(predicted["prediction"][key], row[key]) << row["layout"] << " " << key;
      EXPECT_EQ(predicted["digest"], row["digest"]);
      EXPECT_EQ(Answer(Words{"show"} + alone)["digest"], row["digest"]);
      const json simulated = Answer(Words{"simulate"} + alone)["prediction"];
      for (const char* key : {"step_time_s", "step_time_interval_s", "engines_differ", "digest"})
        EXPECT_EQ(simulated[key], row[key]) << row["layout"] << " " << key;
    }
  }
}

// What is too large to simulate keeps the closed form in every answer that does not ask for an engine, and says so.
TEST_F(OneStepTime, OfAPlanTooLargeToSimulate) {
  const Words job = {
      "--model",       "llama3-405b", "--nodes",        "128", "--topology",          "dgx-h100",
      "--tp",          "8",           "--pp",           "128", "--schedule",          "1f1b",
      "--micro-batch", "1",           "--global-batch", "512", "--sequence-parallel", "on",
      "--recompute",   "selective"};
  const json predicted = Answer(Words{"predict"} + job)["prediction"];
  EXPECT_EQ(predicted["engine"], "closed");
  EXPECT_THAT(predicted["not_simulated"].get<std::string>(), HasSubstr("too large"));
  EXPECT_THAT(RunPlan(Words{"predict"} + job).out, HasSubstr("not simulated   too large"));
  const json closed = Answer(Words{"predict", "--engine", "closed"} + job)["prediction"];
  EXPECT_EQ(predicted["step_time_s"], closed["step_time_s"]);
  EXPECT_TRUE(closed["not_simulated"].is_null());
  const json row = Answer(job)["ranked"][0];
  for (const char* key : {"step_time_s", "engine", "not_simulated", "digest"})
    EXPECT_EQ(row[key], predicted[key]) << key;
}

TEST_F(OneStepTime, OfOneLine) {
  const auto step = [](const char* command) {
    const std::string line = RunPlan(Words{command, "--quiet"} + kJob + kCluster).out;
    const std::size_t at = line.find(" ms");
    EXPECT_NE(at, std::string::npos) << line;
    return line.substr(line.rfind(' ', at - 1), at - line.rfind(' ', at - 1));
  };
  EXPECT_EQ(step("simulate"), step("predict"));
}

// A plan text in the place of the layout.
class PlanText : public testing::Test {
 protected:
  PlanText() { WriteText(path_, RunPlan(Words{"show", "--ir"} + kJob + kCluster).out); }

  const std::string path_ = ScratchFolder() + "/plan.txt";
};

TEST_F(PlanText, HasThePriceOfItsLayout) {
  const json flags = Answer(Words{"predict"} + kJob + kCluster);
  const Words cluster(kCluster.begin(), kCluster.begin() + 2);  // the text says the framework
  for (const char* command : {"predict", "simulate"}) {
    const json text = Answer(Words{command, "--plan", path_} + cluster);
    EXPECT_EQ(text["digest"], flags["digest"]);
    EXPECT_EQ(text["model"]["parameters"], flags["model"]["parameters"]);
    for (const char* key : {"step_time_s", "breakdown", "memory", "tokens_per_s"})
      EXPECT_EQ(text["prediction"][key], flags["prediction"][key]) << command << " " << key;
    EXPECT_EQ(text["workload"]["framework"], flags["workload"]["framework"]);
    EXPECT_EQ(text["prediction"]["outside_calibration"],
              flags["prediction"]["outside_calibration"]);
    for (const int end : {0, 1}) {  // slopes of the other engine
      const double own = text["prediction"]["step_time_interval_s"][end];
      EXPECT_NEAR(own, flags["prediction"]["step_time_interval_s"][end], 0.01 * own);
    }
  }
  EXPECT_EQ(RunPlan({"show", "--ir", "--plan", path_}).out, ReadText(path_));
  EXPECT_EQ(Answer({"show", "--plan", path_})["digest"], flags["digest"]);
  EXPECT_THAT(
      RunPlan(Words{"predict", "--plan", path_} + kCluster).out,
      AllOf(HasSubstr("tp 4 pp 2 dp 1x2"), HasSubstr("simulated, 80 % prediction interval")));
}

TEST_F(PlanText, SaysItsFramework) {
  const Words cluster(kCluster.begin(), kCluster.begin() + 2);
  const auto why = [&](const std::string& path) {
    const json answer = Answer(Words{"predict", "--plan", path} + cluster);
    for (const json& decision : answer["defaults"]) {
      if (decision["what"] == "framework megatron") return decision["why"].get<std::string>();
    }
    return std::string("not decided");
  };
  EXPECT_EQ(why(path_), "recorded in the plan");
  EXPECT_EQ(Answer(Words{"predict", "--plan", path_, "--framework", "nemo"} + cluster)["notes"],
            json::array({"the plan was made for the framework megatron"}));
  std::string text = ReadText(path_);
  const std::string line = "\nframework megatron\n";
  const std::size_t at = text.find(line);
  ASSERT_NE(at, text.npos);
  const std::string none = ScratchFolder() + "/none.txt", wrong = ScratchFolder() + "/wrong.txt";
  WriteText(wrong, std::string(text).replace(at, line.size(), "\nframework nowhere\n"));
  WriteText(none, text.replace(at, line.size(), "\n"));
  EXPECT_EQ(why(none), "the plan names none");
  EXPECT_TRUE(Answer({"show", "--plan", none})["digest"] ==
              Answer({"show", "--plan", path_})["digest"]);
  const Outcome refused = RunPlan(Words{"predict", "--plan", wrong} + cluster);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("wrong.txt"), HasSubstr("'nowhere'"), HasSubstr("--framework")));
}

TEST_F(PlanText, ThatIsWrongIsExplained) {
  const auto refused = [&](const Words& words, const Words& said) {
    const Outcome outcome = RunPlan(words);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    for (const std::string& part : said) EXPECT_THAT(outcome.err, HasSubstr(part));
  };
  std::string text = ReadText(path_);
  const std::string half = ScratchFolder() + "/half.txt", other = ScratchFolder() + "/other.txt";
  WriteText(half, text.substr(0, text.find("\nparam") + 7));
  WriteText(other, text.replace(text.find("micro_batches 16"), 16, "micro_batches 15"));
  for (const char* command : {"predict", "simulate", "show"}) {
    refused({command, "--plan", half}, {"half.txt:", "error: ", "plan show --ir"});
    refused({command, "--plan", other}, {"other.txt", "error: ", "plan show --ir"});
    refused({command, "--plan", path_, "--tp", "2"}, {"has its layout already", "--tp"});
    refused({command, "--plan", path_, "--seq-len", "64"}, {"a plan and --seq-len are given"});
    refused({command, "--plan", "/nowhere/plan.txt"}, {"/nowhere/plan.txt"});
  }
  for (const char* command : {"predict", "simulate"}) {
    refused({command, "--plan", path_}, {"which cluster?", "--topology"});
    refused(Words{command, "--plan", path_, "--nodes", "3"} + kCluster,
            {"16 GPUs", "24", "--nodes"});
  }
  refused(Words{"predict", "--engine", "closed", "--plan", path_} + kCluster, {"no closed form"});
  refused(Words{"predict", "--window", "microstep", "--plan", path_} + kCluster, {"whole steps"});
}

}  // namespace
}  // namespace orrery
