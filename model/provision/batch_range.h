// SPDX-License-Identifier: Apache-2.0
// How large a batch may be before it costs tokens.
//
//   largest = anchor batch x (tokens / anchor tokens)^exponent, or that of a published run of as many tokens or fewer, of one of
//             more tokens x (tokens / its tokens)^2; no larger than any published run's
//   smallest = share x largest
//
// The critical batch, beyond which steps fall by less than the batch grows, rises with the tokens of a run and hardly with
// its parameters (Zhang et al. 2024, arXiv:2410.21676; Bergsma et al. 2025, arXiv:2505.13738). Anchored at the largest batch
// of Llama 3 405B, so an advice from practice and no limit that was measured for this model. Range: dense decoders.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/provision/facts.h"
#include "model/twin/space.h"

namespace orrery {

struct BatchRange {
  double least = 0, most = 0;  // tokens per step
  double beyond = 0;  // tokens of the longest published run, where this one is longer; else 0
  double below = 0;   // of the shortest one, where this one is shorter; else 0
  // The published run whose batch sets the largest; `more`: that run had more tokens. Empty: the exponent does.
  struct By {
    std::string run;
    BatchFacts::Published published;
    bool more = false;
  };
  std::optional<By> by;
};
BatchRange BatchRangeFor(const BatchFacts& facts, double tokens);

// The batches of the range in sequences; where it holds none, the nearest.
BatchSpan SequencesOf(const BatchRange& range, int64_t seq_len);

// The largest batch of the span that `gpus` GPUs divide or the largest of their halves that leaves one; else its largest.
int64_t DividingBatch(const BatchSpan& batches, int64_t gpus);

}  // namespace orrery
