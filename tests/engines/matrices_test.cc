// SPDX-License-Identifier: Apache-2.0
// Term parity of the engines where the optimizer updates whole matrices (Muon).
#include <gtest/gtest.h>

#include "tests/engines/parity_tally.h"

namespace orrery {
namespace {

// With shards and without, of all weights and of adapters: with 64 shards of 24 layers a matrix is the floor.
TEST(Matrices, EnginesAgree) {
  ParityTally tally;
  for (const int rank : {0, 16}) {
    ParitySelection selection;
    selection.topologies = {"dgx-h100"};
    selection.frameworks = {"megatron", "orrery", "fsdp"};
    selection.situations = {"zero1", "zero3"};
    selection.nodes = 8;
    selection.optimizer = Optimizer::kMuon;
    selection.lora.rank = rank;
    const int before = tally.plans;
    CompareEngines(selection, [&](const EnginePair& pair) { tally.Add(pair); });
    EXPECT_GT(tally.plans, before + 10) << rank;
  }
  EXPECT_LT(tally.worst_sum, 1e-9);
  EXPECT_GE(tally.share(), 0.97) << tally.Worst(10);  // as TermParity on fast networks
}

}  // namespace
}  // namespace orrery
