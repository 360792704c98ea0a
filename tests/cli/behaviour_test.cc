// SPDX-License-Identifier: Apache-2.0
// What scripts rely on: exit codes, streams, JSON, determinism, early readers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/cli/json_of.h"

namespace orrery {
namespace {

using nlohmann::json;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

const std::vector<std::string> kSearch = {"--nodes", "32", "--model", "bert-1.5b"};
const std::vector<std::string> kPredict = {"predict", "--model", "bert-1.5b",     "--nodes", "1",
                                           "--zero",  "1",       "--micro-batch", "8"};

TEST(Search, RanksAndExplains) {
  const Outcome outcome = RunPlan(kSearch);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, IsEmpty());  // no progress where nobody looks
  EXPECT_THAT(outcome.out, StartsWith("bert-1.5b ("));
  for (const char* part :
       {"aws-dl1: 32 nodes x 8 gaudi-hl205 = 256 GPUs", "(--global-batch)", "(--topology)",
        "tokens/s", "MFU", "USD per", "Why 1 wins", "limits it next", "Searched all"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
}

TEST(Facts, AssumedAndStatedOnesAreListed) {
  const std::vector<std::string> job = {
      "predict", "--model", "gpt2-medium", "--topology", "aws-p4d",        "--nodes", "2",
      "--tp",    "2",       "--framework", "megatron",   "--global-batch", "64"};
  const std::string assumed = RunPlan(job).out;
  EXPECT_THAT(assumed,
              HasSubstr("  assumed                 attention fa2, nccl 2.28.9, tp_overlap off, "));
  EXPECT_THAT(assumed, Not(HasSubstr("  stated ")));
  EXPECT_THAT(assumed, HasSubstr("interval from   new framework or fact"));
  const Outcome stated = RunPlan(With(job, {"--fact", "attention=triton"}));
  EXPECT_THAT(stated.out, HasSubstr("  assumed                 nccl 2.28.9, tp_overlap off"));
  EXPECT_THAT(stated.out, HasSubstr("  stated                  attention triton (--fact)"));
  EXPECT_THAT(Folded(stated.out), HasSubstr("megatron with attention triton"));
  EXPECT_THAT(stated.out, Not(HasSubstr("megatron+")));
}

TEST(Facts, OverlapWithoutSequenceParallelismIsRefused) {
  const std::vector<std::string> job = {
      "predict",     "--model",  "gpt2-medium",    "--topology", "aws-p4d", "--nodes",      "2",
      "--framework", "megatron", "--global-batch", "64",         "--fact",  "tp_overlap=on"};
  const Outcome off = RunPlan(With(job, {"--tp", "2"}));
  EXPECT_EQ(off.code, 2);
  EXPECT_THAT(off.err, HasSubstr("sequence parallelism, which is off"));
  EXPECT_THAT(RunPlan(job).err, HasSubstr("tp is 1"));
  EXPECT_EQ(RunPlan(With(job, {"--tp", "2", "--sequence-parallel", "on"})).code, 0);
}

TEST(Recomputation, OfNoLayerIsRefused) {
  const Outcome outcome =
      RunPlan({"predict", "--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "1",
               "--global-batch", "64", "--recompute", "full/49"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("of the model's 48 layers, 'full/49' takes none"));
}

TEST(Adapters, AreCountedAndWhatIsNotLoweredIsRefusedByName) {
  const std::vector<std::string> job = {
      "predict",   "--model", "llama3-8b",      "--topology", "dgx-h100",      "--nodes", "1",
      "--seq-len", "2048",    "--global-batch", "8",          "--micro-batch", "1"};
  const Outcome plain = RunPlan(With(job, {"--lora-rank", "16"}));
  EXPECT_EQ(plain.code, 0);
  // 32 layers x 16 x (qkv 10240, o 8192, fc1 32768, fc2 18432).
  EXPECT_THAT(Folded(plain.out), HasSubstr("trained 35.7 million parameters in adapters (rank 16"));
  const auto refused = [&](const std::vector<std::string>& more, const char* words) {
    const Outcome outcome = RunPlan(With(job, more));
    EXPECT_EQ(outcome.code, 2) << words;
    EXPECT_THAT(outcome.err, HasSubstr(words));
  };
  refused({"--lora-rank", "16", "--lora-base", "int3"}, "frozen weights in int3 are not supported");
  for (const char* base : {"int8", "nf4", "fp8"}) {
    const Outcome packed = RunPlan(With(job, {"--lora-rank", "16", "--lora-base", base}));
    EXPECT_EQ(packed.code, 0) << packed.err;
    EXPECT_THAT(Folded(packed.out), HasSubstr(std::string("frozen maps kept in ") + base));
  }
  refused({"--lora-base", "nf4"}, "--lora-base without adapters");
  // 32 layers x 16 x (q 4096 + 4096, v 4096 + 1024).
  const Outcome parts =
      RunPlan(With(job, {"--lora-rank", "16", "--lora-targets", "q_proj,v_proj"}));
  EXPECT_EQ(parts.code, 0) << parts.err;
  EXPECT_THAT(Folded(parts.out), HasSubstr("6.82 million parameters in adapters (rank 16"));
  refused({"--lora-rank", "16", "--lora-targets", "linear_qkv,q_proj"},
          "adapters on linear_qkv and on its parts linear_q");
  refused({"--lora-rank", "16", "--lora-targets", "lm_head"}, "no map 'lm_head' takes adapters");
  refused({"--lora-alpha", "16"}, "--lora-alpha without adapters");
  refused({"--lora-rank", "16", "--lora-alpha", "-1"}, "no positive number");
}

TEST(Offload, LeavesTheGpuAndIsCountedOnTheHost) {
  const std::vector<std::string> job = {
      "predict", "--model",   "llama3-8b", "--topology",     "dgx-h100", "--nodes",
      "1",       "--seq-len", "2048",      "--global-batch", "16",       "--micro-batch",
      "1",       "--zero",    "2",         "--framework",    "orrery",   "--json"};
  const json plain = JsonOf(job)["prediction"];
  const json moved = JsonOf(With(job, {"--offload", "optimizer"}))["prediction"];
  EXPECT_EQ(moved["strategy"]["offload"], "optimizer");
  // Master weights and two moments in fp32, an eighth of 8.03 billion parameters each.
  const double states = 12 * 8.03e9 / 8;
  EXPECT_NEAR(plain["memory"]["allocated_bytes"].get<double>() -
                  moved["memory"]["allocated_bytes"].get<double>(),
              states, 0.02 * states);
  // And a gradient and the updated weight of each parameter in 16 bits.
  EXPECT_NEAR(moved["memory"]["host_node_bytes"].get<double>(), 8 * states / 12 * 16, 0.4e9);
  EXPECT_EQ(plain["breakdown"]["offload_exposed_s"], 0);
  EXPECT_GT(moved["breakdown"]["offload_exposed_s"], 0);
  const json ranked = JsonOf({"--model", "llama3-8b", "--topology", "dgx-h100", "--nodes", "1",
                              "--offload", "optimizer", "--json"})["ranked"];
  ASSERT_FALSE(ranked.empty());
  EXPECT_EQ(ranked[0]["strategy"]["offload"], "optimizer");
}

TEST(Offload, IsRefusedByNameWhereItIsNotLowered) {
  const std::vector<std::string> job = {"predict",    "--model",  "llama3-8b",      "--nodes", "1",
                                        "--topology", "dgx-h100", "--global-batch", "16"};
  const auto refused = [&](const std::vector<std::string>& more, const char* words) {
    const Outcome outcome = RunPlan(With(job, more));
    EXPECT_EQ(outcome.code, 2) << words;
    EXPECT_THAT(outcome.err, HasSubstr(words));
  };
  refused({"--offload", "weights"}, "megatron has no offload weights");
  refused({"--offload", "optimizer:2"}, "there is no offload 'optimizer:2'");
  refused({"--offload", "optimizer", "--optimizer", "lamb"}, "lowered for SGD, Adam and AdamW");
  refused({"--offload", "activations", "--schedule", "zero-bubble", "--pp", "2", "--framework",
           "orrery"},
          "with the zero-bubble schedule is not lowered");
  refused({"--offload", "activations:32"}, "activation offload of 32 of 32 layers");
  refused({"--offload", "optimizer", "--framework", "fsdp", "--zero", "3"}, "has no offload");
  // As Megatron asserts.
  refused({"--offload", "activations", "--pp", "2"},
          "megatron offloads activations only without pipeline stages");
  refused({"--offload", "activations", "--recompute", "full"},
          "megatron offloads activations only without recomputation");
  refused({"--offload", "optimizer", "--zero", "0"},
          "megatron offloads an optimizer only with ZeRO 1 or more");
  EXPECT_EQ(JsonOf(With(job, {"--offload", "optimizer", "--seq-len", "2048",
                              "--json"}))["prediction"]["strategy"]["zero"],
            1);
}

TEST(Search, SaysTheSameTwice) {
  EXPECT_EQ(RunPlan(kSearch).out, RunPlan(kSearch).out);
  EXPECT_EQ(RunPlan(With(kSearch, {"--json"})).out, RunPlan(With(kSearch, {"--json", "-"})).out);
}

TEST(Search, JsonHasTheKeysThatScriptsRead) {
  const json plan = JsonOf(With(kSearch, {"--json", "--top", "3"}));
  EXPECT_EQ(plan["schema"], "orrery.plan/1");
  EXPECT_EQ(plan["feasible"], true);
  EXPECT_EQ(plan["topology"]["name"], "aws-dl1");
  ASSERT_EQ(plan["ranked"].size(), 3u);
  double before = 0;
  for (const json& one : plan["ranked"]) {
    EXPECT_EQ(one["gpus"], 256);
    EXPECT_GE(one["step_time_s"].get<double>(), before);
    before = one["step_time_s"];
    EXPECT_LE(one["step_time_interval_s"][0], one["step_time_s"]);
    EXPECT_GE(one["step_time_interval_s"][1], one["step_time_s"]);
    EXPECT_LE(one["memory"]["total_bytes"], one["memory"]["capacity_bytes"]);
    EXPECT_GT(one["price_per_billion_tokens_usd"], 0);
    EXPECT_EQ(one["strategy"]["tp"].get<int>() * one["strategy"]["pp"].get<int>() *
                  one["strategy"]["dp"].get<int>(),
              256);
  }
}

TEST(Search, FixedAxesStay) {
  const json plan =
      JsonOf({"--nodes=20", "--model", "bert-1.5b", "--json", "--tp", "5", "--zero", "0"});
  EXPECT_FALSE(plan["ranked"].empty());
  for (const json& one : plan["ranked"]) {
    EXPECT_EQ(one["strategy"]["tp"], 5);
    EXPECT_EQ(one["strategy"]["zero"], 0);
  }
}

TEST(Search, ComparesBatches) {
  const json plan = JsonOf(With(kSearch, {"--json", "--global-batch", "2048..8192"}));
  EXPECT_THAT(plan["workload"]["global_batch"].get<std::vector<int>>(),
              testing::IsSupersetOf({2048, 4096, 8192}));
}

TEST(Search, NothingFitsIsCodeThreeWithRemedies) {
  const Outcome outcome =
      RunPlan({"--model", "gpt3-175b", "--topology", "dgx-a100-40", "--nodes", "1"});
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Nothing fits"));
  EXPECT_THAT(outcome.out, HasSubstr("--nodes "));
}

// Adapters, shared sequences and few bits come back from a record: no part of the job is lost on the way.
TEST(Predict, ARecordGivesTheSamePrediction) {
  for (const auto& job :
       {std::vector<std::string>{"--lora-rank", "8", "--lora-targets", "linear_qkv,linear_fc2"},
        {"--cp", "2", "--cp-method", "allgather", "--fp8", "current", "--framework", "orrery"}}) {
    std::vector<std::string> words = {"predict",  "--model",       "gpt2-xl", "--topology",
                                      "dgx-h100", "--nodes",       "1",       "--global-batch",
                                      "32",       "--zero",        "1",       "--seq-len",
                                      "1024",     "--micro-batch", "1"};
    words.insert(words.end(), job.begin(), job.end());
    words.push_back("--json");
    const Outcome first = RunPlan(words);
    ASSERT_EQ(first.code, 0) << first.err;
    const std::string record = ScratchFolder() + "/record.json";
    WriteText(record, first.out);
    const Outcome again = RunPlan({"predict", "--from", record, "--json"});
    ASSERT_EQ(again.code, 0) << again.err;
    const auto of = [](const Outcome& outcome) {
      return nlohmann::json::parse(outcome.out)["digest"].get<std::string>();
    };
    EXPECT_EQ(of(again), of(first)) << job.front();
  }
}

TEST(Search, AReaderThatLeavesEarlyIsNoCrash) {
  const Outcome outcome = RunShell("\"$PLAN\" --nodes 32 --model bert-1.5b | head -1");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, StartsWith("bert-1.5b ("));
  EXPECT_EQ(
      RunShell("\"$PLAN\" show --model gpt3-175b --nodes 128 --tp 8 --pp 16 --ir | head -1").code,
      0);
}

TEST(Search, AFullDiskIsAFailure) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  EXPECT_EQ(RunShell("\"$PLAN\" list > /dev/full").code, 1);
}

TEST(Predict, JsonHasTheKeysThatScriptsRead) {
  const json document = JsonOf(With(kPredict, {"--json"}));
  EXPECT_EQ(document["schema"], "orrery.predict/1");
  const json& one = document["prediction"];
  double sum = 0;
  for (const auto& [key, seconds] : one["breakdown"].items()) {
    if (key != "hidden_s") sum += seconds.get<double>();
  }
  EXPECT_NEAR(sum / one["step_time_s"].get<double>(), 1.0, 1e-9);
  EXPECT_NEAR(one["samples_per_s"].get<double>() * one["step_time_s"].get<double>(), 12288, 1e-6);
  EXPECT_NEAR(one["tokens_per_s"].get<double>() / one["samples_per_s"].get<double>(), 128, 1e-9);
  EXPECT_EQ(one["memory"]["stages"].size(), 1u);
  EXPECT_EQ(document["provenance"][2]["profile"], "deepspeed@aws-dl1");
}

TEST(Predict, WindowsDiffer) {
  const json step = JsonOf(With(kPredict, {"--json"}));
  const json micro = JsonOf(With(kPredict, {"--json", "--window", "microstep"}));
  EXPECT_EQ(micro["window"], "microstep");
  EXPECT_LT(micro["micro_step_time_s"], step["prediction"]["step_time_s"]);
  // The timer of DeepSpeed does not synchronise.
  EXPECT_EQ(micro["micro_step_time_s"], micro["micro_step_printed_s"]);
  EXPECT_LT(micro["micro_step_printed_s"], micro["micro_step_sustained_s"]);
  const json sustained = JsonOf(With(kPredict, {"--json", "--window", "sustained"}));
  EXPECT_EQ(sustained["micro_step_time_s"], micro["micro_step_sustained_s"]);
  EXPECT_EQ(step["micro_step_time_s"], sustained["micro_step_time_s"]);
  EXPECT_THAT(RunPlan(kPredict).out, HasSubstr("timer of deepspeed does not synchronise"));
}

// Defaults of a job are those with which published runs are read, and on which the profiles rest.
TEST(Predict, AgreesWithValidateOnTheSameRun) {
  const std::string path = testing::TempDir() + "same_run.csv";
  std::ofstream(path) << "case,topology,nodes,gpus_per_node,framework,family,layers,hidden,ffn,"
                         "gated,heads,kv_heads,vocab,"
                         "seq_len,tp,pp,vpp,dp,cp,zero,zero_group,micro_batch,global_batch,"
                         "precision,recompute,flash,"
                         "optimizer,seq_parallel,window,measured_step_s,measured_mem_gib\n"
                         "a-1,selene,1,8,megatron,gpt,12,768,3072,0,12,12,50257,1024,2,1,1,4,1,0,"
                         "dp,4,64,bf16,none,0,"
                         "adamw,0,step,1,\n";
  const json read = JsonOf({"validate", path, "--engine", "event", "--json"});
  const json job =
      JsonOf({"predict",       "--model",     "gpt2-small",     "--topology", "selene",
              "--nodes",       "1",           "--framework",    "megatron",   "--precision",
              "bf16",          "--attention", "standard",       "--tp",       "2",
              "--micro-batch", "4",           "--global-batch", "64",         "--json"});
  EXPECT_NEAR(job["prediction"]["step_time_s"].get<double>() /
                  read["cases"][0]["predicted_step_s"].get<double>(),
              1, 1e-9);
  EXPECT_EQ(job["workload"]["dropout"], 0.1);
  const Outcome outcome = RunPlan({"predict", "--model", "gpt2-small", "--dropout", "1"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("no rate from 0 to below 1"));
}

TEST(Predict, OutOfMemoryIsCodeThreeAndNamesMomentAndTensor) {
  const Outcome outcome = RunPlan({"predict", "--model", "megatron-s9", "--nodes", "2",
                                   "--micro-batch", "32", "--global-batch", "128"});
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("does not fit"));
  EXPECT_THAT(outcome.out, HasSubstr("out of memory on stage 0"));
  EXPECT_THAT(outcome.out, HasSubstr("probs"));
}

TEST(Predict, MegatronWithoutFusedAttentionIsItsReleaseOf2021) {
  const std::vector<std::string> s9 = {"predict", "--model", "megatron-s9",   "--nodes", "2",
                                       "--dp",    "4",       "--micro-batch", "2"};
  const json answer = JsonOf(With(s9, {"--json"}));
  EXPECT_EQ(answer["workload"]["release"], "megatron@2021");
  const double step = answer["prediction"]["step_time_s"];
  EXPECT_NEAR(step, 0.5373, 0.1 * 0.5373);  // measured: NVIDIA DLI notebook, S9
  const std::string text = RunPlan(s9).out;
  EXPECT_THAT(text, HasSubstr("megatron@2021"));
  EXPECT_THAT(text, HasSubstr("reduced after the backward pass"));
  EXPECT_THAT(text, Not(HasSubstr("Hidden behind compute")));
  const json torch = JsonOf(With(s9, {"--fact", "overlap_grad_reduce=on", "--json"}));
  EXPECT_LT(torch["prediction"]["step_time_s"], 0.9 * step);
  bool stated = false;
  for (const json& fact : torch["facts"])
    stated |= fact["key"] == "overlap_grad_reduce" && fact["stated"].get<bool>();
  EXPECT_TRUE(stated);
  EXPECT_THAT(RunPlan(With(s9, {"--fact", "bucket_layers=2"})).out, HasSubstr("bucket_layers 2"));
}

TEST(Predict, APlanIsReadWithAndWithoutItsFlag) {
  const std::string path = ScratchFolder() + "/predict.ir";
  WriteText(path, RunPlan({"show", "--model", "gpt2-micro", "--micro-batch", "4", "--ir"}).out);
  const std::vector<std::string> where = {"--topology", "localhost", "--json"};
  const auto predict = [&](std::vector<std::string> words) {
    words.insert(words.end(), where.begin(), where.end());
    return JsonOf(words);
  };
  EXPECT_EQ(predict({"predict", path}), predict({"predict", "--plan", path}));
  EXPECT_THAT(RunPlan({"predict", path, "--plan", path}).err, HasSubstr("--plan is given twice"));
}

TEST(Predict, WhatWasNeverCalibratedIsNamed) {
  const std::vector<std::string> job = {
      "predict",        "--model", "llama3-8b",     "--topology", "dgx-h100",    "--nodes", "2",
      "--global-batch", "32",      "--micro-batch", "1",          "--framework", "nemo"};
  const auto joined = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const auto width = [&](const std::vector<std::string>& more) {
    const json interval = json::parse(
        RunPlan(joined(With(job, {"--json"}), more)).out)["prediction"]["step_time_interval_s"];
    return interval[1].get<double>() / interval[0].get<double>();
  };
  const double plain = width({});
  for (const auto& [more, words] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--optimizer", "muon"}, "optimizer muon: no calibrated run"},
           {{"--optimizer", "adam8bit"}, "optimizer adam8bit: no calibrated run"},
           {{"--cp", "2", "--cp-method", "ulysses"}, "cp method ulysses: no calibrated run"},
           {{"--cp", "16"}, "16 context parallel: calibrated on"}}) {
    EXPECT_THAT(RunPlan(joined(job, more)).out, HasSubstr(words));
    EXPECT_GT(width(more), 1.01 * plain) << words;
  }
}

TEST(Predict, JsonGoesIntoAFileBesideTheText) {
  const std::string path = ScratchFolder() + "/predict.json";
  const Outcome outcome = RunPlan(With(kPredict, {"--json", path.c_str()}));
  EXPECT_THAT(outcome.out, HasSubstr("step time"));
  EXPECT_EQ(json::parse(ReadText(path)), JsonOf(With(kPredict, {"--json"})));
}

TEST(Predict, NoColourOffATerminal) { EXPECT_THAT(RunPlan(kPredict).out, Not(HasSubstr("\x1b"))); }

TEST(Show, PrintsAPlanThatTheSummaryNamesByItsDigest) {
  const std::vector<std::string> base = {"show", "--model", "gpt2-micro", "--micro-batch", "4"};
  const json summary = JsonOf(With(base, {"--json"}));
  EXPECT_EQ(summary["digest"].get<std::string>().size(), 32u);
  EXPECT_THAT(RunPlan(base).out, HasSubstr(summary["digest"].get<std::string>()));
  EXPECT_THAT(RunPlan(With(base, {"--ir"})).out, HasSubstr("adam("));
}

TEST(Topo, PrintsWhatStandsBesideTheFile) {
  const Outcome outcome = RunPlan({"topo", "aws-dl1"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, ReadText(std::string(ORRERY_SOURCE_DIR) + "/topologies/aws-dl1.txt"));
}

TEST(List, NamesEveryEntryOfEveryCatalogue) {
  const json all = JsonOf({"list", "--json"});
  EXPECT_EQ(all["schema"], "orrery.list/1");
  for (const char* catalogue :
       {"models", "topologies", "gpus", "fabrics", "frameworks", "facts", "framework-profiles"}) {
    std::string names;
    for (const json& entry : all[catalogue]) names += entry["name"].get<std::string>() + "\n";
    EXPECT_EQ(RunPlan({"list", catalogue, "--names"}).out, names);
    EXPECT_THAT(names, Not(IsEmpty())) << catalogue;
  }
  EXPECT_EQ(RunPlan({"list", "stacks"}).out, RunPlan({"list", "framework-profiles"}).out);
}

// A default never asks for what the GPU cannot do; a flag that does is an error.
TEST(Precision, FollowsTheGpuUnlessAsked) {
  const std::vector<std::string> job = {"predict",   "--model", "gpt2-xl", "--topology",
                                        "dgx1-v100", "--nodes", "1",       "--global-batch",
                                        "64",        "--tp",    "1"};
  const Outcome own = RunPlan(job);
  EXPECT_THAT(own.out, HasSubstr("precision fp16, v100-sxm2-32gb does not compute")) << own.err;
  std::vector<std::string> asked = job;
  asked.insert(asked.end(), {"--precision", "bf16"});
  const Outcome refused = RunPlan(asked);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("does not compute in bf16"));
}

TEST(Validate, RunsTheProgramBesideThisOne) {
  const Outcome outcome = RunPlan({"validate", "--help"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("FILE.csv"));
  EXPECT_EQ(RunPlan({"help", "validate"}).out, outcome.out);
}

TEST(Completion, CompletesCommandsFlagsAndNames) {
  const auto complete = [](const std::string& words, int at) {
    return RunShell("plan() { \"$PLAN\" \"$@\"; }; source <(plan completion bash); COMP_WORDS=(" +
                    words + "); COMP_CWORD=" + std::to_string(at) +
                    "; _plan; echo \"${COMPREPLY[*]}\"")
        .out;
  };
  EXPECT_EQ(complete("\"$PLAN\" --gpu h100-sxm5", 2), "h100-sxm5-80gb\n");
  EXPECT_EQ(complete("plan --model = bert-l", 3), "bert-large\n");  // bash splits at =
  EXPECT_EQ(complete("plan --topology aws-p5,selen", 2), "aws-p5,selene\n");
  EXPECT_EQ(complete("plan provision --offers nebius-h1", 3), "nebius-h100\n");
  EXPECT_EQ(complete("plan simulate --scenario slow", 3), "slow-node\n");
  EXPECT_EQ(complete("plan pre", 1), "predict\n");
  EXPECT_EQ(complete("plan --no", 1), "--nodes --node-price\n");
  EXPECT_EQ(complete("plan predict --win", 2), "--window\n");
  EXPECT_EQ(complete("plan --model bert-l", 2), "bert-large\n");
  EXPECT_EQ(complete("plan topo selen", 2), "selene\n");
  EXPECT_EQ(complete("plan predict --precision b", 3), "bf16\n");
}

TEST(Completion, SaysWhatWordsMeanToShellsThatShowIt) {
  EXPECT_THAT(RunPlan({"completion", "words", "prov"}).out,
              HasSubstr("provision\twhich machines to rent"));
  EXPECT_EQ(RunPlan({"completion", "words", "--model=bert-l"}).out, "--model=bert-large\n:files\n");
  EXPECT_EQ(RunPlan({"completion", "words", "nothing", "--m"}).out, "");
}

TEST(Completion, ScriptsAreReadByTheirShells) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    if (RunShell(std::string("command -v ") + shell).code != 0) continue;
    const Outcome read =
        RunShell("\"$PLAN\" completion " + std::string(shell) + " >'" + ScratchFolder() +
                 "/script' && " + shell + " -n '" + ScratchFolder() + "/script' 2>&1");
    EXPECT_EQ(read.code, 0) << shell << ": " << read.out;
  }
}

TEST(Help, EveryCommandHasExamplesBeforeItsFlags) {
  for (const char* command : {"predict", "show", "topo", "list", "completion", "help", "version"}) {
    const Outcome outcome = RunPlan({command, "--help"});
    EXPECT_EQ(outcome.code, 0) << command;
    EXPECT_LT(outcome.out.find("Examples"), outcome.out.find("--help  ")) << command;
    EXPECT_EQ(outcome.out, RunPlan({"help", command}).out);
  }
  EXPECT_THAT(RunPlan({"--help"}).out, HasSubstr("Other commands"));
}

// They load in milliseconds.
TEST(Program, LinksNeitherMpiNorCudaNorSimGrid) {
  for (const char* program : {"$PLAN", "$PLAN-simulate"}) {
    const Outcome outcome = RunShell(fmt::format("ldd \"{}\"", program));
    EXPECT_THAT(outcome.out, AnyOf(HasSubstr("libc.so"), HasSubstr("statically linked")));
    for (const char* library : {"libmpi", "libcuda", "libnccl", "libsimgrid"}) {
      EXPECT_THAT(outcome.out, Not(HasSubstr(library))) << program;
    }
  }
}

}  // namespace
}  // namespace orrery
