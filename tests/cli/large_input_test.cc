// SPDX-License-Identifier: Apache-2.0
// Large numbers are answered, or refused with the limit: RunPlan() ends what takes longer than two minutes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

using testing::HasSubstr;
using testing::Not;

// The template's model with so many layers.
std::string ModelOf(int layers) {
  const std::string path = ScratchFolder() + "/deep.yaml";
  WriteText(path, std::regex_replace(RunPlan({"list", "models", "--template"}).out,
                                     std::regex("\nlayers: [0-9]+"),
                                     "\nlayers: " + std::to_string(layers)));
  return path;
}

TEST(LargeInput, ASearchSaysHowManyLayersItTakesAndPredictTakesMore) {
  const std::vector<std::string> job = {"--model",  ModelOf(5000), "--topology",
                                        "dgx-h100", "--nodes",     "128"};
  const Outcome refused = RunPlan(job);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("5000 layers: a search takes models of 1 to 1000"));
  const Outcome one = RunPlan(With(With({"predict"}, job), {"--tp", "8", "--pp", "8"}));
  EXPECT_EQ(one.code, 3) << one.err;  // it does not fit, and that is an answer
  EXPECT_THAT(one.out, HasSubstr("forward of layer 4"));
}

TEST(LargeInputSlow, LongSequencesThatFitNowhereAreAnswered) {
  const Outcome outcome = RunPlan(
      {"--model", "llama2-7b", "--topology", "dgx-h100", "--nodes", "4", "--seq-len", "16777216"});
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Smallest changes that make it fit"));
  // Reasons that differ in such numbers alone are one.
  EXPECT_THAT(outcome.out,
              HasSubstr("a tensor of elements is larger than a buffer can be; for example"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("of.")));
}

TEST(LargeInput, ManyNodesAndSequencesAreSearched) {
  const Outcome outcome = RunPlan({"--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes",
                                   "16384", "--global-batch", "1048576"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("131072 GPUs"));
}

// Links that no message uses, and copies of the traffic of each, took 834 MB and most of the time.
TEST(LargeInput, AStepOfManyGpusTakesLittleMemory) {
  const Outcome outcome = RunPlan({"simulate",    "--model",
                                   "llama3-405b", "--topology",
                                   "dgx-h100",    "--nodes",
                                   "16384",       "--seq-len",
                                   "8192",        "--global-batch",
                                   "16384",       "--zero",
                                   "1",           "--sequence-parallel",
                                   "--tp",        "8",
                                   "--pp",        "16",
                                   "--dp",        "1024"});
  EXPECT_THAT(outcome.out, HasSubstr("= 131072 GPUs"));
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LT(outcome.peak_mib, 640);
#endif
}

TEST(LargeInput, APlanTextObeysTheLimitsOfFlags) {
  const Outcome plan = RunPlan({"show", "--model", "gpt2-small", "--topology", "dgx-h100",
                                "--nodes", "1", "--dp", "8", "--global-batch", "64", "--ir"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  const std::string path = ScratchFolder() + "/plan.txt";
  const auto with = [&](const char* line, const std::string& changed) {
    WriteText(path, std::regex_replace(plan.out, std::regex(line), changed));
    const Outcome outcome = RunPlan({"predict", "--plan", path, "--topology", "dgx-h100"});
    EXPECT_EQ(outcome.code, 2) << changed;
    return outcome.err;
  };
  EXPECT_THAT(with("\nmicro_batches 8", "\nmicro_batches 16777217"), HasSubstr("16777216"));
  EXPECT_THAT(with(" dp=8 ", " dp=2147483648 "), HasSubstr("2147483647"));
}

}  // namespace
}  // namespace orrery
