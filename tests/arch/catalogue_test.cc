// SPDX-License-Identifier: Apache-2.0
// Every model file of the catalogue loads, and its parameter count is the published one.
#include "model/arch/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "model/arch/data_root.h"
#include "model/arch/hf_family.h"
#include "model/arch/parameters.h"
#include "tests/arch/expect_error.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSubsetOf;

// An own folder per test, removed at the end.
class CatalogueFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(ORRERY_BINARY_DIR) / "arch_test" / test->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  fs::path folder_;
};

class CatalogueModel : public ::testing::TestWithParam<std::string> {};

TEST_P(CatalogueModel, HasThePublishedParameterCount) {
  const LoadedModel model = LoadModel(GetParam());
  EXPECT_EQ(model.spec.name, GetParam());
  ASSERT_TRUE(model.published.has_value());
  const ParameterCount count = CountParameters(model.spec);
  const int64_t counted = model.published->backbone ? count.backbone : count.total;
  EXPECT_LE(std::abs(static_cast<double>(counted) - model.published->value),
            model.published->tolerance)
      << counted << " counted, " << model.published->text << " published by "
      << model.published->source;
}

TEST_P(CatalogueModel, SaysWhereItsDefaultsComeFrom) {
  const TrainingDefaults defaults = LoadModel(GetParam()).defaults;
  EXPECT_FALSE(defaults.source.empty());
  EXPECT_TRUE(defaults.seq_len && defaults.global_batch);
  EXPECT_FALSE(defaults.precision.empty() || defaults.optimizer.empty());
}

TEST_P(CatalogueModel, NamesATopologyThatExists) {
  const fs::path topologies = fs::path(ORRERY_SOURCE_DIR) / "topologies";
  if (!fs::is_directory(topologies)) GTEST_SKIP() << "this tree has no topologies/";
  const std::string topology = LoadModel(GetParam()).defaults.topology;
  EXPECT_TRUE(fs::exists(topologies / (topology + ".yaml"))) << topology;
}

INSTANTIATE_TEST_SUITE_P(All, CatalogueModel, ::testing::ValuesIn(ModelNames()),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

TEST(Catalogue, HoldsTheFamiliesThatThePlannerPromises) {
  const std::vector<std::string> promised = {
      "bert-tiny",   "bert-base",   "bert-large", "bert-1.5b",   "bert-5b",     "gpt2-micro",
      "gpt2-small",  "gpt2-medium", "gpt2-large", "gpt2-xl",     "megatron-s9", "sc21-1.7b",
      "sc21-3.6b",   "sc21-7.5b",   "sc21-18.4b", "sc21-39.1b",  "sc21-76.1b",  "sc21-145.6b",
      "sc21-310.1b", "sc21-529.6b", "sc21-1t",    "gpt3-175b",   "llama2-7b",   "llama2-13b",
      "llama2-70b",  "llama3-8b",   "llama3-70b", "llama3-405b", "t5-small",    "linear-20-1"};
  EXPECT_THAT(promised, IsSubsetOf(ModelNames()));
}

TEST(Catalogue, CountsTheKnownModelsExactly) {
  const std::pair<const char*, int64_t> kKnown[] = {
      {"gpt2-small", 124'439'808},     {"gpt2-xl", 1'557'611'200},     {"llama2-7b", 6'738'415'616},
      {"llama2-13b", 13'015'864'320},  {"llama2-70b", 68'976'648'192}, {"llama3-8b", 8'030'261'248},
      {"llama3-70b", 70'553'706'496},  {"t5-small", 60'506'624},       {"linear-20-1", 21},
      {"llama3-405b", 405'853'388'800}};
  for (const auto& [name, total] : kKnown) {
    EXPECT_EQ(CountParameters(LoadModel(name).spec).total, total) << name;
  }
  EXPECT_EQ(CountParameters(LoadModel("bert-base").spec).backbone, 109'482'240);
  EXPECT_EQ(CountParameters(LoadModel("bert-large").spec).backbone, 335'141'888);
  // HuggingFace BertForPreTraining: with the masked-word and next-sentence heads.
  EXPECT_EQ(CountParameters(LoadModel("bert-base").spec).total, 110'106'428);
}

TEST(Catalogue, SuggestsTheNearestNames) {
  EXPECT_THAT(ErrorOf([] { LoadModel("bert-1.5"); }), HasSubstr("bert-1.5b"));
  EXPECT_THAT(ErrorOf([] { LoadModel("gpt3-175"); }), HasSubstr("gpt3-175b"));
  EXPECT_THAT(ErrorOf([] { LoadModel("zzzzzz"); }), HasSubstr("plan list models"));
  EXPECT_THAT(ErrorOf([] { LoadModel(""); }), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf([] { LoadModel("../models/nothing.yaml"); }), HasSubstr("nothing.yaml"));
}

TEST(Catalogue, CarriesTheDefaultsOfTheGaudiRun) {
  const LoadedModel model = LoadModel("bert-1.5b");
  EXPECT_EQ(model.defaults.seq_len, 128);
  EXPECT_EQ(model.defaults.global_batch, 12288);
  EXPECT_EQ(model.defaults.precision, "bf16");
  EXPECT_EQ(model.defaults.optimizer, "lamb");
  EXPECT_EQ(model.defaults.topology, "aws-dl1");
  EXPECT_EQ(MaskedPositions(model.spec, model.defaults, 128), 20);
  EXPECT_EQ(MaskedPositions(model.spec, model.defaults, 512), 80);
  EXPECT_EQ(MaskedPositions(model.spec, model.defaults, 256), 39);  // 15 % of 256, rounded up
  EXPECT_EQ(MaskedPositions(model.spec, model.defaults, 1), 1);
}

TEST(Catalogue, MasksNothingInADecoder) {
  const LoadedModel model = LoadModel("gpt2-small");
  EXPECT_EQ(MaskedPositions(model.spec, model.defaults, 1024), 0);
}

TEST_F(CatalogueFiles, FolderWithConfigJsonIsAModel) {
  Write("config.json", R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2,
                           "vocab_size": 16, "n_positions": 4})");
  const LoadedModel model = LoadModel(folder_.string());
  EXPECT_EQ(model.spec.name, "FolderWithConfigJsonIsAModel");
  EXPECT_EQ(CountParameters(model.spec).total, 16 * 8 + 4 * 8 + 2 * (12 * 64 + 13 * 8) + 16);
  EXPECT_EQ(LoadModel(folder_.string() + "/").spec.name, model.spec.name);
}

// In the working folder, whose name is no model's, a file names itself.
TEST_F(CatalogueFiles, ConfigJsonWithoutAFolderNamesItself) {
  const std::filesystem::path before = std::filesystem::current_path();
  const auto named = [&](const std::string& more) {
    Write("config.json", R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2,
                             "vocab_size": 16, "n_positions": 4)" +
                             more + "}");
    std::filesystem::current_path(folder_);
    std::vector<std::string> names;
    for (const char* path : {"config.json", "./config.json", "."})
      names.push_back(LoadModel(path).spec.name);
    std::filesystem::current_path(before);
    EXPECT_EQ(names[1], names[0]);
    EXPECT_EQ(names[2], names[0]);
    return names[0];
  };
  EXPECT_EQ(named(R"(, "_name_or_path": "lab/tiny-gpt2/")"), "tiny-gpt2");
  EXPECT_EQ(named(R"(, "_name_or_path": "./", "architectures": ["GPT2LMHeadModel"])"),
            "GPT2LMHeadModel");
  EXPECT_EQ(named(""), "config.json");
}

TEST_F(CatalogueFiles, FolderWithoutConfigJsonIsRefused) {
  EXPECT_THAT(ErrorOf([&] { LoadModel(folder_.string()); }), HasSubstr("no config.json"));
}

TEST_F(CatalogueFiles, OwnYamlFileIsAModel) {
  const std::string path =
      Write("mine.yaml",
            "name: mine\nfamily: mlp\nlayers: 3\nhidden: 5\nin_features: 2\nout_features: 7\n");
  const LoadedModel model = LoadModel(path);
  EXPECT_EQ(CountParameters(model.spec).total, (2 * 5 + 5) + (5 * 5 + 5) + (5 * 7 + 7));
  EXPECT_EQ(model.origin, path);
}

TEST_F(CatalogueFiles, BinaryFileIsRefused) {
  const std::string path = Write("model.yaml", std::string("\x7f"
                                                           "ELF\0\1\2\3",
                                                           8));
  EXPECT_THAT(ErrorOf([&] { LoadModel(path); }), HasSubstr("model.yaml"));
}

TEST_F(CatalogueFiles, RootFromTheEnvironmentMustHoldACatalogue) {
  ASSERT_EQ(setenv("ORRERY_ROOT", folder_.c_str(), 1), 0);
  EXPECT_THAT(ErrorOf([] { DataRoot(); }), HasSubstr("ORRERY_ROOT"));
  fs::create_directories(folder_ / "scenarios" / "models");
  EXPECT_EQ(DataRoot(), folder_.string());
  EXPECT_TRUE(ModelNames().empty());
  // The rest of the catalogue is not there.
  EXPECT_THAT(ErrorOf([] { NamesOfKind("topologies"); }),
              AllOf(HasSubstr("incomplete"), HasSubstr("no folder " + folder_.string()),
                    HasSubstr("topologies")));
  EXPECT_THAT(ErrorOf([] { FileOfName("calib/profiles/gpu", "a100-sxm4-40gb"); }),
              HasSubstr("calib/profiles/gpu"));
  EXPECT_THAT(ErrorOf([] { HfFamilyNames(); }), HasSubstr("scenarios/families"));
  unsetenv("ORRERY_ROOT");
  EXPECT_THAT(ModelNames(), Contains("bert-1.5b"));
}

}  // namespace
}  // namespace orrery
