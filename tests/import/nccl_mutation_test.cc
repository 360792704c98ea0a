// SPDX-License-Identifier: Apache-2.0
// Property: whatever a log holds, reading it ends with measurements or with an InputError, and no
// row disappears: a changed row is still a measurement, or it is counted as garbled.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "calib/import/nccl_log.h"
#include "tests/from_environment.h"
#include "tests/mutated_text.h"

namespace orrery::measured {
namespace {

std::vector<std::string> Samples() {
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(ORRERY_SOURCE_DIR) +
                                                               "/calib/import/samples")) {
    if (entry.path().filename().string().starts_with("nccl"))
      texts.push_back(ReadSource(entry.path().string())->text);
  }
  std::sort(texts.begin(), texts.end());
  return texts;
}

TEST(Mutations, LogReaderNeverCrashes) {
  const std::vector<std::string> seeds = Samples();
  ASSERT_GE(seeds.size(), 3u);
  const std::size_t cases = FromEnvironment("ORRERY_MUTATIONS", 6000);
  const uint64_t seed = FromEnvironment("ORRERY_MUTATION_SEED", 20240511);
  std::size_t read = 0, refused = 0;
  for (std::size_t i = 0; i < cases; ++i) {
    std::mt19937_64 random(seed * 1000003 + i);
    const auto source =
        std::make_shared<Source>(Source{"mutated", MutatedText(random, seeds, "9e-. #:[{\"\n\t")});
    SCOPED_TRACE(i);
    try {
      const NcclLog log = ReadNcclLog(source);
      ++read;
      for (const NcclRun& run : log.runs) {
        ASSERT_FALSE(run.measurements.empty());
        for (const Measurement& row : run.measurements) {
          ASSERT_TRUE(row.out_of_place || row.in_place);
          ASSERT_GE(row.bytes, 0);
        }
      }
      ASSERT_GE(log.garbled_lines, static_cast<int64_t>(log.garbled.size()));
    } catch (const InputError& error) {
      ++refused;
      ASSERT_NE(std::string(error.what()).find("error:"), std::string::npos);
    }
  }
  EXPECT_GT(read, cases / 20);
  EXPECT_GT(refused, cases / 200);
}

// One character of one row of the text samples becomes another one that is no blank.
TEST(Mutations, NoRowDisappears) {
  std::mt19937_64 random(7);
  for (const std::string& text : Samples()) {
    if (text.starts_with("{")) continue;
    const NcclLog whole = ReadNcclText(std::make_shared<Source>(Source{"whole", text}));
    std::vector<std::size_t> starts = {0};
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') starts.push_back(i + 1);
    }
    for (int n = 0; n < 500; ++n) {
      const auto& rows = whole.runs[0].measurements;
      const auto line = static_cast<std::size_t>(rows[RandomBelow(random, rows.size())].line);
      // Behind the prefix, which every row of a sample keeps within 20 characters.
      const std::size_t begin = starts[line - 1] + 20, end = starts[line] - 1;
      std::string changed = text;
      changed[begin + RandomBelow(random, end - begin)] =
          "0123456789.-xe+#"[RandomBelow(random, 16)];
      const NcclLog log = ReadNcclText(std::make_shared<Source>(Source{"changed", changed}));
      EXPECT_EQ(log.runs[0].measurements.size() + static_cast<std::size_t>(log.garbled_lines),
                rows.size())
          << changed.substr(starts[line - 1], end - starts[line - 1]);
    }
  }
}

}  // namespace
}  // namespace orrery::measured
