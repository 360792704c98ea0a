// SPDX-License-Identifier: Apache-2.0
// What a file says by the name of another one, or that nobody knows: read, refused or named, never left out in silence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "model/exchange/document.h"
#include "model/exchange/fields.h"
#include "model/exchange/import.h"
#include "tests/exchange/exported.h"

namespace orrery::exchange::named {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

Imported Read(const std::string& name, const std::string& text, const Values& given = {}) {
  return Import({SourceOf(name, text)}, std::nullopt, given);
}
std::string Error(const std::string& name, const std::string& text) {
  return ErrorOf([&] { Read(name, text); });
}
std::string Text(const Imported& imported, const char* field) {
  const auto at = imported.values.find(field);
  return at == imported.values.end() ? "" : at->second.text;
}

// Files of a folder, of which `first` alone is given.
Resolved Predict(const std::string& first,
                 const std::vector<std::pair<std::string, std::string>>& files,
                 std::vector<std::string> words) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("named-" + first);
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

TEST(NamedFiles, ATrainerIsPredictedWithItsDeepSpeedFile) {
  const std::string call =
      "args = TrainingArguments(output_dir=\"o\", per_device_train_batch_size=4, "
      "gradient_accumulation_steps=2, bf16=True, deepspeed=\"conf/ds.json\")\n";
  const Resolved python =
      Predict("train.py", {{"train.py", call}, {"conf/ds.json", kStageTwo}}, kJob);
  EXPECT_EQ(python.strategy.zero, 2);
  EXPECT_EQ(python.strategy.offload.optimizer, 1);
  EXPECT_EQ(python.strategy.micro_batch, 4);
  EXPECT_EQ(python.job.request.framework, "huggingface+overlap_grad_reduce=off");
  const std::string command =
      "torchrun --nproc-per-node 8 train.py --deepspeed /elsewhere/ds.json "
      "--per_device_train_batch_size 4 --bf16\n";
  const Resolved script = Predict("run.sh", {{"run.sh", command}, {"ds.json", kStageTwo}}, kJob);
  EXPECT_EQ(script.strategy.zero, 2);
}

// What is missing then is the number of GPUs.
TEST(NamedFiles, ABatchThatGpusDecideAsksForNodes) {
  const std::string arguments =
      R"({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "deepspeed": "ds.json"})";
  const std::string all = R"({"train_batch_size": "auto", "zero_optimization": {"stage": 2}})";
  EXPECT_THAT(
      ErrorOf([&] {
        Predict("args.json", {{"args.json", arguments}, {"ds.json", all}},
                {"--model", "gpt2-xl", "--topology", "dgx-h100", "--seq-len", "1024"});
      }),
      AllOf(HasSubstr("train_batch_size \"auto\" is filled in"), HasSubstr("hint: --nodes")));
}

TEST(NamedFiles, AnAbsentOneIsRefusedWithItsPlace) {
  const std::string call =
      "from transformers import TrainingArguments\n"
      "args = TrainingArguments(output_dir=\"o\",\n  deepspeed=\"nowhere.json\")\n";
  EXPECT_THAT(Error("t.py", call), AllOf(HasSubstr("t.py:3"), HasSubstr("names nowhere.json"),
                                         HasSubstr("--from nowhere.json")));
  const Values zero = {{"zero", {"3", {SourceOf("command line", "3"), 1, 1}, ""}}};
  EXPECT_THAT(Read("t.py", call, zero).notes, Contains(HasSubstr("add --from nowhere.json")));
}

// As `plan export --to deepspeed` starts a program that has no argument of its own: it was predicted as Megatron.
TEST(NamedFiles, AScriptWithNothingButANameIsRefused) {
  const std::string script =
      "here=\"$(cd \"$(dirname \"$0\")\" && pwd)\"\n"
      "torchrun --nproc-per-node 8 --nnodes 1 train.py --deepspeed \"$here/own.json\"\n";
  EXPECT_THAT(Error("run.sh", script), AllOf(HasSubstr("run.sh:2"), HasSubstr("--zero N")));
  const Imported both =
      Import({SourceOf("run.sh", script), SourceOf("own.json",
                                                   "{\"train_batch_size\": 64,\n"
                                                   "\"zero_optimization\": {\"stage\": 1}}")},
             std::nullopt);
  EXPECT_EQ(Text(both, "zero"), "1");
  EXPECT_EQ(both.framework, "deepspeed");
}

TEST(NamedFiles, WhatIsNamedIsOfItsKind) {
  const std::string loop =
      "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n"
      "  deepspeed_config_file: loop.yaml\n";
  EXPECT_THAT(ErrorOf([&] {
                Predict("loop.yaml", {{"loop.yaml", loop}}, kJob);
              }),
              AllOf(HasSubstr("loop.yaml:4"), HasSubstr("which is a configuration of Accelerate")));
}

TEST(NamedFiles, ADeepSpeedConfigurationMayStandInTheArguments) {
  const Imported read = Read("args.json", R"({"per_device_train_batch_size": 4, "bf16": true,
      "gradient_accumulation_steps": 2,
      "deepspeed": {"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto"}})");
  EXPECT_EQ(Text(read, "zero"), "3");
  EXPECT_EQ(read.framework, "huggingface");
  // Of a program that makes it, nothing is known.
  EXPECT_THAT(
      Error("t.py", "import x\nargs = TrainingArguments(output_dir=\"o\", deepspeed=make(3))\n"),
      AllOf(HasSubstr("t.py:2"), HasSubstr("its value is computed")));
}

TEST(NamedFiles, AccelerateNamesOneOfDeepSpeed) {
  const std::string yaml =
      "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n"
      "  deepspeed_config_file: ds.json\nmixed_precision: bf16\nnum_machines: 1\n"
      "num_processes: 8\n";
  EXPECT_THAT(Error("a.yaml", yaml), AllOf(HasSubstr("a.yaml:4"), HasSubstr("names ds.json")));
  std::vector<std::string> words = kJob;
  words.insert(words.end(), {"--micro-batch", "2", "--global-batch", "64"});
  const Resolved read = Predict("a.yaml", {{"a.yaml", yaml}, {"ds.json", kStageTwo}}, words);
  EXPECT_EQ(read.strategy.zero, 2);
  EXPECT_EQ(read.job.request.framework, "huggingface+overlap_grad_reduce=off");
}

TEST(Accelerate, DeepSpeedsPartHasDevicesAndSteps) {
  const std::string yaml =
      "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n"
      "  gradient_accumulation_steps: 4\n  offload_optimizer_device: cpu\n"
      "  offload_param_device: cpu\n  zero_stage: 3\nmixed_precision: bf16\nnum_machines: 1\n"
      "num_processes: 8\n";
  std::vector<std::string> words = kJob;
  words.insert(words.end(), {"--micro-batch", "2"});
  const Resolved read = Predict("b.yaml", {{"b.yaml", yaml}}, words);
  EXPECT_EQ(read.job.request.work.global_batch, 2 * 4 * 8);
  EXPECT_TRUE(read.strategy.offload.weights);
  EXPECT_EQ(read.strategy.offload.optimizer, 1);
  // Other devices are not modelled, and said so.
  std::string disk = yaml;
  disk.replace(disk.find("optimizer_device: cpu"), 21, "optimizer_device: nvme");
  EXPECT_THAT(Read("b.yaml", disk).notes,
              Contains(HasSubstr("b.yaml:5, b.yaml:6: not modelled: offloading")));
  const std::string json = R"({"train_batch_size": 8, "zero_optimization": {"stage": 3,
      "offload_optimizer": {"device": "nvme"}}})";
  EXPECT_THAT(Read("ds.json", json).notes, Contains(HasSubstr("states on NVMe")));
  // The Trainer refuses other steps than its own.
  const std::string trainer =
      "{\"per_device_train_batch_size\": 2,\n\"gradient_accumulation_steps\": 8}";
  EXPECT_THAT(ErrorOf([&] {
                Import({SourceOf("b.yaml", yaml), SourceOf("args.json", trainer)}, std::nullopt);
              }),
              AllOf(HasSubstr("args.json:2"), HasSubstr("is 8 here and 4 in b.yaml:4")));
}

TEST(Accelerate, NoDistributionIsOneProcess) {
  const std::string yaml = "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\n";
  const Imported one = Read("n.yaml", yaml + "num_processes: 1\n");
  EXPECT_EQ(Text(one, "nodes") + "x" + Text(one, "gpus_per_node"), "1x1");
  EXPECT_EQ(Text(one, "zero"), "0");
  EXPECT_THAT(Error("n.yaml", yaml + "num_processes: 8\n"),
              AllOf(HasSubstr("n.yaml:3"), HasSubstr("contradicts distributed_type NO")));
}

TEST(Accelerate, FsdpShardsAllUnlessToldOtherwise) {
  const auto zero = [](const char* config) {
    return Text(Read("f.yaml", std::string("compute_environment: LOCAL_MACHINE\n"
                                           "distributed_type: FSDP\nfsdp_config:\n  ") +
                                   config + "\n"),
                "zero");
  };
  EXPECT_EQ(zero("fsdp_version: 2"), "3");
  EXPECT_EQ(zero("fsdp_sharding_strategy: 2"), "2");  // PyTorch's numbers of ShardingStrategy
  EXPECT_EQ(zero("fsdp_sharding_strategy: 1"), "3");
}

TEST(Accelerate, CompilersAreAFact) {
  const auto compile = [](const std::string& name, const std::string& text) {
    return Text(Read(name, text), "compile");
  };
  const std::string trainer = "{\"per_device_train_batch_size\": 2, \"torch_compile\": ";
  EXPECT_EQ(compile("args.json", trainer + "true}"), "on");
  EXPECT_EQ(compile("args.json", trainer + "false}"), "off");
  EXPECT_EQ(compile("a.json", "{\"per_device_train_batch_size\": 2, \"output_dir\": \"o\"}"), "");
  EXPECT_EQ(compile("a.yaml",
                    "distributed_type: MULTI_GPU\ncompute_environment: LOCAL_MACHINE\n"
                    "dynamo_config:\n  dynamo_backend: INDUCTOR\n"),
            "on");
}

TEST(NamedFiles, OnesBesideTheScriptAreRead) {
  const std::string launch =
      "here=$(cd \"$(dirname \"${BASH_SOURCE[0]}\")\" && pwd)\nPROGRAM=${PROGRAM:?a program}\n"
      "accelerate launch --config_file \"$here/acc.yaml\" \"$PROGRAM\" $here/args.json\n";
  const std::string yaml =
      "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nmixed_precision: bf16\n"
      "deepspeed_config:\n  zero_stage: 2\nnum_machines: 1\nnum_processes: 8\n";
  const std::string arguments =
      R"({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "bf16": true})";
  const Resolved read = Predict(
      "beside.sh", {{"beside.sh", launch}, {"acc.yaml", yaml}, {"args.json", arguments}}, kJob);
  EXPECT_EQ(read.strategy.zero, 2);
  EXPECT_EQ(read.strategy.micro_batch, 4);
  EXPECT_EQ(read.job.request.framework, "huggingface+overlap_grad_reduce=off");
  // It was predicted as replicas, without a word of the file.
  EXPECT_THAT(Error("x.sh", "accelerate launch --config_file $(pick) train.py --bf16\n"),
              AllOf(HasSubstr("x.sh:1"), HasSubstr("a command prints it")));
}

TEST(Titan, ConvertersAreFp8) {
  if (!WithoutToml().empty()) GTEST_SKIP() << WithoutToml();
  const std::string model = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n";
  const auto fp8 = [&](const std::string& more) {
    const Imported read = Read("t.toml", model + more);
    return Text(read, "fp8") + " " + Text(read, "fp8_weights");
  };
  const std::string section = "[quantize.linear.float8]\nenable_fsdp_float8_all_gather = true\n";
  EXPECT_EQ(fp8("converters = [\"quantize.linear.float8\"]\n" + section), "current on");
  EXPECT_EQ(fp8("converters = [\"float8\"]\n"), "current off");
  EXPECT_EQ(fp8("converters = \"float8\"\n[float8]\nenable_fsdp_float8_all_gather = true\n"),
            "current on");
  EXPECT_EQ(fp8("converters = [\"quantize.linear.mx\"]\n"), "mxfp8 ");
  EXPECT_EQ(fp8(section), " ");  // nothing is converted
  const Imported rows = Read("t.toml", model +
                                           "converters = [\"quantize.linear.float8\"]\n"
                                           "[quantize.linear.float8]\nrecipe_name = \"rowwise\"\n");
  EXPECT_EQ(Text(rows, "fp8"), "");
  EXPECT_THAT(rows.notes, Contains(HasSubstr("t.toml:6: not modelled: fp8 with scales by rows")));
}

// The head alone stays in 16 bits in a plan.
TEST(Titan, FiltersOfConvertersAreNamed) {
  if (!WithoutToml().empty()) GTEST_SKIP() << WithoutToml();
  const auto notes = [&](const std::string& name, const std::string& filter) {
    return Read("t.toml",
                "[model]\nname = \"llama3\"\nflavor = \"8B\"\nconverters = [\"quantize.linear." +
                    name + "\"]\n[quantize.linear." + name + "]\n" + filter)
        .notes;
  };
  const auto head = HasSubstr("the head is converted to 8 bits here");
  EXPECT_THAT(notes("float8", ""), Contains(AllOf(HasSubstr("t.toml:4: "), head)));
  EXPECT_THAT(notes("float8", "filter_fqns = []\n"),
              Contains(AllOf(HasSubstr("t.toml:6: "), head)));
  EXPECT_THAT(notes("float8", "filter_fqns = [\"output\"]\n"), Not(Contains(HasSubstr("8 bits"))));
  EXPECT_THAT(
      notes("float8", "filter_fqns = [\"lm_head\", \"attention.wk\", \"auto_filter_small_kn\"]\n"),
      Contains(HasSubstr("filter_fqns keeps attention.wk, auto_filter_small_kn in 16 bits")));
  EXPECT_THAT(notes("mx", ""), Not(Contains(HasSubstr("8 bits"))));
  EXPECT_THAT(notes("mx", "filter_fqns = []\n"), Contains(head));
}

// Tables in tables, and the converters next to the model's name.
TEST(Titan, Fp8IsWrittenAndComesBack) {
  if (!WithoutToml().empty()) GTEST_SKIP() << WithoutToml();
  const Resolved job = Resolve({"--model", "llama3-8b", "--topology", "dgx-h100", "--nodes", "1",
                                "--zero", "3", "--micro-batch", "1", "--framework", "torchtitan",
                                "--fp8", "current", "--fp8-weights", "on"});
  const Bundle bundle = MakeBundle(CaseOf(job), kTitanToml);
  EXPECT_THAT(bundle.Missing(), testing::IsEmpty());
  const std::string toml = TargetFiles(bundle).front().text;
  EXPECT_THAT(toml, AllOf(HasSubstr("\nconverters = [\"quantize.linear.float8\"]\n"),
                          HasSubstr("\n[quantize.linear.float8]\n"), Not(HasSubstr("{"))));
  const Imported back = Read("train.toml", toml);
  EXPECT_EQ(Text(back, "fp8") + " " + Text(back, "fp8_weights"), "current on");
}

TEST(Titan, CompilesTheLossWhereTheReleaseDoes) {
  if (!WithoutToml().empty()) GTEST_SKIP() << WithoutToml();
  const auto loss = [&](const std::string& text) {
    const Imported read = Read("t.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n" + text);
    return read.framework + " " + Text(read, "compile") + " " + Text(read, "compile_loss");
  };
  EXPECT_EQ(loss("[compile]\nenable = true\n"), "torchtitan on on");
  EXPECT_EQ(loss("[compile]\nenable = true\ncomponents = [\"model\"]\n"), "torchtitan on off");
  EXPECT_EQ(loss("[compile]\nenable = false\ncomponents = [\"loss\"]\n"), "torchtitan off off");
  EXPECT_EQ(loss("[training]\ncompile = true\nbatch_size = 1\n"), "torchtitan@2025 on on");
  EXPECT_EQ(loss("[training]\ncompile = true\ntensor_parallel_degree = 2\n"),
            "torchtitan@2024 on ");
}

TEST(Report, AWordLikeAKnownOneIsNamed) {
  const Imported read =
      Read("x.sh",
           "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 "
           "--num-attention-heads 2 --micro-bach-size 4 --vocab-size 100 --lr 1 "
           "--tensor-model-paralel-size 2 --seq-length 64\n");
  EXPECT_THAT(read.notes, Contains(HasSubstr("did you mean 'micro-batch-size'?")));
  EXPECT_THAT(read.notes, Contains(HasSubstr("did you mean 'tensor-model-parallel-size'?")));
  EXPECT_THAT(
      Read("ds.json", "{\"train_micro_batch\": 3, \"zero_optimization\": {\"stage\": 1}}").notes,
      Contains(HasSubstr("ds.json:1: train_micro_batch is unknown here: did you mean "
                         "'train_micro_batch_size_per_gpu'?")));
}

TEST(Report, ProgramsOfTheirOwnAndOtherBucketsAreNamed) {
  EXPECT_THAT(Read("x.sh", "torchrun --nproc-per-node 8 --nnodes 2 train.py\n").notes,
              Contains(HasSubstr("x.sh:1: the program's own settings are in Python and not read")));
  // Its arguments were passed over.
  EXPECT_THAT(Read("x.sh",
                   "torchrun --nproc-per-node 8 --nnodes 2 train.py --strategy=full --tp 2 "
                   "fsdp.offload=true\n")
                  .notes,
              Contains(AllOf(HasSubstr("x.sh:1: train.py is no program that is known here"),
                             HasSubstr("(fsdp.offload true, strategy full, tp 2)"))));
  EXPECT_THAT(
      Read("x.sh", "#SBATCH --nodes=2 --gpus-per-node=8\nsrun litgpt pretrain --a 1\n").notes,
      Contains(HasSubstr("x.sh: no training command that is known here")));
  const auto notes = [](const char* elements) {
    return Read("ds.json", std::string("{\"zero_optimization\": {\"stage\": 1,\n"
                                       "\"reduce_bucket_size\": ") +
                               elements + "}}")
        .notes;
  };
  EXPECT_THAT(notes("5e8"), Not(Contains(HasSubstr("buckets"))));
  EXPECT_THAT(notes("2e8"),
              Contains(HasSubstr("ds.json:2: not modelled: another size of buckets")));
}

TEST(Report, AWorldSizeIsNodesOfTheCluster) {
  const auto dump = [](const char* world) {
    return std::string(
               "------------------------ arguments ------------------------\n"
               "  hidden_size ..................................... 64\n"
               "  tensor_model_parallel_size ...................... 2\n"
               "  world_size ...................................... ") +
           world + "\n-------------------- end of arguments ---------------------\n";
  };
  const Values cluster = {{"gpus_per_node", {"8", {SourceOf("command line", "8"), 1, 1}, ""}}};
  const Imported two = Read("a.log", dump("16"), cluster);
  EXPECT_EQ(Text(two, "nodes") + " " + Text(two, "dp"), "2 8");
  const Imported part = Read("a.log", dump("4"), cluster);
  EXPECT_EQ(Text(part, "nodes") + " " + Text(part, "dp"), "1 2");
  EXPECT_EQ(Text(Read("a.log", dump("12"), cluster), "nodes"), "");
}

TEST(Titan, OldSpellingsCount) {
  if (!WithoutToml().empty()) GTEST_SKIP() << WithoutToml();
  const std::string old =
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nbatch_size = 2\n"
      "seq_len = 4096\ndata_parallel_degree = -1\ndata_parallel_type = ";
  const Imported replicas = Read("t.toml", old + "\"ddp\"\nenable_float8_linear = true\n");
  EXPECT_EQ(Text(replicas, "zero"), "0");
  EXPECT_EQ(replicas.framework, "ddp");
  EXPECT_EQ(Text(replicas, "fp8"), "current");
  const Imported shards = Read("t.toml", old + "\"fsdp\"\n");
  EXPECT_EQ(Text(shards, "zero"), "3");
  EXPECT_THAT(shards.notes, Not(Contains(HasSubstr("data_parallel_type"))));
  EXPECT_THAT(Error("t.toml", old + "\"dp\"\n"), HasSubstr("known: fsdp, ddp"));
  const Resolved r = Predict("old.toml", {{"old.toml", old + "\"ddp\"\n"}},
                             {"--topology", "dgx-h100", "--nodes", "2"});
  EXPECT_EQ(r.strategy.data_parallel(), 16);
  EXPECT_EQ(r.strategy.zero, 0);
}

TEST(Models, WhatIsFoundOfAnUnknownOneIsSaid) {
  if (WithoutToml().empty()) {
    const std::string toml = "[model]\nname = \"llama3\"\nflavor = \"900B\"\n[training]\n";
    const Imported read = Read("t.toml", toml);
    ASSERT_TRUE(read.no_model);
    EXPECT_THAT(read.no_model->message, HasSubstr("'900B' is not known"));
    EXPECT_THAT(read.no_model->hint, HasSubstr("llama3 70B"));
    EXPECT_THAT(ErrorOf([&] {
                  Predict("u.toml", {{"u.toml", toml}}, {"--topology", "dgx-h100"});
                }),
                AllOf(HasSubstr("u.toml:3"), HasSubstr("900B")));
  }
  const std::string script =
      "ARGS=\"--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096\"\n"
      "if [ \"$1\" = big ]; then\n  ARGS=\"--num-layers 80 --hidden-size 8192\"\nfi\n"
      "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py $ARGS --bf16 --micro-batch-size 1\n";
  EXPECT_THAT(ErrorOf([&] {
                Predict("b.sh", {{"b.sh", script}}, {"--topology", "dgx-h100"});
              }),
              AllOf(HasSubstr("b.sh:3"), HasSubstr("ARGS is set in a branch")));
}

TEST(Megatron, ReplicasOfADumpFitItsWorldSize) {
  const auto dump = [](const char* replicas) {
    return std::string(
               "------------------------ arguments ------------------------\n"
               "  data_parallel_size .............................. ") +
           replicas +
           "\n  hidden_size ..................................... 1024\n"
           "  micro_batch_size ................................ 4\n"
           "  num_attention_heads ............................. 16\n"
           "  num_layers ...................................... 24\n"
           "  tensor_model_parallel_size ...................... 2\n"
           "  world_size ...................................... 16\n"
           "-------------------- end of arguments ---------------------\n";
  };
  EXPECT_EQ(Error("m.log", dump("8")), "");
  EXPECT_THAT(Error("m.log", dump("16")),
              AllOf(HasSubstr("m.log:2"), HasSubstr("not world_size 16 of m.log:8")));
}

// The kernel of attention is a fact: what an export writes is what its import reads.
TEST(Megatron, TheAttentionKernelComesBack) {
  for (const char* fact : {"attention=fa2", "attention=cudnn"}) {
    for (const Target target : {kMegatron, kBridge}) {
      const Case before =
          CaseOf(Resolve({"--model", "llama3-8b", "--topology", "dgx-h100", "--nodes", "2",
                          "--framework", "megatron", "--fact", fact, "--micro-batch", "1"}));
      std::vector<std::string> words = {"--topology", "dgx-h100", "--model", "llama3-8b"};
      for (const std::string& path : Write(FilesOf(MakeBundle(before, target))))
        words.insert(words.end(), {"--from", path});
      const Resolved after = Resolve(words);
      EXPECT_EQ(AttentionKernelOf(CaseOf(after)), AttentionKernelOf(before)) << fact;
    }
  }
  // --use-flash-attn is older than the choice of a kernel, which TransformerEngine makes.
  const std::string old =
      "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 12 "
      "--hidden-size 768 --num-attention-heads 12 --micro-batch-size 4 ";
  EXPECT_EQ(Text(Read("x.sh", old + "--use-flash-attn"), "attention_kernel"), "");
  EXPECT_EQ(Text(Read("x.sh", old + "--use-flash-attn"), "flash_attention"), "on");
  EXPECT_EQ(Text(Read("x.sh", old + "--attention-backend flash"), "attention_kernel"), "fa2");
  EXPECT_EQ(Read("x.sh", old + "--deterministic-mode").framework, "megatron@deterministic");
}

}  // namespace
}  // namespace orrery::exchange::named
