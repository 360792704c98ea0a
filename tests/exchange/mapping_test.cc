// SPDX-License-Identifier: Apache-2.0
// The table is complete: every member of the layout and of the workload has a row with a cell for every target.
#include "model/exchange/mapping.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "tests/exchange/exported.h"

namespace orrery::exchange {
namespace {

// Members of a struct as its header declares them: "int tp = 1;", "double dropout = 0.0;".
std::vector<std::string> MembersOf(const std::string& header, const std::string& name) {
  const std::string text = ReadAll(std::string(ORRERY_SOURCE_DIR) + "/" + header);
  const std::size_t begin = text.find("struct " + name + " {");
  std::string body = text.substr(begin, text.find("\n};", begin) - begin);
  body = std::regex_replace(body, std::regex("//[^\n]*"), "");
  static const std::regex kMember(
      R"(\n\s+[A-Za-z_0-9:<>\s]*[A-Za-z_0-9>]\s+([a-z_0-9]+)\s*(=[^;(]*)?;)");
  std::vector<std::string> members;
  for (std::sregex_iterator at(body.begin(), body.end(), kMember), end; at != end; ++at)
    members.push_back((*at)[1].str());
  return members;
}

const Field* Find(const std::string& name) {
  for (const Field& field : Fields()) {
    if (name == field.name) return &field;
  }
  return nullptr;
}

TEST(Mapping, EveryMemberOfTheLayoutHasARow) {
  const std::vector<std::string> members = MembersOf("model/plan/lower/strategy.h", "Strategy");
  ASSERT_GE(members.size(), 29u);
  EXPECT_THAT(members, testing::IsSupersetOf({"tp", "dp_outer", "prefetch", "layout", "zero"}));
  for (const std::string& member : members)
    EXPECT_NE(Find(member), nullptr)
        << "Strategy::" << member << " has no row in model/exchange/fields_layout.cc";
}

TEST(Mapping, EveryMemberOfTheWorkloadHasARow) {
  const std::vector<std::string> members = MembersOf("model/arch/workload.h", "Workload");
  ASSERT_GE(members.size(), 7u);
  // Told with another member, as --dropout takes both: "0.1/0".
  const std::map<std::string, std::string> rows = {{"attention_dropout", "dropout"}};
  for (const std::string& member : members)
    EXPECT_NE(Find(rows.contains(member) ? rows.at(member) : member), nullptr)
        << "Workload::" << member << " has no row in model/exchange/fields_work.cc";
}

// What --fact can replace changes the job that is predicted: each has a row that says what becomes of it.
TEST(Mapping, EveryFactHasARow) {
  // Facts that set one member of Strategy with pipelines, or one that has a flag.
  const std::map<std::string, std::string> kOfMembers = {
      {"whole_head_in_pipelines", "whole_head"}, {"reduce_once_in_pipelines", "reduce_once"}};
  std::set<std::string> rows;
  for (const Field& field : Fields()) {
    rows.insert(field.name);
    if (std::string_view(field.flag).starts_with("fact ")) rows.insert(field.flag + 5);
  }
  ASSERT_GE(FactNames().size(), 30u);
  for (const std::string& fact : FactNames()) {
    const auto member = kOfMembers.find(fact);
    EXPECT_TRUE(rows.contains(member == kOfMembers.end() ? fact : member->second))
        << "fact " << fact << " has no row in model/exchange/fields_facts.cc";
  }
}

// A target whose release does otherwise is another job: the export says so and --strict counts it.
TEST(Mapping, FactsThatATargetCannotBeToldAreNotExpressed) {
  const auto missing = [](const std::string& fact, const char* model, Target target) {
    const std::string framework = InfoOf(target).framework;
    const Bundle bundle = MakeBundle(
        CaseOf(Resolve({"--model", model, "--topology", "dgx-h100", "--nodes", "2", "--framework",
                        framework, "--fact", fact, "--micro-batch", "1"})),
        target);
    for (const std::string& line : bundle.Missing())
      if (line.starts_with(fact.substr(0, fact.find('=')))) return true;
    return false;
  };
  EXPECT_TRUE(missing("compile=off", "llama3-8b", kDeepSpeed));
  EXPECT_FALSE(missing("compile=on", "llama3-8b", kDeepSpeed));
  EXPECT_TRUE(missing("autocast=on", "llama3-8b", kFsdp));
  EXPECT_TRUE(missing("compile_loss=on", "llama3-8b", kMegatron));
  EXPECT_TRUE(missing("padded_vocab=on", "gpt2-xl", kDdp));
  EXPECT_FALSE(missing("padded_vocab=off", "gpt2-xl", kMegatron));  // has an argument
  EXPECT_TRUE(missing("attention=triton", "llama3-8b", kMegatron));
}

TEST(Mapping, EveryRowHasACellForEveryTarget) {
  for (const Field& field : Fields()) {
    for (const TargetInfo& target : Targets())
      EXPECT_NE(field.Of(target.target), nullptr) << field.name << " for " << target.name;
  }
}

TEST(Mapping, NoFieldHasTwoRows) {
  std::set<std::string> names;
  for (const Field& field : Fields()) EXPECT_TRUE(names.insert(field.name).second) << field.name;
}

TEST(Mapping, FlagsOfRowsExist) {
  cli::JobFlags job;
  cli::LayoutFlags layout;
  cli::FlagSet set{"x", "", {}};
  job.Declare(&set, false);
  layout.Declare(&set, "x");
  std::set<std::string> flags;
  for (const cli::FlagInfo& info : set.Describe().flags) flags.insert(info.name);
  std::set<std::string> facts;
  for (const std::string& name : FactNames()) facts.insert(name);
  for (const Field& field : Fields()) {
    const std::string flag = field.flag;
    if (flag.starts_with("--")) {
      EXPECT_TRUE(flags.contains(flag)) << field.name;
    } else if (flag.starts_with("fact ")) {
      EXPECT_TRUE(facts.contains(flag.substr(5))) << field.name;
    }
  }
}

TEST(Mapping, EveryFieldOfAnExportHasAStatusAndAReasonWhereItDiffers) {
  const Case layout =
      CaseOf(Resolve({"--model", "gpt3-175b", "--topology", "aws-p4d", "--nodes", "16", "--tp", "8",
                      "--pp", "4", "--recompute", "selective", "--sequence-parallel",
                      "--global-batch", "64", "--framework", "orrery", "--zero", "1"}));
  for (const TargetInfo& target : Targets()) {
    const Export out = ToSettings(layout, target.target);
    EXPECT_EQ(out.fields.size(), Fields().size());
    for (const FieldReport& field : out.fields) {
      EXPECT_FALSE(field.how.empty() && Differs(field.status)) << target.name << " " << field.field;
    }
  }
  const Export ddp = ToSettings(layout, kDdp);
  const auto tp = std::ranges::find(ddp.fields, "tp", &FieldReport::field);
  EXPECT_EQ(tp->status, Status::kNotExpressed);
  for (const Target target : {kDeepSpeed, kAccelerate, kFsdp, kDdp})
    EXPECT_NE(MakeBundle(layout, target).Refusal(), "") << InfoOf(target).name;
  for (const Target target : {kMegatron, kBridge, kTitan, kTitanToml})
    EXPECT_EQ(MakeBundle(layout, target).Refusal(), "") << InfoOf(target).name;
}

// ZeroRedundancyOptimizer leaves gradients whole, which the prediction scatters.
TEST(Mapping, AShardedOptimizerOfReplicasOnlyComesNear) {
  const Case layout =
      CaseOf(Resolve({"--model", "gpt2-xl", "--topology", "aws-p4d", "--global-batch", "64",
                      "--micro-batch", "1", "--framework", "deepspeed", "--zero", "1"}));
  const Export out = ToSettings(layout, kDdp);
  const auto zero = std::ranges::find(out.fields, "zero", &FieldReport::field);
  EXPECT_EQ(zero->status, Status::kNear);
  EXPECT_NE(zero->how.find("gradients are reduced whole"), std::string::npos) << zero->how;
}

TEST(Mapping, SchedulesOfATargetAreThoseItCanBeTold) {
  using enum PipelineSchedule;
  EXPECT_EQ(SchedulesOf(kTitan),
            (std::vector<PipelineSchedule>{kGpipe, k1F1B, kInterleaved, kZeroBubbleV}));
  EXPECT_EQ(SchedulesOf(kMegatron), (std::vector<PipelineSchedule>{k1F1B, kInterleaved}));
}

// Exported programs checkpoint without reentrance, and what is read back says so.
TEST(Mapping, CheckpointsOfPyTorchEndWhereTheyMay) {
  const Case layout = CaseOf(Resolve({"--model", "llama2-7b", "--topology", "dgx-h100", "--nodes",
                                      "2", "--recompute", "full", "--framework", "fsdp"}));
  for (const Target target : {kFsdp, kAccelerate}) {
    const Export out = ToSettings(layout, target);
    const auto row = std::ranges::find(out.fields, "recompute_unread", &FieldReport::field);
    EXPECT_FALSE(Differs(row->status)) << InfoOf(target).name << ": " << row->how;
  }
}

// torchtitan refuses CUDA graphs, its default, next to pipeline stages.
TEST(Mapping, PipelinesOfTorchtitanGoWithoutCudaGraphs) {
  const auto program = [](const char* stages) {
    const Case layout =
        CaseOf(Resolve({"--model", "llama3-8b", "--topology", "dgx-h100", "--nodes", "2", "--pp",
                        stages, "--zero", "2", "--framework", "torchtitan", "--micro-batch", "1"}));
    for (const File& file : TargetFiles(MakeBundle(layout, kTitan)))
      if (file.name == "orrery_config.py") return file.text;
    return std::string();
  };
  const std::string line = "config.training.disable_cuda_graphs = True";
  EXPECT_NE(program("2").find(line), std::string::npos) << program("2");
  EXPECT_EQ(program("1").find(line), std::string::npos);
}

// A module that no stage names is left out of the model.
TEST(Mapping, StagesOfTorchtitanNameTheHeadAsTheirReleaseDoes) {
  const Case layout =
      CaseOf(Resolve({"--model", "llama3-8b", "--topology", "dgx-h100", "--nodes", "2", "--pp", "2",
                      "--layout", "15,17", "--schedule", "1f1b", "--zero", "2", "--framework",
                      "torchtitan", "--micro-batch", "1"}));
  for (const auto& [target, head] :
       {std::pair{kTitan, "lm_head"}, std::pair{kTitanToml, "output"}}) {
    const std::string names =
        MakeBundle(layout, target).Get("parallelism.module_fqns_per_model_part");
    EXPECT_TRUE(names.ends_with(std::string("\"norm\", \"") + head + "\"]]")) << names;
  }
}

// torchtitan counts the ends as layers: equal stages are named unless that makes them, too.
TEST(Mapping, EqualStagesOfTorchtitanAreNamed) {
  const auto job = [](const char* stages, const std::string& layout) {
    return Resolve({"--model", "llama3-8b", "--topology", "dgx-h100", "--nodes", "2", "--pp",
                    stages, "--layout", layout, "--schedule", "1f1b", "--zero", "2", "--framework",
                    "torchtitan", "--micro-batch", "1"});
  };
  for (const Target target : {kTitan, kTitanToml}) {
    const Bundle four = MakeBundle(CaseOf(job("4", "4x8")), target);
    EXPECT_THAT(four.Get("parallelism.module_fqns_per_model_part"),
                testing::StartsWith("[[\"tok_embeddings\", \"layers.0\""));
    EXPECT_EQ(
        MakeBundle(CaseOf(job("2", "2x16")), target).Get("parallelism.module_fqns_per_model_part"),
        "");
    if (target == kTitanToml && !WithoutToml().empty()) continue;
    std::vector<SourcePtr> files;
    for (const File& file : TargetFiles(four)) {
      if (file.name.ends_with(".toml") || file.name.ends_with(".py"))
        files.push_back(SourceOf(file.name, file.text));
    }
    const Imported back = Import(files, std::nullopt);
    ASSERT_TRUE(back.values.contains("layout"));
    EXPECT_EQ(back.values.at("layout").text, "4x8");
  }
}

// The same by weights of the ends, as exports wrote it before. One layer each is the default: what is left over goes to the first
// stages, 34 = 9 + 9 + 8 + 8 less the ends.
TEST(Mapping, WeightsOfTorchtitansEndsMakeStages) {
  if (!WithoutToml().empty()) GTEST_SKIP() << WithoutToml();
  const auto layout = [](const std::string& more, const std::string& flavor = "8B") {
    const Imported read =
        Import({SourceOf("t.toml", "[model]\nname = \"llama3\"\nflavor = \"" + flavor +
                                       "\"\n[parallelism]\npipeline_parallel_degree = 4\n" + more)},
               std::nullopt);
    const auto at = read.values.find("layout");
    return at == read.values.end() ? "" : at->second.text;
  };
  const auto weights = [&](int first, int last) {
    return layout(
        fmt::format("pipeline_parallel_first_stage_less_layers = {}\n"
                    "pipeline_parallel_last_stage_less_layers = {}\n",
                    first, last));
  };
  EXPECT_EQ(weights(0, 0), "4x8");
  EXPECT_EQ(weights(2, 2), "7,2x9,7");
  EXPECT_EQ(weights(1, 1), "8,9,8,7");
  EXPECT_EQ(layout(""), "8,9,8,7");
  EXPECT_EQ(layout("pipeline_parallel_schedule = \"Interleaved1F1B\"\n"), "4,5,5x4,3");
  EXPECT_EQ(layout("", "70B"), "20,21,20,19");
}

// Of 2025, up to v0.2.2: how context-parallel ranks get keys and values.
TEST(Mapping, TorchtitansRanksGatherOrRotateKeysAndValues) {
  if (!WithoutToml().empty()) GTEST_SKIP() << WithoutToml();
  const auto read = [](const std::string& parallelism, const std::string& training = "") {
    return Import(
        {SourceOf("t.toml",
                  "[model]\nname = \"llama3\"\nflavor = \"8B\"\nconverters = "
                  "[]\n[training]\nlocal_batch_size = 1\n" +
                      training + "[parallelism]\ncontext_parallel_degree = 2\n" + parallelism)},
        std::nullopt);
  };
  const std::string key = "context_parallel_rotate_method = ";
  EXPECT_EQ(read(key + "\"alltoall\"\n").values.at("context").text, "ring");
  EXPECT_EQ(read(key + "\"allgather\"\n").values.at("context").text, "allgather");
  EXPECT_EQ(read("").values.at("context").text, "allgather");
  EXPECT_THAT(
      ErrorOf([&] { read(key + "\"ring\"\n"); }),
      testing::AllOf(testing::HasSubstr("t.toml:9"), testing::HasSubstr("allgather, alltoall")));
  // No converter converts nothing; other types are not modelled.
  EXPECT_THAT(read("").notes, testing::Not(testing::Contains(testing::HasSubstr("not modelled"))));
  const auto types =
      read("", "dtype = \"bfloat16\"\nmixed_precision_reduce = \"bfloat16\"\n").notes;
  EXPECT_THAT(types, testing::Contains(testing::HasSubstr(
                         "t.toml:7: not modelled: weights, gradients and states")));
  EXPECT_THAT(types, testing::Contains(testing::HasSubstr(
                         "t.toml:8: not modelled: gradients reduced in 16 bits")));
}

// An export names it where the prediction is another's: Accelerate runs the models of HuggingFace, predicted for plain FSDP.
TEST(Mapping, SaysWhatFilesAreReadBackAs) {
  const auto read = [](Target target, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--model", "gpt2-xl", "--topology", "dgx-h100",    "--nodes",
                                      "1",       "--zero",  "2",          "--framework", "fsdp"};
    words.insert(words.end(), more.begin(), more.end());
    return ReadBackAs(MakeBundle(CaseOf(Resolve(words)), target));
  };
  EXPECT_EQ(read(kAccelerate, {}), "huggingface@fsdp");
  EXPECT_EQ(read(kAccelerate, {"--cp", "2"}), "orrery");
  EXPECT_EQ(read(kFsdp, {}), "fsdp");
  EXPECT_EQ(read(kMegatron, {}), "megatron@sharded");
}

// It stood in a comment alone.
TEST(Mapping, APredictionOfAnotherFrameworkIsNotExpressed) {
  const auto missing = [](const char* zero, const char* framework) {
    const Resolved r = Resolve({"--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "1",
                                "--zero", zero, "--framework", framework, "--micro-batch", "1"});
    return MakeBundle(CaseOf(r), kAccelerate).Missing();
  };
  const auto framework = testing::HasSubstr("framework ");
  EXPECT_THAT(missing("3", "fsdp"),
              testing::Contains(testing::HasSubstr(
                  "framework fsdp: --from reads these files as huggingface@fsdp")));
  EXPECT_THAT(missing("1", "deepspeed"),
              testing::Contains(testing::HasSubstr(
                  "framework deepspeed: --from reads these files as huggingface,")));
  EXPECT_THAT(missing("3", "huggingface@fsdp"), testing::Not(testing::Contains(framework)));
  EXPECT_THAT(missing("0", "ddp"), testing::Not(testing::Contains(framework)));
  // Its plugin of DeepSpeed has DeepSpeed's own buckets and types.
  const auto plugin = missing("1", "huggingface");
  for (const char* field : {"framework ", "fp32_grads ", "bucket "})
    EXPECT_THAT(plugin, testing::Not(testing::Contains(testing::StartsWith(field))));
  EXPECT_THAT(missing("0", "ddp"), testing::Not(testing::Contains(testing::HasSubstr("autocast"))));
}

// On an A100 TransformerEngine takes flash-attn's kernel by itself; the file's own fell away.
TEST(Mapping, TheKernelOfAFileStandsNextToAFrameworkThatTakesAnother) {
  const std::string path = testing::TempDir() + "/fused.sh";
  std::ofstream(path) << "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 12 "
                         "--hidden-size 768 --num-attention-heads 12 --seq-length 1024 "
                         "--max-position-embeddings 1024 --vocab-size 50257 --micro-batch-size 4 "
                         "--global-batch-size 32 --bf16 --attention-backend fused\n";
  const auto framework = [&](const char* name, const char* topology) {
    return Resolve({"--from", path, "--framework", name, "--topology", topology})
        .job.request.framework;
  };
  EXPECT_THAT(framework("megatron", "aws-p4d"), testing::HasSubstr("attention=cudnn"));
  EXPECT_THAT(framework("megatron", "dgx-h100"), testing::Not(testing::HasSubstr("attention")));
}

// The comment in train.sh on the order of ranks is what the arguments below it do.
TEST(Mapping, TheOrderOfRanksInAScriptIsThatOfItsArguments) {
  const auto script = [](Target target, const std::string& placement) {
    const Resolved r =
        Resolve({"--model", "llama3-8b", "--topology", "dgx-h100", "--nodes", "4", "--global-batch",
                 "64", "--tp", "2", "--pp", "4", "--micro-batch", "1", "--placement", placement});
    for (const File& file : FilesOf(MakeBundle(CaseOf(r), target)))
      if (file.name == "train.sh") return file.text;
    return std::string();
  };
  const std::string front = "# Rank order: tensor parallelism within a node, then ";
  EXPECT_THAT(script(kMegatron, "tp-cp-dp-pp"),
              testing::HasSubstr(front + "data, then pipeline stages, as the prediction has it."));
  const std::string inside = script(kMegatron, "tp-cp-pp-dp");
  EXPECT_THAT(inside, testing::HasSubstr("--use-tp-pp-dp-mapping"));
  EXPECT_THAT(inside,
              testing::HasSubstr(front + "pipeline stages, then data, as the prediction has it."));
  // A target that cannot be told does as ever.
  EXPECT_THAT(script(kTitanToml, "tp-cp-pp-dp"),
              testing::HasSubstr(front + "data, then pipeline stages, where the prediction has "
                                         "stages in front of data."));
}

}  // namespace
}  // namespace orrery::exchange
