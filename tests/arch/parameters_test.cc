// SPDX-License-Identifier: Apache-2.0
// Parameter counts and FLOPs against the closed forms that papers print.
#include "model/arch/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/arch/catalogue.h"
#include "model/arch/hf_tensors.h"
#include "model/base/diagnostics.h"

namespace orrery {
namespace {

double Value(int64_t count) { return static_cast<double>(count); }

// Narayanan et al. 2021, equation 2: P = 12 l h^2 (1 + 13/12h + (V + s)/12lh), without the final
// norm.
TEST(Parameters, FollowTheGptFormula) {
  for (const char* name : {"sc21-1.7b", "sc21-39.1b", "sc21-1t", "gpt2-medium"}) {
    const ModelSpec s = LoadModel(name).spec;
    const int64_t formula = 12 * s.layers * s.hidden * s.hidden + 13 * s.layers * s.hidden +
                            (s.vocab + s.max_positions) * s.hidden;
    EXPECT_EQ(CountParameters(s).total, formula + 2 * s.hidden) << name;
  }
}

// rank (in + out) for each map: Llama 2 70B with rank 16 beside q, k, v (fused) and o.
TEST(Parameters, OfAdaptersAreRankTimesBothWidths) {
  const ModelSpec s = LoadModel("llama2-70b").spec;
  const Lora lora{16, 32, kLoraQkv | kLoraProj};
  EXPECT_EQ(AdapterParameters(s, lora), 16 * (8192 + 10240) + 16 * (8192 + 8192));
  // Half of a split pair is whole on each of four tensor ranks.
  EXPECT_EQ(AdapterParameters(s, lora, 4), 16 * (8192 + 2560) + 16 * (2048 + 8192));
  EXPECT_EQ(AdapterParameters(s, {}), 0);
  // Parts of a product have an A each, of keys and values as wide as these.
  const Lora parts{16, 32, kLoraQ | kLoraV};
  EXPECT_EQ(AdapterParameters(s, parts, 4), 16 * (8192 + 2048) + 16 * (8192 + 256));
}

// What PEFT's print_trainable_parameters() prints: 4,194,304 for LLaMA 7B, rank 8, by default on q_proj and v_proj;
// 41,943,040 for Llama 3 8B, rank 16, on the seven maps of a layer.
TEST(Adapters, AreAsManyAsPeftPrints) {
  const auto count = [](const char* model, int rank, const char* targets) {
    const ModelSpec s = LoadModel(model).spec;
    return s.layers * AdapterParameters(s, {rank, 16, ReadLoraTargets(targets, s.gated)});
  };
  EXPECT_EQ(count("llama2-7b", 8, "q_proj,v_proj"), 4194304);
  EXPECT_EQ(count("llama3-8b", 16, "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"),
            41943040);
  EXPECT_EQ(count("llama3-8b", 16, "all-linear"), 41943040);
}

// 4 N per token: weights make no gradients of their own.
TEST(Flops, OfFrozenWeightsAreFourPerWeight) {
  const ModelSpec s = LoadModel("llama3-8b").spec;
  const Lora lora{16, 32};
  const double full = ModelFlopsPerSequence(s, 4096, 0).value;
  const double frozen = ModelFlopsPerSequence(s, 4096, 0, lora).value;
  const double attention = 12 * Value(s.layers) * 4096 * 4096 * Value(s.heads * s.head_dim);
  const double adapters = 6 * 4096 * Value(s.layers * AdapterParameters(s, lora));
  EXPECT_NEAR((frozen - adapters - attention) / (full - attention), 4.0 / 6, 1e-12);
}

TEST(Adapters, TargetsHaveMegatronsAndHuggingFacesNames) {
  EXPECT_EQ(ReadLoraTargets("linear_qkv,linear_fc2", true), kLoraQkv | kLoraFc2);
  EXPECT_EQ(ReadLoraTargets("linear_q;linear_v;linear_fc1_up", true), kLoraQ | kLoraV | kLoraUp);
  EXPECT_EQ(ReadLoraTargets("q_proj;k_proj;v_proj;o_proj", true), kLoraPartsOfQkv | kLoraProj);
  EXPECT_EQ(ReadLoraTargets("q_proj,v_proj", true), kLoraQ | kLoraV);
  EXPECT_EQ(ReadLoraTargets("gate_proj,up_proj,down_proj", true), kLoraPartsOfFc1 | kLoraFc2);
  EXPECT_EQ(ReadLoraTargets("up_proj", true), kLoraUp);
  EXPECT_EQ(ReadLoraTargets("up_proj", false), kLoraFc1);
  EXPECT_EQ(ReadLoraTargets("qkv_proj,gate_up_proj", true), kLoraQkv | kLoraFc1);
  EXPECT_EQ(ReadLoraTargets("c_attn,c_proj", false), kLoraQkv | kLoraProj | kLoraFc2);
  EXPECT_EQ(ReadLoraTargets("query_key_value,dense,dense_4h_to_h", false),
            kLoraQkv | kLoraProj | kLoraFc2);
  EXPECT_EQ(ReadLoraTargets("all-linear", true),
            kLoraPartsOfQkv | kLoraProj | kLoraPartsOfFc1 | kLoraFc2);
  EXPECT_EQ(ReadLoraTargets("all-linear", false), kLoraAll);
  for (const char* wrong :
       {"", "lm_head", "linear_qkv,", "linear_qkv,q_proj", "linear_fc1,up_proj"})
    EXPECT_THROW((void)ReadLoraTargets(wrong, true), InputError) << wrong;
  EXPECT_THROW((void)ReadLoraTargets("gate_proj", false), InputError);
  for (const LoraTargets targets : {kLoraAll, kLoraPartsOfQkv, kLoraPartsOfFc1})
    EXPECT_EQ(ReadLoraTargets(LoraTargetWords(targets), true), targets);
  EXPECT_EQ(LoraTargetWords(kLoraAll), "linear_qkv,linear_proj,linear_fc1,linear_fc2");
}

// all-linear took every gated model for a Llama, and all others for a GPT-2; names of any class were taken.
TEST(Adapters, ModulesAreThoseOfTheModelsClass) {
  const auto all = [](const char* family, bool gated) {
    return ReadLoraTargets("all-linear", gated, AdapterModules(family, gated));
  };
  EXPECT_EQ(all("llama", true), kLoraPartsOfQkv | kLoraProj | kLoraPartsOfFc1 | kLoraFc2);
  EXPECT_EQ(all("phi3", true), kLoraAll);
  EXPECT_EQ(all("gpt2", false), kLoraAll);
  EXPECT_EQ(all("falcon", false), kLoraAll);
  for (const char* family : {"opt", "gptj", "phi", "starcoder2", "nemotron"})
    EXPECT_EQ(all(family, false), kLoraPartsOfQkv | kLoraProj | kLoraFc1 | kLoraFc2) << family;
  EXPECT_EQ(ReadLoraTargets("c_proj", false, AdapterModules("gpt2", false)), kLoraProj | kLoraFc2);
  EXPECT_EQ(ReadLoraTargets("c_proj", false, AdapterModules("starcoder2", false)), kLoraFc2);
  LoraModules llama = AdapterModules("llama", true);
  EXPECT_EQ(ReadLoraTargets("c_attn", true, llama), kLoraQkv);  // only like a Llama
  llama.type = "llama";
  EXPECT_EQ(ReadLoraTargets("q_proj,wv,linear_proj", true, llama), kLoraQ | kLoraV | kLoraProj);
  try {
    (void)ReadLoraTargets("q_proj,c_attn", true, llama);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("models of type llama have no module 'c_attn'"));
  }
}

// Both lists hold these names: that of lora.cc says what one means where no class is known.
TEST(Adapters, NamesWithoutAClassAreThoseOfTheFamilies) {
  int compared = 0;
  for (const std::string& family : HfTensorFamilies()) {
    if (family == "t5") continue;  // q, k, v, o are letters, and "wo" is a map of Meta's Llamas
    const LoraModules modules = AdapterModules(family, true);
    unsigned all = 0;
    for (const auto& [name, targets] : modules.targets) all |= targets;
    const bool gated = (all & kLoraPartsOfFc1) != 0;
    for (const auto& [name, targets] : modules.targets) {
      unsigned found = 0;
      try {
        found = ReadLoraTargets(name, gated);
      } catch (const InputError&) {
        ADD_FAILURE() << family << ": '" << name << "' is not known without a class";
        continue;
      }
      EXPECT_NE(found & targets, 0u) << family << ": '" << name << "'";
      ++compared;
    }
  }
  EXPECT_GT(compared, 60);
}

// Narayanan et al. 2021, equation 3 without recomputation (72 for their 96), per sequence.
TEST(Flops, FollowTheGptFormula) {
  const ModelSpec s = LoadModel("gpt3-175b").spec;
  const double seq = 2048, l = Value(s.layers), h = Value(s.hidden), v = Value(s.vocab);
  const double formula = 72 * seq * l * h * h * (1 + seq / (6 * h) + v / (12 * l * h));
  EXPECT_NEAR(ModelFlopsPerSequence(s, 2048, 0).value / formula, 1.0, 1e-12);
}

// Chowdhery et al. 2022, appendix B: 6N + 12LHQT per token, N the weights that matrices hold.
TEST(Flops, FollowThePalmFormulaWithGroupedQueries) {
  const ModelSpec s = LoadModel("llama3-8b").spec;
  const double n = Value(CountParameters(s).total - s.vocab * s.hidden -
                         (2 * s.layers + 1) * s.hidden);  // without the look-up table and the norms
  const double t = 8192;
  const double attention = 12 * Value(s.layers) * Value(s.heads) * Value(s.head_dim) * t;
  EXPECT_NEAR(ModelFlopsPerSequence(s, 8192, 0).value / (t * (6 * n + attention)), 1.0, 1e-12);
}

// Of 8,192 positions a query sees 4,096.5 on the average; a window of 1,024 is cut at the front of the sequence alone.
TEST(Flops, ACausalMaskLeavesOutHalfOfTheSquare) {
  ModelSpec s = LoadModel("llama3-8b").spec;
  const double t = 8192, width = Value(s.heads) * Value(s.head_dim), layers = Value(s.layers);
  const double square = 12 * layers * width * t * t;
  EXPECT_NEAR(MaskedFlopsPerSequence(s, 8192).value / (square / 2), 1.0, 1e-3);
  s.windows.assign(static_cast<std::size_t>(s.layers), 1024);
  EXPECT_NEAR(MaskedFlopsPerSequence(s, 8192).value / (12 * layers * width * 1024 * 1023 / 2), 1.0,
              1e-12);
  EXPECT_EQ(MaskedFlopsPerSequence(LoadModel("bert-large").spec, 512).value, 0);
  EXPECT_EQ(MaskedFlopsPerSequence(LoadModel("linear-20-1").spec, 1).value, 0);
  const ModelSpec t5 = LoadModel("t5-small").spec;
  EXPECT_DOUBLE_EQ(MaskedFlopsPerSequence(t5, 100).value, 12 * 6 * 512.0 * 100 * 99 / 2);
}

TEST(Flops, HeadOfAnEncoderSeesMaskedPositionsOnly) {
  const ModelSpec s = LoadModel("bert-large").spec;
  const double per_position = 6 * Value(s.hidden) * Value(s.vocab + s.hidden);
  const double all = ModelFlopsPerSequence(s, 128, 0).value;
  EXPECT_NEAR(all - ModelFlopsPerSequence(s, 128, 20).value, 108 * per_position, 1.0);
  EXPECT_EQ(ModelFlopsPerSequence(s, 128, 128).value, all);
  EXPECT_EQ(ModelFlopsPerSequence(s, 128, 500).value, all);
}

TEST(Flops, DecoderIgnoresMaskedPositions) {
  const ModelSpec s = LoadModel("gpt2-small").spec;
  EXPECT_EQ(ModelFlopsPerSequence(s, 512, 7).value, ModelFlopsPerSequence(s, 512, 0).value);
}

TEST(Flops, OfT5CountCrossAttention) {
  const ModelSpec s = LoadModel("t5-small").spec;
  const double attention = 4.0 * 512 * 512, mlp = 2.0 * 512 * 2048, t = 100;
  const double weights = 6 * (attention + mlp) + 6 * (2 * attention + mlp) + 32128.0 * 512;
  EXPECT_DOUBLE_EQ(ModelFlopsPerSequence(s, 100, 0).value, 6 * t * weights + 12 * 18 * t * t * 512);
}

TEST(Flops, OfALinearLayerAreSixPerWeight) {
  EXPECT_EQ(ModelFlopsPerSequence(LoadModel("linear-20-1").spec, 1, 0).value, 6 * 20);
}

class EveryModel : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryModel, PartsAddUpToTheTotal) {
  const ModelSpec s = LoadModel(GetParam()).spec;
  const ParameterCount count = CountParameters(s);
  int64_t layers = 0;
  for (int64_t i = 0; i < s.layers + s.decoder_layers; ++i) layers += LayerParameters(s, i);
  EXPECT_EQ(count.total, count.embedding + layers + count.relative_bias + count.final_norm +
                             count.pooler + count.head);
  EXPECT_EQ(count.backbone, count.total - count.head);
  EXPECT_GE(count.total_without_embeddings, layers);
  EXPECT_LE(count.total_without_embeddings, count.total);
}

TEST_P(EveryModel, NeedsTwoToFourTimesTheWorkForTwiceTheLength) {
  const ModelSpec s = LoadModel(GetParam()).spec;
  const double once = ModelFlopsPerSequence(s, 128, 0).value;
  const double twice = ModelFlopsPerSequence(s, 256, 0).value;
  EXPECT_GT(once, 0);
  if (s.family == Family::kMlp) {
    EXPECT_EQ(twice, 2 * once);
  } else {
    EXPECT_GT(twice, 1.9 * once);
    EXPECT_LT(twice, 4 * once);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryModel, ::testing::ValuesIn(ModelNames()));

}  // namespace
}  // namespace orrery
