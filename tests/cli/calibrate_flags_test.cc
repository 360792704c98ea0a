// SPDX-License-Identifier: Apache-2.0
// Flags that take several values, and what `plan calibrate` says of flags that do not go together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "model/program/common/fidelity_flags.h"
#include "tests/cli/run_plan.h"

namespace orrery::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(SeveralValues, StandBetweenCommasBehindEqualsSignsAndInSeveralFlags) {
  CalibrateFlags flags;
  const CommandLine line({"plan", "calibrate", "a.csv", "--gpu", "x,y", "b.csv", "--gpu=z",
                          "--framework", "s", "c,d.csv", "--topology", "8 GPUs, 2 nodes=dgx-h100",
                          "--topology", "selene"});
  ASSERT_FALSE(flags.set.Parse(line, 2));
  EXPECT_THAT(TextsOf(flags.files), ElementsAre("a.csv", "b.csv", "c,d.csv"));
  EXPECT_THAT(TextsOf(flags.gpus), ElementsAre("x", "y", "z"));
  EXPECT_THAT(TextsOf(flags.frameworks), ElementsAre("s"));
  EXPECT_THAT(TextsOf(flags.topologies), ElementsAre("8 GPUs, 2 nodes=dgx-h100", "selene"));
  EXPECT_EQ(flags.gpus[2].where.column, line.where(6).column);
  EXPECT_EQ(flags.files[1].where.column, line.where(5).column);
}

TEST(SeveralValues, AFlagStillAnswersToItsOldName) {
  CalibrateFlags flags;
  const CommandLine line({"plan", "calibrate", "a.csv", "--stack=s", "--gpu", "x"});
  ASSERT_FALSE(flags.set.Parse(line, 2));
  EXPECT_THAT(TextsOf(flags.frameworks), ElementsAre("s"));
  EXPECT_EQ(flags.frameworks[0].where.column, line.where(3).column);
  EXPECT_EQ(flags.gpus[0].where.column, line.where(5).column);
}

TEST(SeveralValues, NoneOfThemIsEmpty) {
  for (const char* value : {"x,,y", ",", "--framework"}) {
    CalibrateFlags flags;
    EXPECT_THROW(flags.set.Parse(CommandLine({"plan", "calibrate", "a", "--gpu", value, "s"}), 2),
                 InputError)
        << value;
  }
}

class CalibrateCommand : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(std::string(ORRERY_BINARY_DIR) + "/bin/plan-calibrate"))
      GTEST_SKIP() << "plan-calibrate is not built: Ceres is missing";
  }
  const std::string runs_ = std::string(ORRERY_SOURCE_DIR) + "/calib/fit/samples/runs.csv";
};

TEST_F(CalibrateCommand, SaysWhichFlagsDoNotGoTogether) {
  const auto error = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"calibrate", runs_});
    const Outcome outcome = RunPlan(flags);
    EXPECT_EQ(outcome.code, 2);
    return outcome.err;
  };
  EXPECT_THAT(error({"--job", "j.yaml", "--gpu", "a100"}), HasSubstr("--gpu and --job exclude"));
  EXPECT_THAT(error({"-o", "out", "--in-place"}), HasSubstr("--in-place and -o exclude"));
  EXPECT_THAT(error({"--ranks", "8"}), HasSubstr("--ranks is for sweeps"));
  EXPECT_THAT(error({"--gpus", "8"}), HasSubstr("did you mean '--gpu'"));
  EXPECT_THAT(RunPlan({"calibrate"}).err, HasSubstr("which measurements?"));
}

// As calib/calibration.md says it: a log, a profile, its name in the topology's file, and then the question that was logged.
TEST_F(CalibrateCommand, AProfileOfOneLogAnswersFromItsOwnRun) {
  const std::string folder = ScratchFolder() + "/";
  std::string topology = ReadText(std::string(ORRERY_SOURCE_DIR) + "/topologies/dgx-h100.yaml");
  topology.replace(topology.find("name: dgx-h100"), 14, "name: my-cluster");
  WriteText(folder + "my-cluster.yaml", topology);
  WriteText(folder + "run.csv", "step,step_time [ms]\n1,1000\n2,1000\n3,1000\n4,1000\n");
  WriteText(folder + "run.csv.yaml",
            "runs:\n  - name: own run\n    job: {model: llama2-7b, topology: " + folder +
                "my-cluster.yaml, nodes: 1, framework: megatron, seq_len: 4096, global_batch: 16}\n"
                "    layout: {tp: 2, dp: 4, zero: 1, micro_batch: 1}\n");
  const std::string profile = folder + "megatron@my-cluster.yaml";
  const Outcome fitted = RunPlan(
      {"calibrate", folder + "run.csv", "--topology", folder + "my-cluster.yaml", "-o", profile});
  ASSERT_EQ(fitted.code, 0) << fitted.out << fitted.err;
  const auto ask = [&] {
    return RunPlan({"predict",
                    "--model",
                    "llama2-7b",
                    "--topology",
                    folder + "my-cluster.yaml",
                    "--nodes",
                    "1",
                    "--framework",
                    "megatron",
                    "--seq-len",
                    "4096",
                    "--global-batch",
                    "16",
                    "--tp",
                    "2",
                    "--dp",
                    "4",
                    "--zero",
                    "1",
                    "--micro-batch",
                    "1"})
        .out;
  };
  EXPECT_THAT(ask(), HasSubstr("my-cluster: no calibrated run on it"));
  WriteText(folder + "my-cluster.yaml",
            topology + "frameworks: {megatron: ./megatron@my-cluster.yaml}\n");
  const std::string answer = ask();
  EXPECT_THAT(answer, HasSubstr("interval from   same layer shape on a known cluster"));
  EXPECT_THAT(answer, HasSubstr("own run"));
  EXPECT_THAT(answer, testing::Not(HasSubstr("no calibrated run of this framework")));
}

}  // namespace
}  // namespace orrery::cli
