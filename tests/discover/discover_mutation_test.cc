// SPDX-License-Identifier: Apache-2.0
// Property: whatever files hold, discovery ends with a topology that reads back, or with an InputError.
#include <filesystem>
#include <random>

#include "tests/discover/testing.h"
#include "tests/from_environment.h"
#include "tests/mutated_text.h"

namespace orrery::discover {
namespace {

TEST(DiscoverMutations, NeverCrash) {
  std::vector<std::string> seeds;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(ORRERY_SOURCE_DIR) + "/tests/discover/data"))
    seeds.push_back(ReadSource(entry.path().string())->text);
  std::sort(seeds.begin(), seeds.end());
  ASSERT_GE(seeds.size(), 10u);
  const std::size_t cases = FromEnvironment("ORRERY_MUTATIONS", 3000);
  const uint64_t seed = FromEnvironment("ORRERY_MUTATION_SEED", 20260816);
  std::size_t read = 0, refused = 0;
  for (std::size_t i = 0; i < cases; ++i) {
    std::mt19937_64 random(seed * 1000003 + i);
    SCOPED_TRACE(i);
    Observed seen;
    bool whole = true;
    for (std::size_t files = 1 + RandomBelow(random, 2); files > 0 && whole; --files) {
      try {
        ReadClusterFile(Made("mutated", MutatedText(random, seeds, "9e-. #:[{\"\n\t<>/=")), &seen);
      } catch (const InputError& error) {
        whole = false;
        ++refused;
        ASSERT_NE(std::string(error.what()).find("error:"), std::string::npos);
      }
    }
    if (!whole || i % 3 != 0) continue;
    try {
      ASSERT_GE(WriteTopology(seen, {}).spec.node.gpus, 1);
      ++read;
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(read, cases / 100);
  EXPECT_GT(refused, cases / 20);
}

}  // namespace
}  // namespace orrery::discover
