// SPDX-License-Identifier: Apache-2.0
// Sweeps from CSV and logs, whole and broken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "calib/program/calibrate/sweep_command.h"
#include "calib/sweeps/machine.h"
#include "calib/sweeps/section.h"
#include "model/hardware/measured_collectives.h"
#include "tests/sweeps/made.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
const char* const kHeader =
    "table,hardware,nodes,gpus,network,collective,bytes,time_us_out_of_place,time_us_in_place,"
    "source\n";

SourcePtr Text(const std::string& text) {
  return std::make_shared<Source>(Source{"sweeps.csv", text});
}

TEST(ReadSweeps, RowsOfATableAreOneSweepWithTheSmallerTime) {
  const SweepFiles files = ReadSweepSource(
      Text(std::string(kHeader) + "a,8x H100 (DGX),1,8,NVLink,allreduce,16,255,12,s\n"
                                  "a,8x H100 (DGX),1,8,NVLink,allreduce,8,11,,s\n"
                                  "b,8x H100 (DGX),1,8,NVLink,all_gather,8,,9.5,s\n"));
  ASSERT_EQ(files.sweeps.size(), 2u);
  const MeasuredRuns& first = files.sweeps[0];
  EXPECT_EQ(first.collective, "all_reduce");
  EXPECT_EQ(first.machine, files.sweeps[1].machine);
  ASSERT_EQ(first.points.size(), 2u);
  EXPECT_EQ(first.points[0].bytes, 8);
  EXPECT_NEAR(first.points[0].seconds, 11e-6, 1e-12);
  EXPECT_NEAR(first.points[1].seconds, 12e-6, 1e-12);
  EXPECT_EQ(files.garbled_rows, 0);
}

TEST(ReadSweeps, BrokenRowsAreCountedAndNamed) {
  const SweepFiles files = ReadSweepSource(
      Text(std::string(kHeader) + "a,m,1,8,n,all_reduce,8,11,,s\n"
                                  "a,m,1,8,n,all_reduce,sixteen,11,,s\n"  // no size
                                  "a,m,1,8,n,all_reduce,32,1o1,,s\n"      // no time
                                  "a,m,1,8,n,all_together,64,11,,s\n"     // no collective
                                  "a,m,1,8,n,all_reduce,64\n"             // fields are missing
                                  "a,m,1,8,n,all_reduce,0,1,1,s\n"        // zero bytes
                                  "a,m,64 or 96,8,n,all_reduce,128,9,,s\n"));
  EXPECT_EQ(files.garbled_rows, 4);
  EXPECT_EQ(files.empty_rows, 1);
  ASSERT_EQ(files.garbled.size(), 4u);
  for (const Diagnostic& one : files.garbled) EXPECT_GT(one.where.line, 1) << one.message;
  ASSERT_EQ(files.sweeps.size(), 2u);
  EXPECT_EQ(files.sweeps[1].nodes, 0) << "'64 or 96' is not known";
}

TEST(ReadSweeps, NothingMeasuredIsAnError) {
  EXPECT_THROW(ReadSweepSource(Text(kHeader)), InputError);
  EXPECT_THROW(ReadSweepSource(Text(std::string(kHeader) + "a,m,1,8,n,all_reduce,8,x,,s\n")),
               InputError);
  EXPECT_THROW(ReadSweepSource(Text("bytes,collective,time_us\n8,all_reduce,9\n")), InputError);
  EXPECT_THROW(ReadSweepSource(Text("# out-of-place algbw busbw\nnothing\n")), InputError);
}

TEST(ReadSweeps, ALogThatNamesNoCollectiveIsOfTheOneInItsName) {
  const std::string log =
      "#       size         count    type   redop     time   algbw   busbw  error     time   algbw "
      "  busbw  error\n"
      "        8388608       2097152   float     sum   1000.0    8.39   15.73  1e-07    990.0    "
      "8.47   15.89  1e-07\n";
  const auto named = std::make_shared<Source>(Source{"2node_16gpu_allreduce.txt", log});
  EXPECT_EQ(ReadSweepSource(named).sweeps.at(0).collective, "all_reduce");
  try {
    ReadSweepSource(std::make_shared<Source>(Source{"log.txt", log}));
    FAIL() << "a table of an unknown collective";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("name the file after it"));
  }
}

TEST(ReadSweeps, MutatedTextNeverCrashes) {
  std::ifstream in(fs::path(ORRERY_SOURCE_DIR) / "calib/data/aws-g5-tcp.csv");
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  ASSERT_GT(whole.size(), 1000u);
  std::mt19937_64 random(11);
  int read = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::string text = whole;
    for (int change = 0; change < 1 + trial % 7; ++change) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(1 + random() % 255);
          break;
        case 1:
          text.erase(at, random() % 40);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 20));
      }
    }
    try {
      for (const MeasuredRuns& sweep : ReadSweepSource(Text(text)).sweeps) {
        for (const SweepPoint& point : sweep.points) {
          EXPECT_GT(point.bytes, 0);
          EXPECT_GT(point.seconds, 0);
        }
      }
      ++read;
    } catch (const InputError&) {
    }
  }
  EXPECT_GT(read, 100);
}

TEST(ReadSweeps, LogsOfNcclTestsAreSweeps) {
  const fs::path log = fs::path(ORRERY_SOURCE_DIR) / "calib/import/samples/nccl-new-labelled.txt";
  EXPECT_TRUE(IsSweepFile(log.string()));
  const SweepFiles files = ReadSweeps({log.string()});
  ASSERT_FALSE(files.sweeps.empty());
  EXPECT_GT(files.sweeps[0].points.size(), 2u);
  EXPECT_FALSE(IsSweepFile((fs::path(ORRERY_SOURCE_DIR) / "calib/fit/samples/runs.csv").string()));
}

TEST(Machine, CountsDoNotMakeAnotherMachine) {
  EXPECT_EQ(MachineOf("8x A100-SXM4-40GB (Azure NDv4)"), "A100-SXM4-40GB (Azure NDv4)");
  EXPECT_EQ(MachineOf("A100 x2 single node"), MachineOf("A100 x7 single node"));
  EXPECT_EQ(MachineOf("NICs 8x400Gbps"), "NICs 8x400Gbps");
  EXPECT_NEAR(LineRateIn("a3, 8x200Gbps TCPXO"), 200e9, 1);
  EXPECT_NEAR(LineRateIn("25Gbps ENA"), 3.125e9, 1);
  EXPECT_EQ(LineRateIn("NVLink"), 0);
}

TEST(Section, IsReadAsItWasFitted) {
  const std::vector<SweepPoint> points = PointsOf(KnownCurve(), 0.01, 2);
  const MachineTopologies topologies({"vtrain-a100"});
  const auto machines = FitMachines({MadeRuns("all_reduce", 8, 1, points)}, topologies);
  ASSERT_EQ(machines.size(), 1u);
  const std::string text = SectionText(machines[0]);
  const MeasuredCollectives read =
      ReadMeasuredCollectives(std::make_shared<Source>(Source{"out.yaml", text}));
  const GroupCurve* group = read.Find("all_reduce", "", 8, 1);
  ASSERT_NE(group, nullptr);
  EXPECT_EQ(group->points, 31);
  EXPECT_TRUE(group->left_out_error[0].has_value());
  ASSERT_TRUE(read.node_form.has_value());
  for (const SweepPoint& point : points) {
    EXPECT_NEAR(group->curve.Time(point.bytes) / machines[0].groups[0].fit.curve.Time(point.bytes),
                1, 0.003);
    EXPECT_NEAR(group->curve.Time(point.bytes) / point.seconds, 1, 0.05);
  }
  for (const auto& [key, constant] : group->constants) {
    EXPECT_FALSE(constant.source.empty()) << key;
    EXPECT_FALSE(constant.value.empty()) << key;
  }
  EXPECT_EQ(read.Find("all_reduce", "tree", 8, 1), nullptr);
  EXPECT_EQ(read.Find("all_gather", "", 8, 1), nullptr);
}

TEST(Section, ShippedFilesAreReadAndTheirTimesGrow) {
  const fs::path folder = fs::path(ORRERY_SOURCE_DIR) / "calib/profiles/collectives";
  int read = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto section = LoadMeasuredCollectives(entry.path().string(), "");
    ASSERT_FALSE(section->groups.empty()) << entry.path();
    for (const GroupCurve& group : section->groups) {
      EXPECT_LT(group.curve.Time(group.least_bytes), group.curve.Time(2 * group.most_bytes));
      EXPECT_FALSE(group.source.empty());
      ++read;
    }
  }
  EXPECT_GT(read, 10);
}

TEST(Section, BrokenFilesNameTheirPlaces) {
  const auto read = [](const std::string& text) {
    return ReadMeasuredCollectives(std::make_shared<Source>(Source{"broken.yaml", text}));
  };
  EXPECT_THROW(read("machine: m\nsweeps: 3\n"), InputError);
  EXPECT_THROW(read("machine: m\nsweeps:\n  - collective: all_red\n"), InputError);
  try {
    read("machine: m\nsweeps: []\nsweps: []\n");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("broken.yaml:3"));
  }
}

}  // namespace
}  // namespace orrery
