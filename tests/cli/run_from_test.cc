// SPDX-License-Identifier: Apache-2.0
// `plan run --from` a launch script: it trains as the script says, and says what it does not take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/json_of.h"

namespace orrery {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kModel =
    "python pretrain_gpt.py --num-layers 2 --hidden-size 32 --num-attention-heads 2 "
    "--seq-length 16 --max-position-embeddings 16 --vocab-size 64 --micro-batch-size 2 "
    "--global-batch-size 2 --attention-dropout 0 --hidden-dropout 0 ";

std::vector<std::string> RunWords(const std::string& name, const std::vector<std::string>& more) {
  std::vector<std::string> words = {"run", "--from", ScratchFolder() + "/" + name, "--comm",
                                    "local"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
std::vector<double> Losses(const std::string& name, const std::vector<std::string>& more) {
  std::vector<double> losses;
  const nlohmann::json record = JsonOf(RunWords(name, more));
  for (const auto& step : record["steps"]) losses.push_back(step["loss"]);
  return losses;
}

TEST(RunFrom, TrainsWithTheRatesAndStepsOfTheScript) {
  WriteText(ScratchFolder() + "/plain.sh", kModel + "\n");
  WriteText(ScratchFolder() + "/rates.sh",
            kModel +
                "--lr 3e-3 --lr-decay-style cosine --min-lr 1e-4 --lr-warmup-iters 2 "
                "--weight-decay 0.1 --train-iters 6 --seed 3 --foo-bar 3\n");
  const std::vector<std::string> flags = {
      "--lr",   "3e-3", "--lr-schedule", "cosine", "--lr-end",       "1e-4", "--warmup", "2",
      "--seed", "3",    "--steps",       "6",      "--weight-decay", "0.1"};
  const std::vector<double> taken = Losses("rates.sh", {});
  EXPECT_EQ(taken.size(), 6u);
  EXPECT_EQ(taken, Losses("plain.sh", flags));
  EXPECT_NE(taken, Losses("plain.sh", {"--steps", "6", "--seed", "3"}));
  // A flag wins, and the schedule stays that of the script.
  const std::vector<double> shorter = Losses("rates.sh", {"--steps", "3"});
  EXPECT_EQ(shorter, std::vector<double>(taken.begin(), taken.begin() + 3));
  EXPECT_EQ(Losses("rates.sh", {"--lr-schedule", "constant", "--steps", "1"}).size(), 1u);
}

TEST(RunFrom, SaysTheSameOfKeysAsAPrediction) {
  WriteText(ScratchFolder() + "/notes.sh",
            kModel + "--lr 3e-3 --train-iters 2 --foo-bar 3 --made-up 1\n");
  const std::string run = Folded(RunPlan(RunWords("notes.sh", {})).err);
  EXPECT_THAT(run, AllOf(HasSubstr("not known here: foo-bar, made-up"),
                         HasSubstr("a script with settings of megatron"), HasSubstr("--lr 3e-3"),
                         HasSubstr("--steps 2")));
  EXPECT_THAT(run, Not(HasSubstr("memory: lr")));
  const std::string predicted = Folded(RunPlan({"predict", "--from", ScratchFolder() + "/notes.sh",
                                                "--topology", "localhost", "--gpus-per-node", "1"})
                                           .out);
  EXPECT_THAT(predicted, AllOf(HasSubstr("without effect on time and memory: lr, train-iters"),
                               HasSubstr("not known here: foo-bar, made-up")));
}

// The model of kModel, with a batch for several replicas.
std::string Script(const std::string& front, const std::string& degrees) {
  return front +
         " pretrain_gpt.py --num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 16 "
         "--max-position-embeddings 16 --vocab-size 64 --micro-batch-size 1 --global-batch-size 8 "
         "--train-iters 1 " +
         degrees + "\n";
}

TEST(RunFrom, RunsAsManyRanksAsTheFileHas) {
  WriteText(ScratchFolder() + "/two.sh", Script("torchrun --nproc-per-node 2", ""));
  WriteText(ScratchFolder() + "/four.sh",
            Script("torchrun --nnodes 2 --nproc-per-node 2", "--tensor-model-parallel-size 2"));
  EXPECT_THAT(RunPlan(RunWords("two.sh", {})).out, HasSubstr("2 ranks"));
  EXPECT_THAT(RunPlan(RunWords("two.sh", {})).out, HasSubstr("dp 2, micro-batch 1 of 8"));
  const Outcome four = RunPlan(RunWords("four.sh", {}));
  EXPECT_THAT(four.out, HasSubstr("4 ranks")) << four.err;
  EXPECT_THAT(four.out, HasSubstr("tp 2, dp 2, micro-batch 1 of 8"));
  EXPECT_THAT(four.err, Not(HasSubstr("replace")));
}

TEST(RunFrom, SaysWhereFlagsNameAnotherNumberOfRanks) {
  WriteText(ScratchFolder() + "/two.sh", Script("torchrun --nproc-per-node 2", ""));
  const Outcome four = RunPlan(RunWords("two.sh", {"-n", "4"}));
  EXPECT_THAT(four.out, HasSubstr("dp 4, micro-batch 1 of 8"));
  EXPECT_THAT(four.err, HasSubstr("4 ranks replace the 2 of "));
  EXPECT_THAT(four.err, HasSubstr("/two.sh:1"));
  const Outcome one = RunPlan(RunWords("two.sh", {"--dp", "1"}));
  EXPECT_THAT(one.out, HasSubstr("1 rank "));
  EXPECT_THAT(one.err, HasSubstr("1 rank replaces the 2 of "));
}

}  // namespace
}  // namespace orrery
