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
#include "model/base/diagnostics.h"
#include "model/hardware/catalog.h"
#include "model/hardware/measured_collectives.h"
#include "tests/sweeps/made.h"

namespace orrery {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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

// Eight GPUs of one node as nccl-tests names them.
std::string NcclLogOf(const std::string& device) {
  std::string text = "# Using devices\n";
  for (int rank = 0; rank < 8; ++rank)
    text += "#  Rank  " + std::to_string(rank) + " Group  0 Pid 10 on   node1 device  " +
            std::to_string(rank) + " [0x1b] " + device + "\n";
  return text +
         "# Collective test starting: all_reduce_perf\n"
         "#       size         count      type   redop    root     time   algbw   busbw #wrong     "
         "time   algbw   busbw #wrong\n"
         "     8388608       2097152     float     sum      -1    64.00  131.07  229.38      0    "
         "64.00  131.07  229.38      0\n"
         "    67108864      16777216     float     sum      -1    297.0  225.96  395.42      0    "
         "297.0  225.96  395.42      0\n";
}

// What plan calibrate prints of these files; its error where none is used.
std::string ChecksOf(std::vector<std::string> words) {
  words.insert(words.begin(), {"plan", "calibrate"});
  cli::CalibrateFlags flags;
  EXPECT_FALSE(flags.set.Parse(cli::CommandLine(words), 2));
  testing::internal::CaptureStdout();
  std::string error;
  try {
    CalibrateSweeps(flags);
  } catch (const InputError& thrown) {
    error = thrown.what();
  }
  return testing::internal::GetCapturedStdout() + error;
}

TEST(SweepCommand, ASweepOfAnotherMachineIsAMismatch) {
  const std::string folder = testing::TempDir();
  const std::string h100 = folder + "h100.txt", a100 = folder + "a100.txt";
  std::ofstream(h100) << NcclLogOf("NVIDIA H100 80GB HBM3");
  std::ofstream(a100) << NcclLogOf("NVIDIA A100-SXM4-80GB");
  EXPECT_THAT(ChecksOf({h100, "--topology", "dgx-a100-80"}),
              AllOf(HasSubstr("mismatched"), HasSubstr("NVIDIA H100 80GB HBM3"),
                    HasSubstr("a100-sxm4-80gb"), Not(HasSubstr("1 sweeps"))));
  EXPECT_THAT(ChecksOf({h100, "--topology", "dgx-h100"}),
              AllOf(HasSubstr("used        1 sweep\n"), Not(HasSubstr("mismatched"))));
  EXPECT_THAT(ChecksOf({h100, a100, "--topology", "dgx-h100"}),
              AllOf(HasSubstr("used        1 sweep\n"), HasSubstr("mismatched"),
                    HasSubstr("1 sweeps, 2 points")));
  EXPECT_THAT(ChecksOf({h100, a100, "--machine", "A100"}),
              AllOf(HasSubstr("not used"), HasSubstr("1 sweeps, 2 points")));
  std::ofstream(a100) << NcclLogOf("NVIDIA A10G");
  EXPECT_THAT(ChecksOf({a100, "--topology", "aws-g5-1gpu"}),
              AllOf(HasSubstr("mismatched"), HasSubstr("8 ranks of a node")));
}

TEST(SweepCommand, AFileThatIsNoSweepDoesNotStopTheOthers) {
  const std::string folder = testing::TempDir();
  const std::string sweep = folder + "sweep.txt", other = folder + "other.txt";
  std::ofstream(sweep) << NcclLogOf("NVIDIA H100 80GB HBM3");
  std::ofstream(other) << "nothing is measured here\n";
  EXPECT_THAT(ChecksOf({sweep, other}), AllOf(HasSubstr("used        1 sweep"),
                                              HasSubstr("not used"), HasSubstr("2 points")));
}

TEST(OtherMachine, TablesInWordsNameTheirChips) {
  const auto of = [](const std::string& words, const char* topology) {
    MeasuredRuns runs = MadeRuns("all_reduce", 16, 2, {});
    runs.machine = words;
    return OtherMachine(runs, LoadTopology(topology));
  };
  EXPECT_EQ(of("H100 SXM, 8x400Gb InfiniBand", "dgx-h100"), "");
  EXPECT_EQ(of("a machine in the cellar", "dgx-h100"), "");
  EXPECT_THAT(of("A100 40GB, EFA", "dgx-h100"), HasSubstr("h100-sxm5-80gb"));
  MeasuredRuns grace = MadeRuns("all_reduce", 2, 2, {});
  grace.devices = {"NVIDIA GH200 120GB"};  // of the processor
  EXPECT_EQ(OtherMachine(grace, LoadTopology("olivia-gh200")), "");
}

}  // namespace
}  // namespace orrery
