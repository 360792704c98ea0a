// SPDX-License-Identifier: Apache-2.0
// Facts of a framework's release: what they do to the time of a step.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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

// Papers print MFU with whole attention; at 131,072 tokens half of most FLOPs is masked.
TEST(Facts, MfuSaysWhatItCounts) {
  const auto answer = [](const char* command, const char* length, bool json) {
    std::vector<std::string> words = {command,    "--model",     "llama3-8b", "--topology",
                                      "dgx-h100", "--nodes",     "1",         "--tp",
                                      "8",        "--seq-len",   length,      "--global-batch",
                                      "8",        "--recompute", "full"};
    if (json) words.emplace_back("--json");
    return RunPlan(words).out;
  };
  const auto predict = [&](const char* length, bool json) {
    return answer("predict", length, json);
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

}  // namespace
}  // namespace orrery
