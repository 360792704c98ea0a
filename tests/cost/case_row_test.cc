// SPDX-License-Identifier: Apache-2.0
// Rows of published runs as other people write them: what is left out, named otherwise or uneven.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "calib/validate/validate.h"
#include "model/base/diagnostics.h"
#include "model/framework/presets.h"

namespace orrery {
namespace {

using testing::Contains;
using testing::HasSubstr;
using Cells = std::map<std::string, std::string>;

// A 7B decoder on 8 nodes of 8 A100.
Cells Printed(const Cells& changed = {}) {
  Cells cells = {{"case", "a-1"},
                 {"topology", "selene"},
                 {"nodes", "8"},
                 {"gpus_per_node", "8"},
                 {"framework", "fsdp"},
                 {"family", "gpt"},
                 {"layers", "32"},
                 {"hidden", "4096"},
                 {"ffn", "16384"},
                 {"gated", "0"},
                 {"heads", "32"},
                 {"kv_heads", "32"},
                 {"vocab", "51200"},
                 {"seq_len", "2048"},
                 {"tp", "1"},
                 {"pp", "1"},
                 {"dp", "64"},
                 {"cp", "1"},
                 {"zero", "3"},
                 {"zero_group", "dp"},
                 {"micro_batch", "4"},
                 {"global_batch", "512"},
                 {"precision", "bf16"},
                 {"recompute", "none"},
                 {"flash", "1"},
                 {"optimizer", "adam"},
                 {"measured_step_s", "5"}};
  for (const auto& [column, text] : changed) cells[column] = text;
  return cells;
}

CaseRow Read(const Cells& cells) {
  std::string header, line;
  for (const auto& [column, text] : cells) {
    header += (header.empty() ? "" : ",") + column;
    line += (line.empty() ? "" : ",") + text;
  }
  Diagnostics diagnostics;
  const auto source = std::make_shared<Source>(Source{"runs.csv", header + "\n" + line + "\n"});
  const auto rows = ReadCases(CsvTable::Parse(source, CaseColumns(), &diagnostics));
  diagnostics.ThrowIfAny();
  return rows.front();
}

CasePrediction Predict(const Cells& cells) { return PredictCases({Read(cells)}).front(); }

double StepSeconds(const Cells& cells) {
  const CasePrediction p = Predict(cells);
  EXPECT_TRUE(p.time) << p.row.refused.value_or("");
  return p.time ? p.time->total : 0;
}

TEST(CaseNames, OtherWordsAreReadWithANote) {
  const std::map<std::string, std::string> frameworks = {
      {"torchtune", "fsdp"},    {"LLM-Foundry", "fsdp"}, {"jax", "maxtext"},
      {"picotron", "nanotron"}, {"neox", "gpt-neox"},    {"bigscience", "megatron-deepspeed"},
      {"fairseq", "ddp"}};
  for (const auto& [name, known] : frameworks) {
    const CaseRow row = Read(Printed({{"framework", name}, {"zero", "0"}}));
    EXPECT_EQ(row.framework, known) << name;
    EXPECT_THAT(row.notes, Contains(HasSubstr("framework '" + name + "' read as " + known)));
  }
  EXPECT_EQ(Read(Printed({{"framework", "NeMo 2.0"}})).framework, "nemo");
  EXPECT_EQ(Read(Printed({{"framework", "megatron"}, {"source", "nanotron/old_bench"}})).framework,
            "nanotron");
  EXPECT_EQ(Read(Printed({{"framework", "ddp"}, {"source", "karpathy/llm.c scripts"}})).framework,
            "llm.c");
  EXPECT_EQ(Read(Printed({{"framework", "TorchTitan"}})).framework, "torchtitan");
  const CaseRow titan = Read(Printed({{"framework", "fsdp"},
                                      {"source", "benchmarks/llama3_h100_202412_torchtitan.md"},
                                      {"recompute", "selective"}}));
  EXPECT_EQ(titan.framework, "torchtitan@2024");
  EXPECT_EQ(titan.strategy.recompute, Recompute::kByOp);
  EXPECT_THAT(titan.notes, Contains(HasSubstr("read as op")));
  EXPECT_EQ(Read(Printed({{"framework", "Horovod"}})).framework, "tensorflow");
  EXPECT_EQ(Read(Printed({{"precision", "amp_bf16"}})).work.precision, Precision::kBf16);
  EXPECT_EQ(Read(Printed({{"optimizer", "decoupled_adamw"}})).work.optimizer, Optimizer::kAdamW);
  EXPECT_EQ(Read(Printed({{"recompute", "full (8 layers)"}})).strategy.recompute, Recompute::kFull);
  EXPECT_EQ(Read(Printed({{"recompute", "full:5"}})).strategy.recompute,
            (Recompute{kRecomputeLayer, 5}));
  for (const char* modules : {"full:5 layers", "\"full, 5 layers (recompute_num_layers 5)\""}) {
    EXPECT_EQ(
        Read(Printed({{"recompute", "full"}, {"recompute_modules", modules}})).strategy.recompute,
        (Recompute{kRecomputeLayer, 5}))
        << modules;
  }
  EXPECT_EQ(Read(Printed({{"recompute", "core_attn+mlp"}})).strategy.recompute,
            (Recompute{kRecomputeCoreAttention | kRecomputeMlp}));
  EXPECT_EQ(Read(Printed({{"zero", "FULL_SHARD"}})).strategy.zero, 3);
  EXPECT_EQ(Read(Printed({{"family", "Qwen2.5"}})).model.norm, Norm::kRmsNorm);
  EXPECT_TRUE(Read(Printed({{"precision", "BF16"}, {"gated", "no"}})).notes.empty())
      << "case needs no note";
}

// Both run NeMo's recipes: its overlap of tensor parallelism and its types of gradients, unless the row says otherwise.
TEST(CaseNames, TablesOfNemosGuideAndMlperfAreReadAsNemo) {
  for (const char* source : {"https://docs.nvidia.com/nemo-framework/user-guide/latest/performance",
                             "mlcommons/training_results_v5.0@0fdc28f013 NVIDIA/results"}) {
    const Cells cells = Printed({{"framework", "megatron"}, {"source", source}, {"zero", "1"}});
    const CaseRow row = Read(cells);
    EXPECT_EQ(SplitReference(row.framework).name, "nemo") << source;
    EXPECT_FALSE(row.strategy.fp32_grads) << source;
    EXPECT_TRUE(FindFramework(row.framework).tp_overlap);
    Cells without = cells;
    without["tp_overlap"] = "0";
    EXPECT_FALSE(FindFramework(Read(without).framework).tp_overlap) << source;
  }
  EXPECT_EQ(Read(Printed({{"framework", "megatron"}, {"source", "a paper"}})).framework,
            "megatron");
}

// Tables name their models in their own way; the shape beside the name says which.
TEST(CaseNames, AModelThatIsNoneOfOursIsReadFromItsShape) {
  const CaseRow row = Read(Printed({{"model", "llama3.1-405b"}}));
  EXPECT_FALSE(row.refused) << *row.refused;
  EXPECT_EQ(row.model.layers, Read(Printed({})).model.layers);
  EXPECT_THAT(row.notes,
              Contains(HasSubstr("model 'llama3.1-405b' is none of `plan list models`")));
  EXPECT_THAT(*Read(Printed({{"model", "llama3.1-405b"}, {"hidden", ""}})).refused,
              HasSubstr("unknown model"));
}

TEST(CaseNames, AdaptersOfPublishedRunsAreThoseOfTheirRecipes) {
  const Cells lora{{"framework", "megatron"}, {"task", "lora"}, {"precision", "fp8"}};
  Cells mlperf = lora, bridge = lora;
  mlperf["source"] = "mlcommons/training_results_v5.0@0fdc28f013 NVIDIA/results";
  bridge["source"] = "NVIDIA-NeMo/Megatron-Bridge@36044ad docs/performance-summary.md";
  const CaseRow row = Read(Printed(mlperf));
  EXPECT_FALSE(row.refused) << *row.refused;
  EXPECT_EQ(row.work.lora.targets, kLoraQkv | kLoraProj);
  EXPECT_EQ(row.work.lora.base, LoraBase::kFp8);
  EXPECT_EQ(row.strategy.adapter_split, AdapterSplit::kColumnsA2a);
  EXPECT_EQ(Read(Printed(bridge)).work.lora.targets, kLoraQkv);
  EXPECT_EQ(Read(Printed(bridge)).work.lora.base, LoraBase::kPlain);
  EXPECT_EQ(Read(Printed(bridge)).strategy.adapter_split, AdapterSplit::kColumns);
  EXPECT_EQ(Read(Printed({{"framework", "fsdp"}, {"task", "lora"}})).work.lora.targets, kLoraAll);
}

TEST(CaseNames, AFrameworkThatIsNotPrintedIsToldByItsLayout) {
  EXPECT_EQ(Read(Printed({{"framework", ""}})).framework, "fsdp");
  EXPECT_EQ(Read(Printed({{"framework", "?"}, {"tp", "8"}, {"dp", "8"}, {"zero", "0"}})).framework,
            "megatron");
  EXPECT_THAT(Read(Printed({{"framework", ""}})).notes, Contains(HasSubstr("such layouts")));
}

// It was read by its layout, or as the nearest name.
TEST(CaseNames, AnUnknownFrameworkIsRefused) {
  EXPECT_THAT(*Read(Printed({{"framework", "xyz"}})).refused, HasSubstr("unknown framework 'xyz'"));
  EXPECT_THAT(*Read(Printed({{"framework", "megatorn"}})).refused, HasSubstr("megatron"));
}

TEST(CaseNames, AReleaseThatNobodyKnowsIsNotTheNewest) {
  EXPECT_EQ(Read(Printed({{"framework", "megatron@2024"}})).framework, "megatron@2024");
  EXPECT_THAT(*Read(Printed({{"framework", "megatron@1999"}})).refused,
              HasSubstr("framework 'megatron@1999': no such release"));
  EXPECT_THAT(*Read(Printed({{"facts", "\"tp_overlap=off,tp_overlap=on\""}})).refused,
              HasSubstr("tp_overlap is given twice"));
}

TEST(CaseNames, WhatIsNoDenseTransformerIsRefusedByName) {
  EXPECT_THAT(*Read(Printed({{"family", "Mixtral"}})).refused, HasSubstr("experts"));
  EXPECT_THAT(*Read(Printed({{"ep", "8"}})).refused, HasSubstr("expert parallelism"));
  EXPECT_THAT(*Read(Printed({{"family", "resnet"}})).refused, HasSubstr("resnet"));
}

TEST(CaseNames, PrecisionsOfFewBitsNameTheirRecipe) {
  const auto recipe = [](const char* precision, const char* framework) {
    return Read(Printed({{"precision", precision}, {"framework", framework}}));
  };
  EXPECT_EQ(recipe("bf16", "megatron").work.fp8, Fp8::kOff);
  EXPECT_EQ(recipe("fp8-delayed", "megatron").work.fp8, Fp8::kDelayed);
  EXPECT_EQ(recipe("fp8-tensorwise", "megatron").work.fp8, Fp8::kCurrent);
  EXPECT_EQ(recipe("fp8-blockwise", "megatron").work.fp8, Fp8::kBlockwise);
  EXPECT_EQ(recipe("mxfp8", "megatron").work.fp8, Fp8::kMxfp8);
  EXPECT_EQ(recipe("nvfp4", "megatron").work.fp8, Fp8::kNvfp4);
  EXPECT_EQ(recipe("nvfp4", "megatron").work.precision, Precision::kBf16);
  const CaseRow unnamed = recipe("fp8", "megatron");
  EXPECT_EQ(unnamed.work.fp8, Fp8::kDelayed);
  EXPECT_THAT(unnamed.notes, Contains(HasSubstr("without a recipe: delayed")));
  EXPECT_THAT(*recipe("fp8", "deepspeed").refused, HasSubstr("no recipe"));
}

// NVIDIA's recipes for GB200 keep the first and the last layer in 16 bits.
TEST(CaseNames, LayersAtBothEndsMayStayInSixteenBits) {
  const auto skipping = [](const char* layers) {
    Cells cells = Printed({{"topology", "dgx-h100"},
                           {"precision", "fp8-tensorwise"},
                           {"framework", "megatron"},
                           {"zero", "1"}});
    if (*layers != '\0') cells["fp8_skip"] = layers;
    return cells;
  };
  EXPECT_EQ(Read(skipping("\"1,2\"")).work.fp8_skip, (SkippedLayers{1, 2}));
  EXPECT_THAT(*Read(skipping("1")).refused, HasSubstr("fp8_skip '1'"));
  EXPECT_THAT(*Read(skipping("\"1,-2\"")).refused, HasSubstr("fp8_skip"));
  EXPECT_GT(StepSeconds(skipping("\"4,4\"")), 1.02 * StepSeconds(skipping("")));
}

TEST(CaseLayout, WhatIsNotPrintedFollowsFromTheGpus) {
  EXPECT_EQ(Read(Printed({{"dp", ""}, {"tp", "2"}})).strategy.dp, 32);
  EXPECT_EQ(Read(Printed({{"nodes", ""}})).nodes, 8);
  EXPECT_EQ(Read(Printed({{"gpus_per_node", "8.0"}, {"dp", "64.0"}})).gpus_per_node, 8);
  const CaseRow cp = Read(Printed({{"cp", "2"}}));  // dp x cp printed as dp
  EXPECT_EQ(cp.strategy.dp, 32);
  EXPECT_THAT(cp.notes, Contains(HasSubstr("context-parallel")));
  EXPECT_THAT(*Read(Printed({{"dp", "48"}})).refused,
              HasSubstr("48 ranks, but 8 nodes x 8 GPUs are 64"));
  EXPECT_THAT(*Read(Printed({{"hidden", ""}})).refused, HasSubstr("'hidden' is empty"));
}

TEST(CaseLayout, ZeroGroupsAreANodeOrANumberOfRanks) {
  const CaseRow groups = Read(Printed({{"zero_group", "16"}}));
  EXPECT_EQ(groups.strategy.dp, 16);
  EXPECT_EQ(groups.strategy.dp_outer, 4);
  EXPECT_EQ(Read(Printed({{"zero_group", "node"}})).strategy.dp, 8);
  EXPECT_EQ(Read(Printed({{"zero_group", ""}})).strategy.dp, 64);
  EXPECT_THAT(*Read(Printed({{"zero_group", "7"}})).refused, HasSubstr("do not divide dp 64"));
}

// Who gives embedding and head slots of their own has two layers less than whole stages.
TEST(CaseLayout, TheEndsCountAsLayersWhereThatMakesStagesEqual) {
  const auto counted = [](const char* layers, const char* vpp) {
    const CaseRow row = Read(Printed({{"framework", "megatron"},
                                      {"layers", layers},
                                      {"pp", "4"},
                                      {"vpp", vpp},
                                      {"dp", "16"},
                                      {"zero", "1"}}));
    EXPECT_EQ(row.strategy.count_embedding, row.strategy.count_head);
    return row.strategy.count_head;
  };
  EXPECT_FALSE(counted("32", "1"));
  EXPECT_TRUE(counted("30", "1"));
  EXPECT_TRUE(counted("30", "2"));
  EXPECT_FALSE(counted("30", "3"));
  EXPECT_FALSE(counted("31", "1"));
}

TEST(CaseLayout, FewKeyValueHeadsAreCopiedAndTooManyRefused) {
  EXPECT_EQ(
      Read(Printed({{"kv_heads", "2"}, {"tp", "8"}, {"dp", "8"}, {"zero", "0"}})).model.kv_heads,
      8);
  EXPECT_THAT(*Read(Printed({{"kv_heads", "64"}})).refused, HasSubstr("key-value heads"));
}

TEST(UnevenSteps, LieBetweenTheWholeOnesBelowAndAbove) {
  const auto at = [](int micro, int batch) {
    return StepSeconds(Printed(
        {{"micro_batch", std::to_string(micro)}, {"global_batch", std::to_string(64 * batch)}}));
  };
  double last = at(4, 8);
  for (int batch = 9; batch <= 12; ++batch) {  // the last micro-batch of 1, 2, 3, 4 sequences
    const double now = at(4, batch);
    EXPECT_GT(now, last) << batch;
    last = now;
  }
  EXPECT_NEAR(at(8, 4), at(4, 4), 1e-9) << "a micro-batch is no larger than the batch";
  const CasePrediction uneven = Predict(Printed({{"micro_batch", "3"}}));
  EXPECT_THAT(uneven.row.notes, Contains(HasSubstr("last micro-batch")));
  EXPECT_LT(uneven.time->low, uneven.time->total);
  EXPECT_GT(uneven.time->high, uneven.time->total);
  EXPECT_TRUE(uneven.predicted_mem_gib);
}

TEST(UnevenSteps, RoundsOfAnInterleavedPipelineNeedNotBeFull) {
  const auto at = [](int micro_batches) {
    return StepSeconds(Printed({{"framework", "megatron"},
                                {"zero", "1"},
                                {"pp", "4"},
                                {"vpp", "2"},
                                {"dp", "16"},
                                {"global_batch", std::to_string(64 * micro_batches)}}));
  };
  EXPECT_GT(at(10), at(8));
  EXPECT_LT(at(10), at(12));
}

TEST(Predictions, StateWhatAChipOrAClusterLacks) {
  const CasePrediction volta = Predict(Printed({{"topology", "dgx1-v100"}}));
  EXPECT_EQ(volta.row.work.precision, Precision::kFp16);
  EXPECT_THAT(volta.row.notes, Contains(HasSubstr("no arithmetic in bf16: read as fp16")));
  const CasePrediction printed = Predict(Printed({{"topology", "dgx1-v100"},
                                                  {"framework", "megatron"},
                                                  {"precision", "fp32"},
                                                  {"zero", "1"}}));
  EXPECT_EQ(printed.row.work.precision, Precision::kFp32)
      << "ZeRO in fp32 is not read as bf16 where there is none";
  const CasePrediction larger =
      Predict(Printed({{"nodes", "1024"}, {"dp", "8192"}, {"global_batch", "65536"}}));
  EXPECT_TRUE(larger.time);
  EXPECT_THAT(larger.row.notes, Contains(HasSubstr("more nodes than selene")));
  const CasePrediction named = Predict(Printed({{"topology", "p4de.24xlarge"}}));
  EXPECT_EQ(named.row.topology, "aws-p4de");
  EXPECT_TRUE(Predict(Printed({{"topology", "mistral-2x8"},
                               {"nodes", "2"},
                               {"dp", "16"},
                               {"gpu", "a100-sxm4-80gb"}}))
                  .time);
}

TEST(Predictions, RecomputationThatNobodyPrintedIsTheLeastThatFits) {
  const CasePrediction small = Predict(Printed({{"recompute", ""}}));
  EXPECT_EQ(small.row.strategy.recompute, Recompute::kNone);
  const CasePrediction large =
      Predict(Printed({{"recompute", "unknown"}, {"micro_batch", "32"}, {"global_batch", "2048"}}));
  EXPECT_EQ(large.row.strategy.recompute, Recompute::kFull);
  EXPECT_THAT(large.row.notes, Contains(HasSubstr("recompute not printed: full")));
}

// Gathers of 13B parameters take less than the compute beside them on either network: the slower one costs what is
// not hidden, not a share of all the seconds that it takes.
TEST(Predictions, ASlowNetworkThatComputeHidesCostsLittle) {
  const auto at = [](const char* topology, const char* nodes, const char* dp, const char* batch) {
    return StepSeconds(Printed({{"topology", topology},
                                {"nodes", nodes},
                                {"dp", dp},
                                {"global_batch", batch},
                                {"layers", "40"},
                                {"hidden", "5120"},
                                {"ffn", "13824"},
                                {"gated", "1"},
                                {"heads", "40"},
                                {"kv_heads", "40"},
                                {"seq_len", "4096"},
                                {"micro_batch", "2"}}));
  };
  const double slow = at("fms-a100", "16", "128", "256"),
               fast = at("mosaic-a100-80", "16", "128", "256");
  EXPECT_GT(slow, fast);
  EXPECT_LT(slow, 1.15 * fast);
  EXPECT_LT(slow, 1.25 * at("fms-a100", "1", "8", "16"));
}

TEST(Predictions, ContextParallelRowsHaveTheirMemory) {
  const Cells one = Printed(
      {{"framework", "megatron"}, {"zero", "1"}, {"seq_len", "16384"}, {"micro_batch", "1"}});
  Cells four = one;
  four["cp"] = "4";
  four["dp"] = "16";
  EXPECT_LT(*Predict(four).predicted_mem_gib, *Predict(one).predicted_mem_gib);
}

// A system whose document prints no time is predicted and compared with nothing; an empty cell is refused.
TEST(Predictions, RowsWithoutAPrintedTimeArePredicted) {
  const CasePrediction row = Predict(Printed({{"measured_step_s", "not printed"}}));
  EXPECT_FALSE(row.row.refused) << *row.row.refused;
  ASSERT_TRUE(row.time);
  EXPECT_FALSE(row.compared());
  const CasePrediction empty = Predict(Printed({{"measured_step_s", ""}}));
  EXPECT_THAT(empty.row.refused.value_or(""), HasSubstr("no measured step time"));
}

// Block scales: TransformerEngine overlaps no products with them. A row that says so keeps its word.
TEST(CaseRow, OverlapOfTensorParallelismDependsOnTheRecipe) {
  const auto overlaps = [](const char* recipe, const char* printed) {
    const CaseRow row = Read(Printed({{"framework", "nemo"},
                                      {"precision", recipe},
                                      {"precision_recipe", recipe},
                                      {"tp_overlap", printed}}));
    return FindFramework(row.framework).tp_overlap;
  };
  EXPECT_TRUE(overlaps("mxfp8", ""));
  EXPECT_TRUE(overlaps("bf16", ""));
  EXPECT_FALSE(overlaps("nvfp4", ""));
  EXPECT_TRUE(overlaps("nvfp4", "on"));
}

}  // namespace
}  // namespace orrery
