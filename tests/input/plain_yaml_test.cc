// SPDX-License-Identifier: Apache-2.0
// The quick reader of plain YAML reads the tree's own files, and reads them as the general parser does.
#include "model/base/plain_yaml.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "model/base/text.h"
#include "tests/input/read_text.h"
#include "tests/input/same_tree.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

TEST(PlainYaml, FilesOfTheTreeArePlainAndReadAsByTheGeneralParser) {
  int files = 0, plain = 0;
  std::string others;
  for (const char* folder : {"calib", "scenarios", "topologies", "offers", "tests"}) {
    for (const auto& file :
         fs::recursive_directory_iterator(fs::path(ORRERY_SOURCE_DIR) / folder)) {
      const fs::path extension = file.path().extension();
      if (extension != ".yaml" && extension != ".json") continue;
      const SourcePtr source = ReadSource(file.path().string());
      ++files;
      const auto tree = ReadPlainYaml(source);
      if (tree == nullptr) {
        others += file.path().string() + "\n";
        continue;
      }
      ++plain;
      Diagnostics diagnostics;
      const auto any = ReadAnyYaml(source, &diagnostics);
      ASSERT_NE(any, nullptr) << source->name;
      ExpectSame(*tree, *any, source->name);
    }
  }
  EXPECT_GT(files, 300);
  EXPECT_GT(plain, 0.9 * files) << others;
}

TEST(PlainYaml, LeavesWhatIsNotPlainToTheGeneralParser) {
  for (const char* text : {"",
                           "a:\n",
                           "a: &x 1\n",
                           "a: *x\n",
                           "a: !!str 1\n",
                           "a: |\n  b\n",
                           "a: >-\n  b\n",
                           "a: b\n  c\n",
                           "a: \"b\\n\"\n",
                           "a: 'it''s'\n",
                           "a: \"b\n  c\"\n",
                           "a: null\n",
                           "~: 1\n",
                           "a: 1\na: 2\n",
                           "{a: 1, a: 2}\n",
                           "---\na: 1\n",
                           "a: 1\n---\nb: 2\n",
                           "a: b: c\n",
                           "a\n",
                           "- - a\n",
                           "a: [b\n",
                           "a: {b}\n",
                           "a: {b: 1,}\n",
                           "a: 1\n b: 2\n",
                           "\ta: 1\n",
                           "a: 1\r\n",
                           "\xEF\xBB\xBF"
                           "a: 1\n",
                           "a: ? b\n",
                           "? a\n: b\n",
                           "a: @b\n",
                           "%YAML 1.2\n"})
    EXPECT_EQ(ReadPlainYaml(testing_input::Text(text)), nullptr) << text;
}

}  // namespace
}  // namespace orrery
