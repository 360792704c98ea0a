// SPDX-License-Identifier: Apache-2.0
// Term parity of the engines over narrow uplinks: pipelines on oversubscribed trees and on leaves of unequal uplinks, profiles
// and nodes as shipped. With contention what remains is that term.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "model/arch/catalogue.h"
#include "model/arch/data_root.h"
#include "model/framework/presets.h"
#include "model/hardware/catalog.h"
#include "model/twin/step_predictor.h"
#include "tests/engines/parity_tally.h"
#include "tests/from_environment.h"

namespace orrery {
namespace {

constexpr int kNodes = 8, kLeafNodes = 2;

// A topology of the catalogue with another fabric: the map behind the key.
TopologySpec WithFabric(const std::string& topology, const std::string& fabric) {
  std::string text, line;
  std::istringstream lines(ReadSource(DataRoot() + "/topologies/" + topology + ".yaml")->text);
  while (std::getline(lines, line)) {
    if (line.starts_with("fabric:")) line = "fabric: {" + fabric + "}";
    if (line.starts_with("max_nodes:")) line = fmt::format("max_nodes: {}", kNodes);
    text += line + "\n";
  }
  Diagnostics diagnostics;
  TopologySpec spec =
      ReadTopology(std::make_shared<const Source>(Source{topology + ".yaml", text}), &diagnostics);
  diagnostics.ThrowIfAny();
  return spec;
}

std::string Tree(const TopologySpec& of, int oversubscription) {
  return fmt::format("kind: fat-tree, levels: 2, leaf_ports: {}, oversubscription: {}",
                     kLeafNodes * of.node.nics.size(), oversubscription);
}

// Of what the NICs below a leaf send, `shares` leave it.
std::string Unequal(const TopologySpec& of, const std::vector<double>& shares) {
  const double rate =
      of.node.nic_rate.value * static_cast<double>(of.node.nics.size()) * kLeafNodes;
  std::string switches, links;
  for (std::size_t leaf = 0; leaf < shares.size(); ++leaf) {
    switches += fmt::format("{{name: leaf{0}, hosts: [h{0}a, h{0}b]}}, ", leaf);
    links += fmt::format("{}{{between: [leaf{}, spine], rate: {}GB/s}}", leaf > 0 ? ", " : "", leaf,
                         shares[leaf] * rate / 1e9);
  }
  return fmt::format("kind: named, switches: [{}{{name: spine}}], links: [{}]", switches, links);
}

struct Cluster {
  std::string name;
  TopologySpec topology;
};

std::vector<Cluster> Clusters() {
  std::vector<Cluster> clusters;
  for (const std::string topology : {"aws-p4d", "aws-p3dn"}) {
    const TopologySpec base = LoadTopology(topology);
    const auto add = [&](const std::string& name, const std::string& fabric) {
      clusters.push_back({topology + ", " + name, WithFabric(topology, fabric)});
    };
    for (const int ratio : {2, 4, 8}) add(fmt::format("{}:1", ratio), Tree(base, ratio));
    add("one narrow leaf", Unequal(base, {1, 1, 0.25, 1}));
    add("unequal leaves", Unequal(base, {0.5, 0.25, 0.125, 0.5}));
  }
  return clusters;
}

// Data ranks across leaves and inside them, stages that fill leaves and stages that share them.
std::vector<Strategy> Layouts() {
  std::vector<Strategy> layouts;
  for (const int tp : {8, 2}) {
    for (const int pp : {2, 4, 8}) {
      for (const bool interleaved : {false, true}) {
        for (const bool stages_inside : {false, true}) {
          Strategy layout;
          layout.tp = tp, layout.pp = pp, layout.dp = kNodes * 8 / tp / pp;
          layout.zero = layout.dp > 1 ? 1 : 0;
          if (interleaved) layout.vpp = 2, layout.schedule = PipelineSchedule::kInterleaved;
          if (stages_inside)
            layout.placement = std::make_shared<const Placement>(Placement{true, {}});
          if (!stages_inside || layout.dp > 1) layouts.push_back(layout);
        }
      }
    }
  }
  return layouts;
}

// Under a framework, of so many rounds of micro-batches.
template <class Visit>
void Compare(const Cluster& cluster, const char* framework, Strategy layout, int rounds,
             const Visit& visit) {
  const Profiles profiles = LoadProfiles(cluster.topology, framework, true);
  const FrameworkPreset& preset = FindFramework(framework);
  const bool bf16 = profiles.gpu.peak_bf16.value > 0;
  Workload work;
  work.seq_len = 1024;
  work.precision = bf16 ? Precision::kBf16 : Precision::kFp16;
  work.global_batch = int64_t{1} * rounds * layout.pp * layout.dp;
  FollowFramework(profiles.framework, &work);
  layout.flash_attention = bf16;
  if (!preset.Refuses(layout).empty()) return;
  layout = preset.Complete(layout, work);
  FollowFramework(profiles.framework, &layout);
  const Job job = MakeJob(LoadModel("llama2-7b").spec, work, cluster.topology, kNodes, 0, profiles);
  ASSERT_FALSE(CheckStrategy(job.model, work, layout)) << DescribeLayout(layout);
  const auto closed = std::get<StepTime>(StepPredictor(job).Predict(layout));
  for (const bool contention : {false, true}) {
    EnginePair pair = CompareLayout(job, layout, closed, contention);
    pair.where = fmt::format("{}, {}: {}", cluster.name, framework,
                             DescribeLayout(layout, MicroBatches(work, layout)));
    visit(std::move(pair), contention);
  }
}

TEST(UplinkParity, EnginesAgreeTermByTermOverNarrowUplinks) {
  // Terms beyond 2 %, all below 3.5: transfers beside reductions of interleaved stages.
  constexpr double kShare = 0.98;
  const bool all = FromEnvironment("ORRERY_ALL_UPLINKS", 0) > 0;
  ParityTally tally, contended;
  int number = 0;
  for (const Cluster& cluster : Clusters()) {
    for (const char* framework : {"megatron", "orrery", "deepspeed"}) {
      for (const Strategy& layout : Layouts()) {
        for (const int rounds : {1, 4}) {
          if (!all && number++ % 3 != 0) continue;
          Compare(cluster, framework, layout, rounds, [&](EnginePair pair, bool contention) {
            if (contention) pair.closed.contention = pair.event.contention;
            pair.closed_seconds += pair.closed.contention;
            (contention ? contended : tally).Add(pair);
            EXPECT_NEAR(pair.Apart(), 0, ParityTally::kTotal) << pair.where;
            EXPECT_LT(pair.WorstTerm(), 0.04) << pair.where;
          });
        }
      }
    }
  }
  EXPECT_GT(tally.plans, 250);
  EXPECT_LT(tally.worst_sum, 1e-9);
  EXPECT_GE(tally.share(), kShare) << tally.Worst(10);
  EXPECT_GE(contended.share(), kShare) << contended.Worst(10);
  std::cout << tally.within << " of " << tally.plans << " plans within the bounds, "
            << contended.within << " with contention\n";
}

}  // namespace
}  // namespace orrery
