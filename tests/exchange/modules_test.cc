// SPDX-License-Identifier: Apache-2.0
// Modules and recipes of Python that a launch script names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "model/exchange/import.h"
#include "tests/exchange/exported.h"

namespace orrery::exchange::modules {
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
      std::filesystem::path(testing::TempDir()) / ("module-" + first);
  std::filesystem::create_directories(folder / "own");
  for (const auto& [name, text] : files) std::ofstream(folder / name) << text;
  words.insert(words.end(), {"--from", (folder / first).string()});
  return Resolve(words);
}

// The configuration of torchtitan is a module of Python: replicas of it were predicted as one sharded copy.
TEST(Modules, TorchtitanIsPredictedWithItsModule) {
  const std::string config =
      "from torchtitan.models.llama3.config_registry import llama3_8b\n"
      "from torchtitan.trainer import Trainer\n\n\n"
      "def run() -> Trainer.Config:\n    config = llama3_8b()\n"
      "    config.parallelism.data_parallel_replicate_degree = 2\n"
      "    config.parallelism.data_parallel_shard_degree = 8\n"
      "    config.training.max_context_length = 4096\n    return config\n";
  const std::string command =
      "torchrun --nnodes 2 --nproc-per-node 8 -m torchtitan.train --module own.job --config run "
      "--training.max_context_length 2048\n";
  const Resolved own = Predict("t.sh", {{"t.sh", command}, {"own/job.py", config}},
                               {"--topology", "dgx-h100", "--global-batch", "64"});
  EXPECT_EQ(own.job.model.spec.name, "llama3-8b");
  EXPECT_EQ(own.strategy.dp_outer, 2);
  EXPECT_EQ(own.job.request.work.seq_len, 2048);
  // torchtitan's own modules lie in its folder, and a file of that name here is another one's.
  const Resolved theirs =
      Predict("u.sh",
              {{"u.sh",
                "torchrun --nnodes 2 --nproc-per-node 8 -m torchtitan.train --module llama3 "
                "--config llama3_8b\n"},
               {"llama3.py", "class Model:\n  layers = 1\n"}},
              {"--topology", "dgx-h100", "--global-batch", "64"});
  EXPECT_EQ(theirs.job.model.spec.name, "llama3-8b");
  EXPECT_THAT(theirs.job.notes, Contains(HasSubstr("settings are in Python and not read")));
}

// Another job was predicted of train.sh than of the train.py that it starts.
TEST(Modules, ProgramsOfAnExportAreReadWithTheirScript) {
  const std::vector<std::string> job = {"--model", "gpt2-xl", "--topology", "dgx-h100"};
  const auto script = [&](std::vector<std::string> words, Target target) {
    words.insert(words.end(), job.begin(), job.end());
    Bundle bundle = MakeBundle(CaseOf(Resolve(words)), target);
    bundle.header = {"Predict again: plan predict --model gpt2-xl"};  // by which it is known
    for (const std::string& path : Write(FilesOf(bundle)))
      if (path.ends_with("train.sh")) return path;
    return std::string();
  };
  const auto predict = [&](const std::string& path) {
    std::vector<std::string> words = job;
    words.insert(words.end(), {"--from", path});
    return Resolve(words);
  };
  const Resolved fsdp =
      predict(script({"--nodes", "2", "--framework", "fsdp", "--zero", "2", "--dp-outer", "2",
                      "--micro-batch", "2", "--global-batch", "32"},
                     kFsdp));
  EXPECT_EQ(fsdp.strategy.zero, 2);
  EXPECT_EQ(fsdp.strategy.dp_outer, 2);
  EXPECT_EQ(fsdp.strategy.micro_batch, 2);
  EXPECT_EQ(fsdp.job.request.work.global_batch, 32);
  EXPECT_THAT(fsdp.job.notes, Contains(HasSubstr("train.py")));
  EXPECT_THAT(fsdp.job.notes, Not(Contains(HasSubstr("settings are in Python and not read"))));
  const Resolved ddp = predict(script({"--nodes", "2", "--framework", "ddp", "--zero", "0",
                                       "--micro-batch", "2", "--global-batch", "64"},
                                      kDdp));
  EXPECT_EQ(ddp.strategy.micro_batch, 2);
  EXPECT_EQ(ddp.job.request.work.global_batch, 64);
}

TEST(Modules, ConstantsOfAProgramAreItsValues) {
  const auto read = [](const std::string& constants, const std::string& batch) {
    return Read("train.py", "from transformers import TrainingArguments\n" + constants +
                                "args = TrainingArguments(\n    output_dir=\"out\",\n"
                                "    per_device_train_batch_size=" +
                                batch + ",\n    bf16=True,\n)\n");
  };
  EXPECT_EQ(read("BS = 4  # of a GPU\n", "BS").values.at("micro_batch").text, "4");
  EXPECT_EQ(read("BS = 4\n", "64 // (BS * 2)").values.at("micro_batch").text, "8");
  for (const char* constants :
       {"BS = 4\nBS = 8\n", "BS = 4\nif x:\n    BS = 8\n", "BS = f(4)\n", "BS = 4\nBS *= 2\n", ""})
    EXPECT_THAT(ErrorOf([&] { read(constants, "BS"); }), HasSubstr("its value is computed"))
        << constants;
  EXPECT_THAT(ErrorOf([&] { read("BS = 4\n", "BS / 2"); }), HasSubstr("its value is computed"));
}

TEST(Modules, FilesAroundAnExportedScriptNameIt) {
  const std::string front =
      "# Predict again: plan predict --model gpt2-xl\nexec \"$here/train.sh\"\n";
  EXPECT_THAT(ErrorOf([&] { Read("launch-mpirun.sh", front); }),
              AllOf(HasSubstr("written by plan export and starts train.sh"),
                    HasSubstr("--from train.sh, or --from plan.json")));
  // Whatever the files in it look like.
  EXPECT_THAT(ErrorOf([&] {
                Read("job.yaml",
                     "# Predict again: plan predict --model gpt2-xl\nkind: ConfigMap\n"
                     "data:\n  train.py: |\n    import torch\n    x = f(y=1)\n");
              }),
              HasSubstr("written by plan export and starts train.sh"));
}

TEST(Modules, ABridgeRecipeNamesTheModel) {
  const std::string command =
      "torchrun --nnodes 1 --nproc-per-node 8 scripts/training/run_recipe.py --recipe "
      "llama3_70b_16k_pretrain_config model.tensor_model_parallel_size=8 ";
  EXPECT_EQ(Read("b.sh", command + "model.seq_length=8192\n").model->spec.name, "llama3-70b");
  EXPECT_FALSE(Read("b.sh", command + "model.num_layers=4\n").model.has_value());
  // Names that only a shell knows say nothing, and are no error where --model does.
  for (const char* text :
       {"torchrun --nproc-per-node 8 --nnodes 1 run.py --recipe ${R:?a recipe} ddp.a=1 "
        "model.tensor_model_parallel_size=8\n",
        "torchrun --nproc-per-node 8 --nnodes 1 -m torchtitan.train --module $M --config $C\n"})
    EXPECT_FALSE(Read("b.sh", text).model.has_value()) << text;
}

}  // namespace
}  // namespace orrery::exchange::modules
