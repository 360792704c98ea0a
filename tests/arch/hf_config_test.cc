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
#include "tests/arch/hf_samples.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

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
    {"falcon-40b", {41'303'293'952, false}},
    {"falcon-7b", {6'921'720'704, false}},
    {"gemma-2b", {2'506'172'416, false}},
    {"gemma-7b", {8'537'680'896, false}},
    {"gemma-2-2b", {2'614'341'888, false}},
    {"gemma-2-27b", {27'227'128'320, false}},
    {"gemma-3-1b", {999'885'952, false}},
    {"gemma-3-4b", {3'880'263'168, false}},    // without the vision tower
    {"gemma-3-12b", {11'766'034'176, false}},  // without the vision tower
    {"gemma-3-27b-text", {27'009'346'304, false}},
    {"gpt-j-6b", {6'050'882'784, false}},
    {"gptj-2-layers",
     {2 * (4 * 512 * 512 + 2 * 512 * 2048 + 2048 + 512 + 2 * 512) + 2 * 50'400 * 512 + 50'400 +
          2 * 512,
      false}},
    {"gpt-neox-20b", {20'554'567'680, false}},
    {"granite-3.1-2b", {2'533'525'504, false}},  // 49,152 words; the released file has 3 more
    {"granite-3.1-8b", {8'170'848'256 - 3 * 4096, false}},
    {"llama-3.1-8b", {8'030'261'248, false}},
    {"llama-3.2-1b", {1'235'814'400, false}},
    {"mimo-7b-base", {7'833'409'536 - 210'790'400, false}},  // without the prediction layer
    {"mimo-7b-rl-0530", {7'833'409'536 - 210'790'400, false}},
    {"mistral-7b-v0.3", {7'248'023'552, false}},
    {"nemotron4-15b", {15'628'775'424, false}},
    {"nemotron4-340b", {341'029'195'776, false}},
    {"olmo-2-7b", {7'298'617'344, false}},
    {"olmo-2-13b", {13'716'198'400, false}},
    {"olmo-3-7b", {7'298'011'136, false}},
    {"olmo-3-32b", {32'233'522'176, false}},
    {"phi-1_5", {1'418'270'720, false}},
    {"phi-2", {2'779'683'840, false}},
    {"phi-3-mini-4k", {3'821'079'552, false}},
    {"phi-4", {14'659'507'200, false}},
    {"qwen2.5-7b", {7'615'616'512, false}},
    {"qwen3-0.6b", {596'049'920, false}},
    {"qwen3-8b", {8'190'735'360, false}},
    {"starcoder", {15'517'456'384, false}},
    {"starcoderbase-1b", {1'137'207'296, false}},
    {"starcoder2-3b", {3'030'371'328, false}},
    {"starcoder2-7b", {7'173'923'840, false}},
};

std::vector<std::string> SampleNames() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kSamples)) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
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
  for (const std::string& family : HfFamilyNames()) {
    bool found = false;
    for (const std::string& name : SampleNames()) {
      found |= SampleText(name).find('"' + family + '"') != std::string::npos;
    }
    EXPECT_TRUE(found) << family;
  }
}

TEST(HfConfig, ListsTheSupportedFamiliesForAnUnknownOne) {
  EXPECT_THAT(ReadError(R"({"model_type": "mamba", "hidden_size": 768})"),
              AllOf(HasSubstr("config.json:1:16"), HasSubstr("'mamba'"), HasSubstr("bloom, falcon"),
                    HasSubstr("t5")));
  EXPECT_THAT(ReadError(R"({"hidden_size": 768, "num_hidden_layers": 12})"), HasSubstr("gpt_neox"));
  EXPECT_THAT(ReadError("{}"), HasSubstr("model_type"));
}

TEST(HfConfig, RefusesArchitecturesThatLookLikeAnother) {
  const std::string llama = WithoutModelType(SampleText("llama-2-7b"));
  EXPECT_THAT(ReadError("{\"num_local_experts\": 8," + llama.substr(1)),
              HasSubstr("mixture of experts"));
  EXPECT_THAT(ReadError("{\"num_local_experts\": 8," + SampleText("llama-3.1-8b").substr(1)),
              AllOf(HasSubstr("config.json:1:2"), HasSubstr("mixture of experts")));
  EXPECT_THAT(ReadError("{\"model_type\": \"mixtral\", \"num_local_experts\": 8}"),
              AllOf(HasSubstr("'mixtral'"), HasSubstr("a mixture of experts")));
}

// A mixture of one expert, or of none, is a dense model.
TEST(HfConfig, AcceptsExpertsThatLeaveTheModelDense) {
  const std::string llama = SampleText("llama-3.1-8b");
  for (const char* count : {"0", "1"}) {
    const auto model = Read(std::string("{\"num_local_experts\": ") + count +
                            ", \"num_experts_per_tok\": " + count + "," + llama.substr(1));
    EXPECT_EQ(model.without_effect.at("num_local_experts"),
              std::string(count) + " leaves the model dense");
  }
  EXPECT_THAT(ReadError("{\"num_local_experts\": 2," + llama.substr(1)),
              HasSubstr("mixture of experts"));
}

// Every key is used, excused with a reason, or refused: with a key more, and with each sample's keys renamed.
TEST(HfConfig, AccountsForEveryKey) {
  const std::string llama = SampleText("llama-3.1-8b");
  EXPECT_THAT(ReadError("{\"attention_sinks\": 4," + llama.substr(1)),
              AllOf(HasSubstr("config.json:1"), HasSubstr("'attention_sinks'"),
                    HasSubstr("may change the model")));
  EXPECT_EQ(
      Read("{\"attention_sinks\": null," + llama.substr(1)).without_effect.at("attention_sinks"),
      "null");
  const auto without_effect = Read(llama).without_effect;
  EXPECT_EQ(without_effect.at("torch_dtype"), "set by --precision");
  EXPECT_FALSE(without_effect.contains("hidden_size"));
  EXPECT_FALSE(without_effect.contains("rope_theta"));
  for (const std::string& name : SampleNames()) {
    const std::string renamed =
        std::regex_replace(SampleText(name), std::regex("\"vocab_size\""), "\"vocab_sizes\"");
    if (renamed == SampleText(name)) continue;  // all of it is the class's defaults
    EXPECT_THAT(ReadError(renamed), HasSubstr("vocab_sizes")) << name;
  }
}

// Keys that have no effect with one value, and change the model with another.
TEST(HfConfig, RefusesValuesThatChangeTheModel) {
  const std::string llama = SampleText("llama-3.1-8b").substr(1);
  EXPECT_THAT(ReadError("{\"add_cross_attention\": true," + llama),
              AllOf(HasSubstr("config.json:1:"), HasSubstr("add_cross_attention 'true'")));
  EXPECT_THAT(ReadError(R"({"pruned_heads": {"0": [1, 2]},)" + llama),
              HasSubstr("pruned_heads '{...}'"));
  Read(R"({"pruned_heads": {}, "add_cross_attention": false, "is_decoder": true,)" + llama);
  EXPECT_THAT(ReadError("{\"is_decoder\": true," + SampleText("bert-large-uncased").substr(1)),
              HasSubstr("is_decoder 'true'"));
  const auto with = [&](const std::string& key, const std::string& value) {
    return std::regex_replace("{" + llama, std::regex("\"" + key + "\": (\"[a-z]*\"|\\{[^}]*\\})"),
                              "\"" + key + "\": " + value);
  };
  EXPECT_THAT(ReadError(with("hidden_act", "null")), HasSubstr("'hidden_act' has no value"));
  EXPECT_THAT(ReadError(with("rope_scaling", "\"linear\"")),
              AllOf(HasSubstr("'linear' without its figures"), HasSubstr("factor: 8")));
}

// As in Python; the same as a file that says false.
TEST(HfConfig, TakesAFlagThatIsNullForFalse) {
  const std::regex tied("\"tie_word_embeddings\": (true|false)");
  const std::string llama = SampleText("llama-3.1-8b");
  ASSERT_TRUE(std::regex_search(llama, tied));
  const auto with = [&](const char* value) {
    return Read(std::regex_replace(llama, tied, std::string("\"tie_word_embeddings\": ") + value));
  };
  EXPECT_FALSE(with("null").spec.tied_embeddings);
  EXPECT_FALSE(with("false").spec.tied_embeddings);
  EXPECT_TRUE(with("true").spec.tied_embeddings);
}

TEST(HfConfig, SaysWhichClassCounts) {
  const std::string llama = std::regex_replace(SampleText("llama-3.1-8b"),
                                               std::regex("LlamaForCausalLM"), "Qwen3ForCausalLM");
  EXPECT_THAT(Read(llama).notes, Contains(HasSubstr("Qwen3ForCausalLM, is one of qwen3")));
  EXPECT_THAT(Read(SampleText("llama-3.1-8b")).notes, Not(Contains(HasSubstr("is one of"))));
}

TEST(HfConfig, ReadsPublishedFilesWithKeysOfOtherClasses) {
  const std::string bigcode =
      "{\"activation_function\": \"gelu\", \"scale_attn_weights\": true, \"model_type\": "
      "\"starcoder2\"}";
  EXPECT_THAT(Read(bigcode).without_effect.at("activation_function"),
              HasSubstr("read by no class"));
  EXPECT_THAT(Read("{\"model_type\": \"falcon\", \"ffn_hidden_size\": 16384, \"ff_factor\": 4}")
                  .without_effect.at("ff_factor"),
              HasSubstr("ffn_hidden_size"));
}

TEST(HfConfig, NamesTheKeyThatAMisspelledOneMeans) {
  const std::string text = std::regex_replace(SampleText("llama-3.1-8b"),
                                              std::regex("\"hidden_size\""), "\"hiden_size\"");
  EXPECT_THAT(ReadError(text), HasSubstr("did you mean 'hidden_size'?"));
}

// OPT and RoBERTa number positions from 2: the longest sequence has two tokens less than the table has rows.
TEST(HfConfig, TakesTheLongestSequenceOfTablesWithMoreRows) {
  const LoadedModel opt = Read(SampleText("opt-125m"));
  EXPECT_EQ(opt.spec.max_positions, 2050);
  EXPECT_EQ(opt.defaults.seq_len, 2048);
  const LoadedModel roberta = Read(SampleText("roberta-base"));
  EXPECT_EQ(roberta.spec.max_positions, 514);
  EXPECT_EQ(roberta.defaults.seq_len, 512);
  EXPECT_EQ(Read(SampleText("gpt2")).defaults.seq_len, std::nullopt);
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

TEST(HfConfig, NamesEachSizeThatItTakesFromTheClass) {
  const LoadedModel bare = Read("{\"model_type\": \"llama\"}");
  ASSERT_EQ(bare.notes.size(), 1U);
  for (const char* size : {"num_hidden_layers 32", "hidden_size 4096", "intermediate_size 11008",
                           "num_attention_heads 32", "vocab_size 32000", "Llama"})
    EXPECT_THAT(bare.notes.front(), HasSubstr(size));
  EXPECT_TRUE(Read(SampleText("llama-3.1-8b")).notes.empty());
  // An older name in the file counts before the default of the newer one.
  EXPECT_EQ(Read("{\"model_type\": \"falcon\", \"n_layer\": 60}").spec.layers, 60);
}

// Not at the file of the family, which nobody has written for this model.
TEST(HfConfig, SaysAtTheFileWhatIsWrongWithADefaultOfTheClass) {
  const std::string gptj = ReadError("{\"model_type\": \"gptj\", \"n_embd\": 100}");
  EXPECT_THAT(gptj, HasSubstr("{\"model_type\": \"gptj\", \"n_embd\": 100}"));
  EXPECT_THAT(gptj, HasSubstr("(rotary_dim 64, which GPTJ of transformers takes"));
  EXPECT_THAT(gptj, HasSubstr("give rotary_dim in the file"));
  EXPECT_THAT(gptj, Not(HasSubstr(".yaml")));
  const std::string olmo = ReadError("{\n\"model_type\": \"olmo2\",\n\"hidden_size\": 1000}");
  EXPECT_THAT(olmo, HasSubstr(":2:15: error: 32 heads do not divide a hidden width of 1000 "
                              "(num_attention_heads 32, which Olmo2"));
}

// The rate of attention next to that of sublayers where they differ; of what a file leaves out, the class's.
TEST(HfConfig, TakesTheRatesOfDropout) {
  using Rates = std::pair<std::optional<double>, std::optional<double>>;
  const auto rates = [](const std::string& family, const std::string& keys) -> Rates {
    const LoadedModel model = Read("{\"model_type\": \"" + family + "\"" + keys + "}");
    return {model.defaults.dropout, model.defaults.attention_dropout};
  };
  EXPECT_EQ(rates("falcon", ""), Rates(0.0, std::nullopt));
  EXPECT_EQ(rates("falcon", ", \"attention_dropout\": 0.1, \"hidden_dropout\": 0.1"),
            Rates(0.1, std::nullopt));
  EXPECT_EQ(rates("falcon", ", \"attention_dropout\": 0.0, \"hidden_dropout\": 0.1"),
            Rates(0.1, 0.0));
  EXPECT_EQ(rates("opt",
                  ", \"num_hidden_layers\": 2, \"hidden_size\": 64, \"num_attention_heads\": 2, "
                  "\"ffn_dim\": 128, \"vocab_size\": 100"),
            Rates(0.1, 0.0));
  EXPECT_EQ(rates("t5",
                  ", \"d_model\": 512, \"num_layers\": 2, \"num_heads\": 8, \"d_ff\": 64, "
                  "\"vocab_size\": 100"),
            Rates(0.1, std::nullopt));
  EXPECT_EQ(rates("llama", ", \"attention_dropout\": 0.1"), Rates(0.0, 0.1));
  EXPECT_EQ(rates("llama", ""), Rates(std::nullopt, std::nullopt));
  const std::string phi2 = ", \"resid_pdrop\": 0.1, \"embd_pdrop\": 0.0";
  EXPECT_EQ(rates("phi", phi2), Rates(0.1, 0.0));
  EXPECT_THAT(Read("{\"model_type\": \"phi\"" + phi2 + "}").notes.back(),
              HasSubstr("embd_pdrop 0 is planned as resid_pdrop 0.1"));
}

TEST(HfConfig, SaysThatTheHeadOfATaskIsNotPlanned) {
  const std::string text = SampleText("llama-2-7b");
  const LoadedModel model =
      Read("{\"architectures\": [\"LlamaForSequenceClassification\"]," + text.substr(1));
  ASSERT_FALSE(model.notes.empty());
  EXPECT_THAT(model.notes.back(), HasSubstr("LlamaForSequenceClassification: planned with"));
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
  const ModelSpec biased = Read("{\"attention_bias\": true," + llama.substr(1)).spec;
  EXPECT_TRUE(biased.qkv_bias && biased.has_out_bias() && !biased.linear_bias);
  EXPECT_THAT(
      ReadError(std::regex_replace(SampleText("phi-2"), std::regex("\"qk_layernorm\": false"),
                                   "\"qk_layernorm\": true")),
      HasSubstr("qk_layernorm 'true' cannot be planned for phi"));
  EXPECT_THAT(ReadError(std::regex_replace(SampleText("olmo-3-7b"), std::regex("full_attention"),
                                           "linear_attention")),
              HasSubstr("'linear_attention' cannot be planned"));
  EXPECT_THAT(ReadError(std::regex_replace(llama, std::regex("silu"), "mish")), HasSubstr("mish"));
}

TEST(HfConfig, ReadsWhatABlockConsistsOf) {
  const auto spec = [](const char* name) { return Read(SampleText(name)).spec; };
  EXPECT_EQ(spec("mistral-7b").windows, std::vector<int64_t>{4096});
  EXPECT_TRUE(spec("mistral-7b-v0.3").windows.empty());  // null is no window
  EXPECT_TRUE(spec("qwen2-0.5b").windows.empty());       // use_sliding_window: false
  const ModelSpec gemma = spec("gemma-2-27b");
  EXPECT_TRUE(gemma.input_norm && gemma.output_norm && gemma.gated);
  EXPECT_EQ(gemma.activation, Activation::kGelu);
  EXPECT_EQ(gemma.windows, (std::vector<int64_t>{4096, 0}));
  EXPECT_EQ(gemma.attention_cap, 50);
  EXPECT_EQ(gemma.logit_cap, 30);
  EXPECT_DOUBLE_EQ(gemma.attention_scale, 1.0 / 12);
  EXPECT_EQ(spec("gemma-3-1b").windows, (std::vector<int64_t>{512, 512, 512, 512, 512, 0}));
  EXPECT_EQ(spec("gemma-3-1b").logit_cap, 0);
  EXPECT_EQ(spec("gemma-3-4b").qk_norm, QkNorm::kHead);
  const ModelSpec olmo = spec("olmo-3-7b");
  EXPECT_TRUE(olmo.output_norm && !olmo.input_norm);
  EXPECT_EQ(olmo.qk_norm, QkNorm::kWidth);
  EXPECT_EQ(olmo.Window(2), 4096);
  EXPECT_EQ(olmo.Window(3), 0);
  EXPECT_TRUE(olmo.untrained.empty());
  EXPECT_EQ(olmo.rope_scaling,
            (RopeScaling{RopeScaling::Kind::kYarn, 8, 1, 32, 8192, 1.2079441541679836, true}));
  EXPECT_FALSE(olmo.rope_scaling_of_windows);
  EXPECT_EQ(spec("gemma-3-4b").rope_scaling, (RopeScaling{RopeScaling::Kind::kLinear, 8}));
  EXPECT_EQ(spec("llama-3.2-1b").rope_scaling,
            (RopeScaling{RopeScaling::Kind::kLlama3, 32, 1, 4, 8192}));
  EXPECT_EQ(spec("gpt-j-6b").RotaryWidth(), 64);
  EXPECT_EQ(spec("phi-2").RotaryWidth(), 32);
  EXPECT_EQ(spec("pythia-160m").RotaryWidth(), 16);
  EXPECT_TRUE(spec("pythia-160m").parallel && !spec("pythia-160m").shared_norm);
  EXPECT_TRUE(spec("falcon-7b").shared_norm && !spec("falcon-40b").shared_norm);
  EXPECT_EQ(spec("falcon-7b").kv_heads, 1);
  EXPECT_EQ(spec("starcoder").kv_heads, 1);
  EXPECT_EQ(spec("llama-3.1-8b").rope_base, 500000);
  const ModelSpec granite = spec("granite-3.1-8b");
  EXPECT_TRUE(granite.untrained.empty());
  EXPECT_EQ(granite.embedding_scale, 12);
  EXPECT_EQ(granite.residual_scale, 0.22);
  EXPECT_EQ(granite.logit_scale, 16);
  EXPECT_DOUBLE_EQ(spec("gemma-2b").embedding_scale, std::sqrt(2048.0));
  EXPECT_EQ(spec("gemma-3-1b").rope_base_of_windows, 10000);
  EXPECT_TRUE(spec("bloom-560m").untrained.empty());
}

// The file's, or the default of its class.
TEST(HfConfig, ReadsTheEpsilonOfNorms) {
  const auto epsilon = [](const std::string& text) { return Read(text).spec.norm_epsilon; };
  const std::regex key("\"(rms_norm_eps|layer_norm_eps|layer_norm_epsilon)\": *[-.0-9e]+,?");
  const auto without = [&](const char* name) {
    return epsilon(std::regex_replace(SampleText(name), key, ""));
  };
  EXPECT_EQ(epsilon(SampleText("qwen2-0.5b")), 1e-6);
  EXPECT_EQ(epsilon(SampleText("llama-2-7b")), 1e-5);
  EXPECT_EQ(without("llama-2-7b"), 1e-6);
  EXPECT_EQ(without("gemma-2-27b"), 1e-6);
  EXPECT_EQ(without("phi-3-mini-4k"), 1e-5);
  EXPECT_EQ(epsilon(SampleText("opt-125m")), 1e-5);
  EXPECT_EQ(epsilon(std::regex_replace(SampleText("llama-2-7b"), key, "\"rms_norm_eps\": 0.001,")),
            1e-3);
}

// Qwen 2 windows the layers from max_window_layers on, where it is switched on.
TEST(HfConfig, ReadsTheWindowsOfQwen) {
  const std::string on =
      std::regex_replace(SampleText("qwen2.5-7b"), std::regex("\"use_sliding_window\": false"),
                         "\"use_sliding_window\": true");
  EXPECT_TRUE(Read(on).spec.windows.empty());  // 28 of 28 layers
  const ModelSpec some = Read(std::regex_replace(on, std::regex("\"max_window_layers\": 28"),
                                                 "\"max_window_layers\": 20"))
                             .spec;
  EXPECT_EQ(some.Window(19), 0);
  EXPECT_EQ(some.Window(20), 131072);
}

}  // namespace
}  // namespace orrery
