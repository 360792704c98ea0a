// SPDX-License-Identifier: Apache-2.0
// Sizes and sweeps as nccl-tests takes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/program/common/bench_flags.h"

namespace orrery::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Sweep SweepOf(std::vector<std::string> words) {
  words.insert(words.begin(), {"plan", "bench"});
  const CommandLine line(words);
  BenchFlags flags;
  EXPECT_FALSE(flags.set.Parse(line, 2));
  return ReadSweep(flags);
}

std::string ErrorOf(const std::vector<std::string>& words) {
  try {
    SweepOf(words);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(ParseSize, TakesPowersOf1024) {
  const std::pair<const char*, int64_t> kGood[] = {
      {"0", 0},           {"8", 8},          {"64K", 65536},      {"1m", 1 << 20},
      {"1.5K", 1536},     {"2G", 1LL << 31}, {"1GiB", 1LL << 30}, {"4T", 1LL << 42},
      {"1e30", 1LL << 62}};
  for (const auto& [text, bytes] : kGood) {
    int64_t read = -1;
    EXPECT_TRUE(ParseSize(text, &read)) << text;
    EXPECT_EQ(read, bytes) << text;
  }
  for (const char* text : {"", "K", "-1", "1MB", "8iB", "1KK", "0x10", "one", "1 G"}) {
    int64_t read = 0;
    EXPECT_FALSE(ParseSize(text, &read)) << text;
  }
}

TEST(ReadSweep, MultipliesOrAdds) {
  EXPECT_THAT(SweepOf({"all_reduce", "-b", "8", "-e", "64"}).bytes, ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(SweepOf({"all_reduce", "-b", "1K", "-e", "9K", "-f", "3"}).bytes,
              ElementsAre(1024, 3072, 9216));
  EXPECT_THAT(SweepOf({"all_reduce", "-b", "5", "-e", "20", "-i", "7"}).bytes,
              ElementsAre(5, 12, 19));
  EXPECT_THAT(SweepOf({"all_reduce", "-b", "0", "-e", "8"}).bytes, ElementsAre(0));
  EXPECT_EQ(SweepOf({"all_reduce"}).bytes.size(), 25u);
  EXPECT_THAT(SweepOf({"all_reduce", "-b", "1G"}).bytes, ElementsAre(1 << 30));
}

TEST(ReadSweep, TakesTheNamesOfTheBenchmarksPrograms) {
  EXPECT_EQ(SweepOf({"alltoall_perf"}).collective, Collective::kAllToAll);
  EXPECT_EQ(SweepOf({"all_gather_perf"}).collective, Collective::kAllGather);
  EXPECT_EQ(SweepOf({"sendrecv"}).collective, Collective::kSendRecv);
}

TEST(ReadSweep, NamesWhatIsWrong) {
  const std::pair<std::vector<std::string>, const char*> kWrong[] = {
      {{}, "which collective?"},
      {{"all_reduze"}, "did you mean 'all_reduce'"},
      {{"all_reduce", "-b", "1MB"}, "-b: '1MB' is no size"},
      {{"all_reduce", "-e", "17T"}, "at most 16T"},
      {{"all_reduce", "-b", "2K", "-e", "1K"}, "-b is the smallest size"},
      {{"all_reduce", "-f", "1"}, "too small"},
      {{"all_reduce", "-i", "0"}, "never arrives"},
      {{"all_reduce", "-i", "8", "-f", "2"}, "exclude each other"},
      {{"all_reduce", "-e", "1G", "-i", "8"}, "more than 4096 sizes"},
      {{"all_reduce", "-d", "flaot"}, "did you mean 'float'"},
  };
  for (const auto& [words, message] : kWrong) EXPECT_THAT(ErrorOf(words), HasSubstr(message));
}

TEST(FitSize, RoundsDownAsTheBenchmarkDoes) {
  const ElementType kFloat{"float", 4}, kHalf{"half", 2};
  EXPECT_EQ(FitSize(Collective::kAllReduce, 1023, 3, kFloat).bytes, 1020);
  EXPECT_EQ(FitSize(Collective::kAllReduce, 1023, 3, kFloat).count, 255);
  // 1000 B are 83 floats for each of 3 ranks, 80 of them whole 16 bytes.
  EXPECT_EQ(FitSize(Collective::kAllGather, 1000, 3, kFloat).count, 80);
  EXPECT_EQ(FitSize(Collective::kAllGather, 1000, 3, kFloat).bytes, 960);
  EXPECT_EQ(FitSize(Collective::kReduceScatter, 8, 2, kHalf).bytes, 0);
}

}  // namespace
}  // namespace orrery::cli
