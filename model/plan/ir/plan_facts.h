// SPDX-License-Identifier: Apache-2.0
// What a plan says about the work of one step: samples, tokens, FLOPs, vocabulary, parameters.
#pragma once

#include <cstdint>

#include "model/plan/ir/plan.h"

namespace orrery::ir {

struct PlanFacts {
  int64_t samples = 0;      // of one step, all ranks
  int64_t tokens = 0;       // likewise; samples where there are no tokens
  bool has_tokens = false;  // false: features
  int64_t vocab = 0;        // largest vocabulary of a loss
  int64_t token_types = 1;
  int64_t hidden = 0;  // width of the residual; 0: no op tells it
  bool fused_attention = false;
  int64_t parameters = 0;  // tied ones once, padding included
  double flops =
      0;  // of one step, all ranks, as MFU counts: products and whole attention, no recomputation
};

PlanFacts FactsOf(const ir::Plan& plan);

}  // namespace orrery::ir
