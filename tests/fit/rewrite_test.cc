// SPDX-License-Identifier: Apache-2.0
// Profile files keep what the fit does not touch.
#include "calib/fit/rewrite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/base/diagnostics.h"

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
  EXPECT_NEAR(ParseConstant("51.67us", ConstantKind::kSeconds, "gap"), 5.167e-5, 1e-12);
  EXPECT_THROW(ParseConstant("51.67", ConstantKind::kSeconds, "gap"), InputError);
  EXPECT_THROW(ParseConstant("nan", ConstantKind::kNumber, "gap"), InputError);
}

}  // namespace
}  // namespace orrery
