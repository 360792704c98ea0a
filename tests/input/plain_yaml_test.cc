// SPDX-License-Identifier: Apache-2.0
// What the fast reader takes it reads as yaml-cpp does, in every place; the catalogues it takes whole.
#include "model/base/plain_yaml.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "model/base/plain_text.h"
#include "tests/from_environment.h"
#include "tests/input/read_text.h"
#include "tests/mutated_text.h"

namespace orrery {
namespace {

using testing_input::Rendered;
using testing_input::Text;

std::string Written(const YamlTree* tree) {
  if (tree == nullptr) return "nothing";
  std::string text = fmt::format("{}:{} {}{} '{}'", tree->where.line, tree->where.column,
                                 static_cast<int>(tree->kind), tree->quoted ? "q" : "", tree->text);
  for (const auto& element : tree->elements) text += fmt::format(" [{}]", Written(element.get()));
  for (const YamlTree::Member& member : tree->members)
    text += fmt::format(" ({}:{} {}: {})", member.key_where.line, member.key_where.column,
                        member.key, Written(member.value.get()));
  return text;
}

// False: it was not taken.
bool ExpectSame(const std::string& text) {
  const SourcePtr source = Text(text);
  Diagnostics diagnostics;
  if (!CheckPlainText(source, &diagnostics)) return false;
  const auto fast = ReadPlainYaml(source);
  if (!fast) return false;
  EXPECT_EQ(Written(fast.get()), Written(ReadAnyYaml(source, &diagnostics).get())) << text;
  EXPECT_EQ(Rendered(diagnostics), "") << text;
  return true;
}

std::vector<std::string> Catalogue(const std::vector<std::string>& folders) {
  std::vector<std::string> texts;
  for (const std::string& folder : folders) {
    const auto root = std::filesystem::path(ORRERY_SOURCE_DIR) / folder;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (entry.path().extension() == ".yaml")
        texts.push_back(ReadSource(entry.path().string())->text);
    }
  }
  return texts;
}

TEST(PlainYaml, ReadsTheCataloguesAsYamlCppDoes) {
  for (const std::string& text :
       Catalogue({"calib/profiles", "topologies", "scenarios/models", "offers"}))
    EXPECT_TRUE(ExpectSame(text)) << text;
  for (const std::string& text : Catalogue({"scenarios"})) ExpectSame(text);  // some hold nulls
}

TEST(PlainYaml, TakesWhatItKnowsAndNothingElse) {
  for (const char* text :
       {"a: 1",
        "# c\na: b c # d\n\nb:\n  - x\n  - y: 1\n    z: [1, -2.5, {k: 'v'}]\n  - - 1\n    - 2\n",
        "a: {b: [],\n  c: {}, # d\n  d: \"e # f: g\"}\nb: http://x#y, z\n"})
    EXPECT_TRUE(ExpectSame(text)) << text;
  for (const char* text : {"",
                           "a",
                           "- a\n b\n",
                           "a:\n",
                           "a:\n- b\n",
                           "a: ~\n",
                           "a: &x 1\n",
                           "a: \"\\n\"\n",
                           "a: 'b''c'\n",
                           "a: |\n  b\n",
                           "a: b\n  c\n",
                           "a: 1\na: 2\n",
                           "--- \na: 1\n",
                           "a: b: c\n",
                           "a: [b, c,]\n",
                           "a: {b}\n",
                           "a: [b\n",
                           "a: 'b' c\n",
                           "? a\n: b\n",
                           "\"a\": b\n",
                           "a: [b: c]\n",
                           "a: !!str 1\n",
                           " a: 1\nb: 2\n",
                           "a:\n  b: 1\n c: 2\n"})
    EXPECT_FALSE(ExpectSame(text)) << text;
}

TEST(PlainYaml, ReadsDamagedCataloguesAsYamlCppDoes) {
  const std::vector<std::string> seeds =
      Catalogue({"calib/profiles", "topologies", "scenarios", "offers"});
  const uint64_t cases = FromEnvironment("ORRERY_MUTATIONS", 3000);
  std::mt19937_64 random(FromEnvironment("ORRERY_MUTATION_SEED", 1));
  uint64_t taken = 0;
  for (uint64_t i = 0; i < cases; ++i)
    taken += ExpectSame(MutatedText(random, seeds, " \n:-#'\"[]{},?&*!|>%@`~.\\"));
  EXPECT_GT(taken, cases / 20);
}

}  // namespace
}  // namespace orrery
