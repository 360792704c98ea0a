// SPDX-License-Identifier: Apache-2.0
// Lists and ranges of the values of a flag.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/program/plan/study.h"

namespace orrery::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> Values(const char* name, const std::string& text, bool* ok = nullptr) {
  Diagnostics diagnostics;
  const std::vector<std::string> values = StudyValues({name, text, true, {}}, &diagnostics);
  if (ok != nullptr) *ok = diagnostics.ok();
  return values;
}

TEST(StudyValues, AreListsAndRanges) {
  EXPECT_THAT(Values("--tp", "1,2, 4"), ElementsAre("1", "2", "4"));
  EXPECT_THAT(Values("--nodes", "2..16"), ElementsAre("2", "4", "8", "16"));
  EXPECT_THAT(Values("--nodes", "3..20"), ElementsAre("3", "6", "12", "20"));
  EXPECT_THAT(Values("--nodes", "8..32 by 8"), ElementsAre("8", "16", "24", "32"));
  EXPECT_THAT(Values("--nodes", "1..8 by 3"), ElementsAre("1", "4", "7"));
  EXPECT_THAT(Values("--nodes", "1,4..8"), ElementsAre("1", "4", "8"));
  EXPECT_THAT(Values("--layout", "7,14x8,7"), ElementsAre("7,14x8,7"));
  EXPECT_THAT(Values("--model", "./a..b.yaml"), ElementsAre("./a..b.yaml"));
}

TEST(StudyValues, SayWhatIsEmpty) {
  bool ok = true;
  Values("--nodes", "8..2", &ok);
  EXPECT_FALSE(ok);
  Values("--nodes", "0..4", &ok);
  EXPECT_FALSE(ok);
  Values("--tp", "1,,2", &ok);
  EXPECT_FALSE(ok);
}

// "-1 is no whole number from 1" was said of steps, "0 is too small" of --tp.
TEST(StudyValues, SayHowRangesAreWritten) {
  for (const char* text : {"1..8 by 0", "1..8 by -2", "1...8", "1..8 by", "-4..8", "1..8 by two"}) {
    Diagnostics diagnostics;
    StudyValues({"--tp", text, true, {}}, &diagnostics);
    try {
      diagnostics.ThrowIfAny();
      ADD_FAILURE() << text;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
      EXPECT_EQ(std::string(error.what()).find("no whole number"), std::string::npos);
    }
  }
  bool ok = false;
  EXPECT_THAT(Values("--model", "1../a.yaml", &ok), ElementsAre("1../a.yaml"));
  EXPECT_TRUE(ok);
}

TEST(StudyValues, RefuseARangeThatWouldBeCut) {
  Diagnostics diagnostics;
  EXPECT_THAT(StudyValues({"--nodes", "1..1000000000 by 1", true, {}}, &diagnostics), IsEmpty());
  try {
    diagnostics.ThrowIfAny();
    ADD_FAILURE() << "no error";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("has more than 100000 values"));
  }
  bool ok = false;
  EXPECT_EQ(Values("--nodes", "1..100000 by 1", &ok).size(), 100'000u);
  EXPECT_TRUE(ok);
}

}  // namespace
}  // namespace orrery::cli
