// SPDX-License-Identifier: Apache-2.0
// Validation against published runs: reading rows, refusing them by name, and the errors reached.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "calib/program/validate/report.h"
#include "calib/validate/memory_errors.h"
#include "calib/validate/predict_memory.h"
#include "calib/validate/ranking.h"
#include "model/base/diagnostics.h"

namespace orrery {
namespace {

using testing::HasSubstr;

constexpr const char* kHeader =
    "case,topology,nodes,gpus_per_node,framework,family,layers,hidden,ffn,gated,heads,kv_heads,"
    "vocab,seq_len,tp,pp,"
    "vpp,dp,cp,zero,zero_group,micro_batch,global_batch,precision,recompute,flash,optimizer,seq_"
    "parallel,window,"
    "measured_step_s,measured_mem_gib,assumed\n";

std::vector<CaseRow> Read(const std::string& rows) {
  Diagnostics diagnostics;
  const auto source = std::make_shared<Source>(Source{"cases.csv", kHeader + rows});
  const CsvTable table = CsvTable::Parse(source, CaseColumns(), &diagnostics);
  std::vector<CaseRow> cases = ReadCases(table);
  diagnostics.ThrowIfAny();
  return cases;
}

// A 1.7B model on 8 nodes of 8 A100; the arguments replace single columns.
std::string Row(const std::string& topology = "selene", const std::string& framework = "megatron",
                const std::string& heads = "24", const std::string& precision = "fp16",
                const std::string& zero = "0", const std::string& assumed = "") {
  return "a-1," + topology + ",8,8," + framework + ",gpt,24,2304,9216,0," + heads + "," + heads +
         ",51200,2048,1,1,1,64,1," + zero + ",dp,4,512," + precision + ",full,0,adam,0,step,1.5,," +
         assumed + "\n";
}

// The systems that this project started from, in no fit. Their bars: S9's step and its share of communication, S2
// (its configuration keeps parameters and states on the CPU).
TEST(SeedSystems, AreWithinTheirBars) {
  const auto seeds =
      PredictCases(LoadCases(std::string(ORRERY_SOURCE_DIR) + "/calib/data/seed_systems.csv"));
  const auto ratio = [&](const std::string& name) {
    for (const CasePrediction& one : seeds) {
      if (one.row.name == name && one.time) return one.time->total / one.row.measured_step_s;
    }
    return 0.0;
  };
  EXPECT_NEAR(ratio("s9-megatron-gpt"), 1, 0.15);
  EXPECT_NEAR(ratio("s6-bert-1.5b"), 1, 0.06);
  EXPECT_GT(ratio("s2-t5-small"), 1 / 1.5);
  EXPECT_LT(ratio("s2-t5-small"), 1.5);
  for (const CasePrediction& one : seeds) {
    if (!one.row.measured_communication) continue;
    ASSERT_TRUE(one.time);
    const double share = (one.time->tensor + one.time->data + one.time->pipeline) / one.time->total;
    EXPECT_NEAR(share / *one.row.measured_communication, 1, 0.1) << one.row.name;
  }
}

// What `plan predict` takes where nobody says: fused in 16 bits, if the framework has a kernel for the chip.
TEST(CaseRows, AttentionThatIsNotPrintedIsTheFrameworksDefault) {
  const auto unsaid = [](std::string row) {
    row.replace(row.find(",full,0,adam"), 12, ",full,,adam");
    return row;
  };
  const auto predicted =
      PredictCases(Read(unsaid(Row()) + unsaid(Row("dgx1-v100")) +
                        unsaid(Row("selene", "megatron", "24", "fp32")) + Row()));
  for (const CasePrediction& one : predicted) ASSERT_TRUE(one.time) << *one.row.refused;
  EXPECT_TRUE(predicted[0].row.strategy.flash_attention);
  EXPECT_FALSE(predicted[1].row.strategy.flash_attention);
  EXPECT_FALSE(predicted[2].row.strategy.flash_attention);
  EXPECT_FALSE(predicted[3].row.strategy.flash_attention);  // printed
  EXPECT_LT(predicted[0].time->total, predicted[3].time->total);
  EXPECT_THAT(
      predicted[1].row.notes,
      testing::Contains(HasSubstr("flash not printed: read as 0, the framework's default")));
}

TEST(CaseRows, ARowBecomesModelWorkloadAndStrategy) {
  const CaseRow row = Read(Row()).front();
  EXPECT_FALSE(row.refused) << *row.refused;
  EXPECT_EQ(row.source, "a");
  EXPECT_EQ(row.model.layers, 24);
  EXPECT_EQ(row.model.head_dim, 96);
  EXPECT_EQ(row.strategy.dp, 64);
  EXPECT_EQ(row.work.global_batch, 512);
  EXPECT_FALSE(row.measured_mem_gib);
}

CaseRow ReadFrom(const std::string& origin, std::string line) {
  Diagnostics diagnostics;
  std::string header = kHeader;
  header.insert(header.size() - 1, ",source");
  line.insert(line.size() - 1, "," + origin);
  const auto source = std::make_shared<Source>(Source{"cases.csv", header + line});
  const std::vector<CaseRow> rows = ReadCases(CsvTable::Parse(source, CaseColumns(), &diagnostics));
  diagnostics.ThrowIfAny();
  return rows.front();
}

TEST(CaseRows, TheSourceTellsTensorFlowFromPyTorch) {
  EXPECT_EQ(Read(Row("dgx1-v100", "ddp")).front().framework, "ddp");
  const CaseRow row = ReadFrom("examples TensorFlow/BERT/README.md L1", Row("dgx1-v100", "ddp"));
  EXPECT_EQ(row.framework, "tensorflow");
  EXPECT_THAT(row.notes, testing::Contains(HasSubstr("Horovod")));
  const CaseRow apex =
      ReadFrom("examples PyTorch/LanguageModeling/BERT/README.md L1", Row("dgx1-v100", "ddp"));
  EXPECT_EQ(apex.framework, "ddp@2020");
}

TEST(CaseRows, TheSourceTellsNeMoFromMegatron) {
  EXPECT_EQ(Read(Row("selene", "megatron")).front().framework, "megatron");
  const CaseRow row = ReadFrom("NeMo README.md L1", Row("selene", "megatron"));
  EXPECT_EQ(row.framework, "nemo");
  EXPECT_THAT(row.notes, testing::Contains(HasSubstr("Lightning")));
  EXPECT_EQ(ReadFrom("TensorFlow NeMo", Row("selene", "fsdp")).framework, "fsdp");
}

TEST(CaseRows, UnknownNamesRefuseTheRowWithTheNearestOnes) {
  EXPECT_THAT(*Read(Row("selene", "megatorn")).front().refused,
              AllOf(HasSubstr("unknown framework"), HasSubstr("megatron")));
  EXPECT_THAT(*Read(Row("selene", "megatron", "24", "fp61")).front().refused, HasSubstr("fp16"));
  EXPECT_THAT(*Read(Row("selene", "megatron", "25")).front().refused, HasSubstr("25 heads"));
  const auto cases = PredictCases(Read(Row("selena")));
  EXPECT_THAT(*cases.front().row.refused, HasSubstr("selena"));
  EXPECT_FALSE(cases.front().time);
}

TEST(CaseRows, RanksThatDoNotFillTheClusterAreRefused) {
  std::string row = Row();
  row.replace(row.find(",64,1,0,"), 8, ",32,1,0,");
  EXPECT_THAT(*Read(row).front().refused, HasSubstr("64"));
}

// Rows of racks say nodes x 4 GPUs; tensor parallelism over two trays stays on their switch.
TEST(CaseRows, NodesOfARackAreHosts) {
  std::string row = Row("nvl72-gb200", "megatron", "24", "bf16");
  row.replace(row.find(",8,8,"), 5, ",64,4,");
  row.replace(row.find(",1,1,1,64,1,"), 12, ",8,1,1,32,1,");
  const CasePrediction rack = PredictCases(Read(row)).front();
  ASSERT_TRUE(rack.time) << *rack.row.refused;
  EXPECT_THAT(rack.row.notes,
              testing::Contains(HasSubstr("4 scale-up domains of 16 nodes = 64 GPUs")));
  row.replace(row.find("nvl72-gb200"), 11, "kempner-h200");
  const CasePrediction alone = PredictCases(Read(row)).front();
  ASSERT_TRUE(alone.time) << *alone.row.refused;
  EXPECT_LT(2 * rack.time->tensor, alone.time->tensor);
}

TEST(CaseRows, HybridShardingStaysInsideTheNode) {
  std::string row = Row("selene", "fsdp", "24", "bf16", "3");
  row.replace(row.find(",3,dp,"), 6, ",3,node,");
  const Strategy strategy = Read(row).front().strategy;
  EXPECT_EQ(strategy.dp, 8);
  EXPECT_EQ(strategy.dp_outer, 8);
}

TEST(CaseRows, DropoutIsTheFrameworksAndSharedKeysMeanASeparateOutputLayer) {
  const CaseRow gpt = Read(Row()).front();
  EXPECT_EQ(gpt.work.dropout, 0.1);
  EXPECT_TRUE(gpt.model.tied_embeddings);
  EXPECT_EQ(Read(Row("selene", "fsdp", "24", "bf16", "3")).front().work.dropout, 0);
  std::string grouped = Row();
  grouped.replace(grouped.find(",24,24,51200"), 12, ",24,8,51200");
  EXPECT_FALSE(Read(grouped).front().model.tied_embeddings);
}

TEST(CaseRows, BertsLargerThanBertLargeHaveTheirNormsFirst) {
  const auto bert = [](const std::string& shape) {
    return Read("a-1,aws-dl1,1,8,deepspeed,bert," + shape +
                ",30522,128,1,1,1,8,1,1,dp,8,12288,bf16,none,0,lamb,0,microstep,0.2,,\n")
        .front();
  };
  EXPECT_TRUE(bert("24,1024,4096,0,16,16").model.post_norm);
  EXPECT_FALSE(bert("48,1600,6400,0,25,25").model.post_norm);
  CaseRow row = bert("24,1024,4096,0,16,16");
  EXPECT_EQ(row.work.masked_positions, 20);
  row = PredictCases({row}).front().row;  // what this site's software computes
  EXPECT_EQ(row.work.masked_positions, 0);
}

TEST(CaseRows, Fp32WithAShardedOptimizerUnderMegatronIsReadAsFp32Gradients) {
  const CaseRow row = Read(Row("selene", "megatron", "24", "fp32", "1")).front();
  EXPECT_EQ(row.work.precision, Precision::kBf16);
  EXPECT_TRUE(row.strategy.fp32_grads);
  ASSERT_EQ(row.notes.size(), 1u);
  EXPECT_EQ(Read(Row("selene", "megatron", "24", "fp32", "0")).front().work.precision,
            Precision::kFp32);
}

// What a user writes of an own run: a name instead of a shape. The same row with the shape is priced the same.
TEST(CaseRows, AModelByNameIsItsShape) {
  const std::string header = "case,topology,nodes,gpus_per_node,framework,precision,recompute,";
  const std::string layout =
      "optimizer,seq_len,micro_batch,global_batch,tp,dp,zero,measured_step_s";
  const auto rows = [&](const std::string& columns, const std::string& cells) {
    Diagnostics diagnostics;
    const auto source = std::make_shared<Source>(Source{
        "own.csv", header + columns + "," + layout + "\nown-1,dgx-h100,2,8,megatron,bf16,none," +
                       cells + ",adam,4096,1,128,2,8,1,4\n"});
    auto read = ReadCases(CsvTable::Parse(source, CaseColumns(), &diagnostics));
    diagnostics.ThrowIfAny();
    return read;
  };
  const auto named = PredictCases(rows("model", "llama2-7b"));
  const auto shaped = PredictCases(rows("family,layers,hidden,ffn,gated,heads,kv_heads,vocab",
                                        "llama,32,4096,11008,1,32,32,32000"));
  ASSERT_TRUE(named[0].time) << *named[0].row.refused;
  ASSERT_TRUE(shaped[0].time) << *shaped[0].row.refused;
  EXPECT_DOUBLE_EQ(named[0].time->total, shaped[0].time->total);
  EXPECT_EQ(named[0].predicted_mem_gib, shaped[0].predicted_mem_gib);
  EXPECT_FALSE(rows("model,layers", "llama2-7b,32").front().refused);
  EXPECT_THAT(*rows("model,layers", "llama2-7b,30").front().refused,
              HasSubstr("'layers' is 30, but llama2-7b has 32"));
  EXPECT_THAT(*rows("model", "lama2-7b").front().refused, HasSubstr("did you mean 'llama2-7b'"));
  EXPECT_THAT(RenderValidation(named), HasSubstr("own-1"));
}

TEST(CaseRows, AFileNamesModelsOrTheirShapes) {
  const std::string path = testing::TempDir() + "/columns.csv";
  std::ofstream(path) << "topology,seq_len,measured_step_s,layers\nselene,2048,1,24\n";
  try {
    LoadCases(path);
    FAIL() << "neither a model nor a shape";
  } catch (const InputError& error) {
    EXPECT_THAT(error.diagnostics().front().message, HasSubstr("'hidden', 'heads'"));
    EXPECT_THAT(error.diagnostics().front().hint, HasSubstr("'model'"));
  }
}

TEST(CaseRows, AMissingColumnIsAnInputErrorAndAMalformedCellRefusesItsRow) {
  Diagnostics diagnostics;
  CsvTable::Parse(std::make_shared<Source>(Source{"x.csv", "case,topology\na,b\n"}), CaseColumns(),
                  &diagnostics);
  EXPECT_THROW(diagnostics.ThrowIfAny(), InputError);
  std::string row = Row();
  row.replace(row.find("2304"), 4, "23o4");
  EXPECT_THAT(*Read(row + Row()).front().refused, HasSubstr("23o4"));
  EXPECT_FALSE(Read(row + Row()).back().refused);
  row = Row();
  row.replace(row.find(",8,8,"), 5, ",8,-8,");
  EXPECT_THAT(*Read(row).front().refused, HasSubstr("gpus_per_node"));
}

TEST(Validation, CountsRefusedRowsAndWritesTheJson) {
  const auto cases = PredictCases(Read(Row() + Row("nowhere")));
  const std::string text = RenderValidation(cases);
  EXPECT_THAT(text, HasSubstr("refused rows"));
  EXPECT_THAT(text, HasSubstr("nowhere"));
  const auto json = ValidationJson(cases);
  EXPECT_EQ(json["schema"], "orrery.validate/1");
  ASSERT_EQ(json["cases"].size(), 2u);
  EXPECT_GT(json["cases"][0]["predicted_step_s"], 0.0);
  EXPECT_EQ(json["cases"][0]["interval_s"].size(), 2u);
  EXPECT_TRUE(json["cases"][0]["measured_mem_gib"].is_null());
  double parts = 0;
  for (const auto& [name, seconds] : json["cases"][0]["parts_s"].items())
    parts += seconds.get<double>();
  EXPECT_NEAR(parts, json["cases"][0]["predicted_step_s"], 1e-6);
  EXPECT_TRUE(json["cases"][1]["predicted_step_s"].is_null());
  EXPECT_TRUE(json["cases"][1]["refused"].is_string());
}

TEST(Validation, SummarisesErrors) {
  std::vector<CasePrediction> cases(4);
  const double predicted[] = {1.1, 0.8, 1.0};
  for (int i = 0; i < 3; ++i) {
    cases[i].row.measured_step_s = 1.0;
    cases[i].row.name = "c" + std::to_string(i);
    cases[i].time = StepTime{};
    cases[i].time->total = predicted[i];
    cases[i].time->low = 0.9 * predicted[i];
    cases[i].time->high = 1.1 * predicted[i];
  }
  std::vector<const CasePrediction*> all;
  for (const auto& c : cases) all.push_back(&c);
  const ErrorSummary s = Summarise(all);
  EXPECT_EQ(s.rows, 4);
  EXPECT_EQ(s.predicted, 3);
  EXPECT_NEAR(s.mean, 0.1, 1e-12);
  EXPECT_NEAR(s.median, 0.1, 1e-12);
  EXPECT_NEAR(s.bias, -0.1 / 3, 1e-12);
  EXPECT_NEAR(s.worst, -0.2, 1e-12);
  EXPECT_EQ(s.worst_case, "c1");
  EXPECT_NEAR(s.inside, 2.0 / 3, 1e-12);
}

CasePrediction Judged(const std::string& name, int tp, double predicted, double measured) {
  CasePrediction c;
  c.row.name = name;
  c.row.source = name.substr(0, name.find('-'));
  c.row.strategy.tp = tp;
  c.row.measured_step_s = measured;
  c.time = StepTime{};
  c.time->total = predicted;
  return c;
}

TEST(Ranking, TauComparesOrders) {
  EXPECT_DOUBLE_EQ(KendallTau({1, 2, 3, 4}, {10, 20, 30, 40}), 1);
  EXPECT_DOUBLE_EQ(KendallTau({4, 3, 2, 1}, {10, 20, 30, 40}), -1);
  EXPECT_DOUBLE_EQ(KendallTau({1, 2, 4, 3}, {10, 20, 30, 40}), 4.0 / 6);
  EXPECT_DOUBLE_EQ(KendallTau({1, 1, 1}, {1, 2, 3}), 0);
  EXPECT_NEAR(KendallTau({1, 1, 2}, {1, 2, 3}), 2 / std::sqrt(2.0 * 3), 1e-15);  // a tie
}

TEST(Ranking, RegretIsWhatTheChosenLayoutLoses) {
  std::vector<CasePrediction> cases = {Judged("a-1", 1, 1.0, 1.1), Judged("a-2", 2, 1.2, 1.0),
                                       Judged("a-3", 4, 2.0, 2.0), Judged("a-4", 8, 0.1, 0.1),
                                       Judged("b-1", 1, 1.0, 1.0), Judged("b-2", 2, 1.0, 1.0)};
  cases[3].row.work.global_batch = 99;  // another batch: not of the sweep
  const auto sources = BySource(cases);
  const std::vector<Sweep> sweeps = FindSweeps(sources.at("a"));
  ASSERT_EQ(sweeps.size(), 1u);
  EXPECT_NEAR(sweeps[0].regret, 0.1, 1e-12);
  EXPECT_NEAR(sweeps[0].tau, 1.0 / 3, 1e-12);
  EXPECT_EQ(sweeps[0].chosen, "a-1");
  EXPECT_EQ(sweeps[0].best, "a-2");
  EXPECT_THAT(RenderValidation(cases), HasSubstr("a            1     3  0.333    10.0"));
  EXPECT_TRUE(FindSweeps(sources.at("b")).empty());  // two rows are no sweep
  for (CasePrediction& c : cases) c.time->total = 1;
  EXPECT_TRUE(FindSweeps(BySource(cases).at("a")).empty());  // nor are repeats of one layout
}

TEST(Memory, ErrorsAreApartByWhoPrintedTheFigure) {
  std::vector<CasePrediction> cases = {Judged("a-1", 1, 1, 1), Judged("a-2", 2, 1, 1),
                                       Judged("a-3", 4, 1, 1)};
  for (CasePrediction& c : cases) {
    c.row.measured_mem_gib = 10;
    c.predicted_allocator_gib = 9;
    c.predicted_mem_gib = 12;
  }
  cases[0].row.memory_kind = MemoryKind::kAllocator;
  cases[1].row.memory_kind = MemoryKind::kDevice;
  const auto members = BySource(cases).at("a");
  EXPECT_EQ(SummariseMemory(members, MemoryKind::kAllocator).rows, 2);
  EXPECT_NEAR(SummariseMemory(members, MemoryKind::kAllocator).bias, -0.1, 1e-12);
  EXPECT_NEAR(SummariseMemory(members, MemoryKind::kDevice).mean, 0.2, 1e-12);
}

// Three readings of one layout, 8, 10 and 10 GiB: no figure is nearer to them than 10. Another micro-batch is another layout.
TEST(Memory, ReadingsOfOneLayoutSayHowNearAPredictionCanBe) {
  std::vector<CasePrediction> cases = {Judged("a-1", 1, 1, 1), Judged("a-2", 1, 1, 1),
                                       Judged("a-3", 1, 1, 1), Judged("a-4", 1, 1, 1)};
  for (CasePrediction& c : cases) {
    c.row.measured_mem_gib = 10;
    c.predicted_allocator_gib = 9;
    c.row.memory_kind = MemoryKind::kAllocator;
  }
  cases[0].row.measured_mem_gib = 8;
  cases[1].row.work.global_batch *= 2;
  cases[2].row.model.name = "a-3";
  cases[3].row.strategy.micro_batch *= 2;
  const MemoryErrors errors = SummariseMemory(BySource(cases).at("a"), MemoryKind::kAllocator);
  EXPECT_EQ(errors.rows, 4);
  EXPECT_EQ(errors.repeated, 3);
  EXPECT_NEAR(errors.least_mean, 0.25 / 3, 1e-12);
}

// Runs with adapters are in no fit: 0.105 and 0.047 with frozen weights in fp8.
TEST(Validation, AnswersPublishedRunsWithAdapters) {
  const auto cases =
      PredictCases(LoadCases(std::string(ORRERY_SOURCE_DIR) + "/calib/data/adapter_runs.csv"));
  ASSERT_GE(cases.size(), 60u);
  std::vector<const CasePrediction*> all;
  for (const CasePrediction& c : cases) {
    EXPECT_FALSE(c.row.refused) << c.row.name << ": " << c.row.refused.value_or("");
    EXPECT_TRUE(c.row.work.lora.on()) << c.row.name;
    all.push_back(&c);
  }
  EXPECT_LE(Summarise(all).mean, 0.13);
  EXPECT_LE(Summarise(all).median, 0.065);
}

// Frameworks of which no run is in a fit: means of 0.032, 0.137 (median 0.076), 0.061, 0.090, 0.214. Read as ddp, megatron
// and deepspeed, as they were, llm.c, nanotron and HuggingFace's models miss these bars.
TEST(Validation, AnswersPublishedRunsOfOtherFrameworks) {
  const auto cases =
      PredictCases(LoadCases(std::string(ORRERY_SOURCE_DIR) + "/calib/data/framework_runs.csv"));
  for (const CasePrediction& c : cases)
    EXPECT_FALSE(c.row.refused) << c.row.name << ": " << c.row.refused.value_or("");
  const auto groups = BySource(cases);
  for (const auto& [source, mean, median] : {std::tuple{"llmc", 0.05, 0.04},
                                             {"nanotron", 0.16, 0.1},
                                             {"maxtext", 0.08, 0.08},
                                             {"pax", 0.11, 0.14},
                                             {"hf", 0.24, 0.24}}) {
    EXPECT_LE(Summarise(groups.at(source)).mean, mean) << source;
    EXPECT_LE(Summarise(groups.at(source)).median, median) << source;
  }
}

// The bars of this project on the published rows.
TEST(Validation, KeepsItsBarsOnThePublishedRuns) {
  const auto cases =
      PredictCases(LoadCases(std::string(ORRERY_SOURCE_DIR) + "/calib/data/published_runs.csv"));
  const auto error = [&](const std::string& source, int nodes) {
    std::vector<const CasePrediction*> some;
    for (const auto& c : cases) {
      const bool wanted = nodes == 0 || (nodes == 1) == (c.row.nodes == 1);
      if (c.row.source == source && wanted) some.push_back(&c);
    }
    return Summarise(some);
  };
  // 0.3 points above what the constants of November 2026 reached.
  EXPECT_LE(error("vtrain", 1).mean, 0.053);
  EXPECT_LE(error("vtrain", 2).mean, 0.068);
  EXPECT_LE(error("mosaic", 0).mean, 0.021);
  EXPECT_LE(error("dle", 0).mean, 0.031);
  EXPECT_LE(error("bloom", 0).mean, 0.054);
  EXPECT_LE(error("dgxc", 0).mean, 0.044);
  EXPECT_LE(error("mbridge", 0).mean, 0.067);
  EXPECT_LE(error("mlperf", 0).mean, 0.049);
  EXPECT_LE(error("megatron2020", 0).mean, 0.026);
  const RankingSummary ranking =
      SummariseRanking(FindSweeps(BySource(cases).at("vtrain, one node")));
  EXPECT_GE(ranking.sweeps, 100);
  EXPECT_GE(ranking.tau, 0.80);     // aimed at: 0.90
  EXPECT_LE(ranking.regret, 0.03);  // aimed at: 1.8 %
  for (const auto& c : cases) EXPECT_TRUE(c.time) << c.row.name << ": " << *c.row.refused;
  const auto sources = BySource(cases);
  EXPECT_LE(SummariseMemory(sources.at("mcoreci"), MemoryKind::kAllocator).mean, 0.015);
  EXPECT_LE(SummariseMemory(sources.at("kempner"), MemoryKind::kAllocator).mean, 0.011);
  EXPECT_LE(SummariseMemory(sources.at("h100torch"), MemoryKind::kAllocator).mean, 0.02);
  EXPECT_LE(SummariseMemory(sources.at("bloom"), MemoryKind::kDevice).mean, 0.04);
}

// nvidia-smi is read on the first node: stages that lie on others do not count.
TEST(Memory, DeviceFiguresAreTheFirstNodes) {
  RunDemand demand;
  demand.stages.resize(2);
  demand.stages[0].live = 1e9;
  demand.stages[1].live = 3e9;
  GpuProfile gpu;
  FrameworkProfile framework;
  demand.first_node_stages = 1;
  EXPECT_NEAR(MemoryOf(demand, gpu, framework).device_gib * 1073741824.0, 1e9, 1);
  EXPECT_NEAR(MemoryOf(demand, gpu, framework).allocator_gib * 1073741824.0, 3e9, 1);
  demand.first_node_stages = 2;
  EXPECT_NEAR(MemoryOf(demand, gpu, framework).device_gib * 1073741824.0, 3e9, 1);
}

TEST(EventEngine, SimulatesWholeStepsAndRefusesOtherWindows) {
  std::string microstep = Row();
  microstep.replace(microstep.find(",step,"), 6, ",microstep,");
  const auto closed = PredictCases(Read(Row()));
  const auto event = PredictCases(Read(Row() + microstep), Engine::kEvent);
  ASSERT_TRUE(event[0].time.has_value());
  EXPECT_NE(event[0].time->total, closed[0].time->total);
  EXPECT_NEAR(event[0].time->total, closed[0].time->total, 0.3 * closed[0].time->total);
  EXPECT_LT(event[0].time->low, event[0].time->total);
  EXPECT_FALSE(event[1].time.has_value());
  EXPECT_THAT(*event[1].row.refused, HasSubstr("whole steps"));
}

}  // namespace
}  // namespace orrery
