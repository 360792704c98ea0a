// SPDX-License-Identifier: Apache-2.0
// Bundles: answers that are computed again elsewhere, and what moved between two of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using nlohmann::ordered_json;

const std::vector<std::string> kQuestion = {
    "predict", "--model",        "gpt2-xl",  "--topology", "dgx-h100", "--nodes",
    "2",       "--framework",    "megatron", "--dp",       "16",       "--micro-batch",
    "2",       "--global-batch", "64"};

std::vector<std::string> With(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class Bundles : public testing::Test {
 protected:
  const std::string folder_ = ScratchFolder();
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  std::string Make(const std::string& name, const std::vector<std::string>& words) const {
    const Outcome made = RunPlan(With(words, {"--bundle", Path(name)}));
    EXPECT_EQ(made.code, 0) << made.err;
    return Path(name);
  }
  ordered_json Json(const std::vector<std::string>& words, int code = 0) const {
    const Outcome ran = RunPlan(With(words, {"--json"}));
    EXPECT_EQ(ran.code, code) << ran.out << ran.err;
    return ordered_json::parse(ran.out);
  }
  // The bundle with one of its files changed.
  std::string Changed(const std::string& bundle, const std::string& name, const std::string& file,
                      const std::string& from, const std::string& to) const {
    ordered_json content = ordered_json::parse(ReadText(bundle));
    bool found = false;
    for (ordered_json& one : content["files"]) {
      std::string text = one["text"];
      const std::size_t at = text.find(from);
      if (one["path"] != file || at == text.npos) continue;
      one["text"] = text.replace(at, from.size(), to);
      found = true;
    }
    EXPECT_TRUE(found) << file << " has no " << from;
    WriteText(Path(name), content.dump());
    return Path(name);
  }
};

TEST_F(Bundles, AreAnsweredAgainFromTheirOwnFiles) {
  const std::string bundle = Make("a.json", kQuestion);
  const ordered_json open = Json({"open", bundle});
  EXPECT_EQ(open["differing"], 0);
  EXPECT_EQ(open["answer"]["prediction"]["digest"],
            ordered_json::parse(ReadText(bundle))["answer"]["prediction"]["digest"]);
  EXPECT_NE(RunPlan({"open", bundle}).out.find("The same figures."), std::string::npos);
}

// What a page draws is no part of the figures.
TEST_F(Bundles, OfAPageHoldTheSameFigures) {
  EXPECT_EQ(
      Json({"open", Make("a.json", With(kQuestion, {"--html", Path("a.html")}))})["differing"], 0);
}

TEST_F(Bundles, HoldFilesOfTheirOwnAndNoPathOfTheMachine) {
  std::filesystem::create_directories(Path("mine"));
  WriteText(Path("mine/big.yaml"),
            ReadText(std::string(ORRERY_SOURCE_DIR) + "/topologies/dgx-h100.yaml"));
  std::vector<std::string> words = kQuestion;
  words[4] = Path("mine/big.yaml");
  const std::string bundle = Make("own.json", words);
  std::filesystem::remove_all(Path("mine"));
  const std::string text = ReadText(bundle);
  EXPECT_EQ(text.find(folder_), std::string::npos);
  EXPECT_EQ(text.find(ORRERY_SOURCE_DIR), std::string::npos);
  EXPECT_EQ(Json({"open", bundle})["differing"], 0);
}

constexpr const char* kTrain =
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 1024 "
    "--num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size "
    "4 "
    "--global-batch-size 64 --tensor-model-parallel-size 2 --bf16 --vocab-size 50257\n";

// Notes name files: by their names alone, which are the same wherever they lie.
TEST_F(Bundles, OfFilesOfOtherProgramsAreAnsweredAgain) {
  std::filesystem::create_directories(Path("secretdir"));
  WriteText(Path("secretdir/train.sh"), kTrain);
  for (const char* command : {"predict", "simulate"}) {
    const std::string bundle = Make("from.json", {command, "--from", Path("secretdir/train.sh"),
                                                  "--topology", "dgx-h100", "--nodes", "1"});
    const std::string text = ReadText(bundle);
    EXPECT_EQ(text.find("secretdir"), std::string::npos);
    EXPECT_NE(text.find("\"train.sh: "), std::string::npos);
    EXPECT_EQ(Json({"open", bundle})["differing"], 0) << command;
  }
}

TEST_F(Bundles, AndOtherAnswersThatArePassedOnSayNotWhereFilesLie) {
  std::filesystem::create_directories(Path("secretdir"));
  WriteText(Path("secretdir/train.sh"), kTrain);
  WriteText(Path("secretdir/mine.yaml"),
            ReadText(std::string(ORRERY_SOURCE_DIR) + "/scenarios/models/gpt2-xl.yaml"));
  WriteText(Path("secretdir/mine2.yaml"),
            ReadText(std::string(ORRERY_SOURCE_DIR) + "/topologies/dgx-h100.yaml"));
  const std::vector<std::string> own = {"--model",    Path("secretdir/mine.yaml"),
                                        "--topology", Path("secretdir/mine2.yaml"),
                                        "--nodes",    "1",
                                        "--json"};
  const auto hides = [](const std::string& text, const char* name) {
    EXPECT_EQ(text.find("secretdir"), std::string::npos) << text.substr(0, 2000);
    EXPECT_NE(text.find(name), std::string::npos);
  };
  // Of a home folder, too.
  for (const std::string& home : {std::string("/nowhere"), folder_}) {
    hides(RunPlan(With({"predict", "--dp", "8"}, own), {{"HOME", home}}).out, "\"mine.yaml\"");
    hides(RunPlan(own, {{"HOME", home}}).out, "\"mine.yaml\"");
  }
  hides(
      RunPlan({"predict", "--from", Path("secretdir/train.sh"), "--topology", "dgx-h100", "--json"})
          .out,
      "train.sh");
  EXPECT_EQ(RunPlan({"--model", Path("secretdir/mine.yaml"), "--topology", "dgx-h100", "--nodes",
                     "1", "--html", Path("a.html")})
                .code,
            0);
  hides(ReadText(Path("a.html")), "gpt2-xl");
  EXPECT_EQ(RunPlan({"export", "--model", Path("secretdir/mine.yaml"), "--topology", "dgx-h100",
                     "--nodes", "1", "--to", "megatron", "--out", Path("job")})
                .code,
            0);
  for (const auto& entry : std::filesystem::directory_iterator(Path("job"))) {
    EXPECT_EQ(ReadText(entry.path()).find("secretdir"), std::string::npos) << entry.path();
  }
}

TEST_F(Bundles, AreOpenedWithTheirFilesNotWithTheCatalogues) {
  const std::string bundle = Make("b.json", kQuestion);
  const std::string other =
      Changed(bundle, "c.json", "scenarios/models/gpt2-xl.yaml", "layers: 48", "layers: 24");
  const ordered_json open = Json({"open", other}, 4);
  EXPECT_GT(open["differing"], 0);
  EXPECT_LT(open["answer"]["prediction"]["step_time_s"].get<double>(),
            0.7 * ordered_json::parse(ReadText(bundle))["answer"]["prediction"]["step_time_s"]
                      .get<double>());
}

// That of the topology was not packed, and the topology refused without it.
TEST_F(Bundles, OpenWhereAnotherGpuStandsInForTheTopologys) {
  std::filesystem::create_directories(folder_ + "/own/.orrery/profiles/gpu");
  std::string gpu =
      ReadText(std::string(ORRERY_SOURCE_DIR) + "/calib/profiles/gpu/h100-sxm5-80gb.yaml");
  WriteText(folder_ + "/own/.orrery/profiles/gpu/mygpu.yaml", gpu);
  const std::string here = "cd " + folder_ + "/own && \"$PLAN\" ";
  for (const char* own : {"mygpu", "h200-sxm-141gb"}) {
    const Outcome made = RunShell(here +
                                  "predict --model gpt2-xl --topology dgx-h100 --nodes 1 --dp "
                                  "8 --bundle own.b --gpu " +
                                  own);
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_EQ(RunShell("\"$PLAN\" open " + folder_ + "/own/own.b").code, 0) << own;
    EXPECT_EQ(RunShell(here + "diff own.b own.b").code, 0) << own;
  }
}

TEST_F(Bundles, AnswerSearchesAndSimulatedSteps) {
  std::vector<std::string> simulated = kQuestion;
  simulated[0] = "simulate";
  EXPECT_EQ(Json({"open", Make("s.json", simulated)})["differing"], 0);
  EXPECT_EQ(Json({"open", Make("p.json", {"--nodes", "2", "--model", "bert-1.5b"})})["differing"],
            0);
}

TEST_F(Bundles, DiffNamesFlagsAndLinesAndTheirPartsAddUp) {
  const std::string before = Make("d.json", kQuestion);
  std::vector<std::string> words = kQuestion;
  words[12] = "4";
  const std::string model = "scenarios/models/gpt2-xl.yaml";
  const std::string asked = Make("e.json", words);
  // What the catalogue of another release would have said.
  const std::string files = Changed(asked, "f.json", model, "layers: 48", "layers: 36");
  ordered_json after = ordered_json::parse(ReadText(files));
  after["answer"] = Json({"open", files}, 4)["answer"];
  WriteText(files, after.dump());

  const ordered_json diff = Json({"diff", before, files});
  double sum = 0;
  std::vector<std::string> causes;
  for (const ordered_json& moved : diff["moved"]) {
    sum += moved["step_time_s"].get<double>();
    causes.push_back(moved["what"]);
  }
  const double whole =
      diff["new"]["step_time_s"].get<double>() - diff["old"]["step_time_s"].get<double>();
  EXPECT_NEAR(sum, whole, 1e-9 * std::abs(whole) + 1e-12);
  std::ranges::sort(causes);
  EXPECT_EQ(causes, (std::vector<std::string>{"--micro-batch", model + ": layers"}))
      << diff.dump(1);
  const std::string text = RunPlan({"diff", before, files}).out;
  EXPECT_NE(Folded(text).find("layers: 48 before, 36 now; compute"), std::string::npos) << text;
}

TEST_F(Bundles, DiffOfTheSameMovesNothing) {
  const std::string bundle = Make("g.json", kQuestion);
  EXPECT_TRUE(Json({"diff", bundle, bundle})["moved"].empty());
}

TEST_F(Bundles, QuietOpenAndDiffSayTheAnswerInOneLine) {
  const std::string before = Make("q.json", kQuestion);
  std::vector<std::string> words = kQuestion;
  words[12] = "4";
  const std::string after = Make("r.json", words);
  const auto line = [](const std::vector<std::string>& question) {
    const std::string out = RunPlan(question).out;
    EXPECT_EQ(std::ranges::count(out, '\n'), 1) << out;
    return out;
  };
  const std::string open = line({"open", before, "--quiet"});
  EXPECT_NE(open.find(": the same figures"), std::string::npos) << open;
  const std::string diff = line({"diff", before, after, "--quiet"});
  EXPECT_EQ(diff.rfind("Step ", 0), 0u) << diff;
  EXPECT_NE(diff.find("most by --micro-batch: "), std::string::npos) << diff;
}

// The cheapest of each offer stays where only the budget grows; the fastest within it is another run.
TEST_F(Bundles, DiffOfProvisionTellsWhatMovedTheFastest) {
  const auto at = [&](const char* name, const char* budget) {
    return Make(name, {"provision", "--model", "gpt2-xl", "--tokens", "30B", "--offers",
                       "nebius-h100", "--nodes", "1..16", "--deadline", "30d", "--as-of",
                       "2026-11-22", "--budget", budget});
  };
  const std::string before = at("u.json", "2kUSD"), after = at("v.json", "20kUSD");
  const ordered_json diff = Json({"diff", before, after});
  EXPECT_EQ(diff["old"]["cost_usd"], diff["new"]["cost_usd"]);
  EXPECT_LT(diff["new"]["fastest"]["time_s"].get<double>(),
            diff["old"]["fastest"]["time_s"].get<double>());
  ASSERT_EQ(diff["moved"].size(), 1u) << diff.dump(1);
  EXPECT_EQ(diff["moved"][0]["what"], "--budget");
  // Both the fastest within the budget, and the fastest that is likely to keep it.
  ASSERT_EQ(diff["moved"][0]["named"].size(), 2u) << diff["moved"][0].dump(1);
  EXPECT_LT(diff["new"]["fastest_sure"]["time_s"].get<double>(),
            diff["old"]["fastest_sure"]["time_s"].get<double>());
  const std::string text = Folded(RunPlan({"diff", before, after}).out);
  EXPECT_NE(text.find("The fastest: nebius-h100, "), std::string::npos) << text;
  EXPECT_NE(text.find("; fastest now nebius-h100, "), std::string::npos) << text;
}

// Flag by flag one question would be asked for minutes on its way to the other.
TEST_F(Bundles, DiffOfAProvisionAndAPlanIsRefusedAtOnce) {
  const std::string provision = Make("s.json", {"provision", "--model", "gpt2-xl", "--tokens",
                                                "30B", "--offers", "nebius-h100", "--nodes", "1"});
  const std::string plan = Make("t.json", kQuestion);
  for (const auto& [old, fresh] : {std::pair{provision, plan}, {plan, provision}}) {
    const Outcome refused = RunPlan({"diff", old, fresh});
    EXPECT_EQ(refused.code, 2) << refused.out;
    EXPECT_NE(Folded(refused.err).find("no change of a flag leads from one question to the other"),
              std::string::npos)
        << refused.err;
  }
}

TEST_F(Bundles, ThatWouldDoMoreThanAskAreRefused) {
  const auto refused = [&](const ordered_json& question, const ordered_json& files,
                           const std::string& why) {
    const ordered_json content = {
        {"schema", "orrery.bundle/1"}, {"version", "1"}, {"commit", ""},
        {"question", question},        {"files", files}, {"answer", ordered_json::object()}};
    WriteText(Path("bad.json"), content.dump());
    const Outcome opened = RunPlan({"open", Path("bad.json")});
    EXPECT_EQ(opened.code, 2) << opened.out;
    EXPECT_NE(opened.err.find(why), std::string::npos) << opened.err;
  };
  const ordered_json none = ordered_json::array();
  refused({"run", "--ranks", "2"}, none, "its question is a `plan run`");
  refused({"predict", "--out=x"}, none, "its question has --out");
  refused({"predict", "--model", "/etc/passwd"}, none, "outside of it");
  refused({"predict", "--model=../x"}, none, "outside of it");
  for (const char* path : {"/x", "../x", "a/../../x", ".", ""}) {
    const ordered_json file = {{"path", path}, {"text", ""}};
    refused({"predict"}, ordered_json::array({file}), "leaves its folder");
  }
  WriteText(Path("deep.json"), std::string(100000, '['));
  EXPECT_EQ(RunPlan({"open", Path("deep.json")}).code, 2);
  WriteText(Path("cut.json"), ReadText(Make("h.json", kQuestion)).substr(0, 5000));
  EXPECT_EQ(RunPlan({"diff", Path("cut.json"), Path("h.json")}).code, 2);
}

}  // namespace
}  // namespace orrery
