// SPDX-License-Identifier: Apache-2.0
// YAML and JSON as text: what is taken, and the message for everything that is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "model/base/node.h"
#include "tests/input/read_text.h"

namespace orrery {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_input::Rendered;
using testing_input::Text;

std::string ErrorsOf(const std::string& text) {
  Diagnostics diagnostics;
  Node::Parse(Text(text, "f"), &diagnostics);
  return Rendered(diagnostics);
}

TEST(Json, ReadsAModelConfigurationIndentedWithTabs) {
  Diagnostics diagnostics;
  const Node root = Node::Parse(
      Text("{\r\n\t\"architectures\": "
           "[\r\n\t\t\"LlamaForCausalLM\"\r\n\t],\r\n\t\"hidden_size\":4096,\r\n"
           "\t\"rms_norm_eps\": 1e-05,\r\n\t\"tie_word_embeddings\": false,\r\n\t\"rope_scaling\": "
           "null,\r\n"
           "\t\"rope_theta\": 500000.0,\r\n\t\"a\\/b\": \"x\\u00e9\\n\",\r\n\t\"url\": "
           "\"http://x#y\",\r\n"
           "\t\"id2label\": {\"0\": \"LABEL_0\"},\r\n\t\"empty\": {}, \"none\": []\r\n}\r\n"),
      &diagnostics);
  EXPECT_EQ(root.Integer("hidden_size", 1, 1 << 20), 4096);
  EXPECT_DOUBLE_EQ(root.Number("rms_norm_eps", 0, 1), 1e-5);
  EXPECT_FALSE(root.Bool("tie_word_embeddings"));
  EXPECT_FALSE(root.Has("rope_scaling"));
  EXPECT_DOUBLE_EQ(root.Number("rope_theta", 0, 1e9), 5e5);
  EXPECT_EQ(root.String("a/b"), "x\xC3\xA9\n");
  EXPECT_EQ(root.String("url"), "http://x#y");
  EXPECT_EQ(root.Child("id2label").String("0"), "LABEL_0");
  EXPECT_TRUE(root.Items("none").empty());
  EXPECT_EQ(root.Items("architectures")[0].where().line, 3);
  EXPECT_EQ(root.Items("architectures")[0].where().column, 3);
  EXPECT_EQ(Rendered(diagnostics), "");
}

TEST(Json, JoinsSurrogatePairs) {
  Diagnostics diagnostics;
  const Node root =
      Node::Parse(Text("{\"a\": \"\\ud83d\\ude00!\", \"b\": \"\\\\ud83d\"}"), &diagnostics);
  EXPECT_EQ(root.String("a"), "\xF0\x9F\x98\x80!");
  EXPECT_EQ(root.String("b"), "\\ud83d");
  EXPECT_EQ(Rendered(diagnostics), "");
  EXPECT_THAT(ErrorsOf("{\"a\": \"\\ud83d\"}"), HasSubstr("error: JSON syntax:"));
}

TEST(Json, TakesLongKeysAndValues) {
  Diagnostics diagnostics;
  const std::string key(1000, 'k');
  const Node root =
      Node::Parse(Text("{\"" + key + "\": \"" + std::string(100000, 'v') + "\"}"), &diagnostics);
  EXPECT_EQ(Rendered(diagnostics), "");
  EXPECT_EQ(root.String(key).size(), 100000u);
}

TEST(Yaml, TakesByteOrderMarkCarriageReturnsAndComments) {
  Diagnostics diagnostics;
  const Node root = Node::Parse(
      Text("\xEF\xBB\xBF---\r\n# c\ta\r\na: 1 # x\r\nb: two words\r\n...\r\n"), &diagnostics);
  EXPECT_EQ(Rendered(diagnostics), "");
  EXPECT_THAT(root.Keys(), ElementsAre("a", "b"));
  EXPECT_EQ(root.String("b"), "two words");
  EXPECT_EQ(root.where("b").line, 4);
  EXPECT_EQ(root.where("b").column, 4);
}

TEST(Yaml, RefusesTruncatedText) {
  EXPECT_THAT(ErrorsOf("a: [1, 2\n"), HasSubstr("f:1:4: error: this '[' is never closed"));
  // Where it opens, not the empty line at which the parser gives up.
  EXPECT_EQ(ErrorsOf("a: {b: 1\nc:\n  - {d: 1}\n\n\n"),
            "f:1:4: error: this '{' is never closed\n  a: {b: 1\n     ^\n");
  EXPECT_THAT(ErrorsOf("a: x [y # it's {\nb: 'it''s ['\nc: [1, {d: 2}, \"]\"\n\n"),
              HasSubstr("f:3:4: error: this '[' is never closed"));
  EXPECT_EQ(ErrorsOf("{\"a\": {\"b\": 1"),
            "f:1:7: error: this '{' is never closed\n  {\"a\": {\"b\": 1\n        ^\n");
  EXPECT_THAT(ErrorsOf("{\"a\": [1}\n"), HasSubstr("f:1:9: error: this '}' cannot close a '['"));
  EXPECT_THAT(ErrorsOf("{\"a\": 1}}\n"), HasSubstr("f:1:9: error: this '}' closes nothing"));
  EXPECT_THAT(ErrorsOf("{\n\"a\": \"open}\n"),
              HasSubstr("f:2:6: error: this quote is never closed"));
  EXPECT_THAT(ErrorsOf("\xC3\xA9: 1\na: \"open\\\"\n"),
              HasSubstr("f:2:4: error: this quote is never closed"));
  EXPECT_THAT(ErrorsOf("a: 'it''s"), HasSubstr("error: YAML syntax: a quote is never closed"));
  EXPECT_EQ(ErrorsOf("a: 'it''s'\nb: \"x\\\"\"\nc: |\n  \"\n"), "");
  EXPECT_THAT(ErrorsOf("a: 1\n b: 2\n"), HasSubstr("f:2:"));
}

TEST(Yaml, RefusesAnEmptyDocument) {
  for (const char* text : {"", "\n\n", "# only a comment\n", "---\n", "null\n", "\xEF\xBB\xBF"}) {
    EXPECT_THAT(ErrorsOf(text), HasSubstr("f: error: the document is empty")) << text;
  }
}

TEST(Yaml, RefusesASecondDocument) {
  EXPECT_THAT(ErrorsOf("a: 1\n---\nb: 2\n"), HasSubstr("error: a second document starts here"));
  EXPECT_THAT(ErrorsOf("{\"a\": 1}\n{\"b\": 2}\n"), HasSubstr("error: "));
}

TEST(Yaml, NamesBothPlacesOfADuplicateKey) {
  EXPECT_EQ(ErrorsOf("a: 1\nb: 2\na: 3\n"),
            "f:3:1: error: the key 'a' appears twice\n  a: 3\n  ^\n"
            "  hint: it is first given in line 1, column 1\n");
  EXPECT_THAT(ErrorsOf("{\"x\": {\"a\": 1, \"a\": 1}}"), HasSubstr("the key 'a' appears twice"));
}

TEST(Yaml, RefusesAnchorsByNameBeforeAnythingExpands) {
  EXPECT_THAT(ErrorsOf("a: &base [1]\nb: *base\n"),
              HasSubstr("f:1:4: error: the anchor '&base' is not accepted"));
  EXPECT_THAT(ErrorsOf("a: &x [*x]\n"), HasSubstr("error: the anchor '&x' is not accepted"));
  EXPECT_THAT(ErrorsOf("a: *x\n"),
              HasSubstr("error: YAML syntax: anchors (&) and aliases (*) are not accepted"));
}

// Their words come from a parser's states: "illegal map value", "end of map not found".
TEST(Yaml, SaysWhatToWriteInItsOwnWords) {
  const std::pair<const char*, const char*> kCases[] = {
      {"name: a: b: c\n",
       "`: ` cannot stand here\n  name: a: b: c\n         ^\n  hint: put a text"},
      {"a: 1\n b: 2\n", "f:2:"},
      {"a:\n  b: 1\n c: 2\n", "this line does not fit the keys around it"},
      {"a:\n  - 1\n  b: 2\n", "this line does not fit the"},
      {"a: & x\n", "anchors (&) and aliases (*) are not accepted"},
      {"a: * x\n", "anchors (&) and aliases (*) are not accepted"},
      {"a: @x\n", "nothing begins with this character"},
      {"a: `x`\n", "nothing begins with this character"},
      {"a: !e! x\n", "tags (!) are not accepted"},
      {"a: \"\\xzz\"\n", "\\x, \\u and \\U take 2, 4 and 8 hexadecimal digits"},
      {"a: \"\\q\"\n", "this escape is not known"},
      {"a: \"\\ud800\"\n", "this escape names no character"},
      {"{\"a\" 1}", "JSON syntax: a ':' or a ',' is missing in front of this"},
      {"{\"a\": \"\\ud800\"}", "JSON syntax: this escape names no character"},
      {"a: |x\n  y\n", "behind | or > stands nothing but"},
      {"%YAML 9.9\n---\na: 1\n", "directives (%) are not accepted"},
      {"- 1\n]\n", "error: "},
  };
  for (const auto& [text, words] : kCases) {
    const std::string errors = ErrorsOf(text);
    EXPECT_THAT(errors, HasSubstr(words)) << text;
    for (const char* foreign : {"illegal", "not found", "unknown token", "invalid", "bad "})
      EXPECT_THAT(errors, testing::Not(HasSubstr(foreign))) << text;
  }
}

TEST(Yaml, RefusesTagsAndKeysThatAreNoNames) {
  EXPECT_THAT(ErrorsOf("a: !!python/object:os.system x\n"), HasSubstr("error: the tag "));
  EXPECT_THAT(ErrorsOf("a: !!map {b: 1}\n"), HasSubstr("error: the tag "));
  EXPECT_THAT(ErrorsOf("? [a, b]\n: 1\n"), HasSubstr("error: a key must be a name"));
  EXPECT_THAT(ErrorsOf("{: 1}\n"), HasSubstr("error: a key must be a name"));
}

TEST(Yaml, RefusesTabIndentation) {
  EXPECT_THAT(ErrorsOf("a:\n\tb: 1\n"), HasSubstr("f:2:1: error: a tab indents this line"));
  EXPECT_THAT(ErrorsOf("a:\n  \tb: 1\n"), HasSubstr("f:2:3: error: a tab indents this line"));
  EXPECT_THAT(ErrorsOf("a: 1\n\t\n"), HasSubstr("f:2:1: error: a tab indents this line"));
  EXPECT_EQ(ErrorsOf("a: 1\t# x\n"), "");
}

TEST(Yaml, RefusesWhatIsNoText) {
  EXPECT_THAT(ErrorsOf(std::string("\x7F"
                                   "ELF\x02\x01\x01\0\0",
                                   9)),
              HasSubstr("f:1:1: error: not a text file"));
  EXPECT_THAT(ErrorsOf("a: \xFF\xFE\n"), HasSubstr("f:1:4: error: not UTF-8 text: byte 0xff"));
  EXPECT_THAT(ErrorsOf("a: 1\nb: \x04 hidden\n"),
              HasSubstr("f:2:4: error: not a text file: control character 0x04"));
  EXPECT_THAT(ErrorsOf(std::string("\xFF\xFE"
                                   "a\0:\0",
                                   6)),
              HasSubstr("not UTF-8 text"));
}

TEST(Yaml, BoundsTheDepthOfNesting) {
  const auto nested = [](const std::string& open, const std::string& close, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += open;
    for (int i = 0; i < times; ++i) text += close;
    return text + "\n";
  };
  EXPECT_EQ(ErrorsOf(nested("[", "]", 64)), "");
  for (const int times : {65, 1000, 100000}) {
    EXPECT_THAT(ErrorsOf(nested("[", "]", times)), HasSubstr("nested more than 64 levels deep"))
        << times;
    EXPECT_THAT(ErrorsOf(nested("{\"a\":", "}", times)),
                HasSubstr("nested more than 64 levels deep"))
        << times;
    EXPECT_THAT(ErrorsOf("a: " + nested("[", "]", times)),
                HasSubstr("nested more than 64 levels deep"))
        << times;
    EXPECT_THAT(ErrorsOf(nested("- ", "", times)), HasSubstr("nested more than 64 levels deep"))
        << times;
    EXPECT_THAT(ErrorsOf(nested("[", "", times)), HasSubstr("this '[' is never closed")) << times;
    EXPECT_THAT(ErrorsOf(nested("? ", "", times)), HasSubstr("error: ")) << times;
    EXPECT_THAT(ErrorsOf(nested("{? ", "", times)), HasSubstr("error: ")) << times;
    EXPECT_THAT(ErrorsOf("a: " + nested("{? [", "", times)), HasSubstr("error: ")) << times;
  }
}

// A parser of quadratic time would take minutes here; this one takes a second in all.
TEST(Yaml, NoLongTextStallsTheReader) {
  const auto repeat = [](const std::string& part, std::size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += part;
    return text;
  };
  for (const char* part :
       {"- a: b\n", "a ", "a: b\n", "'", "\"", "[],", "#", "- |\n x\n", ":", "&a ", "!", "\n"}) {
    const std::clock_t start = std::clock();  // of this process: others may keep the cores busy
    ErrorsOf(repeat(part, 400000));
    ErrorsOf("[" + repeat(part, 400000));
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 20) << part;
  }
}

}  // namespace
}  // namespace orrery
