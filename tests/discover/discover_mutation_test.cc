// SPDX-License-Identifier: Apache-2.0
// Property: whatever files hold, discovery ends with a topology that reads back, or with an InputError.
#include <filesystem>
#include <random>

#include "tests/discover/testing.h"
#include "tests/from_environment.h"

namespace orrery::discover {
namespace {

using Random = std::mt19937_64;

std::size_t Below(Random& random, std::size_t bound) { return bound == 0 ? 0 : random() % bound; }

std::string Mutated(Random& random, const std::vector<std::string>& seeds) {
  std::string text = seeds[Below(random, seeds.size())];
  const std::string& other = seeds[Below(random, seeds.size())];
  for (std::size_t rounds = 1 + Below(random, 4); rounds > 0; --rounds) {
    const std::size_t at = Below(random, text.size() + 1);
    switch (Below(random, 7)) {
      case 0:
        text.resize(at);
        break;
      case 1:
        if (at < text.size()) text[at] ^= static_cast<char>(1u << Below(random, 8));
        break;
      case 2:
        text = text.substr(0, at) + other.substr(Below(random, other.size()));
        break;
      case 3:
        text.erase(at, Below(random, 20));
        break;
      case 4:
        text.insert(at, std::string(Below(random, 40), "9e-. #:[{\"\n\t<>/="[Below(random, 16)]));
        break;
      case 5:  // a number becomes another one
        if (const std::size_t digit = text.find_first_of("0123456789", at);
            digit != std::string::npos)
          text.replace(digit, 1, std::to_string(random() >> Below(random, 64)));
        break;
      default:
        text.insert(at, other.substr(Below(random, other.size()), Below(random, 200)));
        break;
    }
  }
  return text;
}

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
    Random random(seed * 1000003 + i);
    SCOPED_TRACE(i);
    Observed seen;
    bool whole = true;
    for (std::size_t files = 1 + Below(random, 2); files > 0 && whole; --files) {
      try {
        ReadClusterFile(Made("mutated", Mutated(random, seeds)), &seen);
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
