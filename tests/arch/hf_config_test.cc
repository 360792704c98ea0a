// SPDX-License-Identifier: Apache-2.0
// HuggingFace configurations: parameter counts of published weights, families told from keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <regex>

#include "model/arch/hf_family.h"
#include "model/arch/parameters.h"
#include "model/arch/readers.h"
#include "tests/arch/expect_error.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const fs::path kSamples = fs::path(ORRERY_SOURCE_DIR) / "tests" / "arch" / "data" / "hf";

struct Sample {
  int64_t parameters;  // as HuggingFace's model class counts them
  bool backbone;       // the class without the training head
};
const std::map<std::string, Sample> kCounts = {
    {"gpt2", {124'439'808, false}},
    {"pythia-160m", {162'322'944, false}},
    {"bert-large-uncased", {335'141'888, true}},
    {"roberta-base", {124'697'433, false}},  // RobertaForMaskedLM
    {"llama-2-7b", {6'738'415'616, false}},
    {"mistral-7b", {7'241'732'096, false}},
    {"qwen2-0.5b", {494'032'768, false}},
    {"t5-small", {60'506'624, false}},
    {"t5-v1_1-small", {76'961'152, false}},
    {"opt-125m", {125'239'296, false}},
    {"bloom-560m", {559'214'592, false}},
    {"bert_1.5b_config", {1'527'780'800, true}},  // Habana's keys, without model_type
};

std::vector<std::string> SampleNames() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kSamples)) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}
std::string SampleText(const std::string& name) {
  return ReadSource((kSamples / (name + ".json")).string())->text;
}
LoadedModel Read(const std::string& text) { return ReadHfConfig(Text("config.json", text), "it"); }
std::string ReadError(const std::string& text) {
  return ErrorOf([&] { Read(text); });
}
std::string WithoutModelType(const std::string& text) {
  return std::regex_replace(text, std::regex("\"model_type\": \"[^\"]*\",?"), "");
}

class HfSample : public ::testing::TestWithParam<std::string> {};

TEST_P(HfSample, HasThePublishedParameterCount) {
  const auto known = kCounts.find(GetParam());
  ASSERT_NE(known, kCounts.end()) << "add the sample's parameter count to kCounts";
  const LoadedModel model = LoadModel((kSamples / (GetParam() + ".json")).string());
  EXPECT_EQ(model.spec.name, GetParam());
  const ParameterCount count = CountParameters(model.spec);
  EXPECT_EQ(known->second.backbone ? count.backbone : count.total, known->second.parameters);
}

// Without model_type the keys tell the same model, apart from what only the name tells (Qwen2's
// biases, RoBERTa's heads), and a note says what was inferred.
TEST_P(HfSample, IsRecognisedWithoutModelType) {
  const std::string text = SampleText(GetParam());
  const LoadedModel inferred = Read(WithoutModelType(text));
  ASSERT_FALSE(inferred.notes.empty());
  EXPECT_THAT(inferred.notes.front(), HasSubstr("no model_type"));
  if (GetParam() == "qwen2-0.5b" || GetParam() == "roberta-base") return;
  EXPECT_EQ(CountParameters(inferred.spec).total, CountParameters(Read(text).spec).total);
}

// Every prefix of the file ends in a message with its place, never in a model.
TEST_P(HfSample, TruncatedIsRefused) {
  const std::string text = SampleText(GetParam());
  for (std::size_t length = 0; length + 2 < text.size(); length += 7) {
    EXPECT_THAT(ReadError(text.substr(0, length)), HasSubstr("config.json")) << length;
  }
}

INSTANTIATE_TEST_SUITE_P(All, HfSample, ::testing::ValuesIn(SampleNames()), [](const auto& tested) {
  std::string name = tested.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

TEST(HfConfig, HasASamplePerFamily) {
  for (const HfFamily& family : HfFamilies()) {
    bool found = false;
    for (const std::string& name : SampleNames()) {
      found |=
          SampleText(name).find('"' + std::string(family.model_type) + '"') != std::string::npos;
    }
    EXPECT_TRUE(found) << family.model_type;
  }
}

TEST(HfConfig, ListsTheSupportedFamiliesForAnUnknownOne) {
  EXPECT_THAT(ReadError(R"({"model_type": "mamba", "hidden_size": 768})"),
              AllOf(HasSubstr("config.json:1:16"), HasSubstr("'mamba'"), HasSubstr("bloom, gpt2"),
                    HasSubstr("t5")));
  EXPECT_THAT(ReadError(R"({"hidden_size": 768, "num_hidden_layers": 12})"), HasSubstr("gpt_neox"));
  EXPECT_THAT(ReadError("{}"), HasSubstr("model_type"));
}

TEST(HfConfig, RefusesArchitecturesThatLookLikeAnother) {
  const std::string llama = WithoutModelType(SampleText("llama-2-7b"));
  EXPECT_THAT(ReadError("{\"num_local_experts\": 8," + llama.substr(1)),
              HasSubstr("mixture of experts"));
  EXPECT_THAT(ReadError(R"({"n_embd": 4096, "n_head": 16, "n_layer": 28, "rotary_dim": 64})"),
              HasSubstr("GPT-J"));
}

TEST(HfConfig, InfersFromTheArchitecture) {
  const std::string qwen = WithoutModelType(SampleText("qwen2-0.5b"));
  const LoadedModel model = Read("{\"architectures\": [\"Qwen2ForCausalLM\"]," + qwen.substr(1));
  EXPECT_THAT(model.notes.front(), HasSubstr("Qwen2ForCausalLM"));
  EXPECT_EQ(CountParameters(model.spec).total, 494'032'768);
  const std::string gpt2 = WithoutModelType(SampleText("gpt2"));
  const LoadedModel mistral =  // Stanford's Mistral trains GPT-2
      Read("{\"architectures\": [\"MistralGPT2LMHeadModel\"]," + gpt2.substr(1));
  EXPECT_THAT(mistral.notes.front(), HasSubstr("taken as gpt2"));
}

TEST(HfConfig, ReadsThePreNormOfHabanasBert) {
  const std::string text = SampleText("bert_1.5b_config");
  const LoadedModel model = Read("{\"layer_norm_large_model\": true," + text.substr(1));
  EXPECT_FALSE(model.spec.post_norm);
  EXPECT_EQ(CountParameters(model.spec).total, CountParameters(LoadModel("bert-1.5b").spec).total);
}

TEST(HfConfig, RefusesBadDimensionsAtTheirKeys) {
  const auto gpt2 = [](const std::string& layers, const std::string& heads) {
    return "{\"model_type\": \"gpt2\", \"n_embd\": 768, \"vocab_size\": 100, \"n_positions\": 8,\n"
           "\"n_layer\": " +
           layers + ",\n\"n_head\": " + heads + "}";
  };
  EXPECT_EQ(Read(gpt2("2", "12")).spec.head_dim, 64);
  EXPECT_THAT(ReadError(gpt2("0", "12")), AllOf(HasSubstr("config.json:2"), HasSubstr("n_layer")));
  EXPECT_THAT(ReadError(gpt2("2", "7")), AllOf(HasSubstr("config.json:3"), HasSubstr("7 heads")));
  EXPECT_THAT(ReadError(gpt2("\"2\"", "12")), HasSubstr("n_layer"));
  EXPECT_THAT(ReadError(gpt2("2, \"n_layer\": 3", "12")), HasSubstr("n_layer"));
}

TEST(HfConfig, RefusesWhatItWouldGetWrong) {
  const std::string opt = SampleText("opt-125m");
  EXPECT_THAT(ReadError(std::regex_replace(opt, std::regex("\"word_embed_proj_dim\": 768"),
                                           "\"word_embed_proj_dim\": 512")),
              HasSubstr("word_embed_proj_dim"));
  const std::string llama = SampleText("llama-2-7b");
  EXPECT_THAT(ReadError("{\"attention_bias\": true," + llama.substr(1)), HasSubstr("mlp_bias"));
  EXPECT_THAT(ReadError(std::regex_replace(llama, std::regex("silu"), "mish")), HasSubstr("mish"));
}

TEST(HfConfig, SaysWhatItSimplifies) {
  const auto notes = Read(SampleText("mistral-7b")).notes;
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes.front(), HasSubstr("sliding-window"));
  EXPECT_TRUE(Read(SampleText("qwen2-0.5b")).notes.empty());
  EXPECT_THAT(Read(SampleText("pythia-160m")).notes.front(), HasSubstr("side by side"));
}

}  // namespace
}  // namespace orrery
