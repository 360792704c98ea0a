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

TEST(Shell, FollowsAssociativeArraysByKnownKeys) {
  const std::string sizes = "declare -A L=([small]=12 [\"large\"]=24)\nL[huge]=48\n";
  EXPECT_THAT(Last(sizes + "S=large\nrun ${L[$S]} ${L[small]} \"${L['huge']}\" ${L[none]:-7} "
                           "\"${L[none]}\" ${#L[@]}"),
              ElementsAre("run", "24", "12", "48", "7", "", "3"));
  EXPECT_THAT(Last("declare -A L\nL[a]=1\nL[a]=2\nL[b]+=3\nL[b]+=4\nL+=([\"c d\"]=5)\n"
                   "run ${L[a]} ${L[b]} ${L[\"c d\"]}"),
              ElementsAre("run", "2", "34", "5"));
  // In which order they stand, the shell alone knows.
  EXPECT_THAT(Last(sizes + "run ${!L[@]}"), ElementsAre("run", "?"));
  EXPECT_THAT(Last(sizes + "run \"${L[@]}\""), ElementsAre("run", "?"));
  // A branch loses what it sets, a key that nobody knows all of them.
  EXPECT_THAT(Last(sizes + "if [ -f x ]; then L[small]=1; fi\nrun ${L[small]} ${L[large]}"),
              ElementsAre("run", "?", "24"));
  EXPECT_THAT(Last(sizes + "L[$X]=1\nrun ${L[small]}"), ElementsAre("run", "?"));
  EXPECT_THAT(Last(sizes + "run ${L[$X]}"), ElementsAre("run", "?"));
}

TEST(Shell, FollowsElementsOfArrays) {
  EXPECT_THAT(Last("A=(1 2 3)\nA[1]=7\nA[3]=4\nI=2\nrun ${A[0]} ${A[1]} ${A[$I]} ${A[-1]} "
                   "${A[I-1]} ${A[9]:-x} ${!A[@]}"),
              ElementsAre("run", "1", "7", "3", "4", "7", "x", "0", "1", "2", "3"));
  EXPECT_THAT(Last("A=(1 $(date) 3)\nrun ${A[0]} ${A[2]}"), ElementsAre("run", "1", "?"));
  EXPECT_THAT(Last("A=(1)\nA[5]=2\nrun ${A[5]}"), ElementsAre("run", "?"));
}

TEST(Shell, PatternsOfCaseAreGlobs) {
  const auto choice = [](const std::string& word, const std::string& arms) {
    return Last("S='" + word + "'\ncase $S in " + arms + " esac\nrun $L");
  };
  const std::string models = "llama*) L=1;; gpt[23]-?7* | bert) L=2;; *) L=3;;";
  EXPECT_THAT(choice("gpt3-175b", models), ElementsAre("run", "2"));
  EXPECT_THAT(choice("llama/7b", models), ElementsAre("run", "1"));
  EXPECT_THAT(choice("bert", models), ElementsAre("run", "2"));
  EXPECT_THAT(choice("gpt4-175b", models), ElementsAre("run", "3"));
  // What is quoted stands for itself.
  const std::string quoted = "\"a*\") L=1;; a\\*) L=2;; [!b]*) L=3;;";
  EXPECT_THAT(choice("ab", quoted), ElementsAre("run", "3"));
  EXPECT_THAT(choice("a*", quoted), ElementsAre("run", "1"));
  // Of extglob, and of a variable, nobody knows.
  EXPECT_THAT(choice("ab", "@(ab|cd)) L=1;; *) L=2;;"), ElementsAre("run", "?"));
  EXPECT_THAT(choice("ab", "\"$X\") L=1;; *) L=2;;"), ElementsAre("run", "?"));
}

TEST(Shell, DefaultsThatAreAssignedStay) {
  EXPECT_THAT(Last(": \"${TP:=4}\"\nrun --tp $TP --pp ${PP=2} $PP\n"),
              ElementsAre("run", "--tp", "4", "--pp", "2", "2"));
  EXPECT_THAT(Last("TP=8\n: ${TP:=4}\nrun $TP"), ElementsAre("run", "8"));
  EXPECT_THAT(Last("if [ -n \"$X\" ]; then : ${TP:=4}; fi\nrun $TP"), ElementsAre("run", "?"));
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

TEST(Shell, TakesWhatCatPrintsOfAHereDocument) {
  EXPECT_THAT(Last("TP=4\nA=$(cat <<EOF\n--tp $TP\n  --name \"a)b\" \\\n--cost \\$5 "
                   ":-)\nEOF\n)\nrun $A end"),
              ElementsAre("run", "--tp", "4", "--name", "\"a)b\"", "--cost", "$5", ":-)", "end"));
  EXPECT_THAT(Last("A=\"$(cat <<-'END'\n\t--tp $TP\n\tEND\n)\"\nrun $A"),
              ElementsAre("run", "--tp", "$TP"));
  EXPECT_THAT(Last("run $(cat <<EOF\n--a {\nEOF\n) --b"), ElementsAre("run", "--a", "{", "--b"));
  EXPECT_THAT(Last("run $(cat <<EOF\n--a $HOME_OF_X\nEOF\n)"), ElementsAre("run", "--a", "?"));
  EXPECT_THAT(Last("run $(sort <<EOF\n--b )\nEOF\n) --c"), ElementsAre("run", "?", "--c"));
  EXPECT_THAT(ErrorOf([] { Last("run $(cat <<EOF\n--a )\n"); }),
              testing::HasSubstr("is never closed"));
}

TEST(Shell, EndsAtAnExitThatIsSurelyReached) {
  const auto last = [](const std::string& front) { return Last("run a\n" + front + "\nrun b"); };
  const auto b = ElementsAre("run", "b"), end = ElementsAre("exit", "0");
  EXPECT_THAT(last("exit 0"), end);
  EXPECT_THAT(last("MODE=short\nif [ $MODE = short ]; then\n  run c\n  exit 0\nfi"), end);
  EXPECT_THAT(last("N=3; [ $N -gt 2 ] && exit 0"), end);
  EXPECT_THAT(last("[[ 2 == 3 ]] || { run c; exit 0; }"), end);
  EXPECT_THAT(last("done_() { exit 0; }\ndone_"), end);
  const ShellScript script = ReadShell(SourceOf("x.sh", "run a\nexit\nrun b\n"));
  ASSERT_TRUE(script.end);
  EXPECT_EQ(script.end->line, 2);
  EXPECT_FALSE(ReadShell(SourceOf("x.sh", "run a\nif [ 1 = 1 ]; then\n  exit 0\nfi\n")).end);
  // What stops a script for want of an argument, a failed command's, a subshell's, and what nobody knows.
  EXPECT_THAT(last("if [ $MODE = short ]; then exit 0; fi"), b);
  EXPECT_THAT(last("MODE=short\nif [ $MODE = long ]; then exit 0; fi"), b);
  EXPECT_THAT(last("if [ -z \"$X\" ]; then\n  run usage\n  exit 1\nfi"), b);
  EXPECT_THAT(last("[ -z \"${1:-}\" ] && { run usage; exit 1; }"), b);
  EXPECT_THAT(last("if [ \"${X:-}\" = \"\" ]; then exit 1; fi"), b);
  EXPECT_THAT(last("cd there || exit 1"), b);
  EXPECT_THAT(last("(run c; exit 1)"), b);
  EXPECT_THAT(last("for i in 1 2; do run c; exit 1; done"), b);
  EXPECT_THAT(last("if [ 1 = 2 ]; then exit 1; else run c; fi"), b);
}

TEST(Shell, SaysWhatALoopSets) {
  EXPECT_THAT(Last("for TP in 8; do\nrun --tp $TP\ndone"), ElementsAre("run", "--tp", "8"));
  const ShellScript script = ReadShell(
      SourceOf("x.sh", "N=\"1 2\"\nfor TP in $N $(seq 3); do run --tp $TP; done\nrun $TP\n"));
  for (const Words& command : script.commands) {
    if (command.front().text == "run") {
      EXPECT_EQ(command.back().unresolved, "TP takes 1, 2, ... in a loop");
    }
  }
}

TEST(Shell, DoesNotGuessWhatOnlyAShellKnows) {
  EXPECT_THAT(Last("run $(hostname) `date` $UNSET $1 \"$@\""),
              ElementsAre("run", "?", "?", "?", "?"));
  EXPECT_THAT(Last("TP=1\nif [ -n \"$X\" ]; then TP=2; fi\nrun $TP"), ElementsAre("run", "?"));
  EXPECT_THAT(Last("TP=1\nif [ -n \"$X\" ]; then TP=1; fi\nrun $TP"), ElementsAre("run", "1"));
  EXPECT_THAT(Last("run $((1 / 0)) $((9223372036854775807 + 1))"), ElementsAre("run", "?", "?"));
}

TEST(Shell, CalculatesByAllOperators) {
  EXPECT_THAT(Last("A=3\nrun $((2**A)) $((-2**2)) $((2**3**2)) $((7&3|8)) $((1<<A)) $((A>2?5:6))"),
              ElementsAre("run", "8", "4", "512", "11", "8", "5"));
  EXPECT_THAT(Last("run $((0x1f)) $((010)) $((2#101)) $((2*(3+4))) $(((1+2)*3)) $((!0 && 4 != 5))"),
              ElementsAre("run", "31", "8", "5", "14", "9", "1"));
  EXPECT_THAT(Last("run $((2**64)) $((1 / 0)) $((08)) $((1 +)) $((X)) $((2**-1))"),
              ElementsAre("run", "?", "?", "?", "?", "?", "?"));
  EXPECT_THAT(Last("H=(a b c)\nrun ${#H[@]} $((${#H[*]} * 8)) $(expr 2 \\* ${#H[@]})"),
              ElementsAre("run", "3", "24", "6"));
  EXPECT_THAT(Last("H=($(scontrol show hostnames))\nrun ${#H[@]}"), ElementsAre("run", "?"));
}

TEST(Shell, FollowsWhatArithmeticAssigns) {
  for (const char* twice :
       {"((TP*=2))", "(( TP = TP * 2 ))", "let TP=TP*2", "let \"TP *= 2\"", "((TP<<=1))",
        "TP=$((TP*2))", ": $((TP*=2))", "((TP++, ++TP))", "declare -i TP=TP*2",
        "declare -i TP\nTP+=2", "((TP == 2)) && TP=4", "((TP > 3)) || TP=4",
        "if ((TP < 4)); then TP=4; fi", "((Y = TP, TP = Y + 2))", "TP=`expr $TP + 2`"})
    EXPECT_THAT(Last(std::string("TP=2\n") + twice + "\nrun $TP"), ElementsAre("run", "4"))
        << twice;
  EXPECT_THAT(Last("TP=2\nrun $((TP++)) $TP"), ElementsAre("run", "2", "3"));
  for (const char* lost :
       {"((TP*=X))", "let TP=TP*$X", "((TP=X?2:3))", "TP=$((TP*X))", "((X && (TP=8)))",
        "for ((TP=1;TP<4;TP++)); do :; done", "while read x; do ((TP*=2)); done",
        "if [ -n \"$Y\" ]; then ((TP*=2)); fi", "((TP[1]=4))", "declare -i TP=X*2"})
    EXPECT_THAT(Last(std::string("TP=2\n") + lost + "\nrun $TP"), ElementsAre("run", "?")) << lost;
  EXPECT_THAT(Last("TP=2\n(cd x; run 1)\n((cd x); run $TP)"), ElementsAre("run", "2"));
}

TEST(Shell, FollowsFunctionsThatItCalls) {
  EXPECT_THAT(Last("f() {\n  local tp=$1 pp=${2:-3}\n  run $tp $pp $# \"$@\"\n}\ntp=9\nf 4"),
              ElementsAre("run", "4", "3", "1", "4"));
  EXPECT_THAT(Last("function set_size { H=$1; shift; L=$1; }\nset_size 64 12 && run $H $L"),
              ElementsAre("run", "64", "12"));
  EXPECT_THAT(Last("f() { local tp=8; }\ntp=2; f\nrun $tp"), ElementsAre("run", "2"));
  EXPECT_THAT(Last("f() { if [ $1 = 7b ]; then H=4; return; fi; H=8; }\nf 7b\nrun $H"),
              ElementsAre("run", "4"));
  EXPECT_THAT(Last("f() { if [ $X = 7b ]; then H=4; return; fi; H=8; }\nH=1; f\nrun $H"),
              ElementsAre("run", "?"));
  EXPECT_THAT(Last("f() { f; f; }\nf\nrun 1"), ElementsAre("run", "1"));
  EXPECT_THAT(Last("{ TP=4; }\nrun $TP"), ElementsAre("run", "4"));
  // One that nobody calls here may be called elsewhere.
  const ShellScript script = ReadShell(SourceOf("x.sh", "f() { TP=4; run $TP; }\n"));
  ASSERT_EQ(script.commands.size(), 1u);
  EXPECT_EQ(script.commands[0][1].unresolved, "TP is set in a function");
}

TEST(Shell, KnowsTheFolderOfTheScript) {
  const auto read = [](const std::string& text) {
    const ShellScript script = ReadShell(SourceOf("jobs/x.sh", text));
    return Texts(script.commands.back());
  };
  EXPECT_THAT(read("here=$(dirname \"$0\")\nrun \"$here/a.json\""),
              ElementsAre("run", "jobs/a.json"));
  EXPECT_THAT(
      read("D=\"$(cd \"$(dirname \"${BASH_SOURCE[0]}\")\" >/dev/null 2>&1 && pwd)\"\nrun $D/a"),
      ElementsAre("run", "jobs/a"));
  EXPECT_THAT(
      read("D=$( cd -- \"$( dirname -- \"${BASH_SOURCE[0]}\" )\" &> /dev/null && pwd )/..\nrun $D"),
      ElementsAre("run", "jobs/.."));
  EXPECT_THAT(
      read("run `dirname $0`/a $(dirname $(realpath $0))/b $(readlink -f \"$0\") ${0%/*}/c"),
      ElementsAre("run", "jobs/a", "jobs/b", "jobs/x.sh", "jobs/c"));
  EXPECT_THAT(read("run $PWD/a ${SLURM_SUBMIT_DIR}/b $(basename ${BASH_SOURCE})"),
              ElementsAre("run", "jobs/a", "jobs/b", "x.sh"));
  EXPECT_THAT(read("run $(dirname $X) $(cd nowhere | pwd) $(cat $0) $(pwd -x)"),
              ElementsAre("run", "?", "?", "?", "?"));
  EXPECT_THAT(Last("run $(dirname $0)/a"), ElementsAre("run", "./a"));
}

TEST(Shell, TakesTheBranchWhoseTestItKnows) {
  EXPECT_THAT(Last("TP=4\nif [ $TP -gt 1 ]; then SP=--sp; fi\nrun $SP"),
              ElementsAre("run", "--sp"));
  EXPECT_THAT(
      Last("TP=1\nSP=\nif [[ \"$TP\" -gt 1 ]]; then\n SP=--sp\nelse\n SP=--no\nfi\nrun $SP"),
      ElementsAre("run", "--no"));
  const std::string arms =
      "if [ \"$M\" = 7b ]; then\n L=32\nelif [ \"$M\" == 13b ]; then\n L=40\nelse\n L=80\nfi\nrun "
      "$L";
  EXPECT_THAT(Last("M=7b\n" + arms), ElementsAre("run", "32"));
  EXPECT_THAT(Last("M=13b\n" + arms), ElementsAre("run", "40"));
  EXPECT_THAT(Last("M=70b\n" + arms), ElementsAre("run", "80"));
  EXPECT_THAT(Last(arms), ElementsAre("run", "?"));
  EXPECT_THAT(Last("L=1\nif [ -f x ]; then L=2; elif [ 1 -eq 1 ]; then L=3; else L=4; fi\nrun $L"),
              ElementsAre("run", "?"));
  EXPECT_THAT(Last("A=1\nif ! [ $A = 1 ]; then\n if [ -f x ]; then A=2; fi\n run 7\nfi\nrun $A"),
              ElementsAre("run", "1"));
  // Commands of a branch that is not taken are none of the script's.
  EXPECT_THAT(Last("run 1\nif [ a = b ]; then run 2; fi\n"), ElementsAre("[", "a", "=", "b", "]"));
}

TEST(Shell, FollowsTestsInARow) {
  EXPECT_THAT(Last("A=1\n[ $A -eq 1 ] && A=2\nrun $A"), ElementsAre("run", "2"));
  EXPECT_THAT(Last("A=1\n[ $A -eq 2 ] && A=3 || A=4\nrun $A"), ElementsAre("run", "4"));
  EXPECT_THAT(Last("A=1\n[ \"$X\" = 2 ] && A=3\nrun $A"), ElementsAre("run", "?"));
  EXPECT_THAT(Last("[ -z \"$N\" ] && N=3\ncd x && B=4\nrun $N $B"), ElementsAre("run", "3", "4"));
}

TEST(Shell, FollowsTheArmOfAKnownWord) {
  const auto last = [](const std::string& front) {
    return Last(front +
                "case \"$S\" in\n  small) L=1; H=2 ;;\n  large | huge)\n    L=3\n    H=4\n"
                "    ;;\n  x*) L=5 ;;\n  (*) L=6; H=6 ;;\nesac\nrun $L $H");
  };
  EXPECT_THAT(last("S=small\n"), ElementsAre("run", "1", "2"));
  EXPECT_THAT(last("S=huge\n"), ElementsAre("run", "3", "4"));
  EXPECT_THAT(last("S=${MODEL:-large}\n"), ElementsAre("run", "3", "4"));
  EXPECT_THAT(last("S=xl\nH=0\n"), ElementsAre("run", "5", "0"));
  // What nobody knows is not followed.
  EXPECT_THAT(last("S=$(hostname)\n"), ElementsAre("run", "?", "?"));
  EXPECT_THAT(last("L=0; H=0; S=$1\n"), ElementsAre("run", "?", "?"));
  EXPECT_THAT(
      Last("S=a\ncase $S in a) case b in a) L=1;; b) L=2;; esac;; *) exit 1;; esac\nrun $L"),
      ElementsAre("run", "2"));
  EXPECT_THAT(Last("S=a\nif [ $S = b ]; then case $S in a) S=c;; esac; fi\nrun $S"),
              ElementsAre("run", "a"));
  EXPECT_THAT(Last("S=a\ncase $S in b) run c;; *) run d; exit 2;; esac\nrun e"),
              ElementsAre("exit", "2"));
}

TEST(Shell, FollowsTheScriptOfAnInnerShell) {
  const ShellScript script = ReadShell(SourceOf(
      "x.sh",
      "export C=\"a.py --tp 2\"\nclear; srun bash -c 'X=1; python $C --x $X' 2>&1 | tee log"));
  EXPECT_THAT(Texts(script.commands[1]),
              ElementsAre("srun", "python", "a.py", "--tp", "2", "--x", "1"));
  EXPECT_EQ(script.commands[1][0].where.line, 2);
}

TEST(Shell, LinesOfAnInnerShellAreThoseOfTheFile) {
  for (const char* shell :
       {"bash -c", "sh -ec", "bash -x -c", "bash -euo pipefail -c", "/usr/bin/bash -l -c"}) {
    const ShellScript script = ReadShell(
        SourceOf("x.sh", std::string("TP=2\nexport PP=4\nsrun ") + shell +
                             " '\n  cd there\n  python a.py \\\n    --tp 2 \\\n    --pp $PP\n'\n"));
    ASSERT_EQ(script.commands.size(), 3u) << shell;
    EXPECT_THAT(Texts(script.commands[1]),
                ElementsAre("srun", "python", "a.py", "--tp", "2", "--pp", "4"));
    EXPECT_EQ(script.commands[1][3].where.line, 6);
    EXPECT_EQ(script.commands[1][3].where.column, 5);
  }
}

TEST(Shell, FollowsTheScriptThatAShellOrASchedulerReads) {
  const ShellScript script = ReadShell(
      SourceOf("x.sh",
               "TP=2\nsrun -N2 bash <<'EOF'\nexport PP=4\npython a.py --pp $PP\nEOF\n"
               "sbatch <<EOF\n#!/bin/bash\n#SBATCH --nodes=4\npython b.py --tp $TP\nEOF\n"));
  EXPECT_THAT(Texts(script.commands[1]), ElementsAre("srun", "-N2", "python", "a.py", "--pp", "4"));
  EXPECT_EQ(script.commands[1][2].where.line, 4);
  EXPECT_THAT(Texts(script.commands.back()), ElementsAre("python", "b.py", "--tp", "2"));
  EXPECT_EQ(script.comments.front().text, "!/bin/bash");
  EXPECT_EQ(script.comments.back().text, "SBATCH --nodes=4");
  EXPECT_EQ(script.comments.back().where.line, 8);
}

TEST(Shell, FollowsCommandsOnOtherHosts) {
  EXPECT_THAT(Last("H=n1; TP=2\nssh -p 22 $H \"cd /w; python a.py --tp $TP\" "),
              ElementsAre("ssh", "-p", "22", "n1", "cd /w; python a.py --tp 2"));
  const ShellScript script = ReadShell(
      SourceOf("x.sh", "TP=2\nssh n1 \"cd /w; python a.py --tp $TP\" &\nssh n2 hostname\n"));
  ASSERT_EQ(script.commands.size(), 4u);
  EXPECT_THAT(Texts(script.commands[1]), ElementsAre("python", "a.py", "--tp", "2"));
  EXPECT_THAT(Texts(script.commands[3]), ElementsAre("ssh", "n2", "hostname"));
}

TEST(Shell, RefusesAnInnerShellWhoseOptionsAreLines) {
  EXPECT_THAT(ErrorOf([] { Last("A=\"--tp 2\n--pp 4\"\nsrun bash -c \"python a.py $A\"\n"); }),
              testing::AllOf(testing::HasSubstr("x.sh:3:14"),
                             testing::HasSubstr("bash -c begins with '--pp'")));
  const ShellScript joined =
      ReadShell(SourceOf("x.sh", "A=\"--tp 2 \\\n--pp 4\"\nbash -c \"python a.py $A\""));
  EXPECT_THAT(Texts(joined.commands.front()),
              ElementsAre("python", "a.py", "--tp", "2", "--pp", "4"));
}

TEST(Shell, NumbersInFrontOfRedirectionsAreNoArguments) {
  EXPECT_THAT(Last("run --tp 2 2>&1"), ElementsAre("run", "--tp", "2"));
  EXPECT_THAT(Last("run --tp 2 1>out 2>err </dev/null"), ElementsAre("run", "--tp", "2"));
  EXPECT_THAT(Last("run --tp 2 > out"), ElementsAre("run", "--tp", "2"));
  EXPECT_THAT(Last("run 2x>out"), ElementsAre("run", "2x"));
  EXPECT_THAT(Last("run --tp 2 >out 2>&1 --pp 4 < in --cp 2\n"),
              ElementsAre("run", "--tp", "2", "--pp", "4", "--cp", "2"));
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
// A shell ends the command there, and so would lose what stands below.
TEST(Shell, RefusesBlanksBehindABackslash) {
  for (const char* blanks : {" ", "\t ", "\r"}) {
    try {
      Last(std::string("run --a \\") + blanks + "\n  --b\n");
      ADD_FAILURE() << "read";
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(),
                  testing::HasSubstr("x.sh:1:9: error: blanks behind this backslash"));
    }
  }
  EXPECT_THAT(Last("run a\\ b \\\n c"), ElementsAre("run", "a b", "c"));
}

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
