// SPDX-License-Identifier: Apache-2.0
// Somebody with a HuggingFace file and the name of a cluster, and no other flag, gets an answer that says what it assumed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/cli/run_plan.h"
#include "tests/from_environment.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const fs::path kSamples = fs::path(ORRERY_SOURCE_DIR) / "tests" / "arch" / "data" / "hf";

Outcome Answer(const std::string& model, const char* nodes = "16") {
  return RunPlan({"--model", model, "--nodes", nodes, "--topology", "dgx-h100"});
}
std::string Sample(const char* name) { return (kSamples / (std::string(name) + ".json")).string(); }

TEST(Newcomer, EveryFileIsAnswered) {
  std::vector<fs::path> samples;
  for (const auto& entry : fs::directory_iterator(kSamples)) samples.push_back(entry.path());
  EXPECT_GE(samples.size(), 40u);
  std::ranges::sort(samples);
  // Every sixth one; all: newcomer_test_full.
  const std::size_t step = FromEnvironment("ORRERY_EVERY_SAMPLE", 0) > 0 ? 1 : 6;
  for (std::size_t i = 0; i < samples.size(); i += step) {
    const fs::path& sample = samples[i];
    const Outcome outcome = Answer(sample.string());
    EXPECT_EQ(outcome.code, 0) << sample << outcome.err;
    EXPECT_THAT(Folded(outcome.out), AllOf(HasSubstr("Best by time"), HasSubstr("(--seq-len)"),
                                           HasSubstr("M tokens: 4.2 M on any cluster")))
        << sample;
  }
}

TEST(Newcomer, LengthAndBatchFollowTheDocumentedRule) {
  const Outcome llama = Answer(Sample("llama-3.1-8b"));  // 131,072 positions
  EXPECT_THAT(Folded(llama.out), HasSubstr("sequence length 8192, the model's longest is 131072"));
  EXPECT_THAT(Folded(llama.out), HasSubstr("global batch 512"));
  const Outcome phi = Answer(Sample("phi-2"), "24");  // 2,048 sequences do not divide by 192 GPUs
  EXPECT_THAT(Folded(phi.out), HasSubstr("sequence length 2048, the model's longest"));
  EXPECT_THAT(Folded(phi.out), HasSubstr("global batch 2112"));
  const Outcome many = Answer(Sample("llama-3.1-8b"), "192");  // 1,536 GPUs: half of them
  EXPECT_THAT(Folded(many.out),
              HasSubstr("global batch 768 sequences, 6.3 M tokens: 4.2 M on any cluster, rounded "
                        "up to a multiple of 768 (1 in 2 GPUs) (--global-batch)"));
}

// A run would take days on a default batch of millions of tokens.
TEST(Newcomer, RealRunsAskForABatchAndRefuseWhatTheyDoNotTrain) {
  std::ifstream in(Sample("llama-3.1-8b"));
  std::string config{std::istreambuf_iterator<char>(in), {}};
  config.replace(config.find("\"llama3\""), 8, "\"dynamic\"");
  const std::string dynamic = testing::TempDir() + "/dynamic.json";
  std::ofstream(dynamic) << config;
  EXPECT_THAT(RunPlan({"run", "--model", Sample("qwen3-0.6b"), "--ranks", "1"}).err,
              HasSubstr("how many sequences"));
  const Outcome outcome =
      RunPlan({"run", "--model", dynamic, "--ranks", "1", "--seq-len", "8", "--global-batch", "1"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("cannot be trained here yet"), HasSubstr("rope_scaling dynamic")));
  for (const char* optimizer : {"muon", "adam8bit"}) {
    EXPECT_THAT(RunPlan({"run", "--model", "gpt2-micro", "--ranks", "1", "--seq-len", "8",
                         "--global-batch", "1", "--optimizer", optimizer})
                    .err,
                HasSubstr("priced only"));
  }
}

TEST(ShowModel, PrintsLayersParametersAndWhatBecameOfTheKeys) {
  const Outcome outcome = RunPlan({"show", "--model", Sample("gemma-2-27b")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(
      outcome.out,
      AllOf(HasSubstr("27,227,128,320"), HasSubstr("23 layers see 4096 keys"),
            HasSubstr("of inputs and outputs"), HasSubstr("logits capped at 30"),
            HasSubstr("embeddings times 67.88"), HasSubstr("set by --precision: torch_dtype")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("hidden_size")));
}

// It asked for a cluster.
TEST(ShowModel, PrintsTheSameAsJson) {
  const Outcome outcome = RunPlan({"show", "--model", Sample("gemma-2-27b"), "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["schema"], "orrery.model/1");
  EXPECT_EQ(json["parameters"]["total"], 27227128320);
  EXPECT_EQ(json["architecture"]["layers"], 46);
  EXPECT_EQ(json["architecture"]["windows_by_layer"].size(), 46);
  EXPECT_EQ(json["architecture"]["logit_cap"], 30);
  EXPECT_EQ(json["without_effect"]["torch_dtype"], "set by --precision");
  // A catalogue's model has a cluster of its own, and is shown alone, too.
  for (const char* model : {"bert-1.5b", "t5-small", "linear-20-1", "llama3-8b"}) {
    const Outcome one = RunPlan({"show", "--model", model, "--json"});
    ASSERT_EQ(one.code, 0) << one.err;
    EXPECT_EQ(nlohmann::json::parse(one.out)["schema"], "orrery.model/1");
    EXPECT_GT(nlohmann::json::parse(one.out)["parameters"]["total"], 0);
  }
  EXPECT_EQ(nlohmann::json::parse(
                RunPlan({"show", "--model", "llama3-8b", "--nodes", "2", "--json"}).out)["schema"],
            "orrery.show/1");
}

TEST(Template, IsAModelThatPlans) {
  const Outcome text = RunPlan({"list", "models", "--template"});
  ASSERT_EQ(text.code, 0) << text.err;
  const fs::path file = fs::path(testing::TempDir()) / "template.yaml";
  std::ofstream(file) << text.out;
  EXPECT_EQ(Answer(file.string()).code, 0);
  EXPECT_EQ(RunPlan({"list", "gpus", "--template"}).code, 2);
}

}  // namespace
}  // namespace orrery
