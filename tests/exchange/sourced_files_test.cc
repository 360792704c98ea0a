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
  // One that takes itself in has an end, and is named once.
  const ShellScript itself = Read("source env.sh\n", {{"env.sh", "A=1\nsource env.sh\n"}});
  ASSERT_EQ(itself.unsourced.size(), 1u);
  EXPECT_EQ(itself.unsourced[0].unresolved, "it takes itself in");
  EXPECT_EQ(itself.sourced.size(), 1u);
}

TEST(Sourced, ArgumentsAreThoseOfTheCommand) {
  const Files files = {{"conf.sh", "TP=$1\nPP=${2:-1}\n"}};
  EXPECT_THAT(Last("source conf.sh 4\nrun $TP $PP", files), ElementsAre("run", "4", "1"));
  EXPECT_THAT(Last("set -- 8 2\n. conf.sh\nrun $TP $PP $1", files),
              ElementsAre("run", "8", "2", "8"));
  EXPECT_THAT(Last("f() { source conf.sh $2; }\nf 1 4\nrun $TP", files), ElementsAre("run", "4"));
}

TEST(Sourced, ALoopOverThemIsFollowed) {
  const Files files = {{"a.sh", "TP=4\n"}, {"b.sh", "PP=$((TP/2))\n"}};
  EXPECT_THAT(Last("for f in a.sh b.sh; do\n  source $f > log\ndone\nrun $TP $PP", files),
              ElementsAre("run", "4", "2"));
  // Another loop is named with its reason.
  const ShellScript other = Read("for f in a.sh b.sh; do echo; source $f; done\n", files);
  ASSERT_EQ(other.unsourced.size(), 1u);
  EXPECT_EQ(other.unsourced[0].unresolved, "f takes a.sh, b.sh in a loop");
}

TEST(Sourced, LieInTheFolderOfTheCommand) {
  const Files files = {{"conf.sh", "TP=8\n"}, {"sub/conf.sh", "TP=4\n"}};
  const auto tp = [&](const std::string& text) { return Last(text + "\nrun $TP", files).back(); };
  EXPECT_EQ(tp("cd sub; source conf.sh"), "4");
  EXPECT_EQ(tp("cd sub || exit 1\n. ./conf.sh"), "4");
  EXPECT_EQ(tp("pushd sub\npopd\nsource conf.sh"), "8");
  EXPECT_EQ(tp("(cd sub)\nsource conf.sh"), "8");
  EXPECT_EQ(tp("cd sub; cd ..; source conf.sh"), "8");
  EXPECT_EQ(tp("cd sub; source $(dirname $0)/conf.sh"), "8");
  EXPECT_EQ(tp("cd $(dirname $0)\nsource conf.sh"), "8");
}

// The file on the disk was taken.
TEST(Sourced, ThatTheScriptWritesAreRead) {
  const Files files = {{"conf.sh", "TP=8\n"}};
  const std::string write = "cat > conf.sh <<X\nTP=2\nPP=$N\nX\n";
  EXPECT_THAT(Last("N=4\n" + write + "source conf.sh\nrun $TP $PP", files),
              ElementsAre("run", "2", "4"));
  const ShellScript script = Read("N=4\n" + write + "source conf.sh\nrun $TP", files);
  EXPECT_EQ(script.commands.back()[1].where.line, 3);
  EXPECT_THAT(Last("source conf.sh\n" + write + "run $TP", files), ElementsAre("run", "8"));
  EXPECT_THAT(Last("cd sub\ncat > conf.sh <<X\nTP=2\nX\ncd ..\nsource conf.sh\nrun $TP", files),
              ElementsAre("run", "8"));
}

TEST(Sourced, WhatACommandPrintsIsNamed) {
  const ShellScript script = Read("TP=2\nsource <(echo TP=4)\nrun $TP", {});
  ASSERT_EQ(script.unsourced.size(), 1u);
  EXPECT_EQ(script.unsourced[0].unresolved, "a command prints it");
  EXPECT_EQ(script.unsourced[0].where.line, 2);
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
  EXPECT_THAT(
      read.job.notes,
      testing::IsSupersetOf({HasSubstr("x.sh:1: conf/env.sh is not read (not found): what it sets"),
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

TEST(Sourced, AnErrorNamesTheFileThatWasNotRead) {
  const std::vector<std::string> paths =
      Write({{"x.sh",
              "source <(cat env)\ntorchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py "
              "--tensor-model-parallel-size $TP --num-layers 12\n",
              false}});
  EXPECT_THAT(ErrorOf([&] {
                Resolve({"--from", paths[0], "--topology", "dgx-h100"});
              }),
              HasSubstr("x.sh:1: a file is not read (a command prints it), and $TP is not set"));
}

// conf.sh next to the script was taken for sub/conf.sh.
TEST(Sourced, AFolderIsNoOther) {
  const std::string text = std::string("cd sub\nsource conf.sh\nNODES=1\nGPUS=8\n") + kTrain;
  const std::vector<std::string> paths =
      Write({{"x.sh", text, false}, {"conf.sh", "MODEL=\"--num-layers 24\"\n", false}});
  const Resolved r = Resolve({"--from", paths[0], "--topology", "dgx-h100", "--model", "gpt2-xl"});
  EXPECT_THAT(r.job.notes, Contains(HasSubstr("x.sh:2: conf.sh is not read (not found)")));
}

}  // namespace
}  // namespace orrery::exchange::sourced
