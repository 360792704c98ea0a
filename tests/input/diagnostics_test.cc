// SPDX-License-Identifier: Apache-2.0
// How diagnostics look, and what the file reader refuses.
#include "model/base/diagnostics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "model/base/plain_text.h"
#include "tests/input/read_text.h"

namespace orrery {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing_input::Text;

// Grown by push_back: GCC 12 warns wrongly about initializer lists of these at -O3.
std::vector<Diagnostic> One(Location where, std::string message, std::string hint = "") {
  std::vector<Diagnostic> list;
  list.push_back({std::move(where), std::move(message), std::move(hint)});
  return list;
}

std::string RenderAt(const std::string& text, int line, int column, const std::string& hint = "") {
  return Render(One({Text(text, "f.yaml"), line, column}, "wrong", hint), false);
}

TEST(Render, ShowsPlaceLineCaretAndHint) {
  EXPECT_EQ(RenderAt("a: 1\nbb: 2\n", 2, 5, "try 3"),
            "f.yaml:2:5: error: wrong\n  bb: 2\n      ^\n  hint: try 3\n");
}

TEST(Render, WithoutAPlaceShowsWhatIsKnown) {
  EXPECT_EQ(RenderAt("a: 1\n", 0, 0), "f.yaml: error: wrong\n");
  EXPECT_EQ(Render(One({}, "wrong", "do right"), false), "error: wrong\n  hint: do right\n");
}

TEST(Render, AlignsTheCaretAfterTabsAndWideBytes) {
  EXPECT_EQ(RenderAt("\tx\ty", 1, 4), "f.yaml:1:4: error: wrong\n    x  y\n       ^\n");
  EXPECT_EQ(RenderAt("\xC3\xA9\xE2\x82\xACx", 1, 6),
            "f.yaml:1:6: error: wrong\n  \xC3\xA9\xE2\x82\xACx\n    ^\n");
}

TEST(Render, LeavesTheByteOrderMarkOut) {
  EXPECT_EQ(RenderAt("\xEF\xBB\xBF"
                     "ab\n",
                     1, 5),
            "f.yaml:1:5: error: wrong\n  ab\n   ^\n");
}

TEST(Render, PutsTheCaretAtTheEndWhenTheColumnIsBehindIt) {
  EXPECT_EQ(RenderAt("ab\r\n", 1, 99), "f.yaml:1:99: error: wrong\n  ab\n    ^\n");
  EXPECT_EQ(RenderAt("ab\n", 9, 1), "f.yaml:9:1: error: wrong\n  \n  ^\n");
}

TEST(Render, MakesControlCharactersAndBrokenUtf8Harmless) {
  const std::string shown = RenderAt("a\x1b[2J\xFF\xC2\x9Bz", 1, 1);
  EXPECT_THAT(shown, HasSubstr("a\\x1b[2J\\xff\\xc2\\x9bz\n"));
  EXPECT_THAT(
      Render(One({Text("", "e\x1b[1m"), 0, 0}, "bad \x07", "h\x08"), false),
      ::testing::AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\x07")), Not(HasSubstr("\x08"))));
}

TEST(Render, CropsLongLinesAroundTheCaret) {
  std::string line(200000, 'a');
  for (const int column : {1, 60, 5000, 100000, 199990, 200000}) {
    line[static_cast<std::size_t>(column - 1)] = 'X';
    const std::string shown = RenderAt(line, 1, column);
    line[static_cast<std::size_t>(column - 1)] = 'a';
    const std::size_t first = shown.find('\n') + 1, second = shown.find('\n', first) + 1;
    ASSERT_LT(shown.size(), 300u) << column;
    // The caret stands below the X.
    EXPECT_EQ(shown.find('X', first) - first, shown.find('^', second) - second) << column;
  }
}

TEST(Render, StopsAtTenAndCountsTheRest) {
  std::vector<Diagnostic> many(13, Diagnostic{Location{}, "wrong", ""});
  const std::string text = Render(many, false);
  EXPECT_THAT(text, HasSubstr("... and 3 more\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 11);
  many.resize(10);
  EXPECT_THAT(Render(many, false), Not(HasSubstr("more")));
}

TEST(Render, ColoursOnlyOnRequest) {
  const std::vector<Diagnostic> one = One({}, "wrong");
  EXPECT_THAT(Render(one, true), HasSubstr("\x1b[1;31merror:"));
  EXPECT_THAT(Render(one, false), Not(HasSubstr("\x1b")));
}

TEST(Diagnostics, ThrowsWhatItCollected) {
  Diagnostics diagnostics;
  EXPECT_NO_THROW(diagnostics.ThrowIfAny());
  diagnostics.Error({}, "first");
  diagnostics.Error({}, "second", "hint");
  EXPECT_FALSE(diagnostics.ok());
  try {
    diagnostics.ThrowIfAny();
    FAIL() << "nothing thrown";
  } catch (const InputError& error) {
    EXPECT_EQ(error.diagnostics().size(), 2u);
    EXPECT_STREQ(error.what(), "error: first\nerror: second\n  hint: hint\n");
  }
}

TEST(Diagnostics, KeepsABoundedNumber) {
  Diagnostics diagnostics;
  for (int i = 0; i < 5000; ++i) diagnostics.Error({}, "wrong " + std::to_string(i));
  EXPECT_THAT(testing_input::Rendered(diagnostics), HasSubstr("... and 990 more"));
}

TEST(Diagnostics, LeavesOutWhatRepeatsTheLast) {
  Diagnostics diagnostics;
  for (const char* message : {"wrong", "wrong", "worse", "wrong"}) diagnostics.Error({}, message);
  const std::string text = testing_input::Rendered(diagnostics);
  EXPECT_THAT(text, HasSubstr("wrong\nerror: worse\nerror: wrong\n"));
  EXPECT_EQ(text.find("wrong\nerror: wrong"), std::string::npos);
}

class ReadSourceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "orrery_read_source_test." + std::to_string(getpid());
  }
  void TearDown() override { std::remove(path_.c_str()); }
  void Write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  std::string ErrorOf(const std::string& path, std::size_t most = 100) {
    try {
      ReadSource(path, most);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  std::string path_;
};

TEST_F(ReadSourceTest, ReadsTheWholeFile) {
  Write("a: 1\r\n");
  const SourcePtr source = ReadSource(path_);
  EXPECT_EQ(source->text, "a: 1\r\n");
  EXPECT_EQ(source->name, path_);
}

TEST_F(ReadSourceTest, RefusesMissingFolderBinaryAndHuge) {
  EXPECT_THAT(ErrorOf("/nowhere/x.yaml"), HasSubstr("cannot open '/nowhere/x.yaml': No such file"));
  EXPECT_THAT(ErrorOf(::testing::TempDir()), HasSubstr("it is a directory"));
  Write(std::string("a\0b", 3));
  EXPECT_THAT(ErrorOf(path_), HasSubstr("is not a text file"));
  EXPECT_THAT(ErrorOf("/dev/zero"), HasSubstr("is not a text file"));
  Write(std::string(101, 'a'));
  EXPECT_THAT(ErrorOf(path_), HasSubstr("is larger than 100 bytes"));
  Write(std::string(100, 'a'));
  EXPECT_EQ(ErrorOf(path_), "");
}

TEST(Utf8Length, TakesOnlyShortestFormsOfScalarValues) {
  EXPECT_EQ(Utf8Length("a"), 1u);
  EXPECT_EQ(Utf8Length("\xC3\xA9"), 2u);
  EXPECT_EQ(Utf8Length("\xE2\x82\xAC"), 3u);
  EXPECT_EQ(Utf8Length("\xF0\x9F\x98\x80"), 4u);
  for (const char* broken :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xC3", "\xE2\x82", "\xFF"}) {
    EXPECT_EQ(Utf8Length(broken), 0u) << broken;
  }
}

TEST(ParseNumber, IsStrict) {
  double number = 0;
  int64_t integer = 0;
  EXPECT_EQ(ParseNumber("1e-05", &number), NumberFault::kNone);
  EXPECT_DOUBLE_EQ(number, 1e-5);
  EXPECT_EQ(ParseInteger("-12", &integer), NumberFault::kNone);
  EXPECT_EQ(integer, -12);
  for (const char* text : {"", "-", "+1", "1_000", "0x10", "nan", "inf", "-inf", "1 ", " 1", "1,0",
                           "true", "e5", "."}) {
    EXPECT_EQ(ParseNumber(text, &number), NumberFault::kMalformed) << text;
    EXPECT_EQ(ParseInteger(text, &integer), NumberFault::kMalformed) << text;
  }
  EXPECT_EQ(ParseInteger("12.0", &integer), NumberFault::kMalformed);
  EXPECT_EQ(ParseInteger("1e3", &integer), NumberFault::kMalformed);
  EXPECT_EQ(ParseInteger("9223372036854775808", &integer), NumberFault::kOutOfRange);
  EXPECT_EQ(ParseNumber("1e400", &number), NumberFault::kOutOfRange);
}

}  // namespace
}  // namespace orrery
