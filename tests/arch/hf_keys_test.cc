// SPDX-License-Identifier: Apache-2.0
// Keys of a config.json that say the same thing, those that are not there, and rotary positions in their several forms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "tests/arch/hf_samples.h"

namespace orrery {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// `text` with keys in front of its own.
std::string WithKeys(const std::string& keys, const std::string& text) {
  return "{" + keys + ",\n" + text.substr(1);
}

// Names of one attribute of a class (attribute_map): which of two values it takes depends on the version of transformers.
TEST(HfConfig, RefusesNamesThatContradictEachOther) {
  const std::string gpt2 = SampleText("gpt2");
  for (const char* key :
       {"num_hidden_layers", "hidden_size", "num_attention_heads", "max_position_embeddings"}) {
    EXPECT_THAT(ReadError(WithKeys("\"" + std::string(key) + "\": 4", gpt2)),
                AllOf(HasSubstr("config.json:1:"), HasSubstr(std::string(key) + " 4 contradicts"),
                      HasSubstr("in line ")));
  }
  EXPECT_EQ(Read(WithKeys("\"num_hidden_layers\": 12, \"hidden_size\": 768,"
                          "\"max_position_embeddings\": 1024",
                          gpt2))
                .spec,
            Read(gpt2).spec);
  EXPECT_THAT(ReadError(WithKeys("\"hidden_size\": 512", SampleText("bloom-560m"))),
              HasSubstr("n_embed 1024 contradicts hidden_size 512 in line 1"));
  EXPECT_THAT(ReadError(WithKeys("\"n_layer\": 10", SampleText("falcon-40b"))),
              HasSubstr("contradicts"));
  EXPECT_THAT(ReadError(WithKeys("\"num_hidden_layers\": 3", SampleText("gpt-j-6b"))),
              HasSubstr("contradicts n_layer 28"));
  // Other words for the same activation, and a stack of its own.
  (void)Read(WithKeys("\"hidden_act\": \"gelu\"", SampleText("gemma-3-1b")));
  EXPECT_EQ(Read("{\"model_type\": \"t5\", \"num_layers\": 6, \"num_decoder_layers\": 2,"
                 "\"d_model\": 512, \"d_ff\": 2048, \"d_kv\": 64, \"num_heads\": 8,"
                 "\"vocab_size\": 32128}")
                .spec.decoder_layers,
            2);
}

TEST(HfConfig, ReadsTheKindsOfLayersWithoutWindowsToo) {
  const std::string qwen = SampleText("qwen3-8b");
  const auto kinds = [](int full, const std::string& last) {
    std::string text = "\"layer_types\": [";
    for (int i = 0; i < full; ++i) text += "\"full_attention\", ";
    return text + "\"" + last + "\"]";
  };
  EXPECT_TRUE(Read(WithKeys(kinds(35, "full_attention"), qwen)).spec.windows.empty());
  EXPECT_THAT(ReadError(WithKeys(kinds(34, "full_attention"), qwen)),
              HasSubstr("35 entries for 36 layers"));
  EXPECT_THAT(ReadError(WithKeys(kinds(35, "linear_attention"), qwen)),
              HasSubstr("'linear_attention' cannot be planned"));
  EXPECT_THAT(ReadError(WithKeys(kinds(35, "sliding_attention"), qwen)),
              HasSubstr("use_sliding_window is false"));
}

TEST(HfConfig, NamesEachDefaultThatMovesParametersOrAttention) {
  const auto notes = [](const std::string& sample, const std::string& key) {
    const std::regex line("\n *\"" + key + "\": [^\n]*[^\n,](,?)(?=\n)");
    const std::string text = std::regex_replace(SampleText(sample), line, "");
    EXPECT_NE(text, SampleText(sample)) << key;
    std::string all;
    for (const std::string& note :
         Read(std::regex_replace(text, std::regex(",(\\s*\\})"), "$1")).notes)
      all += note + "; ";
    return all;
  };
  EXPECT_THAT(notes("llama-3.1-8b", "num_key_value_heads"), HasSubstr("num_key_value_heads 32"));
  EXPECT_THAT(notes("llama-3.1-8b", "rope_theta"), HasSubstr("rope_theta 10000"));
  EXPECT_THAT(notes("llama-3.1-8b", "tie_word_embeddings"), HasSubstr("tie_word_embeddings false"));
  EXPECT_THAT(notes("falcon-40b", "num_kv_heads"), HasSubstr("num_kv_heads 128"));
  EXPECT_THAT(notes("olmo-3-7b", "sliding_window"), HasSubstr("sliding_window 4096"));
  EXPECT_THAT(notes("gemma-3-1b", "head_dim"), HasSubstr("head_dim 256"));
  EXPECT_THAT(notes("gemma-3-1b", "max_position_embeddings"),
              HasSubstr("max_position_embeddings 131072"));
  const LoadedModel wide =
      Read(std::regex_replace(SampleText("gemma-2-27b"), std::regex("\"sliding_window\": 4096"),
                              "\"sliding_window\": null"));
  EXPECT_TRUE(wide.spec.windows.empty());  // null is no window
  EXPECT_THAT(Read("{\"model_type\": \"falcon\"}").notes.front(), HasSubstr("multi_query true"));
}

TEST(HfConfig, RefusesRotaryPositionsThatContradictEachOther) {
  const std::string qwen = SampleText("qwen3-0.6b");
  const auto with = [&](const std::string& scaling) {
    return std::regex_replace(qwen, std::regex("\"rope_scaling\": null"), scaling);
  };
  ASSERT_NE(with("x"), qwen);
  // What it says and nobody knows: the factor of a typing error was lost.
  EXPECT_THAT(ReadError(with(R"("rope_scaling": {"rope_type": "yarn", "factr": 4.0})")),
              HasSubstr("'factr' of rotary positions is not known here"));
  EXPECT_THAT(ReadError(with(R"("rope_scaling": {"rope_type": "default", "mrope_section": [16]})")),
              HasSubstr("'mrope_section' of rotary positions"));
  const std::string linear = R"({"rope_type": "linear", "factor": 8})";
  EXPECT_THAT(
      ReadError(with(R"("rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 8})")),
      HasSubstr("type linear contradicts rope_type yarn"));
  EXPECT_THAT(ReadError(with("\"rope_scaling\": " + linear +
                             R"(, "rope_parameters": {"rope_type": "linear", "factor": 4})")),
              HasSubstr("rope_parameters {...} contradicts rope_scaling {...}"));
  EXPECT_EQ(Read(with("\"rope_scaling\": " + linear +
                      R"(, "rope_parameters": {"type": "linear", "factor": 8.0})"))
                .spec.rope_scaling.factor,
            8);
  EXPECT_THAT(ReadError(with(R"("rope_parameters": {"rope_type": "default", "rope_theta": 5})")),
              HasSubstr("rope_theta 5 contradicts rope_theta 1000000"));
}

// As transformers 5 writes Gemma 3: a map for each kind of attention.
TEST(HfConfig, ReadsRotaryPositionsByKindOfAttention) {
  std::string text = SampleText("gemma-3-1b");
  const ModelSpec plain = Read(text).spec;
  for (const char* key : {"rope_theta", "rope_local_base_freq"})
    text = std::regex_replace(text, std::regex("\"" + std::string(key) + "\": [0-9]*,"), "");
  const auto with = [&](const std::string& windowed) {
    return std::regex_replace(
        text, std::regex("\"rope_scaling\": null"),
        R"("rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0,
           "rope_theta": 2000000.0}, "sliding_attention": {"rope_type": ")" +
            windowed + R"(", "rope_theta": 20000.0}})");
  };
  const LoadedModel model = Read(with("default"));
  EXPECT_EQ(model.spec.rope_base, 2e6);
  EXPECT_EQ(model.spec.rope_base_of_windows, 2e4);
  EXPECT_EQ(model.spec.rope_scaling.factor, 8);
  EXPECT_EQ(model.spec.windows, plain.windows);
  for (const std::string& note : model.notes) EXPECT_THAT(note, Not(HasSubstr("rope_")));
  EXPECT_THAT(ReadError(with("dynamic")), HasSubstr("'dynamic' of sliding_attention"));
  EXPECT_THAT(Read(WithKeys("\"offset_alibi\": 100", SampleText("bloom-560m"))).without_effect,
              ::testing::Contains(::testing::Key("offset_alibi")));
}

// Steps of such a model take less time than a plan of all layers.
TEST(HfConfig, LayersThatAStepSkipsAreRefused) {
  EXPECT_THAT(ReadError(WithKeys("\"layerdrop\": 0.1", SampleText("opt-125m"))),
              HasSubstr("layerdrop '0.1' cannot be planned"));
  EXPECT_EQ(Read(WithKeys("\"layerdrop\": 0.0", SampleText("opt-125m"))).spec.layers, 12);
}

}  // namespace
}  // namespace orrery
