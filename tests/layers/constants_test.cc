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

// They change constants to price a job again: twice the rate, another precision.
const std::set<std::string> kAsksWhatIf = {"explain.cc", "remedies.cc"};

// Lines of a folder's sources that read a member of a profile: "stack_->bucket", "setting.gpu->hop".
std::vector<std::string> Readers(const std::vector<std::string>& folders, const std::string& key) {
  const std::regex reads("(gpu|chip|fabric|framework|stack|profile)_?(->|\\.)" + key + "\\b");
  std::vector<std::string> places;
  for (const std::string& folder : folders) {
    for (const auto& entry :
         fs::recursive_directory_iterator(fs::path(ORRERY_SOURCE_DIR) / folder)) {
      if (entry.path().extension() != ".cc" && entry.path().extension() != ".h") continue;
      if (kAsksWhatIf.contains(entry.path().filename().string())) continue;
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
  const std::vector<std::string> folders = {"model/collectives", "model/price", "model/memory",
                                            "model/twin"};
  for (const std::string& key : Keys()) {
    // Shown and limited by its capacity as well: the size of the memory is no price.
    if (key == "memory" || key == "memory_nearly_full") continue;
    const std::vector<std::string> readers = Readers(folders, key);
    EXPECT_LE(readers.size(), 1u) << key << ": " << testing::PrintToString(readers);
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
