// SPDX-License-Identifier: Apache-2.0
// Tables, folding and numbers as reports print them.
#include "model/program/common/table.h"

#include <gtest/gtest.h>

#include "model/program/common/job.h"
#include "model/program/common/wide_lines.h"

namespace orrery::report {
namespace {

TEST(Table, AlignsNumbersRightAndWordsLeft) {
  Table table({{"name"}, {"step\ntime", true}});
  table.Row({"a", "12.0 s"});
  table.Row({"longer", "1.00 s"});
  EXPECT_EQ(table.Text(1),
            "           step\n"
            " name      time\n"
            " a       12.0 s\n"
            " longer  1.00 s\n");
}

TEST(Table, CountsCharactersNotBytes) {
  Table table({{"n"}, {"x"}});
  table.Row({"\xc3\xa9\xc3\xa9", "1"});
  table.Row({"ab", "2"});
  EXPECT_EQ(table.Text(0, false), "\xc3\xa9\xc3\xa9  1\nab  2\n");
}

TEST(Table, RemovesAColumn) {
  Table table({{"a"}, {"b"}});
  table.Row({"1", "-"});
  EXPECT_TRUE(table.AllEqual(1, "-"));
  table.Remove(1);
  EXPECT_EQ(table.Text(0), "a\n1\n");
}

TEST(Fold, BreaksAtBlanksAndIndents) { EXPECT_EQ(Fold("aaa bbb ccc", 2, 9), "aaa bbb\n  ccc"); }

// `plan list facts` was 380 columns wide on a terminal of 80, --help 105, hints as long as they are.
TEST(WithinColumns, BreaksTextsAndLastColumns) {
  EXPECT_EQ(cli::WithinColumns("aaa bbb ccc\nd\n", 0), "aaa bbb ccc\nd\n");
  EXPECT_EQ(cli::WithinColumns("  hint: write a number with a unit\n", 24),
            "  hint: write a number\n  with a unit\n");
  EXPECT_EQ(cli::WithinColumns("  fact  what it is called here\n  b     short\n", 28),
            "  fact  what it is called\n        here\n  b     short\n");
  EXPECT_EQ(cli::WithinColumns("# No sweep of this group is known.\n", 20),
            "# No sweep of this\n# group is known.\n");
  EXPECT_EQ(cli::WithinColumns("  compute  1.2 ms  34 %  peak_bf16, memory\n", 30),
            "  compute  1.2 ms  34 %\n      peak_bf16, memory\n");
}

// A first block of nothing but names stood above the table.
TEST(Table, HasAColumnBesideTheNamesOnANarrowPage) {
  Table table({{"fact"}, {"what it is"}});
  table.Row({"attention", "the kernel of attention, and much more"});
  SetPageWidth(30);
  const std::string text = table.Text();
  SetPageWidth(0);
  EXPECT_EQ(text, "  fact       what it is\n  attention  the kernel of attention, and much more\n");
}

// Names and bars stood below names and numbers, wider than the page.
TEST(Table, LeavesBarsAwayThatDoNotFitBesideTheirNumbers) {
  Table table({{""}, {"", true}, {""}});
  table.Row({"compute of all", "2.2 s", "##########"});
  table.Row({"the rest", "0.1 s", "#"});
  SetPageWidth(26);
  const std::string narrow = table.Text(2, false);
  SetPageWidth(0);
  EXPECT_EQ(narrow, "  compute of all  2.2 s\n  the rest        0.1 s\n");
  EXPECT_NE(table.Text(2, false).find("##########"), std::string::npos);
}

TEST(WithinColumns, KeepsCommandsSourcesAndRowsOfNumbers) {
  for (const char* line : {"  plan list models --template --quiet > mine.yaml\n",
                           "# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728\n",
                           "  key: a long line of a file that is wrong here\n       ^\n",
                           "  1234567  1234567  1234567  1234567  1234567\n"})
    EXPECT_EQ(cli::WithinColumns(line, 30), line);
}

TEST(Fold, KeepsNumbersWithTheirUnits) {
  EXPECT_EQ(Fold("takes 29.8 GiB now", 0, 11), "takes\n29.8 GiB\nnow");
}

TEST(Bar, IsProportionalAndNeverLongerThanItsWidth) {
  EXPECT_EQ(Bar(0.5, 10), "#####");
  EXPECT_EQ(Bar(7.0, 10), "##########");
  EXPECT_EQ(Bar(0, 10), "");
  EXPECT_EQ(Bar(0.0 / 0.0, 10), "");
}

TEST(ShownRows, KeepsBothEndsAndTheSpecialRow) {
  EXPECT_EQ(ShownRows(3, 8, 1), (std::vector<std::size_t>{0, 1, 2}));
  const std::vector<std::size_t> rows = ShownRows(64, 8, 11);
  EXPECT_EQ(rows.front(), 0u);
  EXPECT_EQ(rows.back(), 63u);
  EXPECT_NE(std::find(rows.begin(), rows.end(), 11u), rows.end());
}

TEST(Numbers, HaveThreeDigits) {
  EXPECT_EQ(Count(1.5336e9), "1.53 billion");
  EXPECT_EQ(Count(21), "21");
  EXPECT_EQ(Count(999.9e6), "1.00 billion");
  EXPECT_EQ(Scaled(43512), "43.5 k");
  EXPECT_EQ(Scaled(340.2), "340");
  EXPECT_EQ(Scaled(1.18e6), "1.18 M");
  EXPECT_EQ(Percent(0.4567), "45.7 %");
}

}  // namespace
}  // namespace orrery::report
