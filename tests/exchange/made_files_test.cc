// SPDX-License-Identifier: Apache-2.0
// Files that scripts copy, join or have made, and scripts that they start.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "model/exchange/import.h"
#include "tests/exchange/exported.h"

namespace orrery::exchange::made {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

Imported Read(const std::string& name, const std::string& text) {
  return Import({SourceOf(name, text)}, std::nullopt);
}

// Files of a folder, of which `first` alone is given.
Resolved Predict(const std::string& first,
                 const std::vector<std::pair<std::string, std::string>>& files,
                 std::vector<std::string> words) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("made-" + first);
  std::filesystem::create_directories(folder / "conf");
  for (const auto& [name, text] : files) std::ofstream(folder / name) << text;
  words.insert(words.end(), {"--from", (folder / first).string()});
  return Resolve(words);
}

constexpr const char* kStageTwo =
    R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
        "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"})";
const std::vector<std::string> kJob = {"--model", "gpt2-xl", "--topology", "dgx-h100",
                                       "--nodes", "1",       "--seq-len",  "1024"};

// A script around DeepSpeed's file, and what is in the folder.
Resolved WithFile(const std::string& lines) {
  return Predict("make.sh",
                 {{"make.sh", lines + "\ndeepspeed --num_gpus 8 --num_nodes 1 train.py "
                                      "--per_device_train_batch_size 2 --bf16 "
                                      "--gradient_accumulation_steps 1 --deepspeed ds.json\n"},
                  {"conf/two.json", kStageTwo},
                  {"conf/three.json", "{\"zero_optimization\": {\"stage\": 3}}"}},
                 kJob);
}

TEST(MadeFiles, CopiesAreWhatTheyAreCopiesOf) {
  EXPECT_EQ(WithFile("cp conf/two.json ds.json").strategy.zero, 2);
  EXPECT_EQ(WithFile("cp -f conf/three.json ds.json").strategy.zero, 3);
  EXPECT_EQ(WithFile("ln -sf conf/two.json ds.json").strategy.zero, 2);
  EXPECT_EQ(WithFile("cat conf/three.json > ds.json").strategy.zero, 3);
  EXPECT_EQ(WithFile("cat > a.json <<EOF\n{\"zero_optimization\":\nEOF\n"
                     "echo '{\"stage\": 1}}' > b.json\ncat a.json b.json > ds.json")
                .strategy.zero,
            1);
  EXPECT_EQ(WithFile("echo '{\"zero_optimization\": {\"stage\": 1}}' > a.json\n"
                     "cp a.json ds.json\nsed -i s/1/2/ ds.json")
                .strategy.zero,
            2);
}

TEST(MadeFiles, WhatOtherProgramsMakeOfAFileIsToBeGiven) {
  for (const char* line :
       {"jq '.zero_optimization.stage = 3' conf/two.json > ds.json",
        "jq '.a = 1' conf/two.json | tee ds.json", "envsubst < conf/two.json > ds.json"})
    EXPECT_THAT(ErrorOf([&] { WithFile(line); }),
                AllOf(HasSubstr(fmt::format(
                          "ds.json is made by {} (",
                          std::string_view(line).substr(0, std::string_view(line).find(' ')))),
                      HasSubstr("make.sh:1)"), HasSubstr("--from ds.json")));
  EXPECT_THAT(ErrorOf([&] { WithFile("cat conf/two.json conf/three.json > ds.json"); }),
              HasSubstr("ds.json is joined from"));
  EXPECT_THAT(ErrorOf([&] { WithFile("if [ $X = 1 ]; then\ncp conf/two.json ds.json\nfi"); }),
              HasSubstr("ds.json is written in a branch or loop"));
}

TEST(MadeFiles, AScriptWithoutATrainingCommandIsTheOneThatItStarts) {
  const std::string train =
      "torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 "
      "--num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
      "--micro-batch-size 1 --global-batch-size 512 --tensor-model-parallel-size 8\n";
  const std::vector<std::string> job = {"--topology", "dgx-h100"};
  for (const char* line : {"bash \"$(dirname \"$0\")/run-8.sh\"", "exec ./run-8.sh \"$@\"",
                           "srun bash -c 'exec ./run-8.sh \"$@\"' run \"$@\""}) {
    const Resolved r =
        Predict("start.sh",
                {{"start.sh", std::string("set -e\n") + line + "\n"}, {"run-8.sh", train}}, job);
    EXPECT_EQ(r.strategy.tp, 8) << line;
    EXPECT_EQ(r.job.cluster.nodes, 2);
  }
  EXPECT_THAT(Read("start.sh", "#SBATCH -N 2\nbash run-9.sh\n").notes,
              Contains(HasSubstr("start.sh:2: starts run-9.sh, which is not found")));
  // What is sourced, or stands next to a training command, is none.
  const Resolved own =
      Predict("both.sh",
              {{"both.sh", ". ./run-9.sh\nbash run-8.sh\n" + train}, {"run-8.sh", "true\n"}}, job);
  EXPECT_EQ(own.strategy.tp, 8);
}

}  // namespace
}  // namespace orrery::exchange::made
