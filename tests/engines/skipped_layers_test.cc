// SPDX-License-Identifier: Apache-2.0
// Term parity of the engines where products of some layers are cast in 8 bits and those of others are not.
#include <gtest/gtest.h>

#include "tests/engines/parity_tally.h"

namespace orrery {
namespace {

// Layers at both ends whose products are not cast: on the first and the last stage alone.
TEST(SkippedLayers, EnginesAgree) {
  ParityTally tally;
  for (const SkippedLayers skip : Sample<SkippedLayers>({{1, 1}}, {{0, 4}, {6, 0}})) {
    ParitySelection selection;
    selection.models = {"llama2-7b"};
    selection.topologies = {"dgx-h100"};
    selection.frameworks = {"megatron", "orrery", "fsdp"};
    selection.situations = {"zero1", "zero3"};
    selection.fp8 = Fp8::kCurrent;
    selection.fp8_skip = skip;
    const int before = tally.plans;
    CompareEngines(selection, [&](const EnginePair& pair) { tally.Add(pair); });
    EXPECT_GT(tally.plans, before + 10) << skip.first << "," << skip.last;
  }
  EXPECT_LT(tally.worst_sum, 1e-9);
  EXPECT_GE(tally.share(), 0.97) << tally.Worst(10);  // as TermParity on fast networks
}

}  // namespace
}  // namespace orrery
