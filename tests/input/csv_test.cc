// SPDX-License-Identifier: Apache-2.0
// CSV: what is read, and every message about what is not.
#include "model/base/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "model/base/plain_text.h"
#include "tests/input/read_text.h"

namespace orrery {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing_input::Rendered;
using testing_input::Text;

std::string ErrorsOf(const std::string& text, const std::vector<std::string>& required = {}) {
  Diagnostics diagnostics;
  CsvTable::Parse(Text(text, "t.csv"), required, &diagnostics);
  return Rendered(diagnostics);
}

// Text is checked several bytes at once: each byte counts, wherever it stands.
TEST(PlainText, SeesEveryByteAtEveryPlace) {
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = byte >= 0x20 && byte < 0x7F;
    const bool ok = printable || byte == '\t' || byte == '\n' || byte == '\r';
    for (std::size_t at = 0; at < 24; ++at) {
      std::string text(24, at % 2 == 0 ? '~' : ' ');
      text[at] = static_cast<char>(byte);
      Diagnostics diagnostics;
      EXPECT_EQ(CheckPlainText(Text(text, "t"), &diagnostics), ok) << byte << " at " << at;
      if (!ok) {
        EXPECT_THAT(Rendered(diagnostics), HasSubstr("t:1:" + std::to_string(at + 1) + ": "));
      }
    }
  }
}

TEST(Csv, ReadsQuotesCommasLineBreaksAndDoubledQuotes) {
  Diagnostics diagnostics;
  const auto table = CsvTable::Parse(
      Text("case,n,note\r\na,1,\"x, \"\"y\"\"\"\r\nb,2,\"two\nlines\"\r\n\r\nc,,\n"), {"case", "n"},
      &diagnostics);
  ASSERT_EQ(Rendered(diagnostics), "");
  ASSERT_EQ(table.rows(), 3u);
  EXPECT_EQ(table.Text(0, "note"), "x, \"y\"");
  EXPECT_EQ(table.Text(1, "note"), "two\nlines");
  EXPECT_EQ(table.Integer(1, "n", 0, 9), 2);
  EXPECT_EQ(table.Integer(2, "n", 0, 9), std::nullopt);
  EXPECT_EQ(table.Text(2, "nowhere"), "");
  EXPECT_TRUE(table.HasColumn("note"));
  EXPECT_FALSE(table.HasColumn("notes"));
  EXPECT_TRUE(diagnostics.ok());
}

TEST(Csv, CopiesKeepTheTextsOfTheirCells) {
  Diagnostics diagnostics;
  std::optional<CsvTable> first =
      CsvTable::Parse(Text("a,b\n\"x \"\"y\"\"\",plain\n"), {}, &diagnostics);
  const CsvTable copy = *first;
  const std::string_view quoted = copy.View(0, "a"), plain = copy.View(0, "b");
  first.reset();
  EXPECT_EQ(quoted, "x \"y\"");
  EXPECT_EQ(plain, "plain");
  EXPECT_EQ(copy.Number(0, copy.IndexOf("c"), 0, 1), std::nullopt);
}

TEST(Csv, KnowsTheLineAndColumnOfEveryCell) {
  Diagnostics diagnostics;
  const auto table = CsvTable::Parse(Text("a,b\n\"x\ny\",1\nz,22\n"), {}, &diagnostics);
  ASSERT_EQ(table.rows(), 2u);
  EXPECT_EQ(table.where(0, "a").line, 2);
  EXPECT_EQ(table.where(0, "b").line, 3);
  EXPECT_EQ(table.where(0, "b").column, 4);
  EXPECT_EQ(table.where(1, "b").line, 4);
  EXPECT_EQ(table.where(1, "b").column, 3);
}

TEST(Csv, TakesAByteOrderMarkAndAMissingLastLineBreak) {
  Diagnostics diagnostics;
  const auto table = CsvTable::Parse(Text("\xEF\xBB\xBF"
                                          "a,b\n1,2"),
                                     {"a", "b"}, &diagnostics);
  EXPECT_EQ(Rendered(diagnostics), "");
  EXPECT_EQ(table.Integer(0, "b", 0, 9), 2);
}

TEST(Csv, NamesAllMissingColumnsTogetherWithNearNames) {
  const std::string error = ErrorsOf("case,node,tim_s\n", {"case", "nodes", "time_s", "vocab"});
  EXPECT_THAT(error, HasSubstr("t.csv:1:1: error: missing columns 'nodes', 'time_s', 'vocab'"));
  EXPECT_THAT(error, HasSubstr("is 'node' meant to be 'nodes'?"));
  EXPECT_THAT(error, HasSubstr("is 'tim_s' meant to be 'time_s'?"));
}

TEST(Csv, RefusesAColumnThatAppearsTwice) {
  EXPECT_THAT(ErrorsOf("a,b,a\n"), HasSubstr("t.csv:1:5: error: the column 'a' appears twice"));
}

TEST(Csv, RefusesARowOfAnotherLengthAndReadsOn) {
  Diagnostics diagnostics;
  const auto table = CsvTable::Parse(Text("a,b\n1\n1,2\n1,2,3\n", "t.csv"), {}, &diagnostics);
  EXPECT_EQ(table.rows(), 1u);
  const std::string error = Rendered(diagnostics);
  EXPECT_THAT(error, HasSubstr("t.csv:2:1: error: this row has 1 field, the header has 2"));
  EXPECT_THAT(error, HasSubstr("t.csv:4:1: error: this row has 3 fields, the header has 2"));
  EXPECT_THAT(error, HasSubstr("hint: put fields that hold a comma in quotes"));
}

TEST(Csv, RefusesStrayAndOpenQuotes) {
  EXPECT_THAT(ErrorsOf("a,b\nx,\"never\n"),
              HasSubstr("t.csv:2:3: error: this quote is never closed"));
  EXPECT_THAT(ErrorsOf("a,b\nx\"y,2\n"), HasSubstr("t.csv:2:2: error: a quote inside a field"));
  EXPECT_THAT(ErrorsOf("a,b\n\"x\"y,2\n"),
              HasSubstr("t.csv:2:4: error: text after the closing quote"));
}

TEST(Csv, RefusesNothingAndBinary) {
  EXPECT_THAT(ErrorsOf(""), HasSubstr("t.csv: error: the table is empty"));
  EXPECT_THAT(ErrorsOf("\n\r\n"), HasSubstr("the table is empty"));
  EXPECT_THAT(ErrorsOf("a,b\n1,\xFF\n"), HasSubstr("t.csv:2:3: error: not UTF-8 text: byte 0xff"));
  EXPECT_THAT(ErrorsOf(std::string("a\n\0", 3)), HasSubstr("t.csv:2:1: error: not a text file"));
}

TEST(Csv, SaysWhichCellIsNoNumberOrOutOfRange) {
  Diagnostics diagnostics;
  const auto table =
      CsvTable::Parse(Text("n,x\n1.5,abc\n-3,1e999\n 7 ,nan\n", "t.csv"), {}, &diagnostics);
  EXPECT_EQ(table.Integer(0, "n", 0, 9), std::nullopt);
  EXPECT_EQ(table.Number(0, "x", 0, 9), std::nullopt);
  EXPECT_EQ(table.Integer(1, "n", 0, 9), std::nullopt);
  EXPECT_EQ(table.Number(1, "x", 0, 9), std::nullopt);
  EXPECT_EQ(table.Integer(2, "n", 0, 9), 7);
  EXPECT_EQ(table.Number(2, "x", 0, 9), std::nullopt);
  const std::string error = Rendered(diagnostics);
  EXPECT_THAT(error, HasSubstr("t.csv:2:1: error: 'n': expected a whole number, found '1.5'"));
  EXPECT_THAT(error, HasSubstr("t.csv:2:5: error: 'x': expected a number, found 'abc'"));
  EXPECT_THAT(error, HasSubstr("t.csv:3:1: error: 'n': '-3' is out of range"));
  EXPECT_THAT(error, HasSubstr("hint: allowed: between 0 and 9"));
  EXPECT_THAT(error, HasSubstr("t.csv:3:4: error: 'x': '1e999' is out of range"));
  EXPECT_THAT(error, HasSubstr("found 'nan'"));
}

}  // namespace
}  // namespace orrery
