// SPDX-License-Identifier: Apache-2.0
// The model of the benchmarks of the CPU runtime: 4 layers of 256, 128 tokens.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "model/plan/lower/lower.h"

namespace orrery {

inline ModelSpec SmallGpt() {
  ModelSpec model;
  model.name = "gpt-4x256";
  model.layers = 4;
  model.hidden = 256;
  model.ffn = 1024;
  model.heads = model.kv_heads = 4;
  model.head_dim = 64;
  model.vocab = 4096;
  model.max_positions = 128;
  return model;
}

// A step: one micro-batch per replica of `strategy`. Ends the program if it is refused.
inline ir::Plan StepPlan(const ModelSpec& model, int64_t tokens, Precision precision,
                         const Strategy& strategy) {
  Workload work;
  work.seq_len = tokens;
  work.global_batch = int64_t{strategy.micro_batch} * strategy.dp;
  work.precision = precision;
  LowerResult lowered = Lower(model, work, strategy);
  if (const auto* refusal = std::get_if<Refusal>(&lowered)) {
    fmt::print(stderr, "refused: {}\n", refusal->reason);
    std::exit(1);
  }
  return std::get<ir::Plan>(std::move(lowered));
}

inline ir::Plan SmallGptPlan(Precision precision, const Strategy& strategy) {
  return StepPlan(SmallGpt(), SmallGpt().max_positions, precision, strategy);
}

}  // namespace orrery
