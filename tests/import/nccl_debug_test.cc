// SPDX-License-Identifier: Apache-2.0
// NCCL's own log and dumps.
#include "calib/import/nccl_debug.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>

#include "model/base/xml_tree.h"

namespace orrery::measured {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SourcePtr Sample(const std::string& name) {
  return ReadSource(std::string(ORRERY_SOURCE_DIR) + "/calib/import/samples-nccl/" + name);
}

SourcePtr Made(std::string text) {
  return std::make_shared<const Source>(Source{"made", std::move(text)});
}

std::string ErrorOf(const std::function<void()>& read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(NcclDebug, ReadsChoicesGraphsAndRings) {
  const NcclDebug log = ReadNcclDebug(Sample("info.txt"));
  EXPECT_EQ(log.release, "2.28.9");
  EXPECT_EQ(log.ranks, 16);
  EXPECT_EQ(log.nodes, 2);
  EXPECT_EQ(log.channels, 16);
  EXPECT_EQ(log.nvls_channels, 16);
  ASSERT_EQ(log.choices.size(), 4u);
  int twice = 0;
  for (const LoggedChoice& choice : log.choices) {
    if (choice.bytes != 1 << 30) continue;
    twice = choice.times;
    EXPECT_EQ(choice.algorithm, nccl::Algorithm::kNvlsTree);
    EXPECT_EQ(choice.protocol, nccl::Protocol::kSimple);
    EXPECT_EQ(choice.channels, 16);
  }
  EXPECT_EQ(twice, 2);
  ASSERT_EQ(log.graphs.size(), 3u);
  EXPECT_EQ(log.graphs[0].pattern, nccl::Pattern::kRing);
  EXPECT_EQ(log.graphs[0].channels, 8);
  EXPECT_EQ(log.graphs[0].cross_nic, 2);
  EXPECT_EQ(log.graphs[0].path_across, "PIX");
  EXPECT_DOUBLE_EQ(log.graphs[2].inside, 40);
  ASSERT_EQ(log.rings.size(), 2u);
  EXPECT_EQ(log.rings[0].size(), 16u);
  EXPECT_EQ(log.garbled_lines, 1);
  EXPECT_THAT(log.garbled[0].message, HasSubstr("SQUARE"));
}

// Releases before 2.24 print numbers and no collective.
TEST(NcclDebug, ReadsNumbersOfOlderReleases) {
  const NcclDebug log =
      ReadNcclDebug(Made("h:1:2 [0] NCCL INFO 65536 Bytes -> Algo 1 proto 0 time 24.500000\n"));
  ASSERT_EQ(log.choices.size(), 1u);
  EXPECT_FALSE(log.choices[0].operation);
  EXPECT_EQ(log.choices[0].algorithm, nccl::Algorithm::kRing);
  EXPECT_EQ(log.choices[0].protocol, nccl::Protocol::kLl);
  EXPECT_EQ(log.choices[0].channels, 0);
}

TEST(NcclDebug, SaysWhatALogLacks) {
  EXPECT_THAT(ErrorOf([] { ReadNcclDebug(Made("loss 3.2\n")); }), HasSubstr("NCCL_DEBUG=INFO"));
}

TEST(NcclDumps, ReadsTheTopologyOfANode) {
  EXPECT_EQ(KindOfNcclFile(*Sample("topology.xml")), NcclFile::kTopology);
  const nccl::NodeDescription node = ReadNcclTopology(Sample("topology.xml"));
  EXPECT_EQ(node.capability, 90);
  ASSERT_EQ(node.gpus.size(), 8u);
  ASSERT_EQ(node.nics.size(), 8u);
  EXPECT_FLOAT_EQ(node.nics[3].rate, 50);
  EXPECT_FLOAT_EQ(node.gpus[0].pcie, 48);
  EXPECT_EQ(node.switches.size(), 8u);
  EXPECT_EQ(node.gpus[5].switch_index, 5);
  EXPECT_EQ(node.gpus[5].cpu, 1);
  EXPECT_FLOAT_EQ(node.between_cpus, 22);
  EXPECT_TRUE(node.gpu_direct);
  EXPECT_FALSE(node.in_network);
  EXPECT_EQ(node.nvlinks.size(), 8u);
  // What NCCL 2.28.9 finds on such nodes.
  const nccl::Graphs graphs = nccl::FindGraphs(node, true);
  EXPECT_EQ(graphs.ring.channels, 8);
  EXPECT_FLOAT_EQ(graphs.ring.across, 48);
}

TEST(NcclDumps, ReadsGraphs) {
  EXPECT_EQ(KindOfNcclFile(*Sample("graphs.xml")), NcclFile::kGraphs);
  const std::vector<LoggedGraph> graphs = ReadNcclGraphs(Sample("graphs.xml"));
  ASSERT_EQ(graphs.size(), 3u);
  EXPECT_EQ(graphs[0].pattern, nccl::Pattern::kRing);
  EXPECT_THAT(graphs[0].order[0], ElementsAre(0, 7, 6, 5, 4, 3, 2, 1));
  EXPECT_EQ(graphs[2].order.size(), 8u);
}

TEST(NcclDumps, NamesPlaceAndRemedy) {
  EXPECT_THAT(ErrorOf([] { ReadNcclTopology(Made("<system>\n  <cpu arch=\"x86_64\"")); }),
              testing::AllOf(HasSubstr("made:2"), HasSubstr("was the dump cut?")));
  EXPECT_THAT(ErrorOf([] { ReadNcclTopology(Made("<system version=\"1\"/>")); }),
              HasSubstr("NCCL_TOPO_DUMP_FILE"));
  EXPECT_THAT(ErrorOf([] { ReadNcclGraphs(Sample("topology.xml")); }),
              HasSubstr("NCCL_GRAPH_DUMP_FILE"));
  EXPECT_THAT(ErrorOf([] { ReadXml(Made("<a><b></a></b>")); }), HasSubstr("'</a>' ends '<b>'"));
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "<a>";
  EXPECT_THAT(ErrorOf([&] { ReadXml(Made(deep)); }), HasSubstr("levels"));
}

// Whatever a file holds, reading it ends with a result or with an InputError.
TEST(NcclDumps, ReadersNeverCrash) {
  std::mt19937_64 random(14);
  std::vector<std::string> seeds;
  for (const char* name : {"info.txt", "topology.xml", "graphs.xml"})
    seeds.push_back(Sample(name)->text);
  int read = 0, refused = 0;
  constexpr int kRounds = 600;
  for (int round = 0; round < kRounds; ++round) {
    std::string text = seeds[static_cast<std::size_t>(round) % seeds.size()];
    const std::size_t changes = 1 + random() % 3;
    for (std::size_t i = 0; i < changes && !text.empty(); ++i) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text.resize(at);
          break;
        case 1:
          text[at] = "<>\"/=9-x \n"[random() % 10];
          break;
        case 2:
          text.erase(at, random() % 30);
          break;
        default:
          text.insert(at, std::string(random() % 10, static_cast<char>('0' + random() % 10)));
          break;
      }
    }
    const SourcePtr source = Made(text);
    try {
      switch (KindOfNcclFile(*source)) {
        case NcclFile::kLog:
          ReadNcclDebug(source);
          break;
        case NcclFile::kGraphs:
          ReadNcclGraphs(source);
          break;
        case NcclFile::kTopology:
          ReadNcclTopology(source);
          break;
      }
      ++read;
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_EQ(read + refused, kRounds);
  EXPECT_GT(read, 50);
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace orrery::measured
