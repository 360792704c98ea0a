// SPDX-License-Identifier: Apache-2.0
// Profile files keep what the fit does not touch.
#include "calib/fit/rewrite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "model/base/diagnostics.h"
#include "model/framework/presets.h"

namespace orrery {
namespace {

using testing::HasSubstr;

constexpr const char* kText =
    "# A comment.\ntitle: \"Some software\"\ninherits: common\nconstants:\n"
    "  kernel_gap: {value: 5us, source: \"prior\"}\n"
    "  loss_traffic: {value: 40, unit: \"bytes per logit\", source: \"prior\"}\n";

TEST(Rewrite, ReplacesOneLineAndAddsAnother) {
  const std::string text =
      RewriteProfile("x.yaml", kText,
                     {{"loss_traffic", "31.5", "bytes per logit", 0.12, 40, "fitted on a rows"},
                      {"step_fixed", "20ms", "", std::nullopt, 0, "prior"}});
  EXPECT_EQ(text,
            "# A comment.\ntitle: \"Some software\"\ninherits: common\nconstants:\n"
            "  kernel_gap: {value: 5us, source: \"prior\"}\n"
            "  loss_traffic: {value: 31.5, unit: \"bytes per logit\", spread: 0.12, points: 40, "
            "source: \"fitted on a rows\"}\n"
            "  step_fixed: {value: 20ms, source: \"prior\"}\n");
}

TEST(Rewrite, LeavesTheOtherSectionsOfAFrameworkAsTheyAre) {
  const std::string before =
      "description: \"d\"\noffers:\n  zero: {value: [0], source: \"a\"}\n"
      "defaults:\n  bucket: {value: 1, source: \"has the name of a constant\"}\n";
  const std::string behind = "aliases:\n  - {name: \"b\", why: \"c\"}\n";
  EXPECT_EQ(RewriteProfile(
                "x.yaml", before + "constants:\n  bucket: {value: 25MiB, source: \"p\"}\n" + behind,
                {{"bucket", "1GB", "", std::nullopt, 0, "q"}}),
            before + "constants:\n  bucket: {value: 1GB, source: \"q\"}\n" + behind);
}

// Every framework of the tree, as `plan calibrate --in-place` would write it.
TEST(Rewrite, AFrameworkReadsTheSameWithAnotherConstant) {
  for (const FrameworkPreset& preset : FrameworkPresets()) {
    const SourcePtr old = LoadProfileFile(kFrameworkFolder, preset.name);
    const std::string path = testing::TempDir() + "/" + preset.name + ".yaml";
    std::ofstream(path) << RewriteProfile(old->name, old->text,
                                          {{"head_fixed", "123us", "", std::nullopt, 0, "a test"}});
    const FrameworkProfile now = LoadFrameworkProfile(path);
    EXPECT_DOUBLE_EQ(now.head_fixed.value, 123e-6) << preset.name;
    EXPECT_EQ(now.preset->aliases.size(), preset.aliases.size()) << preset.name;
    EXPECT_EQ(now.preset->zero, preset.zero) << preset.name;
    EXPECT_EQ(now.preset->facts.size(), preset.facts.size()) << preset.name;
  }
}

TEST(Rewrite, FillsAnEmptyMap) {
  const std::string text = RewriteProfile("x.yaml", "constants: {}\n",
                                          {{"kernel_gap", "3us", "", std::nullopt, 0, "a"}});
  EXPECT_EQ(text, "constants:\n  kernel_gap: {value: 3us, source: \"a\"}\n");
}

TEST(Rewrite, RefusesConstantsOverSeveralLines) {
  const std::string text = "constants:\n  kernel_gap: {value: 3us,\n    source: \"a\"}\n";
  EXPECT_THROW(RewriteProfile("x.yaml", text, {{"kernel_gap", "3us", "", std::nullopt, 0, "a"}}),
               InputError);
  EXPECT_THROW(RewriteProfile("x.yaml", "title: a\n", {}), InputError);
}

TEST(Constants, PrintWithUnitsAndReadBack) {
  const ConstantName gap = ParseConstantName("framework/megatron:kernel_gap");
  EXPECT_EQ(FormatConstant(5.167e-5, RangeOf(gap).kind), "51.67us");
  EXPECT_EQ(FormatConstant(5.6e11, ConstantKind::kBytesPerSecond), "560GB/s");
  EXPECT_EQ(FormatConstant(0, ConstantKind::kSeconds), "0ns");
  EXPECT_EQ(ParseConstantName("stack/megatron:kernel_gap"), gap);  // until the next release
  EXPECT_NEAR(ParseConstant("51.67us", ConstantKind::kSeconds, "gap"), 5.167e-5, 1e-12);
  EXPECT_THROW(ParseConstant("51.67", ConstantKind::kSeconds, "gap"), InputError);
  EXPECT_THROW(ParseConstant("nan", ConstantKind::kNumber, "gap"), InputError);
}

}  // namespace
}  // namespace orrery
