// SPDX-License-Identifier: Apache-2.0
// The YAML of a framework: what it says is what comes out, and every slip is reported with its place.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "model/framework/presets.h"
#include "model/framework/profile.h"
#include "tests/framework/data_root.h"

namespace orrery {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::map<std::string, std::string>& Texts() {
  static std::map<std::string, std::string> texts;
  return texts;
}

SourcePtr FromTexts(const std::string& folder, const std::string& id) {
  if (Texts().contains(id)) return std::make_shared<Source>(Source{id + ".yaml", Texts()[id]});
  return LoadProfileFile(folder, id);
}

FrameworkProfile Read(const std::string& text, const std::string& id = "mine") {
  Texts() = {{id, text}};
  return ReadFrameworkProfile(id, FromTexts);
}

std::string ErrorOf(const std::function<void()>& read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}
std::string ErrorIn(const std::string& text, const std::string& id = "mine") {
  return ErrorOf([&] { Read(text, id); });
}

const std::string kHead =
    "title: \"Mine\"\ndescription: \"one line\"\ninherits: megatron\nconstants: {}\n";

TEST(FrameworkFile, OverridesWhatItInheritsFactByFact) {
  const auto preset =
      Read(kHead +
           "offers: {zero: {value: [1, 0], source: s}, schedules: {value: [gpipe], source: s}}\n"
           "defaults: {bucket_layers: {value: 3, source: s}, dropout: {value: 0, source: s},\n"
           "           fp32_grads: {value: bf16-zero0, source: s}}\n")
          .preset;
  EXPECT_EQ(preset->name, "mine");
  EXPECT_THAT(preset->zero, testing::ElementsAre(1, 0));
  EXPECT_THAT(preset->schedules, testing::ElementsAre(PipelineSchedule::kGpipe));
  EXPECT_EQ(preset->defaults.bucket_layers, 3);
  EXPECT_EQ(preset->fp32_grads, Fp32Grads::kBf16Zero0);
  EXPECT_EQ(preset->dropout, 0);
  EXPECT_TRUE(preset->sequence);  // megatron's
  EXPECT_TRUE(preset->defaults.reduce_in_backward);
  EXPECT_TRUE(preset->aliases.empty());  // another name of megatron is none of this one
  EXPECT_EQ(preset->facts.at("offers.zero").file, "mine.yaml");
  EXPECT_THAT(preset->facts.at("offers.sequence").file, HasSubstr("megatron.yaml"));
}

TEST(FrameworkFile, EverySlipHasItsPlaceAndTheRightName) {
  const auto at = [](const std::string& line) { return ErrorIn(kHead + line); };
  EXPECT_THAT(at("offers: {tensr: {value: true, source: s}}\n"),
              AllOf(HasSubstr("mine.yaml:5"), HasSubstr("tensor")));
  EXPECT_THAT(at("offers: {tensor: {value: maybe, source: s}}\n"), HasSubstr("mine.yaml:5"));
  EXPECT_THAT(at("offers: {tensor: {value: true}}\n"), HasSubstr("source"));
  EXPECT_THAT(at("offers: {tensor: true}\n"), HasSubstr("mine.yaml:5"));
  EXPECT_THAT(at("offers: {zero: {value: [4], source: s}}\n"), HasSubstr("mine.yaml:5"));
  EXPECT_THAT(at("offers: {zero: {value: [1, 1], source: s}}\n"), HasSubstr("twice"));
  EXPECT_THAT(at("offers: {schedules: {value: [1f1bee], source: s}}\n"), HasSubstr("1f1b"));
  EXPECT_THAT(at("offers: {recompute: {value: ful, source: s}}\n"), HasSubstr("mine.yaml:5"));
  EXPECT_THAT(at("defaults: {dropout: {value: 1.5, source: s}}\n"), HasSubstr("mine.yaml:5"));
  EXPECT_THAT(at("defaults: {fp32_grads: {value: bf17, source: s}}\n"), HasSubstr("bf16"));
  EXPECT_THAT(at("defaults: {bucket_layer: {value: 2, source: s}}\n"), HasSubstr("bucket_layers"));
  EXPECT_THAT(at("aliases:\n  - {nme: a, why: b}\n"), HasSubstr("mine.yaml:6"));
  EXPECT_THAT(at("aliases:\n  - {name: a}\n"), HasSubstr("why"));
  EXPECT_THAT(at("aliases:\n  - {name: \"--\", why: b}\n"), HasSubstr("letter"));
  EXPECT_THAT(at("alias: []\n"), HasSubstr("aliases"));
  EXPECT_THAT(at("published_as:\n  - {framework: ddp, source: s}\n"), HasSubstr("note"));
}

TEST(FrameworkFile, AFrameworkSaysAllThatItOffers) {
  std::string constants;
  for (const auto& [key, constant] : ShareFrameworkProfile("common")->header.constants)
    constants += fmt::format("  {}: {{value: {}, source: s}}\n", key, constant.value);
  const std::string error =
      ErrorIn("title: Mine\ndescription: d\noffers: {zero: {value: [0], source: s}}\nconstants:\n" +
              constants);
  EXPECT_THAT(error, AllOf(HasSubstr("framework 'mine' lacks offers.tensor"),
                           HasSubstr("defaults.dropout"), HasSubstr("common")));
  EXPECT_THAT(error, testing::Not(HasSubstr("offers.zero,")));
}

TEST(FrameworkFile, SitesAndGenerationsHoldConstantsAlone) {
  const std::string site = "title: s\ninherits: megatron\nconstants: {}\n";
  EXPECT_EQ(ErrorIn(site, "megatron@here"), "");
  EXPECT_EQ(Read(site, "megatron@here").preset->zero, FindFramework("megatron").zero);
  EXPECT_THAT(ErrorIn(site + "offers: {zero: {value: [0], source: s}}\n", "megatron@here"),
              AllOf(HasSubstr("megatron@here.yaml:4"), HasSubstr("megatron.yaml")));
  EXPECT_THAT(ErrorIn(site + "aliases: []\n", "megatron-old"), HasSubstr("description"));
}

// Each test in a folder of its own: what was read of one is kept.
class FrameworkCatalogue : public testing::Test {
 protected:
  const TestRoot root_{testing::TempDir() + "/framework_root_" +
                       testing::UnitTest::GetInstance()->current_test_info()->name()};
  const UseRoot use_{root_};
};

TEST_F(FrameworkCatalogue, OneNameStandsForOneFramework) {
  const std::string path = root_.Add("calib/profiles/framework/mine.yaml",
                                     kHead + "aliases:\n  - {name: J-A-X, why: b}\n");
  EXPECT_THAT(ErrorOf([] { FindFramework("jax"); }),
              AllOf(HasSubstr(path + ":6"), HasSubstr("'J-A-X' means maxtext already")));
  EXPECT_EQ(FindFramework("mine").name, "mine");
}

TEST_F(FrameworkCatalogue, AnAliasNeverHidesAName) {
  root_.Add("calib/profiles/framework/a.yaml", kHead + "aliases:\n  - {name: FSDP, why: b}\n");
  EXPECT_EQ(FindFramework("fsdp").name, "fsdp");
  EXPECT_THAT(ErrorOf([] { FindFramework("Fsdp"); }),
              AllOf(HasSubstr("a.yaml:6"), HasSubstr("means fsdp already")));
}

TEST_F(FrameworkCatalogue, ADamagedFileMattersToWhoAsksForIt) {
  const std::string path =
      root_.Add("calib/profiles/framework/mine.yaml", kHead + "offers: {tensr: {value: true}}\n");
  EXPECT_EQ(FindFramework("fsdp").name, "fsdp");
  EXPECT_THAT(ErrorOf([] { FindFramework("mine"); }), AllOf(HasSubstr(path), HasSubstr("tensor")));
}

TEST_F(FrameworkCatalogue, AFileWithoutDescriptionIsNamedAsOne) {
  const std::string path =
      root_.Add("calib/profiles/framework/fork.yaml", "title: Ours\ninherits: megatron\n");
  EXPECT_THAT(
      ErrorOf([] { FindFramework("fork"); }),
      AllOf(HasSubstr("'fork' is no framework"), HasSubstr("description: "), HasSubstr(path)));
  root_.Add("calib/profiles/framework/slip.yaml", "inherits: megatron\ndescripton: ours\n");
  EXPECT_THAT(ErrorOf([] { FindFramework("slip"); }), HasSubstr("did you mean 'description'"));
  root_.Add("calib/profiles/framework/heir.yaml", "inherits: megatron\ndescription: ours\n");
  EXPECT_EQ(FindFramework("heir").zero, FindFramework("megatron").zero);
}

TEST_F(FrameworkCatalogue, APathNamesAFileOfTheUser) {
  const std::string path = root_.Add("elsewhere/mine.yaml", kHead);
  const FrameworkPreset& preset = FindFramework(path);
  EXPECT_EQ(preset.description, "one line");
  EXPECT_EQ(preset.zero, FindFramework("megatron").zero);
  EXPECT_EQ(SelectFrameworkProfile(path, "dgx-h100", true).header.path, path);
  EXPECT_FALSE(FindFramework(path + "+overlap_grad_reduce=off").defaults.overlap_grad_reduce);
}

TEST_F(FrameworkCatalogue, ThreadsThatAskTogetherGetTheSame) {
  root_.Add("calib/profiles/framework/mine.yaml", kHead);
  std::vector<const FrameworkPreset*> found(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < found.size(); ++i) {
    threads.emplace_back([&found, i] {
      (void)LoadFrameworkProfile(i % 2 == 0 ? "mine" : "nemo");
      found[i] = &FindFramework("mine");
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const FrameworkPreset* preset : found) EXPECT_EQ(preset, found.front());
  EXPECT_EQ(found.front()->description, "one line");
}

TEST_F(FrameworkCatalogue, AChangedFileIsReadAgainByItsHeirs) {
  const double before = LoadFrameworkProfile("nemo@2022").loss_traffic;
  root_.Add("calib/profiles/framework/megatron@2021.yaml",
            "title: \"changed\"\ninherits: common\nconstants:\n"
            "  loss_traffic: {value: 77, source: \"a test\"}\n");
  EXPECT_NE(before, 77);
  EXPECT_EQ(LoadFrameworkProfile("nemo@2022").loss_traffic, 77);
}

TEST(FrameworkNames, AliasesAndTheirSpellingsFindTheFramework) {
  for (const FrameworkPreset& preset : FrameworkPresets()) {
    EXPECT_EQ(FindFramework(preset.name).name, preset.name);
    for (const FrameworkAlias& alias : preset.aliases) {
      EXPECT_EQ(&FindFramework(alias.name), &preset) << alias.name;
      EXPECT_FALSE(alias.why.empty()) << alias.name;
    }
  }
  EXPECT_EQ(FindFramework("Megatron_LM").name, "megatron");
  EXPECT_EQ(FindFramework("llmc").name, "llm.c");
  const FrameworkMatch jax = MatchFramework("JAX");
  EXPECT_EQ(jax.preset->name, "maxtext");
  EXPECT_EQ(jax.alias->name, "jax");
  EXPECT_EQ(MatchFramework("fsdp").alias, nullptr);
  EXPECT_EQ(FrameworkThatBegins("DeepSpeed 0.15 (ZeRO-3)").preset->name, "deepspeed");
  EXPECT_EQ(FrameworkThatBegins("Megatron-DeepSpeed, a fork").preset->name, "megatron-deepspeed");
  EXPECT_EQ(FrameworkThatBegins("quux").preset, nullptr);
  EXPECT_EQ(FrameworkThatBegins("").preset, nullptr);
}

}  // namespace
}  // namespace orrery
