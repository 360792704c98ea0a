// SPDX-License-Identifier: Apache-2.0
// Files of other programs as jobs: samples in their usual style, contradictions, what is not modelled.
#include "model/exchange/import.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>

#include "model/exchange/document.h"
#include "model/exchange/model_arguments.h"
#include "tests/exchange/exported.h"

namespace orrery::exchange {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::string Sample(const std::string& name) {
  return std::string(ORRERY_SOURCE_DIR) + "/tests/exchange/samples/" + name;
}
Imported Read(const std::string& name, const std::string& text) {
  return Import({SourceOf(name, text)}, std::nullopt);
}
std::string Error(const std::string& name, const std::string& text) {
  return ErrorOf([&] { Read(name, text); });
}
std::string Text(const Imported& imported, const char* field) {
  const auto at = imported.values.find(field);
  return at == imported.values.end() ? "" : at->second.text;
}
// The error of a prediction from the file alone.
std::string Predicted(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return ErrorOf([&] {
    Resolve({"--from", path, "--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "1"});
  });
}
constexpr const char* kSmall =
    "pretrain_gpt.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 "
    "--max-position-embeddings 1024 --vocab-size 50257 ";

TEST(ImportMegatron, AScriptWithVariablesArraysAndStringsIsTheLayoutThatItStarts) {
  const Resolved r = Resolve({"--from", Sample("megatron.sh"), "--topology", "dgx-h100"});
  EXPECT_EQ(r.job.model.spec.name, "llama3-8b");
  EXPECT_EQ(r.job.cluster.ranks(), 32);
  EXPECT_EQ(r.strategy.tp, 4);
  EXPECT_EQ(r.strategy.pp, 2);
  EXPECT_EQ(r.strategy.vpp, 4);
  EXPECT_EQ(r.strategy.dp, 4);
  EXPECT_EQ(r.strategy.zero, 1);
  EXPECT_TRUE(r.strategy.sequence_parallel);
  EXPECT_EQ(r.strategy.recompute, Recompute::kNone);  // a branch that nobody can decide is left out
  EXPECT_EQ(r.job.request.work.global_batch, 512);
  EXPECT_EQ(r.job.request.work.dropout, 0);
  std::string notes;
  for (const std::string& note : r.job.notes) notes += note + "\n";
  EXPECT_THAT(notes,
              AllOf(HasSubstr("made-up-flag"), HasSubstr("requests h100 GPUs"), HasSubstr("lr")));
}

TEST(ImportMegatron, OldSpellingsOfRecomputationAreThoseOfToday) {
  const auto recompute = [](const std::string& flags) {
    return Text(Read("x.sh", std::string("python ") + kSmall + flags), "recompute");
  };
  EXPECT_EQ(recompute("--activations-checkpoint-method uniform"), "full");
  EXPECT_EQ(
      recompute("--activations-checkpoint-method block --activations-checkpoint-num-layers 3"),
      "full:3");
  EXPECT_EQ(recompute("--checkpoint-activations --checkpoint-num-layers 1"), "full");
  EXPECT_EQ(recompute("--recompute-granularity selective"), "selective");
}

TEST(ImportMegatron, CountsAreDigits) {
  for (const char* wrong : {"1e1", "8.0", "0x8", "+8", "8_0"}) {
    const std::string flags = std::string("--tensor-model-parallel-size ") + wrong;
    EXPECT_THAT(
        Error("x.sh", std::string("python ") + kSmall + "\\\n  " + flags + "\n"),
        AllOf(HasSubstr("x.sh:2:"), HasSubstr("tensor-model-parallel-size: '" + std::string(wrong) +
                                              "' is no whole number")));
  }
  EXPECT_THAT(Error("x.sh", std::string("torchrun --nproc_per_node 1e1 ") + kSmall),
              AllOf(HasSubstr("x.sh:1:"), HasSubstr("'1e1' is no whole number")));
  EXPECT_EQ(
      Text(Read("x.sh", std::string("python ") + kSmall + "--tensor-model-parallel-size 08"), "tp"),
      "08");
}

TEST(ImportMegatron, ScaledPositionsAreThoseOfLlama3OrLinear) {
  const auto scaling = [](const std::string& flags) {
    const std::string path = testing::TempDir() + "/scaled.sh";
    std::ofstream(path) << kSmall << "--micro-batch-size 1 --position-embedding-type rope " << flags
                        << "\n";
    return Resolve({"--from", path, "--topology", "dgx-h100", "--nodes", "1"})
        .job.model.spec.rope_scaling;
  };
  using Kind = RopeScaling::Kind;
  EXPECT_EQ(scaling("").kind, Kind::kNone);
  EXPECT_EQ(scaling("--use-rope-scaling"), (RopeScaling{Kind::kLlama3, 8, 1, 4, 8192}));
  EXPECT_EQ(scaling("--use-rope-scaling --rope-scaling-factor 32").factor, 32);
  EXPECT_EQ(scaling("--rotary-seq-len-interpolation-factor 4"), (RopeScaling{Kind::kLinear, 4}));
}

TEST(ImportMegatron, TheDumpInALogSaysEveryValue) {
  const Resolved r =
      Resolve({"--from", Sample("megatron.log"), "--topology", "aws-p4d", "--nodes", "2"});
  EXPECT_EQ(r.job.model.spec.name, "gpt2-xl");
  EXPECT_EQ(r.strategy.pp, 2);
  EXPECT_EQ(r.strategy.dp, 8);
  EXPECT_EQ(r.strategy.zero, 1);
  EXPECT_TRUE(r.strategy.fp32_grads);
  EXPECT_TRUE(r.strategy.flash_attention);
  EXPECT_FALSE(r.strategy.overlap_param_gather);
  EXPECT_EQ(r.job.request.work.dropout, 0.1);
}

TEST(ImportMegatron, OldSpellingsAreRead) {
  const Imported imported = Read("x.sh", std::string(kSmall) +
                                             "--model-parallel-size 2 --batch-size 4 "
                                             "--checkpoint-activations --use-flash-attn --fp16");
  EXPECT_EQ(Text(imported, "tp"), "2");
  EXPECT_EQ(Text(imported, "micro_batch"), "4");
  EXPECT_EQ(Text(imported, "recompute"), "full");
  EXPECT_EQ(Text(imported, "flash_attention"), "on");
  EXPECT_EQ(Text(imported, "precision"), "fp16");
}

TEST(ImportMegatron, RecomputationIsReadByModuleAndByLayer) {
  const auto text = [](const std::string& flags) {
    return Text(Read("x.sh", std::string(kSmall) + flags), "recompute");
  };
  EXPECT_EQ(text(""), "none");
  EXPECT_EQ(text("--recompute-granularity selective"), "selective");
  EXPECT_EQ(text("--recompute-granularity selective --recompute-modules layernorm mlp moe_act"),
            "layernorm+mlp");
  EXPECT_EQ(text("--recompute-granularity full --recompute-method block --recompute-num-layers 5"),
            "full:5");
  EXPECT_EQ(text("--recompute-granularity full --recompute-method block --recompute-num-layers 0"),
            "none");
  const std::string units =
      "--recompute-granularity full --recompute-method uniform --recompute-num-layers 4";
  EXPECT_EQ(text(units), "full");
  EXPECT_THAT(Read("x.sh", std::string(kSmall) + units).notes,
              Contains(HasSubstr("units of 4 layers")));
  EXPECT_THAT(Error("x.sh", std::string(kSmall) + "--recompute-granularity selective "
                                                  "--recompute-modules mpl"),
              AllOf(HasSubstr("x.sh:1"), HasSubstr("no module 'mpl'")));
}

TEST(ImportMegatron, UnevenStagesAreRead) {
  const std::string front = std::string(kSmall) + "--pipeline-model-parallel-size 4 ";
  EXPECT_EQ(
      Text(Read("x.sh", front + "--pipeline-model-parallel-layout 'Ett|(tttt|)*2,ttL'"), "layout"),
      "2,2x4,2");
  EXPECT_EQ(Text(Read("x.sh", front + "--decoder-first-pipeline-num-layers 1 "
                                      "--decoder-last-pipeline-num-layers 3"),
                 "layout"),
            "1,2x4,3");
}

// transformer_block.py, get_num_layers_to_build: embedding and loss count as layers, sized ends are cut into chunks.
TEST(ImportMegatron, EndsThatCountAsLayersMakeUnevenStages) {
  const std::string front =
      "pretrain_gpt.py --num-layers 62 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
      "--micro-batch-size 1 --global-batch-size 32 --pipeline-model-parallel-size 4 ";
  const std::string both =
      front + "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split ";
  const auto layout = [&](const std::string& text) { return Text(Read("x.sh", text), "layout"); };
  EXPECT_EQ(layout(both), "15,2x16,15");
  for (const char* chunks :
       {"--num-virtual-stages-per-pipeline-rank 2", "--num-layers-per-virtual-pipeline-stage 8"}) {
    EXPECT_EQ(layout(both + chunks), "7,6x8,7");
    EXPECT_EQ(Text(Read("x.sh", both + chunks), "vpp"), "2");
  }
  EXPECT_THAT(Error("x.sh", front + "--account-for-loss-in-pipeline-split"),
              AllOf(HasSubstr("62 layers and an end"), HasSubstr("4 stages")));
  EXPECT_THAT(Error("x.sh", both + "--decoder-first-pipeline-num-layers 14"),
              HasSubstr("contradicts decoder-first-pipeline-num-layers"));
  const std::string sized =
      "--decoder-first-pipeline-num-layers 14 --decoder-last-pipeline-num-layers 16 ";
  EXPECT_EQ(layout(front + sized + "--num-virtual-stages-per-pipeline-rank 2"), "7,3x8,7,3x8");
  EXPECT_EQ(layout(std::regex_replace(front, std::regex("size 4 $"), "size 2 ") +
                   "--decoder-first-pipeline-num-layers 30 --decoder-last-pipeline-num-layers 32"),
            "30,32");
}

// Layers behind a window read and written: Megatron counts the keys before the own one.
TEST(ImportMegatron, SlidingWindowsAreRead) {
  const auto windows = [](const std::string& text) {
    return Read("x.sh", std::string(kSmall) + text).model->spec.windows;
  };
  EXPECT_EQ(windows("--window-size 127,0"), (std::vector<int64_t>{128}));
  EXPECT_EQ(windows("--window-size '(127, 0)' --window-attn-skip-freq 3"),
            (std::vector<int64_t>{128, 128, 0}));
  EXPECT_EQ(windows("--window-size -1,0"), std::vector<int64_t>{});
  EXPECT_THAT(Error("x.sh", std::string(kSmall) + "--window-size 64,64"),
              AllOf(HasSubstr("x.sh:1"), HasSubstr("is no window here")));
  EXPECT_THAT(Error("x.sh", std::string(kSmall) + "--attention-output-gate"),
              HasSubstr("gates on attention's output"));
  ModelSpec spec;
  spec.layers = 6, spec.hidden = 64, spec.heads = 4, spec.kv_heads = 4, spec.head_dim = 16;
  spec.windows = {128, 128, 0, 128, 128, 0};
  const ModelExport out = MegatronModel(spec);
  const auto said = [&](const char* key) { return SettingIndex(out.settings).Peek(key); };
  EXPECT_EQ(said("window-size"), "127,0");
  EXPECT_EQ(said("window-attn-skip-freq"), "3");
  EXPECT_THAT(out.missing, Not(Contains(HasSubstr("windows"))));
}

// Whatever the catalogue has for a model of these dimensions.
TEST(ImportMegatron, TheEpsilonOfNormsIsThatOfTheFile) {
  const Imported made = Read("x.sh", std::string(kSmall) + "--norm-epsilon 1e-6");
  EXPECT_EQ(made.model->spec.norm_epsilon, 1e-6);
}

// Both are 0.1 where a script says nothing (arguments.py).
TEST(ImportMegatron, RatesOfDropoutMayDiffer) {
  const auto dropout = [](const std::string& flags) {
    return Text(Read("x.sh", std::string(kSmall) + flags), "dropout");
  };
  EXPECT_EQ(dropout("--attention-dropout 0 --hidden-dropout 0.1"), "0.1/0");
  EXPECT_EQ(dropout("--attention-dropout 0.0 --hidden-dropout 0"), "0");
  EXPECT_EQ(dropout("--attention-dropout 0"), "0.1/0");
}

// pipeline_parallel_layer_layout.py, parse_str_to_list: brackets first, then letters.
TEST(ImportMegatron, LayoutsRepeatLettersInsideBrackets) {
  const std::string front =
      "pretrain_gpt.py --num-layers 62 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
      "--micro-batch-size 1 --global-batch-size 32 --pipeline-model-parallel-size 4 "
      "--pipeline-model-parallel-layout ";
  EXPECT_EQ(Text(Read("x.sh", front + "'Et*7|(t*8|)*6t*7L'"), "layout"), "7,6x8,7");
  EXPECT_THAT(Error("x.sh", front + "'Et*20|t*20|t*22|'"), HasSubstr("ends with the one loss"));
  EXPECT_THAT(Error("x.sh", front + "'t*20|t*20|t*22|L'"), HasSubstr("begins with the one"));
  EXPECT_THAT(Error("x.sh", front + "'E*t|t|t|L'"), HasSubstr("stands between"));
  const auto flags = [](const std::string& layout) {
    return Resolve({"--model", "llama2-7b", "--topology", "dgx-h100", "--nodes", "2", "--pp", "4",
                    "--global-batch", "64", "--layout", layout});
  };
  EXPECT_EQ(*flags("Et*7|(t*9|)*2t*7L").strategy.layout, *flags("7,2x9,7").strategy.layout);
  EXPECT_THAT(ErrorOf([&] { flags("Et*7|t*9|t*16L|"); }), HasSubstr("--layout 'Et*7"));
}

// "-x NAME" of mpirun, once for each variable.
TEST(ImportMegatron, VariablesOfMpirunAreNoSettings) {
  const Imported read =
      Read("x.sh", "mpirun -np 8 -x MASTER_ADDR -x NCCL_DEBUG=INFO $EXTRA -x PATH " +
                       std::string(kSmall) + "--pipeline-model-parallel-size 2");
  EXPECT_EQ(Text(read, "pp"), "2");
}

TEST(ImportMegatron, ContradictionsAreRefusedWithBothPlaces) {
  EXPECT_THAT(Error("x.sh", std::string(kSmall) + "\\\n --bf16 \\\n --fp16"),
              AllOf(HasSubstr("contradicts"), HasSubstr("x.sh:2"), HasSubstr("x.sh:3")));
  EXPECT_THAT(Error("x.sh", std::string(kSmall) + "--micro-batch-size 2 \\\n --micro-batch-size 4"),
              AllOf(HasSubstr("x.sh:2"), HasSubstr("'4' here and '2' in x.sh:1")));
  EXPECT_THAT(Error("x.sh", "torchrun --nnodes 1 --nproc-per-node 8 " + std::string(kSmall) +
                                "--micro-batch-size 3 --global-batch-size 64"),
              HasSubstr("no multiple of micro-batch 3 x 8 data-parallel ranks"));
  EXPECT_THAT(Error("x.sh", "torchrun --nnodes 1 --nproc-per-node 8 " + std::string(kSmall) +
                                "--tensor-model-parallel-size 3"),
              HasSubstr("does not divide 1 node of 8 GPUs"));
}

TEST(ImportMegatron, WhatIsNotModelledIsRefusedOrNamed) {
  EXPECT_THAT(Error("x.sh", std::string(kSmall) + "--num-experts 8"),
              AllOf(HasSubstr("x.sh:1"), HasSubstr("mixtures of experts")));
  EXPECT_THAT(Error("x.sh", std::string(kSmall) + "--recompute-granularity some"),
              AllOf(HasSubstr("'some' is no known choice"), HasSubstr("selective, full")));
  const Imported imported = Read("x.sh", std::string(kSmall) + "--fp4-param-gather");
  EXPECT_THAT(imported.notes, Contains(HasSubstr("not modelled: weights held in 4 bits")));
  const std::string held = std::string(kSmall) + "--fp8-format hybrid --fp8-param-gather";
  EXPECT_EQ(Text(Read("x.sh", held), "fp8_weights"), "on");
  const std::string blocks = std::string(kSmall) +
                             "--fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather "
                             "--reuse-grad-buf-for-mxfp8-param-ag";
  EXPECT_EQ(Text(Read("x.sh", blocks), "fp8_weights"), "on");
  EXPECT_THAT(Read("x.sh", blocks).notes, Not(Contains(HasSubstr("reuse-grad-buf"))));
}

TEST(ImportMegatron, RecipesAndSharedSequencesAreRead) {
  const auto value = [](const char* arguments, const char* field) {
    return Text(Read("x.sh", std::string(kSmall) + arguments), field);
  };
  EXPECT_EQ(value("--fp8-format hybrid", "fp8"), "delayed");
  EXPECT_EQ(value("--fp8-format hybrid --fp8-recipe tensorwise", "fp8"), "current");
  EXPECT_EQ(value("--fp4-format e2m1", "fp8"), "nvfp4");
  EXPECT_THAT(Error("x.sh", std::string(kSmall) + "--fp8-format e4m3 --fp8-recipe mxpf8"),
              AllOf(HasSubstr("x.sh:1"), HasSubstr("did you mean 'mxfp8'")));
  const char* const shared = "--context-parallel-size 2 --cp-comm-type a2a";
  EXPECT_EQ(value(shared, "cp"), "2");
  EXPECT_EQ(value(shared, "context"), "ulysses");
  EXPECT_EQ(value("--context-parallel-size 2", "context"), "ring");
}

TEST(ImportMegatron, AValueThatOnlyAShellKnowsIsRefusedWhereItIsNeeded) {
  EXPECT_THAT(Error("x.sh", std::string(kSmall) + "--micro-batch-size $1"),
              AllOf(HasSubstr("micro-batch-size"), HasSubstr("comes from the command line")));
  EXPECT_EQ(Error("x.sh", std::string(kSmall) + "--save $CHECKPOINTS"), "");
}

TEST(ImportMegatron, AValueOfALoopIsAskedFor) {
  const std::string loop =
      "for MBS in 1 2 4; do\n" + std::string(kSmall) + "--micro-batch-size $MBS\ndone\n";
  EXPECT_THAT(Error("x.sh", loop),
              AllOf(HasSubstr("x.sh:2"), HasSubstr("micro-batch-size: MBS takes 1, 2, 4 in a loop"),
                    HasSubstr("give one of them by the flag that it sets")));
}

TEST(ImportDeepSpeed, TheConfigurationAndItsLaunchScriptAddUp) {
  const std::string launch = "deepspeed --num_nodes 2 --num_gpus 8 train.py --deepspeed ds.json\n";
  const Imported imported = Import(
      {SourceOf("ds.json", ReadAll(Sample("ds_config.json"))), SourceOf("run.sh", launch)}, {});
  EXPECT_EQ(Text(imported, "zero"), "2");
  EXPECT_EQ(Text(imported, "precision"), "fp16");
  EXPECT_EQ(Text(imported, "nodes"), "2");
  EXPECT_EQ(Text(imported, "global_batch"), "128");
  EXPECT_EQ(imported.framework, "deepspeed");
}

TEST(ImportDeepSpeed, BatchesThatDisagreeAreRefused) {
  const std::string launch = "deepspeed --num_nodes 1 --num_gpus 8 train.py --deepspeed ds.json\n";
  EXPECT_THAT(
      ErrorOf([&] {
        Import({SourceOf("ds.json", ReadAll(Sample("ds_config.json"))), SourceOf("run.sh", launch)},
               {});
      }),
      AllOf(HasSubstr("ds.json:2"), HasSubstr("train_batch_size 128 is not 4 per GPU x 2")));
  const std::string batch = "{\"train_batch_size\": \"auto\", \"zero_optimization\": {}}";
  EXPECT_EQ(Text(Read("ds.json", batch), "global_batch"), "auto");
  EXPECT_THAT(Predicted("ds.json", batch),
              AllOf(HasSubstr("filled in at run time"), HasSubstr("--global-batch")));
}

TEST(ImportDeepSpeed, WithMegatronsArgumentsItIsMegatronDeepSpeed) {
  const std::string text = std::string(kSmall) + "--micro-batch-size 4 --fp16 --lr 1e-4";
  const Imported imported = Import(
      {SourceOf("ds.json", ReadAll(Sample("ds_config.json"))), SourceOf("run.sh", text)}, {});
  EXPECT_EQ(imported.framework, "megatron-deepspeed");
  EXPECT_EQ(Text(imported, "zero"), "2");
  EXPECT_THAT(ErrorOf([&] {
                Import({SourceOf("ds.json", ReadAll(Sample("ds_config.json"))),
                        SourceOf("run.sh", std::string(kSmall) + "--micro-batch-size 2 --fp16")},
                       {});
              }),
              AllOf(HasSubstr("micro_batch is 4 here and 2 in run.sh:1"), HasSubstr("ds.json:3")));
}

TEST(ImportTorchtitan, TheFlavourGivesTheModelAndItsLayersTheChunks) {
  if (!WithoutToml().empty()) GTEST_SKIP() << WithoutToml();
  const Resolved r =
      Resolve({"--from", Sample("llama3.toml"), "--topology", "dgx-h100", "--nodes", "2"});
  EXPECT_EQ(r.job.model.spec.name, "llama3-8b");
  EXPECT_EQ(r.strategy.tp, 2);
  EXPECT_EQ(r.strategy.pp, 2);
  EXPECT_EQ(r.strategy.vpp, 2);  // 32 + 2 layers, 9 a chunk: 4 chunks
  EXPECT_EQ(r.strategy.dp, 4);
  EXPECT_EQ(r.strategy.micro_batch, 2);
  EXPECT_EQ(r.strategy.zero, 2);  // with pipelines weights stay gathered
  EXPECT_EQ(r.job.request.work.global_batch, 64);
  EXPECT_THAT(Error("x.toml", "[training]\nseq_len = \n"), HasSubstr("x.toml:2"));
}

TEST(ImportTorchtitan, SelectiveCheckpointsByOperationOrLayer) {
  if (!WithoutToml().empty()) GTEST_SKIP() << WithoutToml();
  const auto text = [](const std::string& lines) {
    return Text(Read("x.toml", "[activation_checkpoint]\n" + lines), "recompute");
  };
  EXPECT_EQ(text("mode = \"selective\"\nselective_ac_option = \"op\"\n"), "op");
  EXPECT_EQ(text("mode = \"selective\"\nselective_ac_option = \"2\"\n"), "full/2");
  EXPECT_EQ(text("mode = \"selective\"\n"), "full/2");
  EXPECT_EQ(text("mode = \"full\"\n"), "full");
  EXPECT_EQ(text("mode = \"none\"\n"), "none");
}

TEST(ImportAccelerate, ItsFileAndTrainingArgumentsAddUp) {
  const Resolved r =
      Resolve({"--from", Sample("accelerate.yaml"), "--from", Sample("training_arguments.json"),
               "--model", "gpt2-xl", "--topology", "aws-p4d"});
  EXPECT_EQ(r.strategy.zero, 3);
  EXPECT_EQ(r.strategy.dp, 16);
  EXPECT_EQ(r.strategy.recompute, Recompute::kFull);
  EXPECT_EQ(r.job.request.work.global_batch, 4 * 8 * 16);
}

TEST(Import, FlagsWinAndTheAnswerSaysSo) {
  const Resolved r =
      Resolve({"--from", Sample("megatron.sh"), "--topology", "dgx-h100", "--micro-batch", "2"});
  EXPECT_EQ(r.strategy.micro_batch, 2);
  EXPECT_THAT(r.job.notes, Contains(HasSubstr("--micro-batch 2 replaces 1 of")));
}

TEST(Import, FilesOfNoKnownKindGetAHint) {
  EXPECT_THAT(Error("x.json", "{\"a\": 1}"), HasSubstr("is of no kind that is known"));
  EXPECT_THAT(Error("x.sh", "echo hello\n"), HasSubstr("no training command"));
  EXPECT_THAT(Error("x", "  \n"), HasSubstr("is empty"));
  EXPECT_THAT(Error("x.py", "# Trainer.Config\nconfig.a = f(1)\n"), testing::Not(""));
}

TEST(Import, SettingsOfTwoProgramsDoNotGoTogether) {
  EXPECT_THAT(
      ErrorOf([&] {
        Import({SourceOf("a.yaml", ReadAll(Sample("accelerate.yaml"))), SourceOf("run.sh", kSmall)},
               {});
      }),
      HasSubstr("settings of accelerate here and of megatron"));
}

TEST(Import, FilesOfMachinesAreForDiscover) {
  for (const char* text :
       {"<system version=\"1\"><cpu numaid=\"0\"/></system>", "SwitchName=leaf0 Nodes=node[0-3]\n"})
    EXPECT_THAT(Error("cluster.txt", text), HasSubstr("plan discover cluster.txt --out"));
}

TEST(Import, DamagedFilesAreOfTheKindThatTheirNameSays) {
  if (!WithoutToml().empty()) GTEST_SKIP() << WithoutToml();
  EXPECT_THAT(Error("train.toml", "[model\nname = \"llama3\"\n"),
              AllOf(HasSubstr("train.toml:1"), testing::Not(HasSubstr("training command"))));
}

TEST(Import, AutoIsAskedFor) {
  for (const char* key : {"bf16", "fp16"})
    EXPECT_THAT(
        Predicted("ds_config.json",
                  fmt::format(R"({{"train_batch_size": 8, "{}": {{"enabled": "auto"}}}})", key)),
        AllOf(HasSubstr("filled in at run time"), HasSubstr("--precision")));
}

// The release recomputes every second layer where the file says nothing.
TEST(ImportTorchtitan, AFileWithoutTensorParallelismIsStillOfTorchtitan) {
  if (!WithoutToml().empty()) GTEST_SKIP() << WithoutToml();
  const std::string path = testing::TempDir() + "/short.toml";
  std::ofstream(path)
      << "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size "
         "= 1\nseq_len = 8192\n";
  const Resolved r = Resolve({"--from", path, "--topology", "dgx-h100", "--nodes", "2"});
  EXPECT_EQ(Import({ReadSource(path)}, std::nullopt).framework, "torchtitan");
  EXPECT_EQ(r.strategy.zero, 3);
  EXPECT_EQ(r.strategy.recompute.every, 2);
}

TEST(Import, OptionsThatACommandPrintsAreNamed) {
  const Imported read =
      Read("x.sh",
           "OPTS=$(cat options.txt)\ntorchrun --nproc-per-node=8 pretrain_gpt.py $OPTS "
           "--micro-batch-size=4 --tensor-model-parallel-size=2 --data-path $(pick)\n");
  EXPECT_THAT(read.notes,
              Contains(HasSubstr("x.sh:1: a command prints it: what it holds is not read")));
  EXPECT_THAT(read.notes, Not(Contains(HasSubstr("x.sh:2: a command"))));
}

}  // namespace
}  // namespace orrery::exchange
