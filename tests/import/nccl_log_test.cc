// SPDX-License-Identifier: Apache-2.0
// Outputs of nccl-tests as they are found in the wild, and as they are not.
#include "calib/import/nccl_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::measured {
namespace {

using testing::HasSubstr;

SourcePtr Text(const std::string& text) {
  return std::make_shared<Source>(Source{"run.log", text});
}

NcclLog Sample(const std::string& name) {
  return ReadNcclLog(ReadSource(std::string(ORRERY_SOURCE_DIR) + "/calib/import/samples/" + name));
}

std::string ErrorOf(const std::string& text) {
  try {
    ReadNcclLog(Text(text));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

const std::string kTitles =
    "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n";
const std::string kRow = "1048576 262144 float sum -1 100 10.49 10.49 0 100 10.49 10.49 0\n";

TEST(NcclText, ReadsTheOlderLayoutBehindMpirunTags) {
  const NcclLog log = Sample("nccl-old-tagged.txt");
  EXPECT_EQ(log.garbled_lines, 0);
  ASSERT_EQ(log.runs.size(), 1u);
  const NcclRun& run = log.runs[0];
  EXPECT_EQ(run.collective, "all_reduce");
  EXPECT_EQ(run.ranks, 2);
  EXPECT_EQ(run.hosts(), 2);
  EXPECT_EQ(run.devices[1].name, "NVIDIA A10G");
  EXPECT_NEAR(*run.average_busbw, 0.328333, 1e-9);
  ASSERT_EQ(run.measurements.size(), 3u);
  const Measurement& last = run.measurements[2];
  EXPECT_EQ(last.bytes, 16777216);
  EXPECT_EQ(last.count, 4194304);
  EXPECT_EQ(last.redop, "sum");
  EXPECT_EQ(last.root, -1);
  EXPECT_EQ(last.line, 15);
  EXPECT_EQ(last.out_of_place->us, 20366);
  EXPECT_EQ(last.in_place->us, 20672);
  EXPECT_EQ(last.in_place->busbw, 0.81);
  EXPECT_EQ(last.in_place->wrong, 0.0);
}

TEST(NcclText, ReadsTheNewerLayoutBehindSrunLabels) {
  const NcclLog log = Sample("nccl-new-labelled.txt");
  EXPECT_EQ(log.garbled_lines, 0);
  ASSERT_EQ(log.runs.size(), 1u);
  EXPECT_EQ(log.runs[0].collective, "broadcast");
  EXPECT_EQ(log.runs[0].ranks, 4);
  EXPECT_EQ(log.runs[0].hosts(), 1);
  ASSERT_EQ(log.runs[0].measurements.size(), 4u);
  const Measurement& first = log.runs[0].measurements[0];
  EXPECT_EQ(first.bytes, 0);
  EXPECT_EQ(first.root, 0);
  EXPECT_EQ(first.out_of_place->wrong, std::nullopt);
  EXPECT_EQ(log.runs[0].measurements[3].out_of_place->wrong, 0.0);
}

TEST(NcclJson, ReadsTheReport) {
  const NcclLog log = Sample("nccl-report.json");
  ASSERT_EQ(log.runs.size(), 1u);
  const NcclRun& run = log.runs[0];
  EXPECT_EQ(run.collective, "all_gather");
  EXPECT_EQ(run.ranks, 2);
  EXPECT_EQ(run.devices[1].host, "node-b");
  ASSERT_EQ(run.measurements.size(), 2u);
  EXPECT_EQ(run.measurements[0].root, -1);
  EXPECT_EQ(run.measurements[0].in_place->us, 50);
  EXPECT_FALSE(run.measurements[1].out_of_place);
  EXPECT_EQ(run.measurements[1].in_place->wrong, std::nullopt);
  EXPECT_GT(run.measurements[1].line, run.measurements[0].line);
}

TEST(NcclText, KeepsSeveralTablesApart) {
  const NcclLog log =
      ReadNcclLog(Text("$ all_reduce_perf\n" + kTitles + kRow + "# Avg bus bandwidth : 10\n" +
                       "$ ./alltoall_perf -g 2\n" + kTitles + kRow + kRow));
  ASSERT_EQ(log.runs.size(), 2u);
  EXPECT_EQ(log.runs[0].collective, "all_reduce");
  EXPECT_EQ(log.runs[1].collective, "all_to_all");
  EXPECT_EQ(log.runs[1].measurements.size(), 2u);
}

TEST(NcclText, NamesEveryGarbledLine) {
  const NcclLog log = ReadNcclLog(Text(
      kTitles + kRow + "2097152 524288 float sum -1 20\n" +                   // cut off
      "4194304 1o48576 float sum -1 400 10.49 10.49 0 400 10.49 10.49 0\n" +  // a letter
      "8388608 2097152 float sum -1 80 10.49 10.49 0 800 10.49 10.49 0\n" +   // a digit lost
      "16777216 4194304 float sum -1 16776777216 4194304 float sum -1 1 1 1 1 1 1\n"  // two in one
      "node-a:1:1 [0] NCCL INFO Launch mode Parallel\n"));
  EXPECT_EQ(log.garbled_lines, 4);
  ASSERT_EQ(log.garbled.size(), 4u);
  EXPECT_EQ(log.garbled[0].where.line, 3);
  EXPECT_THAT(log.garbled[0].message, HasSubstr("6 columns where the titles name 13"));
  EXPECT_THAT(log.garbled[1].message, HasSubstr("'1o48576' is no count"));
  EXPECT_THAT(log.garbled[2].message, HasSubstr("algbw says 10.49"));
  EXPECT_THAT(Render(log.garbled, false), HasSubstr("run.log:6:1: error: 16 columns"));
  EXPECT_EQ(log.runs[0].measurements.size(), 1u);
}

TEST(NcclText, ARowWithoutTitlesIsGarbled) {
  EXPECT_THAT(ErrorOf(kRow),
              HasSubstr("run.log:1:1: error: a row of numbers without column titles"));
}

TEST(NcclText, ARowWithoutATimeIsGarbled) {
  const NcclLog log = ReadNcclLog(Text(kTitles + kRow +
                                       "# size count type redop root t1me algbw busbw\n"
                                       "1048576 262144 float sum -1 100 10.49 10.49\n"));
  ASSERT_EQ(log.runs.size(), 1u);
  EXPECT_EQ(log.runs[0].measurements.size(), 1u);
  ASSERT_EQ(log.garbled.size(), 1u);
  EXPECT_THAT(log.garbled[0].message, HasSubstr("a row without a time"));
}

TEST(NcclLog, WithoutAMeasurementIsAnError) {
  for (const char* text : {"", "\n\n", "NCCL WARN out of memory\n", "{}", "{\"results\": []}"}) {
    const std::string error = ErrorOf(text);
    EXPECT_THAT(error, HasSubstr("run.log"));
    EXPECT_THAT(error, HasSubstr("no measurement")) << text;
    EXPECT_THAT(error, HasSubstr("hint:")) << text;
  }
  EXPECT_THAT(ErrorOf(kTitles + "8 2 float sum\n"), HasSubstr("1 line is garbled"));
}

TEST(NcclJson, GarbledResultsAreNamedWithTheirLine) {
  const NcclLog log = ReadNcclLog(
      Text("{\"results\": [\n {\"size\": 8, \"count\": 2, \"type\": \"float\"},\n"
           " {\"size\": 8, \"count\": 2, \"type\": \"float\", \"in_place\": {\"time\": 2.0, "
           "\"alg_bw\": 0.0, \"bus_bw\": 0.0}},\n {\"count\": 1}]}\n"));
  EXPECT_EQ(log.runs[0].measurements.size(), 1u);
  ASSERT_EQ(log.garbled_lines, 2);
  EXPECT_EQ(log.garbled[0].where.line, 2);
  EXPECT_THAT(log.garbled[0].message, HasSubstr("without a time"));
  EXPECT_EQ(log.garbled[1].where.line, 4);
}

TEST(NcclJson, BrokenTextIsAnErrorWithItsPlace) {
  EXPECT_THAT(ErrorOf("{\"results\": [\n"), HasSubstr("run.log:"));
}

TEST(ImpliedRanks, FollowFromTheBandwidthsOfLargeMessages) {
  const auto row = [](double algbw, double busbw) {
    Measurement measurement;
    measurement.out_of_place = Timing{1.0, algbw, busbw, {}};
    return measurement;
  };
  EXPECT_EQ(ImpliedRanks("all_reduce", {row(23.36, 43.81)}), 16);
  EXPECT_EQ(ImpliedRanks("all_reduce", {row(0.81, 0.81)}), 2);
  EXPECT_EQ(ImpliedRanks("all_gather", {row(100, 87.5)}), 8);
  EXPECT_EQ(ImpliedRanks("all_reduce", {row(0.02, 0.03)}), 0);  // too few digits
  EXPECT_EQ(ImpliedRanks("broadcast", {row(100, 100)}), 0);
}

TEST(PublishedLogs, AreReadWhole) {
  const std::string logs = std::string(ORRERY_SOURCE_DIR) + "/calib/data/logs/";
  const std::tuple<const char*, int, std::size_t> kLogs[] = {
      {"a100_40g_1node_8gpu_broadcast.txt", 8, 34},
      {"gh200_2rank_allreduce_slingshot.txt", 2, 8},
      {"oci_h100_2node_16gpu_allreduce.txt", 16, 5},
      {"p4d_a100_2node_16gpu_allreduce_efa.txt", 0, 30},
      {"a10g_2node_2gpu_allreduce_tcp.txt", 1, 25}};
  for (const auto& [name, ranks, rows] : kLogs) {
    const NcclLog log = ReadNcclLog(ReadSource(logs + name));
    EXPECT_EQ(log.garbled_lines, 0) << Render(log.garbled, false);
    EXPECT_EQ(log.runs[0].ranks, ranks) << name;
    EXPECT_EQ(log.runs[0].measurements.size(), rows) << name;
  }
  const NcclLog two = ReadNcclLog(ReadSource(logs + "a10g_2node_2gpu_allreduce_tcp.txt"));
  ASSERT_EQ(two.runs.size(), 3u);
  EXPECT_EQ(two.runs[2].ranks, 2);
  EXPECT_EQ(two.runs[2].collective, "all_reduce");
  EXPECT_EQ(two.runs[2].measurements.back().out_of_place->us, 183560);
}

}  // namespace
}  // namespace orrery::measured
