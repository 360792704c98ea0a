// SPDX-License-Identifier: Apache-2.0
// Why parts of a script are not known, each by its own reason, and what is known after all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/exchange/import.h"
#include "model/exchange/shell.h"
#include "tests/exchange/exported.h"

namespace orrery::exchange::reasons {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kModel =
    "--num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 "
    "--max-position-embeddings 1024 --vocab-size 50257 --micro-batch-size 1 ";

Words Last(const std::string& text) { return ReadShell(SourceOf("x.sh", text)).commands.back(); }
std::vector<std::string> Texts(const std::string& text) {
  std::vector<std::string> texts;
  for (const Word& word : Last(text)) texts.push_back(word.unresolved.empty() ? word.text : "?");
  return texts;
}
Imported Read(const std::string& text) { return Import({SourceOf("t.sh", text)}, std::nullopt); }
std::string Error(const std::string& text) {
  return ErrorOf([&] { Read(text); });
}
std::string Value(const std::string& text, const char* field) {
  const Imported read = Read(text);
  const auto at = read.values.find(field);
  return at == read.values.end() ? "" : at->second.text;
}

TEST(ShellReasons, EachPartOfAStringHasItsOwn) {
  const Words words = Last("A=\"--x $ONE --y $((TWO*2)) --z $(date)\"\nB=\"$A $THREE\"\nrun $B\n");
  std::vector<std::string> reasons;
  for (const Word& word : words) {
    if (!word.unresolved.empty()) reasons.push_back(word.unresolved);
  }
  EXPECT_THAT(reasons, ElementsAre("$ONE is not set in this file", "$((TWO*2)) needs a shell",
                                   "a command prints it", "$THREE is not set in this file"));
  // In the text of another shell, too.
  const auto commands =
      ReadShell(SourceOf("x.sh", "A=\"--x $ONE --y $(date)\"\nsrun bash -c \"run $A $TWO\"\n"))
          .commands;
  const Words& inner = commands.at(commands.size() - 2);  // in front of the one around it
  EXPECT_EQ(inner.back().unresolved, "$TWO is not set in this file");
  EXPECT_EQ(inner[inner.size() - 2].unresolved, "a command prints it");
  EXPECT_EQ(inner[inner.size() - 4].unresolved, "$ONE is not set in this file");
}

// A second unreadable word hid that the words of a branch are lost: another layout was predicted.
TEST(ShellReasons, WordsOfABranchAreNotLostBehindOthers) {
  for (const char* other : {"--data-path $DB", "--save $(date)/x", ""}) {
    const std::string text =
        std::string("TP=4\n[[ $X -gt 1 ]] && SP=\"--sequence-parallel\" || SP=\"\"\n") +
        "options=\"" + kModel + "--tensor-model-parallel-size $TP $SP " + other +
        " --global-batch-size 64\"\ncmd=\"pretrain_gpt.py $options\"\n"
        "srun -N 2 --ntasks-per-node 8 sh -c \"python -u ${cmd}\"\n";
    EXPECT_THAT(Error(text), HasSubstr("SP is set in a branch after another value, and arguments"))
        << other;
  }
}

TEST(ShellReasons, ASettingIsRefusedForItsOwn) {
  const std::string text = std::string("GBS=$((COUNT*16))\nA=\"") + kModel +
                           "--global-batch-size $GBS --data-path ${BLEND}\"\npretrain_gpt.py $A\n";
  EXPECT_THAT(Error(text), HasSubstr("global-batch-size: $((COUNT*16)) needs a shell"));
}

// An assignment does not fail, so that [ c ] && X=a || X=b is if, then, else.
TEST(ShellReasons, OneOfTwoAssignmentsIsTaken) {
  EXPECT_THAT(Texts("N=4; [ $N -gt 1 ] && X=a || X=b\nrun $X"), ElementsAre("run", "a"));
  EXPECT_THAT(Texts("N=1; [[ $N -gt 1 ]] && X=a || X=b\nrun $X"), ElementsAre("run", "b"));
  EXPECT_THAT(Texts("N=4; [ $N -gt 1 ] && export X=a || X=\nrun $X"), ElementsAre("run", "a"));
  EXPECT_THAT(Texts("[ $N -gt 1 ] && X=a || X=b\nrun $X"), ElementsAre("run", "?"));
  EXPECT_THAT(Texts("[ $N -gt 1 ] && [ 1 = 1 ] && X=a\nrun $X"), ElementsAre("run", "?"));
  EXPECT_THAT(Texts("N=4; [ $N -gt 1 ] && X=$(hostname) || X=b\nrun $X"), ElementsAre("run", "?"));
  EXPECT_THAT(Texts("N=4; [ $N -gt 1 ] && cd there || X=b\nrun $X"), ElementsAre("run", "?"));
  const std::string text = std::string("TP=4\n[[ $TP -gt 1 ]] && SP=\"--sequence-parallel\" || ") +
                           "SP=\"\"\npretrain_gpt.py " + kModel +
                           "--tensor-model-parallel-size $TP $SP --data-path $DB\n";
  EXPECT_EQ(Value(text, "sequence_parallel"), "on");
}

TEST(ShellReasons, WhatSlurmSetsByItsDirectivesIsKnown) {
  const std::string head = "#!/bin/bash\n#SBATCH -N 4\n#SBATCH --ntasks-per-node=8\n";
  EXPECT_THAT(Texts(head + "run $SLURM_NNODES ${SLURM_JOB_NUM_NODES} $SLURM_NTASKS "
                           "$SLURM_NTASKS_PER_NODE $((8*$SLURM_NNODES)) ${SLURM_NNODES:-1}"),
              ElementsAre("run", "4", "4", "32", "8", "32", "4"));
  EXPECT_THAT(Texts("#SBATCH --nodes=2-4\nrun $SLURM_NNODES"), ElementsAre("run", "?"));
  EXPECT_THAT(Texts("run\n#SBATCH -N 4\nrun $SLURM_NNODES"), ElementsAre("run", "?"));
  EXPECT_THAT(Texts("#SBATCH --gres=gpu:h100:8\nrun $SLURM_GPUS_ON_NODE"), ElementsAre("run", "8"));
  const std::string text =
      head +
      "GBS=$((SLURM_NNODES*16))\nsrun -n $SLURM_NNODES torchrun --nnodes $SLURM_NNODES "
      "--nproc-per-node 8 pretrain_gpt.py " +
      kModel + "--global-batch-size $GBS --data-path ${DATA_BLEND}\n";
  EXPECT_EQ(Value(text, "global_batch"), "64");
  EXPECT_EQ(Value(text, "nodes"), "4");
}

}  // namespace
}  // namespace orrery::exchange::reasons
