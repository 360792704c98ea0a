// SPDX-License-Identifier: Apache-2.0
// Every topology in the tree: it loads, builds, routes every pair, and prints its expected text.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/base/csv.h"
#include "model/hardware/print.h"
#include "tests/topo/testing.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = ORRERY_SOURCE_DIR;

std::vector<std::string> NamesInTree() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kRoot / "topologies")) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string ReadAll(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class EveryTopology : public testing::TestWithParam<std::string> {
 protected:
  TopologySpec Load() const {
    return LoadTopology((kRoot / "topologies" / (GetParam() + ".yaml")).string());
  }
};

TEST_P(EveryTopology, IsNamedLikeItsFile) { EXPECT_EQ(Load().name, GetParam()); }

TEST_P(EveryTopology, RoutesEveryPairOnOneTwoAndFourNodes) {
  const TopologySpec spec = Load();
  for (const int64_t nodes : {1, 2, 4}) {
    if (nodes > spec.max_nodes) continue;
    const Cluster cluster = BuildCluster(spec, nodes);
    ASSERT_EQ(cluster.ranks(), nodes * spec.node.gpus);
    ASSERT_NO_FATAL_FAILURE(ExpectAllRoutesValid(cluster, 3));
  }
}

TEST_P(EveryTopology, PrintsItsExpectedText) {
  const TopologySpec spec = Load();
  const fs::path golden = kRoot / "topologies" / (GetParam() + ".txt");
  const std::string text = PrintTopology(spec, spec.nodes);
  if (std::getenv("ORRERY_UPDATE_GOLDENS") != nullptr) std::ofstream(golden) << text;
  EXPECT_EQ(ReadAll(golden), text) << "run with ORRERY_UPDATE_GOLDENS=1, then read the difference";
}

INSTANTIATE_TEST_SUITE_P(Tree, EveryTopology, testing::ValuesIn(NamesInTree()),
                         [](const auto& row) {
                           std::string name = row.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Catalog, ListsEveryFileSorted) { EXPECT_EQ(TopologyNames(), NamesInTree()); }

TEST(Catalog, SuggestsTheNearestName) {
  try {
    LoadTopology("aws-p4");
    FAIL() << "an unknown name was accepted";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("aws-p4d"), std::string::npos) << error.what();
  }
}

TEST(Catalog, MissingFileIsAnInputError) {
  EXPECT_THROW(LoadTopology("./no/such.yaml"), InputError);
}

// Every cluster of a facts table is in the catalogue, with its counts and rates where these are printed.
class FactsTable : public testing::TestWithParam<const char*> {};

TEST_P(FactsTable, IsCovered) {
  const fs::path facts = kRoot / ".." / "shared" / "facts" / GetParam();
  if (!fs::exists(facts)) GTEST_SKIP() << "the facts table is not part of the repository";
  Diagnostics diagnostics;
  const CsvTable table = CsvTable::Parse(
      ReadSource(facts.string()), {"topology", "gpus_per_node", "nics_per_node"}, &diagnostics);
  diagnostics.ThrowIfAny();
  ASSERT_GT(table.rows(), 0u);
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const TopologySpec spec = LoadTopology(table.Text(row, "topology"));
    EXPECT_EQ(std::to_string(spec.node.gpus), table.Text(row, "gpus_per_node")) << spec.name;
    if (const std::string nics = table.Text(row, "nics_per_node"); !nics.empty()) {
      EXPECT_EQ(std::to_string(spec.node.nics.size()), nics) << spec.name;
    }
    const std::string rate = table.Text(row, "gbit_per_s_per_nic");
    if (rate.empty() || rate.find_first_not_of("0123456789.") != std::string::npos) continue;
    EXPECT_DOUBLE_EQ(spec.node.nic_rate.value * 8 / 1e9, std::stod(rate)) << spec.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Catalog, FactsTable,
                         testing::Values("clusters.csv", "clusters_modern.csv"),
                         [](const auto& row) { return row.index == 0 ? "Older" : "Modern"; });

}  // namespace
}  // namespace orrery
