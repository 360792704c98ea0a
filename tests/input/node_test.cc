// SPDX-License-Identifier: Apache-2.0
// The typed getters: what they return, and what they say when they cannot.
#include "model/base/node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/input/read_text.h"

namespace orrery {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_input::Rendered;
using testing_input::Text;

constexpr double kInf = std::numeric_limits<double>::infinity();

// A document with its diagnostics.
struct Reading {
  explicit Reading(const std::string& text) : root(Node::Parse(Text(text), &diagnostics)) {}
  std::string errors() { return Rendered(diagnostics); }
  Diagnostics diagnostics;
  Node root;
};

TEST(Node, ReadsEveryKindOfValue) {
  Reading r(
      "name: dgx\ncount: 16\nratio: 1e-05\non: true\nmemory: 80GiB\nlatency: \"3us\"\nlink: "
      "25Gbps\n"
      "peak: 312TFLOP/s\nprice: 2.5USD/h\nlist: [1, 2]\nsub:\n  deep: x\nnone: ~\n");
  EXPECT_EQ(r.root.String("name"), "dgx");
  EXPECT_EQ(r.root.String("count"), "16");
  EXPECT_EQ(r.root.Integer("count", 1, 100), 16);
  EXPECT_DOUBLE_EQ(r.root.Number("ratio", 0, 1), 1e-5);
  EXPECT_TRUE(r.root.Bool("on"));
  EXPECT_EQ(r.root.ReadBytes("memory").value, 80.0 * (1 << 30));
  EXPECT_DOUBLE_EQ(r.root.ReadSeconds("latency").value, 3e-6);
  EXPECT_DOUBLE_EQ(r.root.ReadBytesPerSecond("link").value, 25e9 / 8);
  EXPECT_DOUBLE_EQ(r.root.ReadFlopsPerSecond("peak").value, 312e12);
  EXPECT_DOUBLE_EQ(r.root.ReadDollarsPerHour("price").value, 2.5);
  ASSERT_EQ(r.root.Items("list").size(), 2u);
  EXPECT_EQ(r.root.Items("list")[1].AsInteger(0, 9), 2);
  EXPECT_EQ(r.root.Items("list")[1].AsString(), "2");
  EXPECT_EQ(r.root.Items("list")[1].AsNumber(0, 9), 2.0);
  EXPECT_EQ(r.root.Child("sub").String("deep"), "x");
  EXPECT_FALSE(r.root.Has("none"));
  EXPECT_FALSE(r.root.Find("none"));
  EXPECT_FALSE(r.root.Find("absent"));
  EXPECT_THAT(r.root.Child("sub").Keys(), ElementsAre("deep"));
  r.root.RejectUnknownKeys();
  EXPECT_EQ(r.errors(), "");
}

TEST(Node, UsesFallbacksOnlyForWhatIsAbsent) {
  Reading r("a: 1\nb: null\n");
  EXPECT_EQ(r.root.Integer("a", 0, 9, 5), 1);
  EXPECT_EQ(r.root.Integer("b", 0, 9, 5), 5);
  EXPECT_EQ(r.root.Number("c", 0, 9, 0.5), 0.5);
  EXPECT_EQ(r.root.String("c", "x"), "x");
  EXPECT_TRUE(r.root.Bool("c", true));
  EXPECT_EQ(r.errors(), "");
  r.root.String("a");
  r.root.Bool("a", true);
  EXPECT_THAT(r.errors(),
              HasSubstr("test.yaml:1:4: error: 'a': expected true or false, found '1'"));
}

TEST(Node, NamesMissingKeysAndKeysWithoutValue) {
  Reading r("a:\n  b: 1\nc:\n");
  r.root.Child("a").Integer("x", 0, 1);
  r.root.String("c");
  EXPECT_THAT(r.errors(),
              HasSubstr("test.yaml:2:3: error: the key 'x' is missing\n    b: 1\n    ^\n"));
  EXPECT_THAT(r.errors(), HasSubstr("test.yaml:3:1: error: 'c' has no value"));
}

TEST(Node, QuotedNumbersAreStrings) {
  Reading r("n: \"12\"\nx: '1.5'\ns: \"12\"\nb: 'true'\n");
  EXPECT_EQ(r.root.Integer("n", 5, 20), 5);
  r.root.Number("x", 0, 9);
  r.root.Bool("b");
  EXPECT_EQ(r.root.String("s"), "12");
  EXPECT_THAT(
      r.errors(),
      HasSubstr("test.yaml:1:4: error: 'n': expected a whole number, found the string '12'"));
  EXPECT_THAT(r.errors(), HasSubstr("hint: leave the quotes away"));
  EXPECT_THAT(r.errors(), HasSubstr("'x': expected a number, found the string '1.5'"));
  EXPECT_THAT(r.errors(), HasSubstr("'b': expected true or false, found the string 'true'"));
}

TEST(Node, RefusesNumbersThatAreNone) {
  for (const char* text : {"1_000", "0x10", "nan", ".nan", "inf", ".inf", "-.inf", "+3", "12.5GiB",
                           "[1]", "{a: 1}", "yes"}) {
    Reading r(std::string("n: ") + text + "\n");
    r.root.Integer("n", 0, 100);
    r.root.Number("n", 0, 100);
    EXPECT_THAT(r.errors(), HasSubstr("'n': expected a whole number, found")) << text;
    EXPECT_THAT(r.errors(), HasSubstr("'n': expected a number, found")) << text;
  }
}

TEST(Node, NamesTheRangeAndStaysInIt) {
  Reading r("n: 1000000000\nz: 0\nx: 2.5\ny: 99999999999999999999\ninf: 1e999\n");
  EXPECT_EQ(r.root.Integer("n", 2, 9), 2);
  EXPECT_EQ(r.root.Integer("z", 1, INT64_MAX), 1);
  EXPECT_EQ(r.root.Number("x", 0, 0.5), 0.5);
  r.root.Integer("y", 0, INT64_MAX);
  r.root.Number("inf", 0, kInf);
  const std::string errors = r.errors();
  EXPECT_THAT(errors, HasSubstr("test.yaml:1:4: error: 'n': '1000000000' is out of range"));
  EXPECT_THAT(errors, HasSubstr("hint: allowed: between 2 and 9"));
  EXPECT_THAT(errors, HasSubstr("hint: allowed: at least 1\n"));
  EXPECT_THAT(errors, HasSubstr("hint: allowed: between 0 and 0.5"));
  EXPECT_THAT(errors, HasSubstr("'y': '99999999999999999999' is out of range"));
  EXPECT_THAT(errors, HasSubstr("'inf': '1e999' is out of range"));
}

TEST(Node, QuantitiesNeedTheRightUnit) {
  Reading r("memory: 80\nlink: 25GIBs\nrate: 0GB/s\nlatency: [3us]\nprice: -1USD/h\n");
  EXPECT_GT(r.root.ReadBytes("memory").value, 0);
  EXPECT_GT(r.root.ReadBytesPerSecond("link").value, 0);
  EXPECT_GT(r.root.ReadBytesPerSecond("rate").value, 0);
  r.root.ReadSeconds("latency");
  r.root.ReadDollarsPerHour("price");
  const std::string errors = r.errors();
  EXPECT_THAT(errors,
              HasSubstr("test.yaml:1:9: error: 'memory': '80' has no unit\n  memory: 80\n"
                        "          ^\n  hint: write 80GiB; units of an amount of memory: B, kB"));
  EXPECT_THAT(errors, HasSubstr("'link': unknown unit 'GIBs' for a bandwidth"));
  EXPECT_THAT(errors, HasSubstr("hint: did you mean 25"));
  EXPECT_THAT(errors, HasSubstr("'rate': '0GB/s' must be above zero"));
  EXPECT_THAT(errors, HasSubstr("'latency': expected a single value, found a list"));
  EXPECT_THAT(errors, HasSubstr("'price': '-1USD/h' is out of range"));
}

TEST(Node, RejectsUnknownKeysWithTheNearest) {
  Reading r("nodes: 1\nbandwith: 3\n\"\": 1\n");
  r.root.Integer("nodes", 0, 9);
  r.root.Integer("bandwidth", 0, 9, 1);
  r.root.RejectUnknownKeys();
  EXPECT_THAT(r.errors(),
              HasSubstr("test.yaml:2:1: error: unknown key 'bandwith'\n  bandwith: 3\n  ^\n"
                        "  hint: did you mean 'bandwidth'?"));
}

enum class Fabric { kTree, kTorus };
constexpr std::pair<const char*, Fabric> kFabrics[] = {{"fat-tree", Fabric::kTree},
                                                       {"torus", Fabric::kTorus}};

TEST(Node, ChoosesFromATable) {
  const std::span<const std::pair<const char*, Fabric>> table = kFabrics;
  Reading r("a: torus\nb: fat-tre\nc: 7\n");
  EXPECT_EQ(r.root.Choice("a", table), Fabric::kTorus);
  EXPECT_EQ(r.root.Choice("none", table, Fabric::kTorus), Fabric::kTorus);
  EXPECT_TRUE(r.diagnostics.ok());
  r.root.Choice("b", table);
  r.root.Choice("c", table, Fabric::kTorus);
  EXPECT_THAT(r.errors(), HasSubstr("'b': unknown value 'fat-tre'"));
  EXPECT_THAT(r.errors(), HasSubstr("hint: did you mean 'fat-tree'?"));
  EXPECT_THAT(r.errors(), HasSubstr("'c': unknown value '7'"));
  EXPECT_THAT(r.errors(), HasSubstr("hint: one of: fat-tree, torus"));
}

TEST(Node, AMissingMapIsReportedOnce) {
  Reading r("a: 1\n");
  const Node absent = r.root.Child("gpu");
  EXPECT_TRUE(absent.IsMap());
  EXPECT_EQ(absent.String("x"), "");
  EXPECT_EQ(absent.Integer("n", 3, 9), 3);
  EXPECT_THAT(absent.Items("list"), IsEmpty());
  EXPECT_THAT(absent.Child("y").Elements(), IsEmpty());
  absent.Error("consequence");
  absent.RejectUnknownKeys();
  r.errors();
  try {
    r.diagnostics.ThrowIfAny();
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(error.diagnostics().size(), 1u);
  }
}

TEST(Node, AValueInPlaceOfAMapIsReportedOnce) {
  Reading r("gpu: a100\nlinks: 3\nitems: {a: 1}\n");
  const Node gpu = r.root.Child("gpu");
  gpu.String("name");
  gpu.Integer("n", 0, 1, 1);
  gpu.RejectUnknownKeys();
  r.root.Items("links");
  r.root.Child("items").Elements();
  EXPECT_EQ(
      r.errors(),
      "test.yaml:1:6: error: expected a map of `key: value`, found 'a100'\n  gpu: a100\n       ^\n"
      "test.yaml:2:8: error: 'links': expected a list, found '3'\n  links: 3\n         ^\n"
      "  hint: write `[a, b]`, or one `- item` per line\n"
      "test.yaml:3:8: error: expected a list, found a map\n  items: {a: 1}\n         ^\n"
      "  hint: write `[a, b]`, or one `- item` per line\n");
}

TEST(Node, KnowsWhereItStands) {
  Reading r("a:\n  - b: 1\n  - c\n");
  const auto items = r.root.Items("a");
  EXPECT_EQ(items[1].where().line, 3);
  EXPECT_EQ(items[1].where().column, 5);
  EXPECT_EQ(items[0].where("b").column, 8);
  EXPECT_EQ(items[0].where("missing").line, 2);
  items[0].ErrorAt("b", "too small", "make it larger");
  EXPECT_THAT(r.errors(), HasSubstr("test.yaml:2:8: error: too small\n    - b: 1\n"));
  EXPECT_THAT(r.errors(), HasSubstr("hint: make it larger"));
}

TEST(Node, RepeatsOnlyTheStartOfALongText) {
  Reading r("n: " + std::string(100000, 'x') + "\n");
  r.root.Integer("n", 0, 1);
  EXPECT_LT(r.errors().size(), 500u);
}

}  // namespace
}  // namespace orrery
