// SPDX-License-Identifier: Apache-2.0
// Term parity of the engines over the whole catalogue: all topologies, all frameworks, six situations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "tests/engines/parity_tally.h"
#include "tests/from_environment.h"

namespace orrery {
namespace {

// To burn down: what is outside waits on slow networks for buffers, or reduces in gaps between passes.
constexpr double kShare = 0.998;     // measured: 0.999
constexpr uint64_t kPlans = 30'000;  // at least so many in all parts

// Searches take nearly all of the time, so that one of six parts is looked at: each topology with each framework in one
// situation. ORRERY_MUTATION_SEED chooses the part, ORRERY_SHARDS how many there are (1: all), ORRERY_TOPOLOGY one topology.
TEST(TermParity, EnginesAgreeTermByTermOverTheCatalogue) {
  ParitySelection selection;
  selection.parts = std::max<uint64_t>(1, FromEnvironment("ORRERY_SHARDS", 6));
  selection.part = FromEnvironment("ORRERY_MUTATION_SEED", 1) % selection.parts;
  const char* topology = std::getenv("ORRERY_TOPOLOGY");
  if (topology != nullptr) selection.topologies = {topology};
  ParityTally tally;
  CompareEngines(selection, [&](const EnginePair& pair) { tally.Add(pair); });
  std::cout << tally.plans << " plans, furthest apart in total " << 100 * tally.worst_total
            << " %, in a term " << 100 * tally.worst_term << " %, outside the bounds "
            << tally.outside.size() << "\n"
            << tally.Worst(20);
  if (topology == nullptr) {
    EXPECT_GT(tally.plans, static_cast<int>(kPlans / selection.parts));
  }
  EXPECT_LT(tally.worst_sum, 1e-6);
  EXPECT_GE(tally.share(), kShare) << tally.Worst(20);
}

}  // namespace
}  // namespace orrery
