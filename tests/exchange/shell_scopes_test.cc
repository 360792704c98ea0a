// SPDX-License-Identifier: Apache-2.0
// Which assignments of a script bash forgets, and which it makes by other commands than NAME=value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/exchange/import.h"
#include "model/exchange/shell.h"
#include "tests/exchange/exported.h"

namespace orrery::exchange::scopes {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

ShellScript Read(const std::string& text) { return ReadShell(SourceOf("x.sh", text)); }
// The words behind "run", the last command, of which "?" is not known.
std::vector<std::string> After(const std::string& text, const std::string& words = "$TP") {
  const ShellScript script = Read(text + "\nrun " + words + "\n");
  std::vector<std::string> texts;
  for (const Word& word : script.commands.back())
    texts.push_back(word.unresolved.empty() ? word.text : "?");
  texts.erase(texts.begin());
  return texts;
}
std::string Tp(const std::string& text) { return After(text).back(); }

TEST(Subshells, ForgetWhatTheySet) {
  EXPECT_EQ(Tp("TP=2; (TP=8)"), "2");
  EXPECT_EQ(Tp("TP=2; ( cd /x && export TP=8; echo hi )"), "2");
  EXPECT_EQ(Tp("TP=2\n(\n  (TP=4)\n  TP=8\n)"), "2");
  EXPECT_EQ(Tp("TP=2; (unset TP; TP=8) &"), "2");
  EXPECT_EQ(Tp("f() { TP=8; }\nTP=2; f; TP=3; (f)"), "3");
  EXPECT_EQ(After("(TP=8)", "${TP:-4}").back(), "4");
  // Inside of it all is as set there.
  const ShellScript script = Read("TP=2; (TP=8; one $TP); two $TP\n");
  EXPECT_EQ(script.commands[0].back().text, "8");
  EXPECT_EQ(script.commands[1].back().text, "2");
}

TEST(Subshells, ArePartsOfPipelinesAndOfTheBackground) {
  EXPECT_EQ(Tp("TP=2; { TP=8; echo; } | tee log"), "2");
  EXPECT_EQ(Tp("TP=2; { TP=8; } 2>&1 | tee log"), "2");
  EXPECT_EQ(Tp("TP=2; { TP=8; } &"), "2");
  EXPECT_EQ(Tp("TP=2; echo | { TP=8; }"), "2");
  EXPECT_EQ(Tp("f() { TP=8; }\nTP=2; f | tee log"), "2");
  EXPECT_EQ(Tp("TP=2; eval TP=8 | tee log"), "2");
  EXPECT_EQ(Tp("f() { { A=1; }; }\nTP=2; { f; TP=8; } | tee log"), "2");
  EXPECT_EQ(Tp("TP=2; { TP=8; } > log"), "8");
  EXPECT_EQ(Tp("TP=2; { TP=8; } && echo"), "8");
}

// Kept for what followed: another layout was predicted.
TEST(Prefixes, HoldForOneCommand) {
  EXPECT_EQ(Tp("TP=2; TP=8 echo hi"), "2");
  EXPECT_EQ(Tp("TP=4\nCUDA_VISIBLE_DEVICES=0 TP=1 python3 prep.py"), "4");
  EXPECT_EQ(After("TP=8 echo", "${TP:-4}").back(), "4");
  EXPECT_EQ(Tp("TP=2; TP+=8 > log echo hi"), "2");
  EXPECT_EQ(Tp("TP=2; TP=8 > log"), "8");
  EXPECT_EQ(Tp("TP=2; export TP=8 PP=1"), "8");
}

// Its own words are expanded before.
TEST(Prefixes, DoNotReachTheWordsOfTheirCommand) {
  const auto last = [](const std::string& text) { return Read(text).commands.back().back().text; };
  EXPECT_EQ(last("TP=4 torchrun --tp ${TP:-2}\n"), "2");
  EXPECT_EQ(last("TP=1; TP=4 PP=$TP run $TP\n"), "1");
  EXPECT_EQ(Read("TP=1; TP=4 bash -c 'run $TP'\n").commands.front().back().text, "4");
  EXPECT_EQ(Read("TP=1; TP=4 bash <<'X'\nrun $TP\nX\n").commands.back().back().text, "4");
  EXPECT_EQ(Read("f() { run $TP; }\nTP=1; TP=4 f\n").commands.front().back().text, "4");
  EXPECT_EQ(Tp("f() { TP=9; }\nTP=1; TP=4 f"), "1");
}

TEST(Prefixes, CountTheNodesOfTheirCommand) {
  const auto nodes = [](const std::string& text) {
    const Imported read = Import({SourceOf("x.sh", text)}, std::nullopt);
    return read.values.at("nodes").text + " x " + read.values.at("gpus_per_node").text;
  };
  const std::string run =
      "pretrain_gpt.py --num-layers 12 --hidden-size 768 "
      "--num-attention-heads 12 --seq-length 1024 --micro-batch-size 1\n";
  EXPECT_EQ(nodes("NNODES=4 GPUS_PER_NODE=8 bash train.sh\n"), "4 x 8");
  EXPECT_EQ(nodes("NNODES=1 NGPU=2 python prep.py\nNNODES=4 NGPU=8 python " + run), "4 x 8");
  EXPECT_EQ(nodes("NNODES=1 NGPU=2\n(NNODES=4 NGPU=8; python " + run + ")\n"), "4 x 8");
}

TEST(Unset, TakesAVariableAway) {
  EXPECT_EQ(After("TP=2; unset TP", "${TP:-4}").back(), "4");
  EXPECT_EQ(After("TP=2; PP=2; unset -v PP TP", "${TP:-4}").back(), "4");
  EXPECT_EQ(After("declare -A C=([a]=1 [b]=7)\nunset C[b]", "${C[b]:-2} ${C[a]}"),
            (std::vector<std::string>{"2", "1"}));
  EXPECT_EQ(After("declare -A C=([a]=1 [b]=7)\nunset 'C[b]'", "${C[b]:-2}").back(), "2");
  EXPECT_EQ(After("A=(1 2 3); unset A[2]", "\"${A[@]}\""), (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(After("A=(1 2 3); unset A[0]", "${A[1]}").back(), "?");
  EXPECT_EQ(After("A=(1 2 3); unset A", "${A[1]:-5}").back(), "5");
  EXPECT_EQ(Tp("f() { TP=8; }\nTP=2; unset -f f; f"), "2");
  EXPECT_EQ(Tp("TP=2; if [ -f x ]; then unset TP; fi"), "?");
  EXPECT_EQ(Read("TP=2; unset $(env)\n").unsourced.at(0).text, "unset");
}

TEST(Eval, RunsItsWords) {
  EXPECT_EQ(Tp("TP=2; eval TP=4"), "4");
  EXPECT_EQ(Tp("TP=2; eval \"TP=4; PP=1\""), "4");
  EXPECT_EQ(Tp("N=TP; eval \"$N=4\""), "4");
  EXPECT_EQ(Tp("A=4; eval 'TP=$A'"), "4");
  EXPECT_EQ(Tp("f() { eval \"TP=$1\"; }\nf 4"), "4");
  EXPECT_EQ(Tp("TP=2; if [ -f x ]; then eval TP=4; fi"), "?");
  EXPECT_EQ(Tp("f() { TP=4; }\neval 'return; TP=9'\nf"), "4");
  EXPECT_EQ(Tp("f() { TP=4; eval return; TP=9; }\nf"), "4");
  const ShellScript script = Read("C=\"train --tp 4 --x $X\"\neval \"$C --y\"\n");
  ASSERT_EQ(script.commands.size(), 1u);
  EXPECT_EQ(script.commands[0].size(), 6u);
  EXPECT_EQ(script.commands[0][2].text, "4");
  EXPECT_EQ(script.commands[0][4].unresolved, "$X is not set in this file");
  // What it sets, nobody knows.
  EXPECT_EQ(Read("eval \"$(conda shell.bash hook)\"\n").unsourced.at(0).unresolved,
            "a command prints it");
  EXPECT_EQ(Read("eval \"$(name)=4\"\n").unsourced.at(0).text, "eval");
  EXPECT_TRUE(Read("eval run --x $X\n").unsourced.empty());
}

TEST(Printf, SetsAVariable) {
  EXPECT_EQ(Tp("TP=2; printf -v TP %d 4"), "4");
  EXPECT_EQ(Tp("printf -v TP '%s-%d%%' a 4"), "a-4%");
  EXPECT_EQ(Tp("TP=2; printf -v TP %02x 4"), "?");
  EXPECT_EQ(Tp("TP=2; printf -v TP %d $X"), "?");
}

TEST(Declarations, TakeSeveralWords) {
  EXPECT_EQ(After("export TP PP=2", "$PP").back(), "2");
  EXPECT_EQ(After("TP=8; export TP PP=2", "$TP $PP"), (std::vector<std::string>{"8", "2"}));
  EXPECT_EQ(Tp("export \"TP=4\""), "4");
  EXPECT_EQ(Tp("N=TP; export $N=4"), "4");
  EXPECT_EQ(Tp("TP=2; f() { local PP TP; TP=8; }\nf"), "2");
  EXPECT_EQ(Tp("TP=2; f() { declare TP=8; }\nf"), "2");
  EXPECT_EQ(Tp("TP=2; f() { declare -g TP=8; }\nf"), "8");
  EXPECT_EQ(Tp("TP=2; f() { if [ 1 = 2 ]; then local TP; fi; TP=8; }\nf"), "8");
  EXPECT_EQ(Tp("TP=2; f() { if [ -f x ]; then local TP; fi; TP=8; }\nf"), "?");
  EXPECT_EQ(Tp("TP=2; declare -n R=TP; R=8"), "?");
  EXPECT_EQ(Read("export $(grep -v '#' .env)\n").unsourced.at(0).text, "export");
}

TEST(Arguments, AreThoseOfSet) {
  EXPECT_EQ(After("set -- 4 2", "$1 $2 $# ${3:-7}"),
            (std::vector<std::string>{"4", "2", "2", "7"}));
  EXPECT_EQ(After("set -euo pipefail 4", "$1").back(), "4");
  EXPECT_EQ(After("set -- 4 2; shift", "$1 \"$@\""), (std::vector<std::string>{"2", "2"}));
  EXPECT_EQ(After("set -ex", "$1").back(), "?");
  EXPECT_EQ(After("set -- 1 $(hosts) 3", "$1 $2 $3"), (std::vector<std::string>{"1", "?", "?"}));
  EXPECT_EQ(After("set -- 1\nf() { set -- 9; }\nf 2", "$1").back(), "1");
}

// What nobody can follow is refused where arguments stand in it, never taken as it was.
TEST(Unset, WhatABranchUnsetsIsRefused) {
  const std::string text =
      "ARGS=\"--tensor-model-parallel-size 4\"\nif [ -f x ]; then unset ARGS; fi\n"
      "torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py --num-layers 24 --hidden-size 1024 "
      "--num-attention-heads 16 --seq-length 1024 --micro-batch-size 2 $ARGS\n";
  EXPECT_THAT(ErrorOf([&] { Import({SourceOf("x.sh", text)}, std::nullopt); }),
              AllOf(HasSubstr("x.sh:2"), HasSubstr("ARGS is unset in a branch after a value")));
}

TEST(Cases, TakeNoCaseAndGoOnAsTheirArmsSay) {
  const std::string llama = "M=\"Llama 70B\"; case \"$M\" in llama*70b) TP=4;; *) TP=2;; esac";
  EXPECT_EQ(Tp("shopt -s nocasematch; " + llama), "4");
  EXPECT_EQ(Tp(llama), "2");
  EXPECT_EQ(Tp("shopt -s nocasematch; shopt -u nocasematch\n" + llama), "2");
  EXPECT_EQ(Tp("(shopt -s nocasematch); " + llama), "2");
  EXPECT_EQ(Tp("[ -f x ] && shopt -s nocasematch; " + llama), "?");
  EXPECT_EQ(Tp("shopt -s nocasematch; M=A; TP=1; [[ $M == a ]] && TP=4"), "4");
  EXPECT_EQ(Tp("shopt -s nocasematch; M=A; TP=1; [ $M = a ] && TP=4"), "1");
  EXPECT_EQ(After("PP=1; case axb in a*) TP=4;;& *b) PP=2;; *) PP=3;; esac", "$TP $PP"),
            (std::vector<std::string>{"4", "2"}));
  EXPECT_EQ(After("PP=1; case axc in a*) TP=4;;& *b) PP=2;; *) PP=3;; esac", "$PP").back(), "3");
  EXPECT_EQ(After("PP=1; case axb in a*) TP=4;& *z) PP=2;; *) PP=3;; esac", "$TP $PP"),
            (std::vector<std::string>{"4", "2"}));
  EXPECT_EQ(After("PP=1; case xb in a*) TP=4;& *z) PP=2;; *) PP=3;; esac", "$PP").back(), "3");
}

}  // namespace
}  // namespace orrery::exchange::scopes
