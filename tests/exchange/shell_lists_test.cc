// SPDX-License-Identifier: Apache-2.0
// Which commands of a && b || c run where nobody knows whether a command fails, and what "$*" and "${NAME[*]}" are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/exchange/import.h"
#include "model/exchange/shell.h"
#include "tests/exchange/exported.h"

namespace orrery::exchange::lists {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ShellScript Read(const std::string& text) { return ReadShell(SourceOf("x.sh", text)); }
std::vector<std::string> Texts(const Words& words) {
  std::vector<std::string> texts;
  for (const Word& word : words) texts.push_back(word.unresolved.empty() ? word.text : "?");
  return texts;
}
// Of "run $TP" behind the text; "?": nobody knows.
std::string Tp(const std::string& text) {
  return Texts(Read(text + "\nrun \"$TP\"\n").commands.back()).back();
}

// The side behind && was taken, whatever the command was: another layout was predicted.
TEST(Lists, NeitherSideOfACommandThatMayFailIsTaken) {
  for (const char* command :
       {"grep -q x FILE", "nvidia-smi | grep -q H100", "which nvcc", "ls /none", "cd /none",
        "source /none.sh", "(exit 1)", "{ false; }", "X=$(false)", "! cd x", "mkdir -p x",
        "if [ 1 = 1 ]; then false; fi", "false; (true)", "let X", "export X=$(false)"}) {
    EXPECT_EQ(Tp(command + std::string(" && TP=4 || TP=2")), "?") << command;
    EXPECT_EQ(Tp("TP=2; " + std::string(command) + " && TP=4"), "?") << command;
    EXPECT_EQ(Tp("TP=2; " + std::string(command) + " &&\n  TP=4"), "?") << command;
    EXPECT_EQ(Tp("TP=2; " + std::string(command) + " && export TP=4 && echo"), "?") << command;
    EXPECT_EQ(Tp("TP=2; " + std::string(command) + " && { TP=4; echo; }"), "?") << command;
    EXPECT_EQ(Tp("TP=2; " + std::string(command) + " || TP=4"), "?") << command;
    EXPECT_EQ(Tp("f() { " + std::string(command) + "; }\nTP=2; f && TP=4"), "?") << command;
    EXPECT_EQ(Tp("f() { " + std::string(command) + " && TP=4; }\nTP=2; f"), "?") << command;
    EXPECT_EQ(Tp("TP=2; eval '" + std::string(command) + " && TP=4'"), "?") << command;
    EXPECT_EQ(Tp("TP=4; " + std::string(command) + " && TP=4"), "4") << command;
  }
  EXPECT_EQ(Tp("grep -q x FILE && TP=4"), "?");
  EXPECT_EQ(Tp("TP=2; grep -q x FILE && unset TP"), "?");
  EXPECT_EQ(Tp("TP=2; f() { TP=4; }\ngrep -q x FILE && f"), "?");
  const ShellScript script = Read("TP=2\ngrep -q x FILE && TP=4\nrun $TP\n");
  EXPECT_EQ(script.commands.back()[1].unresolved, "TP is set in a branch after another value");
  EXPECT_EQ(script.commands.back()[1].where.line, 2);
}

TEST(Lists, OfKnownResultsAreFollowed) {
  EXPECT_EQ(Tp("true && TP=4 || TP=2"), "4");
  EXPECT_EQ(Tp("false && TP=4 || TP=2"), "2");
  EXPECT_EQ(Tp("! true && TP=4 || TP=2"), "2");
  EXPECT_EQ(Tp("! false && TP=4 || TP=2"), "4");
  EXPECT_EQ(Tp("[ 4 -gt 2 ] && TP=4 || TP=2"), "4");
  EXPECT_EQ(Tp("TP=2; true || TP=4"), "2");
  EXPECT_EQ(Tp("TP=2; false || TP=4"), "4");
  EXPECT_EQ(Tp("TP=2; : && TP=4"), "4");
  EXPECT_EQ(Tp("TP=2; echo x && TP=4"), "4");
  EXPECT_EQ(Tp("TP=2; export X=1 && TP=4"), "4");
  EXPECT_EQ(Tp("TP=2; let 0 && TP=4"), "2");
  EXPECT_EQ(Tp("TP=2; let X=1 && TP=4"), "4");
  EXPECT_EQ(Tp("TP=2; false &&\n TP=4"), "2");
  EXPECT_EQ(Tp("TP=2; grep x y && false && TP=4"), "2");
  EXPECT_EQ(Tp("TP=2; if true; then TP=4; fi"), "4");
  EXPECT_EQ(Tp("TP=2; if false; then TP=4; else TP=8; fi"), "8");
  EXPECT_EQ(Tp("TP=2; if ls x; then TP=4; fi"), "?");
  EXPECT_EQ(Tp("TP=2; if cd x; then TP=4; fi"), "?");
  EXPECT_EQ(Tp("if true; then TP=2; fi\nfalse && TP=8"), "2");
}

TEST(Lists, KnowWhatTheySetUpToTheirEnd) {
  const auto words = [](const std::string& text) { return Texts(Read(text).commands.at(1)); };
  EXPECT_THAT(words("TP=2; make x && TP=4 && run $TP"), ElementsAre("run", "4"));
  EXPECT_THAT(words("TP=2; make x && { TP=4; run $TP; }"), ElementsAre("run", "4"));
  EXPECT_THAT(words("TP=2; make x &&\n  TP=4 && run $TP"), ElementsAre("run", "4"));
  // What follows runs only where all of it ran.
  EXPECT_EQ(Tp("TP=2; make x && TP=4 || exit 1"), "4");
  EXPECT_EQ(Tp("TP=2; make x && TP=4 || { echo no; exit 1; }"), "4");
  EXPECT_EQ(Tp("TP=2; make x && TP=4 || { exit 1; echo no; }"), "?");
  EXPECT_EQ(Tp("f() { make x && TP=4 || return 1; }\nTP=2; f"), "4");
  // A script in which these fail does not work.
  EXPECT_EQ(Tp("cd x && TP=4"), "4");
  EXPECT_EQ(Tp("cd x && make x && TP=4"), "?");
  // The end of a list is none of the script.
  EXPECT_EQ(Read("run a\nmake x && exit 0\nrun b\n").commands.back()[1].text, "b");
  EXPECT_EQ(Read("f() { make x && return; run b; }\nf\n").commands.back()[1].text, "b");
  EXPECT_THAT(Texts(Read("A=(a); make x && A+=(b)\nrun \"${A[@]}\"\n").commands.back()),
              ElementsAre("run", "a"));
  EXPECT_EQ(Read("A=(a); make x && A+=(b)\nrun\n").branches.size(), 1u);
  EXPECT_EQ(Read("A=\"a b\"; make x && A=\"$A c\"\nrun\n").branches.size(), 1u);
}

TEST(Lists, AreRefusedWhereArgumentsStandInThem) {
  const std::string run =
      "pretrain_gpt.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length "
      "1024 --max-position-embeddings 1024 --micro-batch-size 1 ";
  const auto error = [&](const std::string& text) {
    return ErrorOf([&] { Import({SourceOf("t.sh", text)}, std::nullopt); });
  };
  EXPECT_THAT(error("grep -q x F && TP=4 || TP=2\n" + run + "--tensor-model-parallel-size $TP\n"),
              HasSubstr("TP is set in a branch after another value"));
  EXPECT_THAT(error("E=--sequence-parallel; grep -q x F && E=\n" + run + "$E\n"),
              HasSubstr("E is set in a branch after another value, and arguments"));
  const Imported read = Import({SourceOf("t.sh", "E=--sequence-parallel; false && E=\n" + run +
                                                     "$E --tensor-model-parallel-size 2\n")},
                               std::nullopt);
  EXPECT_EQ(read.values.at("sequence_parallel").text, "on");
}

// The words behind "${A[*]}" in the text of another shell were lost.
TEST(JoinedWords, AreOneInQuotes) {
  const auto last = [](const std::string& text) { return Texts(Read(text).commands.back()); };
  EXPECT_THAT(last("A=(--a 1 '2 3')\nrun \"x${A[*]}y\" ${A[*]} \"${A[@]}\""),
              ElementsAre("run", "x--a 1 2 3y", "--a", "1", "2", "3", "--a", "1", "2 3"));
  EXPECT_THAT(last("f() { run \"$*\" \"${*}\" $* \"$@\"; }\nf a b"),
              ElementsAre("run", "a b", "a b", "a", "b", "a", "b"));
  EXPECT_THAT(last("A=(); f() { run \"$*\" \"${A[*]}\" \"${A[@]}\"; }\nf"),
              ElementsAre("run", "", ""));
  EXPECT_THAT(last("IFS=,; A=(1 2)\nrun \"${A[*]}\" \"${!A[*]}\""),
              ElementsAre("run", "1,2", "0,1"));
  EXPECT_THAT(last("A=(1 $(x) 3)\nrun --a=\"${A[*]}\""), ElementsAre("run", "?"));
  const auto inner = [](const std::string& text) { return Texts(Read(text).commands.front()); };
  EXPECT_THAT(inner("A=(--a 1)\nsrun bash -c \"train ${A[*]} --b 2\""),
              ElementsAre("srun", "train", "--a", "1", "--b", "2"));
  EXPECT_THAT(inner("A=(--a $(x))\nsrun bash -c \"train ${A[*]} --b 2\""),
              ElementsAre("srun", "train", "--a", "?", "--b", "2"));
  EXPECT_THAT(inner("f() { bash -c \"train $* --b 2\"; }\nf --tp 2 --pp 4"),
              ElementsAre("train", "--tp", "2", "--pp", "4", "--b", "2"));
}

}  // namespace
}  // namespace orrery::exchange::lists
