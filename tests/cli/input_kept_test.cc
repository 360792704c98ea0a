// SPDX-License-Identifier: Apache-2.0
// No answer goes onto a file that the command reads, by whatever name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class InputKept : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_ + "/below");
    Copy("tests/discover/data/provider.xml", "topo.xml");
    Copy("topologies/aws-p4d.yaml", "cluster.yaml");
    Copy("tests/discover/data/hosts", "hosts");
    WriteText(At("ds.json"), R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8,
                                 "zero_optimization": {"stage": 1}, "bf16": {"enabled": true}})");
  }

  static void Copy(const std::string& from, const std::string& name) {
    WriteText(At(name), ReadText(std::string(ORRERY_SOURCE_DIR) + "/" + from));
  }
  static std::string At(const std::string& name) { return folder_ + "/" + name; }

  // What `words` answer, run in the folder; `kept` is the same afterwards.
  static Outcome In(const std::string& words, const std::string& kept) {
    const std::string before = ReadText(At(kept));
    const Outcome got = RunShell("cd '" + folder_ + "' && \"$PLAN\" " + words + " 2>&1");
    EXPECT_EQ(ReadText(At(kept)), before) << words;
    return got;
  }
  static void Refuses(const std::string& words, const std::string& kept, const std::string& flag) {
    const Outcome got = In(words, kept);
    EXPECT_EQ(got.code, 2) << words << "\n" << got.out;
    EXPECT_THAT(got.out,
                AllOf(HasSubstr(flag + ": cannot write '"), HasSubstr("this command reads"),
                      HasSubstr("hint: another file for " + flag)))
        << words;
  }

  static inline const std::string folder_ = ScratchFolder() + "/kept";
};

TEST_F(InputKept, ByEveryFlagThatNamesAnAnswer) {
  Refuses("discover topo.xml --out topo.xml", "topo.xml", "--out");
  const std::string job =
      "predict --model gpt2-medium --topology cluster.yaml --nodes 1 --from ds.json ";
  EXPECT_EQ(In(job + "--json own.json", "ds.json").code, 0);
  Refuses("predict --from own.json --html page.html --json own.json", "own.json", "--json");
  EXPECT_FALSE(fs::exists(At("page.html"))) << "written before it was refused";
  Refuses(job + "--html cluster.yaml", "cluster.yaml", "--html");
  Refuses(job + "--bundle ds.json", "ds.json", "--bundle");
  Refuses("launch --show --hosts hosts --out hosts", "hosts", "--out");
}

TEST_F(InputKept, ByEverySpellingOfItsPath) {
  fs::create_hard_link(At("topo.xml"), At("hard.xml"));
  fs::create_symlink(At("topo.xml"), At("soft.xml"));
  Refuses("discover topo.xml --out ./below/../topo.xml", "topo.xml", "--out");
  Refuses("discover topo.xml --out '" + At("topo.xml") + "'", "topo.xml", "--out");
  Refuses("discover topo.xml --out hard.xml", "topo.xml", "--out");
  Refuses("discover soft.xml --out topo.xml", "topo.xml", "--out");
  const Outcome link = In("discover topo.xml --out soft.xml", "topo.xml");
  EXPECT_EQ(link.code, 2) << link.out;
  // A page is renamed into its place: what it is written as first is no input either.
  fs::rename(At("ds.json"), At("page.html.part"));
  Refuses(
      "predict --model gpt2-medium --topology aws-p4d --nodes 1 --from page.html.part "
      "--html page.html",
      "page.html.part", "--html");
}

TEST_F(InputKept, ByAFolderOfAnExport) {
  fs::rename(At("ds.json"), At("below/ds_config.json"));
  const Outcome got =
      In("export --to deepspeed --model gpt2-medium --topology aws-p4d --nodes 1 "
         "--from below/ds_config.json --out below --force",
         "below/ds_config.json");
  EXPECT_EQ(got.code, 2) << got.out;
  EXPECT_THAT(got.out, AllOf(HasSubstr("--out: cannot write 'below/ds_config.json': this command "
                                       "reads it"),
                             HasSubstr("another folder for --out")));
  EXPECT_FALSE(fs::exists(At("below/plan.json")));
}

TEST_F(InputKept, ByACalibration) {
  Copy("calib/data/published_runs.csv", "runs.csv");
  Refuses("calibrate runs.csv --residuals runs.csv", "runs.csv", "--residuals");
  fs::rename(At("runs.csv"), At("runs.yaml"));
  Refuses("calibrate runs.yaml -o runs.yaml", "runs.yaml", "--output");
  Refuses("validate runs.yaml --accuracy runs.yaml", "runs.yaml", "--accuracy");
}

// `--json` takes the next word as its file: one that was meant to be read.
TEST_F(InputKept, ByAFlagThatTakesTheNextWord) {
  const Outcome got = In("discover --json topo.xml hosts", "topo.xml");
  EXPECT_EQ(got.code, 2) << got.out;
  EXPECT_THAT(got.out, AllOf(HasSubstr("--json would overwrite 'topo.xml'"),
                             HasSubstr("hint: --json takes the word behind it as its file")));
  EXPECT_EQ(In("discover topo.xml --json answer.json", "topo.xml").code, 0);
  EXPECT_EQ(In("discover topo.xml --json answer.json", "topo.xml").code, 0) << "its own answer";
}

// What another program or a hand has written is not replaced by a flag that writes something else; what the flag itself has
// written is, and an empty file.
TEST_F(InputKept, ByEveryFlagWhoseFilesItIsNot) {
  WriteText(At("mine"), "gpu: by hand\n");
  WriteText(At("empty"), "");
  const std::string job = "predict --model gpt2-medium --topology cluster.yaml --nodes 1 ";
  const std::string simulate = "simulate --model gpt2-medium --topology cluster.yaml --nodes 1 ";
  const std::pair<std::string, std::string> flags[] = {{"discover topo.xml ", "--out"},
                                                       {job, "--html"},
                                                       {job, "--bundle"},
                                                       {job, "--json"},
                                                       {simulate, "--trace"},
                                                       {"launch --show --nodes 1 ", "--out"},
                                                       {"validate cluster.yaml ", "--accuracy"}};
  for (const auto& [words, flag] : flags) {
    SCOPED_TRACE(words + flag);
    const Outcome got = In(words + flag + " mine", "mine");
    EXPECT_EQ(got.code, 2) << got.out;
    EXPECT_THAT(got.out, HasSubstr(flag + " would overwrite 'mine': it holds something else"));
  }
  for (const auto& [words, flag] : flags) {
    if (flag == "--accuracy" || words.starts_with("launch")) continue;
    SCOPED_TRACE(words + flag);
    fs::remove(At("own"));
    for (int time = 0; time < 2; ++time) EXPECT_EQ(In(words + flag + " own", "mine").code, 0);
    EXPECT_EQ(In(words + flag + " empty", "mine").code, 0);
    WriteText(At("empty"), "");
  }
}

// What is looked through to find the nearest machine may be replaced.
TEST_F(InputKept, ButAnAnswerOfBeforeIsReplaced) {
  fs::create_directories(At(".orrery/topologies"));
  for (int time = 0; time < 2; ++time) {
    const Outcome got = In("discover topo.xml --out .orrery/topologies/mine.yaml", "topo.xml");
    EXPECT_EQ(got.code, 0) << got.out;
  }
  EXPECT_EQ(In("predict --model gpt2-medium --topology mine --json .orrery/topologies/mine.yaml",
               ".orrery/topologies/mine.yaml")
                .code,
            2);
}

}  // namespace
}  // namespace orrery
