// SPDX-License-Identifier: Apache-2.0
// What the reader of shell scripts follows, and what it refuses to guess.
#include "model/exchange/shell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/exchange/exported.h"

namespace orrery::exchange {
namespace {

using testing::ElementsAre;

std::vector<std::string> Texts(const Words& words) {
  std::vector<std::string> texts;
  for (const Word& word : words) texts.push_back(word.unresolved.empty() ? word.text : "?");
  return texts;
}
// The words of the last command.
std::vector<std::string> Last(const std::string& text) {
  const ShellScript script = ReadShell(SourceOf("x.sh", text));
  return script.commands.empty() ? std::vector<std::string>{} : Texts(script.commands.back());
}

TEST(Shell, FollowsVariablesArraysAndDefaults) {
  EXPECT_THAT(Last("TP=4\nrun --tp $TP --pp ${PP:-2}\n"),
              ElementsAre("run", "--tp", "4", "--pp", "2"));
  EXPECT_THAT(Last("a=(--x 1\n  --y '2 3')\na+=(--z)\nrun \"${a[@]}\" end"),
              ElementsAre("run", "--x", "1", "--y", "2 3", "--z", "end"));
  EXPECT_THAT(Last("N=2; G=8\nrun $((N * (G + 1) % 7)) $(( $N*${G} ))"),
              ElementsAre("run", "4", "16"));
}

TEST(Shell, SplitsUnquotedExpansionsOnly) {
  EXPECT_THAT(Last("A=\"--x 1  --y\"\nrun $A \"$A\""),
              ElementsAre("run", "--x", "1", "--y", "--x 1  --y"));
  EXPECT_THAT(Last("a=(\"--x 1\" b)\nrun ${a[@]}"), ElementsAre("run", "--x", "1", "b"));
}

TEST(Shell, JoinsContinuedLinesAndSkipsCommentsAndHereDocuments) {
  EXPECT_THAT(Last("run --a 1 \\\n  --b 2 # --c 3\n"), ElementsAre("run", "--a", "1", "--b", "2"));
  EXPECT_THAT(Last("cat <<EOF\nrun --a 1\nEOF\nrun --b"), ElementsAre("run", "--b"));
  EXPECT_THAT(Last("run '$A' \"\\$A\" \\$A"), ElementsAre("run", "$A", "$A", "$A"));
}

TEST(Shell, DoesNotGuessWhatOnlyAShellKnows) {
  EXPECT_THAT(Last("run $(hostname) `date` $UNSET $1 \"$@\""),
              ElementsAre("run", "?", "?", "?", "?"));
  EXPECT_THAT(Last("TP=1\nif [ -n \"$X\" ]; then TP=2; fi\nrun $TP"), ElementsAre("run", "?"));
  EXPECT_THAT(Last("TP=1\nif [ -n \"$X\" ]; then TP=1; fi\nrun $TP"), ElementsAre("run", "1"));
  EXPECT_THAT(Last("run $((1 / 0)) $((9223372036854775807 + 1))"), ElementsAre("run", "?", "?"));
}

TEST(Shell, FollowsTheScriptOfAnInnerShell) {
  const ShellScript script = ReadShell(SourceOf(
      "x.sh",
      "export C=\"a.py --tp 2\"\nclear; srun bash -c 'X=1  python $C --x $X' 2>&1 | tee log"));
  EXPECT_THAT(Texts(script.commands[1]),
              ElementsAre("srun", "python", "a.py", "--tp", "2", "--x", "1"));
  EXPECT_EQ(script.commands[1][0].where.line, 2);
}

TEST(Shell, NumbersInFrontOfRedirectionsAreNoArguments) {
  EXPECT_THAT(Last("run --tp 2 2>&1"), ElementsAre("run", "--tp", "2"));
  EXPECT_THAT(Last("run --tp 2 1>out 2>err </dev/null"), ElementsAre("run", "--tp", "2"));
  EXPECT_THAT(Last("run --tp 2 > out"), ElementsAre("run", "--tp", "2"));
  EXPECT_THAT(Last("run 2x>out"), ElementsAre("run", "2x"));
}

TEST(Shell, KnowsTheRestOfAStringWithAnUnknownPart) {
  EXPECT_THAT(Last("H=$(hostname)\nA=\"--tp 2 --addr $H:1 --pp 4\"\nrun $A \"$A\""),
              ElementsAre("run", "--tp", "2", "--addr", "?", "--pp", "4", "?"));
}

TEST(Shell, SaysWhereAValueWasWritten) {
  const ShellScript script = ReadShell(SourceOf("x.sh", "a=(\n  --x 1\n)\n\nrun \"${a[@]}\"\n"));
  EXPECT_EQ(script.commands.back()[1].where.line, 2);
}

TEST(Shell, RefusesWhatIsNeverClosed) {
  EXPECT_THAT(ErrorOf([] { ReadShell(SourceOf("x.sh", "run \"abc\nnext")); }),
              testing::HasSubstr("x.sh:1:5: error: this quote is never closed"));
  EXPECT_THAT(ErrorOf([] { ReadShell(SourceOf("x.sh", "run ${A\n")); }),
              testing::HasSubstr("never closed"));
  EXPECT_THAT(ErrorOf([] { ReadShell(SourceOf("x.sh", "a=(1 2\n")); }),
              testing::HasSubstr("never closed"));
}

// Each array holds the one before twice: 2^40 words.
TEST(Shell, StopsWhereExpansionsGrowWithoutBound) {
  std::string text = "a0=(x)\n";
  for (int i = 1; i < 40; ++i) {
    const std::string before = "\"${a" + std::to_string(i - 1) + "[@]}\"";
    text += "a" + std::to_string(i) + "=(" + before + " " + before + ")\n";
  }
  EXPECT_THAT(ErrorOf([&] { ReadShell(SourceOf("x.sh", text)); }),
              testing::HasSubstr("too many words"));
  std::string doubled = "a=xxxxxxxx\n";
  for (int i = 0; i < 40; ++i) doubled += "a=$a$a\n";
  EXPECT_THAT(ErrorOf([&] { ReadShell(SourceOf("x.sh", doubled)); }),
              testing::HasSubstr("too long"));
}

}  // namespace
}  // namespace orrery::exchange
