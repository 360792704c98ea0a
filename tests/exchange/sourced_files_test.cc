// SPDX-License-Identifier: Apache-2.0
// Files that a launch script takes in by `source` and `.`: followed where they lie beside it, named where they do not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "model/exchange/import.h"
#include "model/exchange/shell.h"
#include "tests/exchange/exported.h"

namespace orrery::exchange::sourced {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

using Files = std::map<std::string, std::string>;

// Of the first file, with the others around it.
ShellScript Read(const std::string& text, const Files& files) {
  return ReadShell(SourceOf("x.sh", text), [&](const Word& file) -> SourcePtr {
    std::string name = file.text;
    if (name.starts_with("./")) name.erase(0, 2);
    const auto at = files.find(name);
    return at == files.end() ? nullptr : SourceOf(name, at->second);
  });
}
std::vector<std::string> Last(const std::string& text, const Files& files) {
  std::vector<std::string> words;
  const ShellScript script = Read(text, files);
  for (const Word& word : script.commands.back())
    words.push_back(word.unresolved.empty() ? word.text : "?");
  return words;
}

TEST(Sourced, VariablesAndFunctionsComeAlong) {
  const Files files = {{"env.sh", "export TP=4\nARGS=(--a 1)\nset_pp() { PP=$1; }\n"}};
  for (const char* front : {"source env.sh", ". ./env.sh", "set -a; source env.sh > /dev/null"})
    EXPECT_THAT(Last(fmt::format("{}\nset_pp 8\nrun $TP $PP \"${{ARGS[@]}}\"", front), files),
                ElementsAre("run", "4", "8", "--a", "1"))
        << front;
  // Each in the place of its command.
  EXPECT_THAT(Last("TP=1\nA=$TP\n. env.sh\nB=$TP\nTP=2\nrun $A $B $TP", files),
              ElementsAre("run", "1", "4", "2"));
  const ShellScript inner = Read("bash -c 'source env.sh; run $TP'", files);
  EXPECT_EQ(inner.commands.front().back().text, "4");
}

TEST(Sourced, WhatIsSetThereHasItsPlace) {
  const ShellScript script = Read("source env.sh\nrun $TP", {{"env.sh", "# mine\nTP=4\n"}});
  const Location& where = script.commands.back()[1].where;
  EXPECT_EQ(where.source->name, "env.sh");
  EXPECT_EQ(where.line, 2);
  ASSERT_EQ(script.sourced.size(), 1u);
  EXPECT_EQ(script.sourced[0].where.line, 1);
}

TEST(Sourced, ABranchLeavesNothingThatIsKnown) {
  const Files files = {{"env.sh", "TP=4\n"}};
  EXPECT_THAT(Last("[ -f env.sh ] && source env.sh\nrun $TP", files), ElementsAre("run", "?"));
  EXPECT_THAT(Last("if [ -f env.sh ]; then\n  . env.sh\nfi\nrun $TP", files),
              ElementsAre("run", "?"));
  EXPECT_THAT(Last("N=2\nif [ $N = 2 ]; then . env.sh; fi\nrun $TP", files),
              ElementsAre("run", "4"));
  EXPECT_THAT(Last("N=2\n[ $N = 3 ] && . env.sh\nrun ${TP:-1}", files), ElementsAre("run", "1"));
  EXPECT_THAT(Last("(cd x)\nsource env.sh\nrun $TP", files), ElementsAre("run", "4"));
}

TEST(Sourced, ReturnEndsTheFileAndExitTheScript) {
  EXPECT_THAT(Last("TP=1\n. a.sh\nif [ $TP = 2 ]; then PP=3; fi\nrun $TP $PP",
                   {{"a.sh", "TP=2\nif [ 1 = 1 ]; then\n  return 0\nfi\nTP=9\n"}}),
              ElementsAre("run", "2", "3"));
  EXPECT_THAT(Last("run a\n. a.sh\nrun b", {{"a.sh", "exit 1\n"}}), ElementsAre("exit", "1"));
}

TEST(Sourced, FilesTakeInOthersAndKnowTheirOwnPlace) {
  const Files files = {{"conf/a.sh",
                        "HERE=$(dirname \"${BASH_SOURCE[0]}\")\nsource conf/b.sh\n"
                        "A=$(basename \"${BASH_SOURCE[0]}\")\n"},
                       {"conf/b.sh", "cat > ds.json <<EOF\n{}\nEOF\nTP=8\n"}};
  EXPECT_THAT(Last("source conf/a.sh\nrun $HERE $TP $A ${BASH_SOURCE[0]}", files),
              ElementsAre("run", "conf", "8", "a.sh", "x.sh"));
  const ShellScript script = Read("source conf/a.sh\n", files);
  ASSERT_EQ(script.files.size(), 1u);
  EXPECT_EQ(script.files[0].text, "{}\n");
}

TEST(Sourced, ThatAreNotReadSayWhy) {
  const auto why = [](const std::string& text, const Files& files) {
    const ShellScript script = Read(text, files);
    return script.unsourced.empty() ? "" : script.unsourced.front().unresolved;
  };
  EXPECT_EQ(why("source env.sh\n", {}), "not found");
  EXPECT_THAT(why("source $CONF/env.sh\n", {}), HasSubstr("$CONF"));
  EXPECT_THAT(why("source env.sh\n", {{"env.sh", "A=\"x\n"}}), HasSubstr("never closed"));
  EXPECT_THAT(why("f() { source env.sh; }\nf\n", {{"env.sh", "A=1\n"}}), HasSubstr("function"));
  // One that takes itself in has an end.
  EXPECT_EQ(why("source env.sh\n", {{"env.sh", "A=1\nsource env.sh\n"}}), "too many files");
}

constexpr const char* kTrain =
    "torchrun --nnodes $NODES --nproc-per-node $GPUS pretrain_gpt.py $MODEL --seq-length 1024 "
    "--max-position-embeddings 1024 --vocab-size 50257 --micro-batch-size 2 "
    "--global-batch-size 64\n";

// From the disk: in the script's folder, by whatever path it names the file.
TEST(Sourced, FilesLieBesideTheScript) {
  const std::string model =
      "MODEL=\"--num-layers 12 --hidden-size 768 --num-attention-heads 12\"\n";
  for (const char* name : {"env.sh", "./env.sh", "$(dirname \"$0\")/env.sh",
                           "$(dirname \"$0\")/conf/../env.sh", "/workspace/env.sh"}) {
    const std::vector<std::string> paths =
        Write({{"x.sh", fmt::format("#!/bin/bash\nsource {}\n", name) + kTrain, false},
               {"env.sh", model + "NODES=4\nexport GPUS=8\n", false}});
    const Resolved read = Resolve({"--from", paths[0], "--topology", "dgx-h100"});
    EXPECT_EQ(read.job.cluster.ranks(), 32) << name;
    EXPECT_EQ(read.strategy.micro_batch, 2) << name;
    EXPECT_THAT(read.job.notes,
                Contains(AllOf(HasSubstr("x.sh:2: takes in "), HasSubstr("env.sh"))));
  }
}

TEST(Sourced, AFileThatIsMissingIsNamed) {
  const std::vector<std::string> paths = Write(
      {{"x.sh",
        "source conf/env.sh\nsource /etc/hostname\n"
        "NODES=4 GPUS=8 MODEL=\"--num-layers 12 --hidden-size 768 --num-attention-heads 12\"\n" +
            std::string(kTrain),
        false}});
  const Resolved read = Resolve({"--from", paths[0], "--topology", "dgx-h100"});
  EXPECT_THAT(read.job.notes,
              testing::IsSupersetOf(
                  {HasSubstr("x.sh:1: conf/env.sh is not read (not found): variables that it sets"),
                   HasSubstr("x.sh:2: /etc/hostname is not read (not found)")}));
}

TEST(Sourced, WhatIsWrongInItNamesItsLine) {
  const std::vector<std::string> paths = Write(
      {{"x.sh", "source env.sh\n" + std::string(kTrain), false},
       {"env.sh", "NODES=4\nGPUS=8\nMODEL=\"--num-layers twelve --hidden-size 768\"\n", false}});
  EXPECT_THAT(ErrorOf([&] {
                Resolve({"--from", paths[0], "--topology", "dgx-h100"});
              }),
              HasSubstr("env.sh:3:"));
}

}  // namespace
}  // namespace orrery::exchange::sourced
