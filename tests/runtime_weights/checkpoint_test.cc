// SPDX-License-Identifier: Apache-2.0
// Families of HuggingFace models: every parameter of a plan has its tensors, each element once.
#include "runtime/train/weights/checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "model/arch/catalogue.h"
#include "model/arch/hf_family.h"
#include "model/arch/parameters.h"
#include "model/plan/lower/lower.h"
#include "runtime/train/weights/export.h"

namespace orrery::weights {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

ir::Plan PlanOf(const ModelSpec& model, int tp = 1) {
  Workload work;
  work.global_batch = 1;
  work.seq_len = std::min<int64_t>(model.max_positions, 64);
  Strategy strategy;
  strategy.tp = tp;
  LowerResult lowered = Lower(model, work, strategy, {});
  if (const auto* refusal = std::get_if<Refusal>(&lowered)) ADD_FAILURE() << refusal->reason;
  return std::get<ir::Plan>(std::move(lowered));
}

// Small models of each family in the tree's samples: as many layers as two, and the sample's choices.
std::vector<LoadedModel> Samples() {
  std::vector<LoadedModel> models;
  for (const auto& entry :
       fs::directory_iterator(fs::path(ORRERY_SOURCE_DIR) / "tests/arch/data/hf")) {
    if (entry.path().extension() != ".json") continue;
    LoadedModel model;
    try {
      model = LoadModel(entry.path().string());
    } catch (const InputError&) {
      continue;  // a sample of what is refused
    }
    if (!model.spec.untrained.empty() || !TensorsOf(model.hf_family).differs.empty()) continue;
    if (model.spec.layers > 2 && model.spec.windows.size() <= 2) {
      model.spec.layers = 2;
      if (model.spec.decoder_layers > 0) model.spec.decoder_layers = 2;
    }
    models.push_back(std::move(model));
  }
  return models;
}

bool KnowsPreNormBert(const LoadedModel& model) {
  return model.hf_family == "bert" && !model.spec.post_norm;  // Habana's: no class of transformers
}

TEST(HfTensors, HoldEachElementOfEachParameterOnce) {
  std::set<std::string> families;
  for (const LoadedModel& model : Samples()) {
    if (KnowsPreNormBert(model)) continue;
    SCOPED_TRACE(model.spec.name);
    families.insert(model.hf_family);
    const HfTensors table = TensorsOf(model.hf_family);
    std::set<std::string> names;
    int64_t elements = 0;
    for (const StoredParam& param : StoredParams(PlanOf(model.spec))) {
      const HeldParam held = HeldIn(table, model.spec, param.name, param.shape);
      ASSERT_FALSE(held.tensors.empty()) << param.name;
      int64_t here = 1, there = 0;
      for (const int64_t n : param.shape) here *= n;
      for (const HeldParam::Tensor& tensor : held.tensors) {
        EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
        int64_t n = 1;
        for (const int64_t extent : tensor.shape) n *= extent;
        there += n;
      }
      EXPECT_EQ(here, there) << param.name;
      elements += there;
      std::set<std::pair<int32_t, int64_t>> rows;
      for (const HeldParam::Row& row : held.rows) rows.emplace(row.tensor, row.row);
      EXPECT_EQ(rows.size(), held.rows.size()) << param.name;
    }
    const ParameterCount count = CountParameters(model.spec);
    const int64_t next_sentence = model.spec.pooler ? count.pooler + 2 * model.spec.hidden + 2 : 0;
    EXPECT_EQ(elements, count.total - next_sentence);
  }
  EXPECT_GE(families.size(), 12u) << "families with samples";
}

TEST(HfTensors, HaveHuggingFacesNamesAndShapes) {
  const LoadedModel gpt = LoadModel("gpt2-small");
  const HfTensors gpt2 = TensorsOf("gpt2"), llama = TensorsOf("llama");
  HeldParam held = HeldIn(gpt2, gpt.spec, "l11.qkv.w", {2304, 768});
  ASSERT_EQ(held.tensors.size(), 1u);
  EXPECT_EQ(held.tensors[0].name, "transformer.h.11.attn.c_attn.weight");
  EXPECT_EQ(held.tensors[0].shape, (std::vector<int64_t>{768, 2304}));
  // Head 1's first key: behind 12 heads of queries and head 0's key; Conv1D has it in that column.
  EXPECT_EQ(held.At((3 * 64 + 64) * 768 + 5).row, 5 * 2304 + 768 + 64);
  const ModelSpec eight = LoadModel("llama3-8b").spec;
  held = HeldIn(llama, eight, "l0.qkv.w", {6144, 4096});
  ASSERT_EQ(held.tensors.size(), 3u);
  EXPECT_EQ(held.tensors[1].name, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(held.tensors[1].shape, (std::vector<int64_t>{1024, 4096}));
  // Of products of their own: each has one of these tensors, with its rows as they are or turned alike.
  for (const char* part : {"q", "k", "v"}) {
    const int64_t rows = part[0] == 'q' ? 4096 : 1024;
    const HeldParam own = HeldIn(llama, eight, fmt::format("l0.{}.w", part), {rows, 4096});
    ASSERT_EQ(own.tensors.size(), 1u) << part;
    const auto joined =
        std::ranges::find(held.tensors, own.tensors[0].name, &HeldParam::Tensor::name);
    ASSERT_NE(joined, held.tensors.end()) << part;
    EXPECT_EQ(own.tensors[0].shape, joined->shape) << part;
    // Row 130 is of the second head, which is the second query of kv group 0, or the key or value of group 1.
    const int64_t row = part[0] == 'q' ? 130 : (part[0] == 'k' ? 4 : 5) * 128 + 6 * 128 + 2;
    EXPECT_EQ(own.At(130 * 4096).row, held.At(row * 4096).row) << part;
  }
  EXPECT_EQ(HeldIn(llama, eight, "l3.up.w", {14336, 4096}).tensors.at(0).name,
            "model.layers.3.mlp.up_proj.weight");
  const LoadedModel phi =
      LoadModel(std::string(ORRERY_SOURCE_DIR) + "/tests/arch/data/hf/phi-3-mini-4k.json");
  EXPECT_TRUE(HeldIn(TensorsOf("phi3"), phi.spec, "l0.k.w", {64, 64}).tensors.empty());
}

// A family has names of tensors, or a reason why none are read; a sample that is trained has names.
TEST(HfTensors, FamiliesThatAreTrainedHaveThem) {
  for (const std::string& family : HfFamilyNames()) {
    const HfTensors table = TensorsOf(family);
    if (table.differs.empty()) {
      EXPECT_FALSE(table.rows.empty()) << family;
    } else {
      EXPECT_THAT(table.differs, HasSubstr("plan run does not train")) << family;
    }
  }
  for (const auto& entry :
       fs::directory_iterator(fs::path(ORRERY_SOURCE_DIR) / "tests/arch/data/hf")) {
    try {
      const LoadedModel model = LoadModel(entry.path().string());
      if (!model.spec.untrained.empty() || model.hf_family == "gemma3") continue;  // with images
      EXPECT_EQ(TensorsOf(model.hf_family).differs, "") << entry.path();
    } catch (const InputError&) {  // a sample of what is refused
    }
  }
}

TEST(HfConfigText, IsReadAsTheModelThatItDescribes) {
  int written = 0;
  for (const LoadedModel& model : Samples()) {
    SCOPED_TRACE(model.spec.name);
    const std::string text = HfConfigText(model.hf_family, model.spec);
    if (text.empty()) continue;
    EXPECT_THAT(text, HasSubstr("\"model_type\": \"" + model.hf_family + "\""));
    ++written;
  }
  EXPECT_GE(written, 12);
  EXPECT_THAT(HfConfigText("gpt2", LoadModel("gpt2-small").spec),
              HasSubstr("\"activation_function\": \"gelu_new\""));
  EXPECT_EQ(HfConfigText("gpt2", LoadModel("llama3-8b").spec), "");
}

TEST(HfConfigText, FindsTheFamilyOfEachTrainableModelOfTheCatalogue) {
  for (const auto& [name, due] : {std::pair{"gpt2-small", "gpt2"},
                                  {"bert-base", "bert"},
                                  {"llama2-7b", "llama"},
                                  {"t5-small", "t5"}}) {
    const ModelSpec model = LoadModel(name).spec;
    std::string found;
    for (const std::string& family : HfTensorFamilies()) {
      if (found.empty() && !HfConfigText(family, model).empty()) found = family;
    }
    EXPECT_EQ(found, due) << name;
  }
}

TEST(Patterns, StarsStandForAnyCharacters) {
  EXPECT_TRUE(MatchesPattern("h.0.attn.bias", "*.attn.bias"));
  EXPECT_FALSE(MatchesPattern("h.0.attn.c_attn.bias", "*.attn.bias"));
  EXPECT_TRUE(MatchesPattern("a.b.c", "a*c"));
  EXPECT_TRUE(MatchesPattern("abab", "*ab"));
  EXPECT_FALSE(MatchesPattern("", "a*"));
  EXPECT_TRUE(MatchesPattern("", "*"));
}

}  // namespace
}  // namespace orrery::weights
