// SPDX-License-Identifier: Apache-2.0
// A calibrated constant is applied by one line: engines read prices, never profiles.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "model/framework/profile.h"
#include "model/hardware/profile_tables.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

template <class Profile>
void AddKeys(std::span<const ConstantRow<Profile>> rows, std::set<std::string>* keys) {
  for (const auto& row : rows) keys->insert(row.key);
}

std::set<std::string> Keys() {
  std::set<std::string> keys;
  AddKeys(GpuConstants(), &keys);
  AddKeys(FabricConstants(), &keys);
  AddKeys(FrameworkConstants(), &keys);
  return keys;
}

// Lines of a folder's sources that read a member of a profile: "stack_->bucket", "setting.gpu->hop".
std::vector<std::string> Readers(const std::vector<std::string>& folders, const std::string& key) {
  const std::regex reads("(gpu|chip|fabric|framework|stack|profile)_?(->|\\.)" + key + "\\b");
  std::vector<std::string> places;
  for (const std::string& folder : folders) {
    for (const auto& entry :
         fs::recursive_directory_iterator(fs::path(ORRERY_SOURCE_DIR) / folder)) {
      if (entry.path().extension() != ".cc" && entry.path().extension() != ".h") continue;
      std::ifstream file(entry.path());
      int number = 0;
      for (std::string line; std::getline(file, line);) {
        ++number;
        line = line.substr(0, line.find("//"));
        if (std::regex_search(line, reads))
          places.push_back(entry.path().filename().string() + ":" + std::to_string(number));
      }
    }
  }
  return places;
}

TEST(Constants, AreAppliedInOnePlaceEach) {
  for (const std::string& key : Keys()) {
    // Shown and limited by its capacity as well: the size of the memory is no price.
    if (key == "memory" || key == "memory_nearly_full") continue;
    EXPECT_LE(Readers({"model/collectives", "model/price", "model/memory"}, key).size(), 1u)
        << key << ": "
        << testing::PrintToString(
               Readers({"model/collectives", "model/price", "model/memory"}, key));
  }
}

TEST(Constants, NoEngineReadsAny) {
  for (const std::string& key : Keys()) {
    EXPECT_TRUE(Readers({"model/engine"}, key).empty())
        << key << ": " << testing::PrintToString(Readers({"model/engine"}, key));
  }
}

TEST(Constants, TheScanFindsReaders) {
  EXPECT_EQ(Readers({"model/price"}, "gather_latency_growth").size(), 1u);
}

}  // namespace
}  // namespace orrery
