// SPDX-License-Identifier: Apache-2.0
// Lines through measured times, and the profile that says them.
#include "runtime/lab/measure.h"

#include <gtest/gtest.h>

#include <fstream>

#include "model/hardware/profile.h"

namespace orrery::lab {
namespace {

TEST(LabMeasure, LineIsFound) {
  std::vector<MessageTime> times;
  for (double bytes = 65536; bytes < 5e6; bytes *= 4)
    times.push_back({bytes, 6 * (250e-6 + bytes / 4 / 24e6)});
  const Line line = FitLine(times, 6, 4);
  EXPECT_NEAR(line.alpha, 250e-6, 1e-9);
  EXPECT_NEAR(line.rate, 24e6, 1);
  EXPECT_LT(line.error, 1e-9);
}

TEST(LabMeasure, LatencyIsNeverNegative) {
  const Line line = FitLine({{1e5, 5e-3}, {4e5, 25e-3}}, 1, 1);
  EXPECT_EQ(line.alpha, 0);
  EXPECT_GT(line.rate, 4e5 / 25e-3);
  EXPECT_LT(line.rate, 1e5 / 5e-3);
  EXPECT_GT(line.error, 0.05);
}

TEST(LabMeasure, ProfileIsRead) {
  const std::string path = testing::TempDir() + "/fabric.yaml";
  std::ofstream(path) << FabricYaml(Settings(), {260e-6, 24e6, 0.01}, {150e-6, 20e6, 0.02});
  const FabricProfile fabric = LoadFabricProfile(path);
  EXPECT_NEAR(fabric.hop.value, 160e-6, 1e-9);  // the lab's own 100 us stand in its topology
  EXPECT_NEAR(fabric.nic_ring_efficiency, 24.0 / 25, 1e-4);
  EXPECT_NEAR(fabric.point_to_point_efficiency, 20.0 / 25, 1e-4);
}

}  // namespace
}  // namespace orrery::lab
