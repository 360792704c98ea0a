// SPDX-License-Identifier: Apache-2.0
// Where the words of a text stand that a script splits later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/exchange/shell.h"
#include "tests/exchange/styles.h"

namespace orrery::exchange::styles {
namespace {

// "TEXT@LINE:COLUMN" of each word of the last command behind the first.
std::vector<std::string> PlacesOf(const std::string& text) {
  std::vector<std::string> places;
  const ShellScript script = ReadShell(SourceOf("x.sh", text));
  for (const Word& word : script.commands.back()) {
    if (word.text == "run") continue;
    places.push_back(word.text + "@" + std::to_string(word.where.line));
  }
  return places;
}

TEST(ShellPlaces, WordsOfAStringOverSeveralLinesHaveTheirOwn) {
  using testing::ElementsAre;
  EXPECT_THAT(PlacesOf("A=\"\n  --x 1\n  --y\n\"\nrun $A --z"),
              ElementsAre("--x@2", "1@2", "--y@3", "--z@5"));
  EXPECT_THAT(PlacesOf("A=\" \\\n  --x 1 \\\n  --y \\\n\"\nrun $A --z"),
              ElementsAre("--x@2", "1@2", "--y@3", "--z@5"));
  EXPECT_THAT(PlacesOf("A='\n--x\n--y'\nrun $A"), ElementsAre("--x@2", "--y@3"));
  EXPECT_THAT(PlacesOf("export A=\"\n--x\n--y\"\nrun $A"), ElementsAre("--x@2", "--y@3"));
  EXPECT_THAT(PlacesOf("A=\"--x\"\nA+=\"\n --y\"\nA=\"$A\n --z\"\nrun $A"),
              ElementsAre("--x@1", "--y@3", "--z@5"));
  EXPECT_THAT(PlacesOf("A=\"--x\n--y\"\nB=\"--b\n$A\n--c\"\nrun \"\" $B"),
              ElementsAre("@6", "--b@3", "--x@1", "--y@2", "--c@5"));
  EXPECT_THAT(PlacesOf("A=$(cat <<EOF\n--x \\\n--y\n--z\nEOF\n)\nrun $A"),
              ElementsAre("--x@2", "--y@3", "--z@4"));
}

TEST(ShellPlaces, ContradictionsNameTheLineOfTheWord) {
  const std::string gpt =
      "  --num-layers 24 --hidden-size 2048 \\\n  --num-attention-heads 16 --seq-length 2048 \\\n"
      "  --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 64 \\\n";
  const std::string run = "\"\ntorchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py $ARGS\n";
  const std::string front = "ARGS=\" \\\n" + gpt;
  const std::string twice = front +
                            "  --tensor-model-parallel-size 4 \\\n"
                            "  --tensor-model-parallel-size 2 \\\n" +
                            run;
  EXPECT_THAT(Error({{"a.sh", twice}}),
              AllOf(HasSubstr("a.sh:6:3: error: tensor-model-parallel-size is '2' here and '4' in "
                              "a.sh:5"),
                    HasSubstr("\n    --tensor-model-parallel-size 2 \\\n")));
  const std::string degrees = front +
                              "  --tensor-model-parallel-size 4 \\\n"
                              "  --pipeline-model-parallel-size 3 \\\n" +
                              run;
  EXPECT_THAT(ErrorOf([&] {
                Predict({{"b.sh", degrees}}, {"--topology", "dgx-h100"});
              }),
              testing::ContainsRegex("b.sh:[56]:3: error: tp 4 x pp 3"));
  // In the text of another shell.
  const std::string inner =
      "srun -N 2 bash -c \"export X=1\n torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py "
      "\\\n" +
      gpt + "  --tensor-model-parallel-size 4 \\\n  --tensor-model-parallel-size 2\"\n";
  EXPECT_THAT(Error({{"c.sh", inner}}), HasSubstr("c.sh:7:3: error: tensor-model-parallel-size"));
}

}  // namespace
}  // namespace orrery::exchange::styles
