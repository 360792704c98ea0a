// SPDX-License-Identifier: Apache-2.0
// Records beyond what memory keeps come back as they were, and medians over them are those of a sorted list.
#include "runtime/program/run/step_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "model/base/median.h"
#include "runtime/program/run/share_of_peak.h"

namespace orrery::cli {
namespace {

struct Pair {
  int64_t number = 0;
  double value = 0;
};

// Of 100,000 records a sixth stays in memory; where no file can be written, all.
TEST(StepLog, ReturnsWhatWasAdded) {
  for (const char* folder : {"", "/no/such/folder"}) {
    setenv("TMPDIR", folder, 1);
    StepLog<Pair> log;
    constexpr int64_t kRecords = 100'000;
    for (int64_t i = 0; i < kRecords; ++i) log.Add({i, 0.5 * static_cast<double>(i)});
    EXPECT_EQ(log.filed(), *folder == '\0');
    ASSERT_EQ(log.size(), kRecords);
    int64_t next = 0;
    log.ForEach([&](const Pair& one) {
      ASSERT_EQ(one.number, next++);
      ASSERT_EQ(one.value, 0.5 * static_cast<double>(one.number));
    });
    EXPECT_EQ(next, kRecords);
    const std::vector<Pair> across = log.Part(90'000, 10'000);  // file and memory
    EXPECT_EQ(across.front().number, 90'000);
    EXPECT_EQ(across.back().number, 99'999);
  }
  unsetenv("TMPDIR");
}

TEST(StepLog, MediansAreThoseOfASortedList) {
  std::mt19937_64 random(7);
  for (const std::size_t count : {0, 1, 2, 3, 10, 1001, 4096}) {
    std::vector<double> times, signs;
    for (std::size_t i = 0; i < count; ++i) {
      times.push_back(
          std::ldexp(static_cast<double>(random() % 1000), static_cast<int>(random() % 40) - 30));
      signs.push_back(static_cast<double>(random() % 7) - 3);
    }
    const std::vector<double> medians = MediansOf(
        [&](const auto& see) {
          for (std::size_t i = 0; i < count; ++i) {
            const double row[] = {times[i], signs[i]};
            see(row);
          }
        },
        2);
    EXPECT_EQ(medians[0], Median(times)) << count;
    EXPECT_EQ(medians[1], Median(signs)) << count;
  }
}

// No step is above the peak: what says so was measured while other programs had the cores.
TEST(StepLine, HasNoShareOfAPeakThatIsTooLow) {
  EXPECT_EQ(ShareOfPeak(0.698), "69.8 %");
  EXPECT_EQ(ShareOfPeak(1), "100.0 %");
  EXPECT_EQ(ShareOfPeak(7.75), "-");
  EXPECT_EQ(ShareOfPeak(0), "-");
}

}  // namespace
}  // namespace orrery::cli
