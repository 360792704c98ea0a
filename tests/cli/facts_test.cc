// SPDX-License-Identifier: Apache-2.0
// Facts of a framework's release: what they do to the time of a step.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/framework/presets.h"
#include "tests/cli/run_plan.h"

namespace orrery {
namespace {

// RMS norms, rotations and gates are chains; layer norms and GELU are kernels of every library.
TEST(Facts, WithoutACompilerChainsRunOperationByOperation) {
  const auto compute = [](const std::string& model, const std::string& facts) {
    std::vector<std::string> words = {
        "predict", "--model",       model,  "--topology",     "dgx-h100", "--nodes",
        "1",       "--framework",   "fsdp", "--dp",           "8",        "--zero",
        "3",       "--micro-batch", "1",    "--global-batch", "8",        "--json"};
    if (!facts.empty()) words.insert(words.end(), {"--fact", facts});
    const Outcome outcome = RunPlan(words);
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    return nlohmann::json::parse(outcome.out)["prediction"]["breakdown"]["compute_s"].get<double>();
  };
  const double at_once = compute("llama2-7b", "compile=on");
  const double apart = compute("llama2-7b", "");  // PyTorch compiles on request
  EXPECT_GT(apart, 1.01 * at_once);
  EXPECT_GT(compute("llama2-7b", "compile=off,fused_norm=off"), 1.03 * apart);
  EXPECT_EQ(compute("gpt2-xl", "compile=off,fused_norm=off"), compute("gpt2-xl", ""));
}

// TorchTitan shards sequences with tensor parallelism unless told, KempnerForge not in its pipelines, Megatron on request.
TEST(Facts, SequenceParallelismIsOnWhereTheFrameworkTurnsItOn) {
  const auto predict = [](const std::string& framework, const std::string& tp,
                          const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"predict",  "--model",        "llama3-8b", "--topology",
                                      "dgx-h100", "--nodes",        "1",         "--framework",
                                      framework,  "--tp",           tp,          "--seq-len",
                                      "4096",     "--global-batch", "32"};
    words.insert(words.end(), more.begin(), more.end());
    return RunPlan(words);
  };
  const auto on = [&](const std::string& framework, const std::string& tp,
                      const std::vector<std::string>& more = {}) {
    const Outcome outcome = predict(framework, tp, more);
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    return outcome.out.find(", sequence parallel\n") != std::string::npos;
  };
  EXPECT_TRUE(on("torchtitan", "4"));
  EXPECT_TRUE(on("torchtitan", "2", {"--pp", "2"}));
  EXPECT_FALSE(on("torchtitan", "1"));
  EXPECT_FALSE(on("torchtitan", "4", {"--sequence-parallel", "off"}));
  EXPECT_TRUE(on("kempnerforge", "4"));
  EXPECT_FALSE(on("kempnerforge", "4", {"--pp", "2"}));
  EXPECT_FALSE(on("megatron", "4"));
  const Outcome refused = predict("kempnerforge", "4", {"--pp", "2", "--sequence-parallel", "on"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("no sequence parallelism in pipelines"), std::string::npos);
}

// 13 billion parameters on one V100 of 32 GB, as Ren et al. 2021 train.
TEST(Facts, ZeroOffloadKeepsGradientsOnTheHost) {
  const auto memory = [](const std::string& zero, const std::string& facts) {
    std::vector<std::string> words = {
        "predict",   "--model",        "llama2-13b", "--topology",      "dgx1-v100", "--nodes",
        "1",         "--framework",    "deepspeed",  "--gpus-per-node", "1",         "--seq-len",
        "1024",      "--global-batch", "1",          "--zero",          zero,        "--offload",
        "optimizer", "--recompute",    "full",       "--precision",     "fp16",      "--json"};
    if (!facts.empty()) words.insert(words.end(), {"--fact", facts});
    const Outcome outcome = RunPlan(words);
    return nlohmann::json::parse(outcome.out)["prediction"]["memory"];
  };
  const auto there = memory("2", ""), here = memory("2", "offload_gradients=off");
  EXPECT_TRUE(there["fits"]) << there;
  EXPECT_FALSE(here["fits"]);
}

// What a near miss of a zero-bubble schedule keeps, as sail-sg's fork of Megatron-LM does.
TEST(Facts, ZeroBubbleSaysWhatItKeeps) {
  const auto search = [](const char* schedule) {
    return Folded(
        RunPlan({"--model", "llama2-70b", "--topology", "dgx-h100", "--nodes", "6", "--tp", "2",
                 "--framework", "orrery", "--schedule", schedule, "--global-batch", "64"})
            .out);
  };
  const char* const note = "gradients that tensor ranks gathered stay until weight gradients";
  EXPECT_NE(search("zero-bubble").find(note), std::string::npos);
  EXPECT_EQ(search("1f1b").find(note), std::string::npos);
}

// Without flash attention Megatron is priced as its release before TransformerEngine.
TEST(Facts, ARecipeIsThatOfTheReleaseThatIsPriced) {
  const auto predict = [](const std::string& topology, const std::string& recipe,
                          const std::vector<std::string>& more) {
    std::vector<std::string> words = {
        "predict", "--model", "llama2-7b", "--topology", topology, "--nodes",        "1",
        "--tp",    "8",       "--seq-len", "4096",       "--fp8",  "--global-batch", "8"};
    words.insert(words.end() - 2, recipe);
    words.insert(words.end(), more.begin(), more.end());
    return RunPlan(words);
  };
  EXPECT_EQ(predict("dgx-h100", "delayed", {}).code, 0);
  const Outcome refused = predict("dgx-h100", "delayed", {"--precision", "fp32"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("megatron@2021, which has no fp8 recipe delayed"), std::string::npos)
      << refused.err;
  const Outcome held = predict("dgx-b200", "mxfp8", {"--fp8-weights", "on"});
  EXPECT_NE(held.out.find("held in 8 bits with ZeRO 1 and 2, gathered in 16"), std::string::npos)
      << held.out << held.err;
}

// One scale for a tensor, from the tensor: that of a part where ranks share it.
TEST(Facts, AnswersSayWhereRanksRoundOtherwiseThanOne) {
  const auto says = [](const char* command, const char* recipe, std::vector<std::string> layout) {
    std::vector<std::string> words = {"--model", "llama3-8b", "--topology", "dgx-b200",
                                      "--nodes", "1",         "--fp8",      recipe};
    if (*command != '\0') words.insert(words.begin(), command);
    words.insert(words.end(), layout.begin(), layout.end());
    return Folded(RunPlan(words).out).find("scales each rank's part of a tensor by itself") !=
           std::string::npos;
  };
  const std::vector<std::string> tensor = {"--tp", "8"}, context = {"--tp", "1", "--cp", "8"},
                                 replicas = {"--tp", "1", "--dp", "8"};
  EXPECT_TRUE(says("predict", "current", tensor));
  EXPECT_TRUE(says("predict", "nvfp4", context));
  EXPECT_FALSE(says("predict", "current", replicas));
  EXPECT_FALSE(says("predict", "mxfp8", tensor));
  EXPECT_TRUE(says("", "current", tensor));
}

// Papers print MFU with whole attention; at 131,072 tokens half of most FLOPs is masked.
TEST(Facts, MfuSaysWhatItCounts) {
  const auto answer = [](const char* command, const char* length, bool as_json) {
    std::vector<std::string> words = {command,    "--model",     "llama3-8b", "--topology",
                                      "dgx-h100", "--nodes",     "1",         "--tp",
                                      "8",        "--seq-len",   length,      "--global-batch",
                                      "8",        "--recompute", "full"};
    if (as_json) words.emplace_back("--json");
    return RunPlan(words).out;
  };
  const auto predict = [&](const char* length, bool as_json) {
    return answer("predict", length, as_json);
  };
  const char* const note = "without what the causal mask leaves out";
  EXPECT_NE(Folded(predict("131072", false)).find(note), std::string::npos);
  EXPECT_EQ(Folded(predict("2048", false)).find(note), std::string::npos);
  EXPECT_NE(Folded(answer("simulate", "131072", false)).find(note), std::string::npos);
  EXPECT_EQ(Folded(answer("simulate", "2048", false)).find(note), std::string::npos);
  const auto record = nlohmann::json::parse(predict("131072", true))["prediction"];
  const double whole = record["mfu"], rest = record["mfu_without_masked"];
  EXPECT_LT(rest, 0.62 * whole);
  EXPECT_GT(rest, 0.5 * whole);
  EXPECT_NE(record["mfu_counts"].get<std::string>().find("attention over whole sequences"),
            std::string::npos);
}

// One H100, plain PyTorch 2: 36.4 ms compiled, 53.8 eager (calib/data/published_runs.csv, h100torch).
TEST(Facts, AutocastAndCompilerSetTheTrafficOfAStep) {
  const auto step = [](const std::string& framework, const std::string& facts) {
    std::vector<std::string> words = {
        "predict", "--model",     "gpt2-medium", "--topology",      "aws-p5", "--nodes",
        "1",       "--framework", framework,     "--micro-batch",   "16",     "--global-batch",
        "16",      "--seq-len",   "1024",        "--gpus-per-node", "1",      "--json"};
    if (!facts.empty()) words.insert(words.end(), {"--fact", facts});
    const Outcome outcome = RunPlan(words);
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    return nlohmann::json::parse(outcome.out)["prediction"]["step_time_s"].get<double>();
  };
  const double eager = step("ddp", "");
  const double blocks = step("ddp", "compile=on");
  const double whole = step("ddp", "compile=on,compile_loss=on");
  EXPECT_LT(whole, 0.95 * blocks);
  EXPECT_LT(blocks, 0.97 * eager);
  EXPECT_LT(step("ddp", "compile=on,autocast=off"), 0.99 * blocks);  // casts and fp32 residuals
  EXPECT_LT(step("ddp", "padded_vocab=on"), 0.9 * eager);            // 50,257 columns
}

// Standard attention is one release, whoever chose it: no fused kernel runs on V100.
TEST(Facts, StandardAttentionIsTheSameByDefaultAndOnRequest) {
  const auto predict = [](const std::vector<std::string>& more) {
    const std::vector<std::string> words = {
        "predict", "--model",       "gpt2-medium", "--topology",     "dgx1-v100", "--nodes",
        "1",       "--framework",   "megatron",    "--precision",    "fp16",      "--seq-len",
        "1024",    "--micro-batch", "4",           "--global-batch", "64",        "--json"};
    return nlohmann::json::parse(RunPlan(With(words, more)).out);
  };
  const auto own = predict({}), stated = predict({"--attention", "standard"});
  EXPECT_EQ(own["workload"]["release"], "megatron@2021");
  EXPECT_EQ(stated["workload"]["release"], own["workload"]["release"]);
  EXPECT_EQ(stated["prediction"]["step_time_s"], own["prediction"]["step_time_s"]);
  EXPECT_EQ(stated["prediction"]["memory"], own["prediction"]["memory"]);
}

// Who states a release gets it, on chips without fused attention, too; of a framework's name alone the answer says which one
// it took.
TEST(Facts, AStatedReleaseHoldsWithoutFusedAttention) {
  const auto predict = [](const char* framework) {
    return RunPlan({"predict", "--model", "gpt2-large", "--topology", "dgx1-v100", "--nodes", "1",
                    "--dp", "8", "--micro-batch", "1", "--global-batch", "32", "--seq-len", "1024",
                    "--precision", "fp16", "--framework", framework});
  };
  const std::string stated = Folded(predict("megatron@2024").out);
  EXPECT_NE(stated.find("facts of megatron@2024"), stated.npos) << stated;
  EXPECT_NE(stated.find("reduced in the backward pass"), stated.npos);
  EXPECT_NE(stated.find("standard attention"), stated.npos);
  const std::string named = Folded(predict("megatron").out);
  EXPECT_NE(named.find("facts of megatron@2021"), named.npos);
  EXPECT_NE(named.find("megatron with standard attention is read as its release megatron@2021"),
            named.npos)
      << named;
}

// deepspeedai/DeepSpeed pull request 1188: one gather per weight, waited for, before; together and ahead since.
TEST(Facts, DeepSpeedOfEarly2021GathersWeightsOneByOne) {
  const auto step = [](const char* framework, const char* facts) {
    std::vector<std::string> words = {"predict",  "--model",       "gpt2-xl", "--topology",
                                      "aws-p4de", "--nodes",       "2",       "--zero",
                                      "3",        "--micro-batch", "4",       "--global-batch",
                                      "64",       "--precision",   "fp16",    "--attention",
                                      "standard", "--framework",   framework, "--json"};
    if (*facts != '\0') words.insert(words.end(), {"--fact", facts});
    const Outcome outcome = RunPlan(words);
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    return nlohmann::json::parse(outcome.out)["prediction"]["step_time_s"].get<double>();
  };
  const double now = step("deepspeed", ""), then = step("deepspeed@0.3", "");
  EXPECT_GT(then, 1.05 * now);
  EXPECT_GT(step("deepspeed", "gather_messages=4"), now);
  EXPECT_LT(step("deepspeed@0.3", "gather_messages=1"), then);
}

// A frozen model of 405 billion parameters: 94.5 GiB of shards on each of 8 ranks.
TEST(Facts, FrozenWeightsUnderFsdpDoNotVanish) {
  for (const char* framework : {"fsdp", "torchtitan", "huggingface@fsdp", "maxtext"}) {
    const Outcome outcome = RunPlan(
        {"predict", "--model",     "llama3-405b", "--topology",    "dgx-h100", "--nodes",
         "1",       "--framework", framework,     "--zero",        "3",        "--precision",
         "bf16",    "--lora-rank", "8",           "--micro-batch", "1",        "--global-batch",
         "16",      "--seq-len",   "2048",        "--recompute",   "full",     "--json"});
    EXPECT_EQ(outcome.code, 3) << framework;
    const auto memory = nlohmann::json::parse(outcome.out)["prediction"]["memory"];
    EXPECT_FALSE(memory["fits"].get<bool>()) << framework;
    EXPECT_GT(memory["stages"][0]["live_at_peak"]["weights_bytes"].get<double>(), 94e9)
        << framework;
  }
}

std::string Predicted(const std::string& framework, const std::vector<std::string>& more) {
  const Outcome outcome =
      RunPlan(With({"predict", "--model", "llama2-7b", "--topology", "dgx-h100", "--nodes", "1",
                    "--tp", "2", "--sequence-parallel", "on", "--micro-batch", "1",
                    "--global-batch", "16", "--seq-len", "1024", "--framework", framework},
                   more));
  return Folded(outcome.code == 0 ? outcome.out : outcome.err);
}
bool Says(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

TEST(Facts, BucketsAreSaidInTheUnitOfTheFrameworkAndWhereTheyHaveAnEffect) {
  const std::string megatron = Predicted("megatron", {});
  EXPECT_TRUE(Says(megatron, "in buckets of 40 million parameters, or 1 million per rank if that"))
      << megatron;
  EXPECT_TRUE(Says(Predicted("kempnerforge", {"--fact", "compile=on"}), "stated"));
  EXPECT_FALSE(Says(Predicted("torchtitan", {"--zero", "3"}), "in buckets"));
}

TEST(Facts, TheSizeOfABucketIsTheUsersToSay) {
  const std::string text = Predicted("megatron", {"--fact", "bucket=1500000"});
  EXPECT_TRUE(Says(text, "stated in buckets of 1.5 million parameters (--fact)")) << text;
  EXPECT_FALSE(Says(text, "in buckets of 40 million"));
  const auto step = [](const char* facts) {
    const Outcome outcome =
        RunPlan({"predict", "--model", "gpt2-xl", "--topology", "dgx-h100", "--nodes", "8",
                 "--framework", "megatron", "--micro-batch", "1", "--dp", "64", "--global-batch",
                 "64", "--fact", facts, "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out)["prediction"]["step_time_s"].get<double>();
  };
  EXPECT_GT(step("bucket=1000000"), 1.02 * step("bucket=100000000"));
}

TEST(Facts, WhatTheUserSaysOfReductionsIsNotAlsoAssumed) {
  const std::string text = Predicted("megatron", {"--fact", "reduce_in_backward=off"});
  EXPECT_TRUE(Says(text, "stated reduced in the backward pass, with ZeRO 1 after it")) << text;
  EXPECT_EQ(text.find("reduced in the backward pass"), text.rfind("reduced in the backward pass"));
}

TEST(Facts, ThatHaveNoEffectOrContradictAreRefused) {
  EXPECT_TRUE(Says(Predicted("maxtext", {"--fact", "tp_overlap=on"}),
                   "tp_overlap=on: the overlap of tensor-parallel messages"));
  EXPECT_TRUE(Says(Predicted("megatron", {"--fact", "attention=fa2", "--attention", "standard"}),
                   "leave one of them out"));
  EXPECT_TRUE(Says(Predicted("megatron", {"--fact", "tp_overlap=on,tp_overlap=off"}),
                   "tp_overlap is given twice"));
  EXPECT_TRUE(Says(Predicted("megatron", {"--fact", "sequence_parallel=off"}),
                   "--sequence-parallel on contradicts --fact sequence_parallel=off"));
  const std::string unknown = Predicted("megatron", {"--fact", "deterministic=on"});
  EXPECT_TRUE(Says(unknown, "frameworks have no fact 'deterministic'")) << unknown;
  EXPECT_TRUE(Says(unknown, "plan list facts shows all")) << unknown;
}

// Between nodes collectives are chosen by the rules of a release, which is the user's to say.
TEST(Facts, TheReleaseOfNcclIsSaidAndChoosesBetweenNodes) {
  const auto predict = [](const std::vector<std::string>& more) {
    return RunPlan(With({"predict", "--model", "gpt2-xl", "--topology", "dgx-h100", "--framework",
                         "ddp", "--micro-batch", "2", "--global-batch", "512", "--dp", "64"},
                        more));
  };
  const std::string own = Folded(predict({"--nodes", "8"}).out);
  EXPECT_TRUE(Says(own, "nccl 2.28.9")) << own;
  EXPECT_FALSE(Says(own, "stated nccl"));
  const std::string stated = Folded(predict({"--nodes", "8", "--fact", "nccl=2.18.3"}).out);
  EXPECT_TRUE(Says(stated, "stated nccl 2.18.3 (--fact)")) << stated;
  const auto step = [&](const std::vector<std::string>& more) {
    const auto answer = nlohmann::json::parse(predict(With({"--nodes", "8", "--json"}, more)).out);
    return answer["prediction"]["step_time_s"].get<double>();
  };
  EXPECT_EQ(step({}), step({"--fact", "nccl=2.28.9"}));
  EXPECT_NE(step({}), step({"--fact", "nccl=2.18.3"}));
  EXPECT_TRUE(Says(Predicted("megatron", {"--fact", "nccl=2.18.3"}),
                   "nccl 2.18.3, whose release matters between nodes"));
}

TEST(Facts, AReleaseOfNcclThatIsNotKnownOrOlderThanTheChipIsRefused) {
  const auto refused = [](const char* release, const std::vector<std::string>& more = {}) {
    return Predicted("megatron", With({"--fact", std::string("nccl=") + release}, more));
  };
  const std::string late = refused("2.99");
  EXPECT_TRUE(Says(late, "how NCCL 2.99 chooses is not known")) << late;
  EXPECT_TRUE(Says(late, "hint: the rules of 2.10 to 2.30 are known")) << late;
  EXPECT_TRUE(Says(refused("new"), "'new' is no release of NCCL"));
  const std::string old = refused("2.14.3");
  EXPECT_TRUE(Says(old, "NCCL 2.14.3 does not run on h100-sxm5-80gb")) << old;
  EXPECT_TRUE(Says(old, "hint: 2.15.1 and later do")) << old;
  EXPECT_TRUE(Says(refused("2.28.9", {"--gpu", "mi300x"}), "NCCL does not run on mi300x"));
}

TEST(Facts, AsyncTensorParallelismOfTorchTitanHasAnEffect) {
  const std::string off = Predicted("torchtitan", {}),
                    on = Predicted("torchtitan", {"--fact", "tp_overlap=on"});
  const auto exposed = [](const std::string& text) {
    return text.substr(text.find("step time"), 30);
  };
  EXPECT_TRUE(Says(on, "stated tp_overlap on"));
  EXPECT_NE(exposed(off), exposed(on));
}

// Of two ways to say it the flag wins, and the answer says so; models with gates train without dropout by default.
TEST(Facts, DropoutByFactIsPricedAndByFlagWins) {
  const auto step = [](const std::vector<std::string>& more) {
    const std::string text = Predicted("megatron", With(more, {"--json"}));
    return nlohmann::json::parse(text)["prediction"]["step_time_s"].get<double>();
  };
  EXPECT_EQ(step({"--fact", "dropout=0.1"}), step({"--dropout", "0.1"}));
  EXPECT_NE(step({"--fact", "dropout=0.1"}), step({}));
  EXPECT_EQ(step({"--fact", "dropout=0.1", "--dropout", "0"}), step({"--dropout", "0"}));
  EXPECT_TRUE(Says(Predicted("megatron", {"--fact", "dropout=0.1", "--dropout", "0"}),
                   "stated dropout 0.1, --dropout 0 instead"));
}

TEST(Facts, AllAreListedWithTheirValues) {
  const std::string text = RunPlan({"list", "facts"}).out;
  for (const std::string& name : FactNames()) EXPECT_TRUE(Says(text, "  " + name + " ")) << name;
  EXPECT_TRUE(Says(Folded(text), "tp_overlap on, off off on: nemo, nemo@2023")) << text;
}

// TransformerEngine: cuDNN's attention runs from compute capability 8.0 on, and is preferred from 9.0 on.
TEST(Facts, CudnnsAttentionRunsOnAmpereForThoseWhoAskForIt) {
  const auto predict = [](const std::vector<std::string>& more) {
    const std::vector<std::string> words = {
        "predict", "--model", "llama2-7b",   "--topology", "dgx-a100-80",    "--nodes", "1",
        "--tp",    "2",       "--framework", "megatron",   "--global-batch", "16"};
    const Outcome outcome = RunPlan(With(words, more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return Folded(outcome.out);
  };
  EXPECT_TRUE(Says(predict({}), "assumed attention fa2"));
  EXPECT_TRUE(Says(predict({"--fact", "attention=cudnn"}), "stated attention cudnn"));
}

TEST(Facts, TransformerEnginesDummyGradientsAreNamed) {
  const auto memory = [](const std::vector<std::string>& more) {
    const std::vector<std::string> words = {
        "predict", "--model",     "llama3-405b", "--topology",    "dgx-h100", "--nodes",
        "128",     "--framework", "nemo",        "--tp",          "1",        "--pp",
        "16",      "--zero",      "1",           "--micro-batch", "1",        "--global-batch",
        "512",     "--seq-len",   "2048",        "--recompute",   "full",     "--json"};
    return nlohmann::json::parse(RunPlan(With(words, more)).out)["prediction"]["memory"];
  };
  // Maps of 18,432 x 16,384, 16,384 x 16,384, 106,496 x 16,384 and 16,384 x 53,248, and the table of the last stage.
  const double h = 16384, layer = 2 * h * (18432 + h + 106496 + 53248), head = 2 * h * 128256;
  const double dummies = memory({})["dummy_gradients_bytes"];
  EXPECT_TRUE(dummies == layer || std::abs(dummies - layer - head) < 0.01 * head) << dummies;
  EXPECT_EQ(memory({"--fact", "dummy_weight_gradients=off"})["dummy_gradients_bytes"], 0.0);
}

// What grows needs room: 27 of 29.9 GiB are not ranked with what leaves 5 GB.
TEST(Facts, PlansOnGaudiLeaveRoomForGrowth) {
  const Outcome outcome =
      RunPlan({"--nodes", "32", "--model", "bert-1.5b", "--top", "8", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto answer = nlohmann::json::parse(outcome.out);
  int full = 0;
  for (const auto& plan : answer["ranked"]) {
    const double share = plan["memory"]["total_bytes"].get<double>() /
                         plan["memory"]["capacity_bytes"].get<double>();
    EXPECT_EQ(plan["memory"]["nearly_full"].get<bool>(), share > 1 - 4.9e9 / 32.05e9) << share;
    full += plan["memory"]["nearly_full"].get<bool>();
    EXPECT_TRUE(full == 0 || plan["memory"]["nearly_full"].get<bool>()) << "below all others";
  }
}

// FlashAttention 2 is of CUDA; SynapseAI's fused kernel is of Gaudi 2 and 3.
TEST(Facts, TheFirstGaudiHasNoFusedAttention) {
  for (const char* framework : {"megatron", "huggingface"}) {
    const Outcome outcome = RunPlan({"predict", "--model", "gpt2-xl", "--topology", "aws-dl1",
                                     "--nodes", "1", "--micro-batch", "2", "--global-batch", "64",
                                     "--seq-len", "1024", "--zero", "1", "--framework", framework});
    EXPECT_TRUE(Says(outcome.out, "standard attention")) << framework << outcome.out << outcome.err;
    EXPECT_FALSE(Says(outcome.out, "attention fa2")) << framework;
  }
}

TEST(Facts, GrowthOnGaudiIsSaidNotToBeModelled) {
  const Outcome outcome =
      RunPlan({"predict", "--model", "bert-large", "--topology", "aws-dl1", "--nodes", "1"});
  EXPECT_TRUE(Says(Folded(outcome.out), "not modelled memory grows during a run on Gaudi"))
      << outcome.out << outcome.err;
}

}  // namespace
}  // namespace orrery
