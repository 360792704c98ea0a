// SPDX-License-Identifier: Apache-2.0
// Batches and machines of Accelerate and the Trainer where files say only a part of them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "model/exchange/import.h"
#include "tests/exchange/exported.h"

namespace orrery::exchange::batches {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::string Text(const Imported& imported, const char* field) {
  const auto at = imported.values.find(field);
  return at == imported.values.end() ? "" : at->second.text;
}
Imported Read(const std::string& name, const std::string& text) {
  return Import({SourceOf(name, text)}, std::nullopt);
}
Resolved Predict(const std::string& name, const std::string& text, std::vector<std::string> more) {
  const std::string path = testing::TempDir() + "/batches-" + name;
  std::ofstream(path) << text;
  std::vector<std::string> words = {"--model", "gpt2-xl", "--topology", "dgx-h100", "--from", path};
  words.insert(words.end(), more.begin(), more.end());
  return Resolve(words);
}
std::string Error(const std::string& name, const std::string& text,
                  const std::vector<std::string>& more) {
  return ErrorOf([&] { Predict(name, text, more); });
}

constexpr const char* kArguments =
    "{\"per_device_train_batch_size\": 2,\n\"gradient_accumulation_steps\": 4, \"bf16\": true}";
constexpr const char* kShort = R"({"output_dir": "x", "bf16": true})";
const std::string kYaml =
    "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n"
    "  gradient_accumulation_steps: 4\n  zero_stage: 2\nmixed_precision: bf16\n";

// They were predicted at the model's own batch, 2 x 16.
TEST(Batches, AccumulationAsksForTheNumberOfGpus) {
  for (const auto& [name, text] : {std::pair<std::string, std::string>{"args.json", kArguments},
                                   {"args.yaml",
                                    "output_dir: x\nper_device_train_batch_size: 2\n"
                                    "gradient_accumulation_steps: 4\nbf16: true\n"},
                                   {"train.py",
                                    "args = TrainingArguments(per_device_train_batch_size=2,\n"
                                    "  gradient_accumulation_steps=4, bf16=True)\n"}}) {
    EXPECT_THAT(
        Error(name, text, {}),
        AllOf(HasSubstr(name + ":"), HasSubstr("gradient_accumulation_steps 4 x micro-batch 2"),
              HasSubstr("hint: --nodes N")))
        << name;
    EXPECT_EQ(Predict(name, text, {"--nodes", "2"}).job.request.work.global_batch, 2 * 4 * 16);
    EXPECT_EQ(Predict(name, text, {"--global-batch", "64"}).job.request.work.global_batch, 64);
  }
  // Nothing is known of flags.
  EXPECT_THAT(Read("args.json", kArguments).notes,
              Contains(AllOf(HasSubstr("args.json:2: "), HasSubstr("--global-batch N"))));
}

report::Job Search(const std::vector<std::string>& more) {
  const std::string path = testing::TempDir() + "/batches-search.json";
  std::ofstream(path) << kArguments;
  std::vector<std::string> words = {"plan", "--model", "gpt2-xl", "--from", path};
  words.insert(words.end(), more.begin(), more.end());
  cli::JobFlags job;
  cli::FlagSet set("", "", {});
  job.Declare(&set, true);
  cli::DeclareFrom(&job, &set);
  set.Parse(cli::CommandLine(words), 1);
  cli::TakeImports(&job, nullptr);
  return job.Resolve();
}

// --nodes was there, and a note asked for it.
TEST(Batches, ASearchTakesThemFromItsNodes) {
  const report::Job job = Search({"--topology", "dgx-h100", "--nodes", "2"});
  EXPECT_THAT(job.request.global_batches, testing::ElementsAre(2 * 4 * 16));
  EXPECT_THAT(job.notes, Not(Contains(HasSubstr("not taken"))));
  EXPECT_THAT(Search({"--topology", "dgx-h100", "--nodes", "2", "--global-batch", "64"})
                  .request.global_batches,
              testing::ElementsAre(64));
  EXPECT_THAT(ErrorOf([] { Search({"--topology", "dgx-h100"}); }), HasSubstr("hint: --nodes N"));
  // The model's own cluster has 8 GPUs per node, too.
  EXPECT_THAT(Search({"--nodes", "2"}).request.global_batches, testing::ElementsAre(2 * 4 * 16));
  // Of several the batch would be another on each.
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--topology", "dgx-h100", "--nodes", "2,4"},
        {"--topology", "dgx-h100", "--nodes", "2..4", "--gpus-per-node", "8"}})
    EXPECT_THAT(Search(words).notes, Contains(HasSubstr("of one number of GPUs is not taken")));
}

TEST(Batches, TheTrainersDefaultsHoldWithAndWithoutAccumulation) {
  const Resolved plain = Predict("short.json", kShort, {"--nodes", "1"});
  EXPECT_EQ(plain.strategy.micro_batch, 8);
  EXPECT_EQ(plain.job.request.work.global_batch, 8 * 8);
  EXPECT_THAT(plain.job.notes, Contains(HasSubstr("8, the Trainer's default")));
  const Resolved steps = Predict(
      "steps.json", R"({"output_dir": "x", "bf16": true, "gradient_accumulation_steps": 4})",
      {"--nodes", "1"});
  EXPECT_EQ(steps.strategy.micro_batch, 8);
  EXPECT_EQ(steps.job.request.work.global_batch, 8 * 4 * 8);
  // Another program has batches of its own.
  const Imported other =
      Read("x.sh", "torchrun --nnodes 1 --nproc-per-node 8 t.py --num_processes 8 --lr 1\n");
  EXPECT_EQ(Text(other, "micro_batch"), "");
}

TEST(Batches, AccumulationWithoutAMicroBatchIsNamed) {
  const auto said = HasSubstr("gradient_accumulation_steps 4 of micro-batches whose size nothing");
  for (const char* nodes : {"1", "2"})
    EXPECT_THAT(Predict("a.yaml", kYaml, {"--nodes", nodes}).job.notes,
                Contains(AllOf(HasSubstr("a.yaml:4: "), said, HasSubstr("--micro-batch N"))));
  const Resolved known = Predict("a.yaml", kYaml, {"--nodes", "1", "--micro-batch", "2"});
  EXPECT_EQ(known.job.request.work.global_batch, 2 * 4 * 8);
  EXPECT_THAT(known.job.notes, Not(Contains(said)));
}

TEST(Machines, ProcessesThatTheyDoNotShareHaveTheirLine) {
  EXPECT_THAT(Error("m.yaml", kYaml + "num_machines: 3\nnum_processes: 16\n", {}),
              AllOf(HasSubstr("m.yaml:8"), HasSubstr("16 does not divide by num_machines 3")));
  EXPECT_EQ(Error("m.yaml", kYaml + "num_machines: 3\nnum_processes: 16\n",
                  {"--nodes", "2", "--micro-batch", "2", "--global-batch", "64"}),
            "");
}

TEST(Accelerate, EightBitsArePredictedInSixteenAndNamed) {
  std::string yaml = kYaml;
  yaml.replace(yaml.find("precision: bf16"), 15, "precision: fp8");
  const Imported read = Read("e.yaml", yaml);
  EXPECT_EQ(Text(read, "precision"), "bf16");
  EXPECT_THAT(read.notes, Contains(AllOf(HasSubstr("e.yaml:6: "), HasSubstr("fp8"),
                                         HasSubstr("not modelled"))));
}

// One pass was predicted whatever the local batch: 10.6 s where 32 passes take 18.
TEST(Batches, AStepOfSeveralPassesOfThePipelineIsNotModelled) {
  const auto file = [](int local, const char* stages) {
    return fmt::format(
        "[training]\nlocal_batch_size = {}\nglobal_batch_size = 256\nseq_len = 512\n[parallelism]\n"
        "tensor_parallel_degree = 1\npipeline_parallel_degree = {}\n"
        "pipeline_parallel_microbatch_size = 1\n",
        local, stages);
  };
  const std::vector<std::string> nodes = {"--nodes", "2"};
  EXPECT_THAT(Error("passes.toml", file(4, "4"), nodes),
              AllOf(HasSubstr("passes.toml:3"), HasSubstr("16 passes of the pipeline"),
                    HasSubstr("local_batch_size = 64"), HasSubstr("--global-batch 16")));
  EXPECT_THAT(Error("passes.toml", file(64, "4"), {}), HasSubstr("--nodes N"));
  EXPECT_EQ(Error("passes.toml", file(64, "4"), nodes), "");
  EXPECT_EQ(Error("passes.toml", file(4, "1"), nodes), "");  // accumulation without a pipeline
  EXPECT_EQ(Error("passes.toml", file(4, "4"), {"--nodes", "2", "--global-batch", "16"}), "");
}

// It was predicted at the model's own batch, 512, where torchtitan takes one local batch per rank.
TEST(Batches, ALocalBatchAloneIsThatOfEveryRank) {
  const auto predicted = [](const std::string& training, std::vector<std::string> more) {
    return Predict("local.toml", "[training]\nseq_len = 512\n" + training, std::move(more))
        .job.request.work.global_batch;
  };
  EXPECT_EQ(predicted("local_batch_size = 2\n", {"--nodes", "2"}), 32);
  EXPECT_EQ(predicted("", {"--nodes", "2"}), 128);  // 8, torchtitan's default
  EXPECT_EQ(predicted("local_batch_size = 2\n", {"--global-batch", "64"}), 64);
  EXPECT_THAT(Error("local.toml", "[training]\nseq_len = 512\nlocal_batch_size = 2\n", {}),
              AllOf(HasSubstr("local.toml:3:"),
                    HasSubstr("local_batch_size 2 x data-parallel ranks"), HasSubstr("--nodes N")));
}

TEST(Batches, OneNumberInTwoFilesIsNoContradiction) {
  const std::string script =
      std::string(
          "deepspeed --num_gpus 8 --num_nodes 1 pretrain_gpt.py --num-layers 12 "
          "--hidden-size 768 --num-attention-heads 12 --seq-length 1024 "
          "--max-position-embeddings 1024 ") +
      "--clip-grad 1.0 --deepspeed --deepspeed_config ds.json "
      "--tensor-model-parallel-size 2 --micro-batch-size 4\n";
  const auto with = [&](const char* clip) {
    return ErrorOf([&] {
      Import({SourceOf("x.sh", script),
              SourceOf("ds.json", std::string("{\"train_micro_batch_size_per_gpu\": 4, "
                                              "\"train_batch_size\": 16, \"gradient_clipping\": ") +
                                      clip + "}")},
             std::nullopt);
    });
  };
  EXPECT_EQ(with("1"), "");
  EXPECT_THAT(with("0.5"), HasSubstr("clip_norm is"));
}

// All GPUs were taken for replicas: 4 times the batch.
TEST(Batches, DeepSpeedsRanksAreThoseThatDegreesLeave) {
  const auto read = [](const std::string& degrees, const std::string& gpus = "8") {
    return Import({SourceOf("x.sh", "deepspeed --num_gpus " + gpus +
                                        " --num_nodes 1 pretrain_gpt.py --num-layers 12 "
                                        "--hidden-size 768 --num-attention-heads 12 --seq-length "
                                        "1024 --max-position-embeddings 1024 --micro-batch-size 2 "
                                        "--deepspeed --deepspeed_config ds.json " +
                                        degrees + "\n"),
                   SourceOf("ds.json",
                            "{\"train_micro_batch_size_per_gpu\": 2, "
                            "\"gradient_accumulation_steps\": 8}")},
                  std::nullopt);
  };
  const std::string stages = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 ";
  EXPECT_EQ(Text(read(stages), "global_batch"), "32");
  EXPECT_EQ(Text(read(stages + "--global-batch-size 32"), "global_batch"), "32");
  EXPECT_EQ(Text(read("--tensor-model-parallel-size 2"), "global_batch"), "64");
  EXPECT_EQ(Text(read("--ds-sequence-parallel-size 4"), "global_batch"), "32");
  EXPECT_EQ(Text(read(""), "global_batch"), "128");
  EXPECT_THAT(ErrorOf([&] { read(stages + "--global-batch-size 128"); }),
              HasSubstr("global_batch is 32 here and 128"));
  // Of Megatron-DeepSpeed in 2021.
  const Imported old = read("--model-parallel-size 2 --pipe-parallel-size 4");
  EXPECT_EQ(Text(old, "pp"), "4");
  EXPECT_EQ(Text(old, "global_batch"), "16");
  EXPECT_THAT(old.notes, Not(Contains(HasSubstr("pipe-parallel-size"))));
}

// The world of three batches is that of a model's ranks, too.
TEST(Batches, DeepSpeedsThreeBatchesCountReplicas) {
  const std::string path = testing::TempDir() + "/batches-three.json";
  std::ofstream(path) << "{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 2, "
                         "\"gradient_accumulation_steps\": 8}";
  const Resolved r = Predict("three.sh",
                             "pretrain_gpt.py --num-layers 48 --hidden-size 1600 "
                             "--num-attention-heads 20 --seq-length 1024 --micro-batch-size 2 "
                             "--max-position-embeddings 1024 --tensor-model-parallel-size 4 "
                             "--deepspeed --deepspeed_config batches-three.json\n",
                             {});
  EXPECT_EQ(r.strategy.dp, 4);
  EXPECT_EQ(r.job.request.work.global_batch, 64);
  EXPECT_THAT(r.job.notes, Contains(HasSubstr("world size 16")));
}

// Micro-batches of 1 were predicted, and the model's own batch where a file has the micro-batch alone.
TEST(Batches, WhatAFileOfDeepSpeedLeavesOutFollowsFromTheRest) {
  const auto predicted = [](const std::string& file, std::vector<std::string> more) {
    const Resolved r = Predict("ds.json", file, std::move(more));
    const int64_t batch = r.job.request.work.global_batch;
    return fmt::format("{}: {} x {}", batch, r.strategy.micro_batch,
                       batch / r.strategy.dp / r.strategy.micro_batch);
  };
  const std::vector<std::string> two = {"--nodes", "2"};
  const auto batch = [](const std::string& more) {
    return "{\"zero_optimization\": {\"stage\": 2},\n" + more + "}";
  };
  EXPECT_EQ(predicted(batch(R"("train_batch_size": 64, "gradient_accumulation_steps": 2)"), two),
            "64: 2 x 2");
  EXPECT_EQ(predicted(batch(R"("train_batch_size": 64)"), two), "64: 4 x 1");
  EXPECT_EQ(predicted(batch(R"("train_batch_size": 128, "gradient_accumulation_steps": 1)"), two),
            "128: 8 x 1");
  EXPECT_EQ(predicted(batch(R"("train_micro_batch_size_per_gpu": 2)"), two), "32: 2 x 1");
  EXPECT_EQ(predicted(batch(R"("train_batch_size": 64, "train_micro_batch_size_per_gpu": 2)"), two),
            "64: 2 x 2");
  EXPECT_EQ(predicted(batch(R"("train_micro_batch_size_per_gpu": 2,
                               "gradient_accumulation_steps": 3)"),
                      two),
            "96: 2 x 3");
  EXPECT_EQ(predicted(batch(R"("train_batch_size": 64)"), {"--nodes", "2", "--micro-batch", "1"}),
            "64: 1 x 4");
  EXPECT_THAT(
      Error("ds.json", batch(R"("train_batch_size": 64, "gradient_accumulation_steps": 3)"), two),
      AllOf(HasSubstr("ds.json:2:"),
            HasSubstr("train_batch_size 64 is no multiple of 3 steps x 16 data-parallel ranks")));
  // It was said that "auto" is filled in.
  EXPECT_THAT(Error("ds.json", batch(R"("gradient_accumulation_steps": 4)"), two),
              AllOf(HasSubstr("ds.json:2:"), HasSubstr("gradient_accumulation_steps 4 without "
                                                       "train_batch_size or train_micro_batch")));
  EXPECT_THAT(Error("ds.json", batch(R"("train_micro_batch_size_per_gpu": 2,
                                        "gradient_accumulation_steps": 4)"),
                    {}),
              AllOf(HasSubstr("ds.json:2:"),
                    HasSubstr("gradient_accumulation_steps 4 x micro-batch 2 x GPUs is the global"),
                    HasSubstr("--nodes N")));
  EXPECT_THAT(Predict("ds.json", batch(R"("train_batch_size": 64)"), {}).job.notes,
              Contains(AllOf(HasSubstr("ds.json:2: train_batch_size 64 / GPUs is the micro-batch"),
                             HasSubstr("the micro-batch is not taken from it; give --nodes N"))));
}

TEST(Batches, RanksOfDeepSpeedAreAllGpusOfAJob) {
  const auto batch = [](const std::string& job) {
    return Text(Import({SourceOf("x.sh", job + "train.py --deepspeed_config ds.json\n"),
                        SourceOf("ds.json",
                                 "{\"train_micro_batch_size_per_gpu\": 2, "
                                 "\"gradient_accumulation_steps\": 4}")},
                       std::nullopt),
                "global_batch");
  };
  EXPECT_EQ(batch("#SBATCH --gpus=16\n#SBATCH --gpus-per-node=4\nsrun python "), "128");
  EXPECT_EQ(batch("mpirun -np 4 python "), "32");
}

// TrainingArguments and Megatron's arguments have batches of their own: what only follows is no contradiction.
TEST(Batches, WhatFollowsFromAFileOfDeepSpeedGivesWay) {
  const std::string ds = R"({"train_batch_size": 64, "zero_optimization": {"stage": 2}})";
  const auto read = [&](const char* name, const std::string& text, const std::string& file) {
    return Import({SourceOf(name, text), SourceOf("ds.json", file)}, std::nullopt);
  };
  const std::string arguments =
      "deepspeed --num_gpus 8 --num_nodes 1 train.py --deepspeed ds.json --output_dir x ";
  EXPECT_EQ(Text(read("x.sh",
                      arguments + "--per_device_train_batch_size 2 "
                                  "--gradient_accumulation_steps 4\n",
                      ds),
                 "micro_batch"),
            "2");
  EXPECT_EQ(Text(read("x.sh", arguments, ds), "micro_batch"), "8");
  const std::string megatron =
      "deepspeed --num_gpus 8 --num_nodes 1 pretrain_gpt.py --num-layers 12 --hidden-size 768 "
      "--num-attention-heads 12 --seq-length 1024 --max-position-embeddings 1024 "
      "--micro-batch-size 2 --deepspeed --deepspeed_config ds.json ";
  const std::string micro = R"({"train_micro_batch_size_per_gpu": 2})";
  EXPECT_EQ(Text(read("x.sh", megatron + "--global-batch-size 64\n", micro), "global_batch"), "64");
  EXPECT_EQ(Text(read("x.sh", megatron, micro), "global_batch"), "16");
}

// The model's own batch was predicted.
TEST(Batches, MegatronTakesOneMicroBatchPerReplica) {
  const auto script = [](const std::string& more) {
    return "torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py --num-layers 48 --hidden-size "
           "1600 --num-attention-heads 20 --seq-length 1024 --max-position-embeddings 1024 "
           "--tensor-model-parallel-size 2 --bf16 " +
           more + "\n";
  };
  const Resolved r = Predict("own.sh", script("--micro-batch-size 2"), {});
  EXPECT_EQ(r.strategy.micro_batch, 2);
  EXPECT_EQ(r.job.request.work.global_batch, 16);
  EXPECT_EQ(Predict("own.sh", script("--micro-batch-size 2 --global-batch-size 64"), {})
                .job.request.work.global_batch,
            64);
  const std::string alone = script("--micro-batch-size 2");
  const std::string program = alone.substr(alone.find("pretrain"));
  EXPECT_EQ(Predict("own.sh", program, {"--nodes", "1"}).job.request.work.global_batch, 8);
  EXPECT_THAT(Error("own.sh", program, {}),
              AllOf(HasSubstr("own.sh:1:"), HasSubstr("micro-batch-size 2 x data-parallel ranks"),
                    HasSubstr("--nodes N")));
  // 1 was taken without a word.
  EXPECT_THAT(Error("own.sh", script("--global-batch-size 64"), {}),
              AllOf(HasSubstr("own.sh:1:"), HasSubstr("--micro-batch-size is missing")));
  EXPECT_EQ(Error("own.sh", script("--global-batch-size 64"), {"--micro-batch", "2"}), "");
}

TEST(Batches, Tf32NextToHalfPrecisionIsNoPrecision) {
  EXPECT_EQ(Text(Read("a.yaml",
                      "output_dir: o\nbf16: true\ntf32: true\n"
                      "per_device_train_batch_size: 1\n"),
                 "precision"),
            "bf16");
  EXPECT_EQ(Text(Read("a.yaml", "output_dir: o\ntf32: true\nper_device_train_batch_size: 1\n"),
                 "precision"),
            "tf32");
}

// runtime/zero/config.py: true is stage 1.
TEST(DeepSpeed, ItsOldFormOfZeroIsAStage) {
  const auto read = [](const char* value) {
    return Read("ds.json",
                fmt::format("{{\"train_batch_size\": 8, \"zero_optimization\": {}}}", value));
  };
  EXPECT_EQ(Text(read("true"), "zero"), "1");
  EXPECT_EQ(Text(read("false"), "zero"), "0");
  EXPECT_EQ(Text(read("{\"stage\": 3}"), "zero"), "3");
  EXPECT_THAT(read("true").notes, Not(Contains(HasSubstr("unknown"))));
}

// They were refused without a file or a line.
TEST(Offload, WhatPlansDoNotModelHasItsLine) {
  const auto error = [](const char* name, const std::string& text) {
    return ErrorOf([&] { Read(name, text); });
  };
  const std::string states =
      "{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 3,\n"
      "\"offload_param\": {\"device\": \"cpu\"},\n"
      "\"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": ";
  EXPECT_THAT(error("ds.json", states + "0.3}}}"),
              AllOf(HasSubstr("ds.json:3:"),
                    HasSubstr("optimizer's states there, and the file moves 0.3 of them")));
  EXPECT_EQ(error("ds.json", states + "1.0}}}"), "");
  const std::string fsdp =
      "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
      "  fsdp_offload_params: true\n  fsdp_reshard_after_forward: ";
  EXPECT_THAT(error("a.yaml", fsdp + "false\n"),
              AllOf(HasSubstr("a.yaml:4:"), HasSubstr("(fsdp_config.fsdp_reshard_after_forward)")));
  EXPECT_EQ(error("a.yaml", fsdp + "true\n"), "");
}

}  // namespace
}  // namespace orrery::exchange::batches
