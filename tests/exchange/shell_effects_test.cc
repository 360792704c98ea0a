// SPDX-License-Identifier: Apache-2.0
// What commands of a script leave behind: files of here-documents, variables of loops and of read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "model/exchange/import.h"
#include "model/exchange/shell.h"
#include "tests/exchange/exported.h"

namespace orrery::exchange {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kTrainer =
    "torchrun --nproc-per-node 8 --nnodes 1 train.py --per_device_train_batch_size 2 --bf16 ";
constexpr const char* kGpt =
    "torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py --num-layers 24 --hidden-size 1024 "
    "--num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 "
    "--micro-batch-size 2 --bf16 ";

Imported Read(const std::string& text) { return Import({SourceOf("x.sh", text)}, std::nullopt); }
std::string Error(const std::string& text) {
  return ErrorOf([&] { Read(text); });
}
std::string Field(const Imported& imported, const char* field) {
  const auto at = imported.values.find(field);
  return at == imported.values.end() ? "" : at->second.text;
}
std::string Zero(const std::string& text) { return Field(Read(text), "zero"); }
std::string Tp(const std::string& text) { return Field(Read(text), "tp"); }

TEST(WrittenFiles, AreWhatTheScriptReads) {
  const std::string json = "{\"zero_optimization\": {\"stage\": 3}}\n";
  for (const std::string& write :
       {"cat > ds.json <<EOT\n" + json + "EOT\n", "cat <<'EOT' >ds.json\n" + json + "EOT\n",
        "cat > ds.json <<-\"EOT\"\n\t" + json + "\tEOT\n",
        "tee ds.json <<EOT > /dev/null\n" + json + "EOT\n",
        "cat <<EOT | tee ./ds.json\n" + json + "EOT\n"})
    EXPECT_EQ(Zero(write + kTrainer + "--deepspeed ds.json\n"), "3") << write;
  EXPECT_EQ(Zero("STAGE=2\nDS=/tmp/$SLURM_JOB_ID.json\ncat > $DS <<EOT\n"
                 "{\"zero_optimization\": {\"stage\": $STAGE}}\nEOT\n" +
                 std::string(kTrainer) + "--deepspeed $DS\n"),
            "2");
  EXPECT_THAT(
      Read("cat > ds.json <<EOT\n" + json + "EOT\n" + kTrainer + "--deepspeed ds.json").notes,
      Contains(HasSubstr("names ds.json, which the script itself writes")));
}

TEST(WrittenFiles, OfEchoPrintfAndSedAreFollowed) {
  const std::string use = std::string(kTrainer) + "--deepspeed ds.json\n";
  for (const std::string write :
       {"echo '{\"zero_optimization\": {\"stage\": 3}}' > ds.json\n",
        "Z=3\necho \"{\\\"zero_optimization\\\": {\\\"stage\\\": $Z}}\" >ds.json\n",
        "echo -e '{\\n\"zero_optimization\": {\"stage\": 3}}' | tee ds.json > /dev/null\n",
        "printf '{\"zero_optimization\": {\"stage\": 3}}\\n' > ./ds.json\n",
        "printf '%s\\n' '{\"zero_optimization\":' '{\"stage\": 3}}' > ds.json\n",
        "echo '{\"zero_optimization\":' > ds.json\nN=1\necho '{\"stage\": 3}}' >> ds.json\n",
        "cat > ds.json <<EOT\n{\"zero_optimization\":\nEOT\ncat >> ds.json <<EOT\n"
        "{\"stage\": 3}}\nEOT\n",
        "echo '{\"zero_optimization\": {\"stage\": 1}}' > ds.json\n"
        "sed -i 's/\"stage\": 1/\"stage\": 3/' ds.json\n",
        "Z=3\ncat > ds.json <<EOT\n{\"zero_optimization\": {\"stage\": Z}}\nEOT\n"
        "sed -i.bak -e \"s|Z}|$Z}|g\" ds.json\n"})
    EXPECT_EQ(Zero(write + use), "3") << write;
  // A setting of a line that was appended has the place of that line.
  EXPECT_THAT(Error("echo 'distributed_type: MULTI_GPU' > acc.yaml\nN=1\n"
                    "printf '%s\\n' 'num_machines: 3' 'num_processes: 16' >> acc.yaml\n"
                    "accelerate launch --config_file acc.yaml train.py "
                    "--per_device_train_batch_size 2\n"),
              HasSubstr("x.sh:4:16: error: num_processes 16"));
}

// What lay there from a run before was read.
TEST(WrittenFiles, WhatOnlySedOrPrintfKnowIsRefused) {
  const std::string use = std::string(kTrainer) + "--deepspeed ds.json\n";
  for (const char* write :
       {"sed -i 's/1/3/' ds.json\n", "sed -i 's/a.*/3/' ds.json\n",
        "echo '{\"zero_optimization\": {\"stage\": 1}}' > ds.json\nsed -i 's/[0-9]/3/' ds.json\n"})
    EXPECT_THAT(Error(write + use), HasSubstr("ds.json is changed by sed (x.sh:")) << write;
  EXPECT_THAT(Error("printf '{\"zero_optimization\": {\"stage\": %d}}' 3 > ds.json\n" + use),
              HasSubstr("formatted by printf"));
}

TEST(WrittenFiles, WinAgainstOnesThatLieThere) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "written";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "ds.json") << R"({"zero_optimization": {"stage": 1}})";
  std::ofstream(folder / "run.sh") << "cat > ds.json <<EOT\n{\"zero_optimization\": {\"stage\": "
                                      "3}}\nEOT\n"
                                   << kTrainer << "--deepspeed ds.json\n";
  EXPECT_EQ(Resolve({"--model", "gpt2-xl", "--topology", "dgx-h100", "--seq-len", "1024", "--from",
                     (folder / "run.sh").string()})
                .strategy.zero,
            3);
}

TEST(WrittenFiles, HaveTheirPlacesInTheScript) {
  EXPECT_THAT(Error("N=1\ncat > acc.yaml <<EOF\ndistributed_type: FSDP\nfsdp_config:\n"
                    "  fsdp_sharding_strategy: SOME\nnum_processes: 8\nEOF\n"
                    "accelerate launch --config_file acc.yaml train.py\n"),
              HasSubstr("x.sh:5:27: error: fsdp_sharding_strategy"));
}

TEST(WrittenFiles, WhatIsNotKnownOfThemIsRefused) {
  const std::string names = std::string(kTrainer) + "--deepspeed ds.json\n";
  EXPECT_THAT(Error("cat >> ds.json <<EOT\n{}\nEOT\n" + names),
              AllOf(HasSubstr("ds.json is appended to (x.sh:1)"), HasSubstr("--from ds.json")));
  EXPECT_THAT(Error("cat > ds.json <<EOT\n{\"a\": $A}\nEOT\n" + names),
              HasSubstr("$A is not set in this file"));
  EXPECT_THAT(Error("if [ \"$1\" = a ]; then\ncat > ds.json <<EOT\n{\"a\": 1}\nEOT\nfi\n" + names),
              HasSubstr("ds.json is written in a branch or loop (x.sh:2)"));
}

TEST(Loops, OverKnownWordsAreFollowedWhereTheyOnlyAssign) {
  const std::string run = std::string(kGpt) + "$ARGS\n";
  EXPECT_EQ(Tp("for a in \"--tensor-model-parallel-size 4\"; do ARGS=\"$ARGS $a\"; done\n" + run),
            "4");
  EXPECT_EQ(Tp("for a in \"--tensor-model-parallel-size 4\" --sequence-parallel\ndo\n"
               "  ARGS=\"$ARGS $a\"\ndone\n" +
               run),
            "4");
  const ShellScript script =
      ReadShell(SourceOf("x.sh", "for i in 1 2; do A+=(--x \"$i\"); done\nrun \"${A[@]}\" $i\n"));
  std::vector<std::string> words;
  for (const Word& word : script.commands.back()) words.push_back(word.text);
  EXPECT_THAT(words, ElementsAre("run", "--x", "1", "--x", "2", "2"));
}

TEST(Variables, ThatHoldNobodyKnowsWhichArgumentsAreRefused) {
  const std::string run = std::string(kGpt) + "$ARGS\n";
  EXPECT_THAT(Error("for a in --fp8 --x; do\n  echo $a\n  ARGS=\"$ARGS $a\"\ndone\n" + run),
              AllOf(HasSubstr("x.sh:3"), HasSubstr("ARGS is set in a loop"),
                    HasSubstr("write these words into the command")));
  EXPECT_THAT(
      Error("ARGS=\"--x 1\"\nfor a in --fp8 --x; do\n  echo $a\n  ARGS+=\" $a\"\ndone\n" + run),
      HasSubstr("ARGS is set in a loop"));
  EXPECT_THAT(Error("read -r ARGS < options.txt\n" + run),
              AllOf(HasSubstr("x.sh:1"), HasSubstr("ARGS is set by read")));
  EXPECT_THAT(Error("ARGS=\"--x 1\"\nif [ \"$1\" = a ]; then ARGS=--y; fi\n" + run),
              AllOf(HasSubstr("x.sh:2"), HasSubstr("ARGS is set in a branch after another value")));
  // What may be empty is left out with a note.
  EXPECT_EQ(Error("ARGS=\nif [ \"$1\" = a ]; then ARGS=--y; fi\n" + run), "");
}

TEST(Variables, ThatReadTakesOfAHereDocumentAreKnown) {
  const std::string text = "--tensor-model-parallel-size 4\n--sequence-parallel\n";
  const std::string run = std::string(kGpt) + "$ARGS\n";
  EXPECT_EQ(Tp("read -r -d '' ARGS <<'EOT'\n" + text + "EOT\n" + run), "4");
  EXPECT_EQ(Tp("IFS= read -rd \"\" ARGS <<EOT || true\n" + text + "EOT\n" + run), "4");
  const Imported read = Read("read -r -d '' ARGS <<'EOT'\n" + text + "EOT\n" + run);
  EXPECT_THAT(read.notes, testing::Not(Contains(HasSubstr("is not set in this file"))));
  EXPECT_EQ(Tp("mapfile -t ARGS <<EOT\n--tensor-model-parallel-size\n4\nEOT\n" + std::string(kGpt) +
               "\"${ARGS[@]}\"\n"),
            "4");
}

}  // namespace
}  // namespace orrery::exchange
