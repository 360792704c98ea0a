// SPDX-License-Identifier: Apache-2.0
// Messages of a whole step in two parts: one that compute hides and one that the software waits for.
//
// Reductions beside the last passes: a share runs as soon as its gradients are there, the rest when
// the passes are over, so that what one stage waits for does not hold up the others.
// Weights gathered for the next step: a step that is played follows one like it. Of the gathers at
// its end the software waits for a share, those first that the next step needs first; the rest was
// left over by the step before: it runs from the beginning, in the same order, and the first op that
// reads a weight waits for it. What fits beside the passes nobody sees.
#pragma once

#include <cstdint>
#include <vector>

#include "model/plan/ir/hazards.h"
#include "model/price/message_prices.h"

namespace orrery::sim {

struct SplitOp {
  int32_t instance = 0;  // of the unfolded program
  double awaited = 0;    // share of its bytes and latency
  int32_t reader = -1;   // of a gather: the first instance that reads what it gathers; -1: none
};

struct SplitOps {
  std::vector<SplitOp> reductions, gathers;  // in order of issue; gathers: empty if all are awaited
  int32_t last_pass = -1;  // the last instance of the passes on the compute stream
};

SplitOps FindSplitOps(const ir::Plan& plan, const ir::Program& program,
                      const std::vector<ir::Instance>& instances, const AwaitedShares& awaited);

}  // namespace orrery::sim
