// SPDX-License-Identifier: Apache-2.0
// Racks, texts and the topology file of a lab.
#include "runtime/lab/settings.h"

#include <gtest/gtest.h>

#include "model/hardware/catalog.h"

namespace orrery::lab {
namespace {

TEST(LabSettings, SurviveTheirStateFile) {
  Settings settings;
  settings.name = "other";
  settings.nodes = 6;
  settings.racks = 3;
  settings.oversubscription = 1.5;
  settings.latency = Seconds(33e-6);
  settings.fifo = true;
  EXPECT_EQ(FromJson(ToJson(settings)), settings);
  EXPECT_THROW(FromJson("{}"), std::exception);
}

TEST(LabSettings, RacksHoldEquallyManyNodes) {
  Settings settings;
  settings.nodes = 12;
  settings.racks = 3;
  for (int rack = 0; rack < 3; ++rack) EXPECT_EQ(settings.NodesIn(rack), 4);
  EXPECT_EQ(settings.RackOf(0), 0);
  EXPECT_EQ(settings.RackOf(11), 2);
}

TEST(LabSettings, TopologyFileIsRead) {
  for (const int racks : {1, 2}) {
    Settings settings;
    settings.racks = racks;
    settings.oversubscription = racks;
    Diagnostics diagnostics;
    const auto source = std::make_shared<Source>(Source{"lab-4.yaml", TopologyYaml(settings)});
    const TopologySpec spec = ReadTopology(source, &diagnostics);
    EXPECT_NO_THROW(diagnostics.ThrowIfAny());
    EXPECT_EQ(spec.nodes, 4);
    EXPECT_EQ(spec.node.nics.size(), 1U);
    EXPECT_DOUBLE_EQ(spec.node.nic_rate.value, 25e6);
  }
}

}  // namespace
}  // namespace orrery::lab
