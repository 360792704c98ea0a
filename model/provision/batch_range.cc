// SPDX-License-Identifier: Apache-2.0
// The advised batch sizes.
#include "model/provision/batch_range.h"

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

// A step at a published run would make a run of a few more tokens the cheaper one. Towards fewer tokens its batch falls as from
// Gopher (6 M, 300 B tokens) to OPT-175B (2 M, 180 B).
constexpr double kFalls = 2;

}  // namespace

BatchRange BatchRangeFor(const BatchFacts& facts, double tokens) {
  BatchRange range;
  double largest = facts.anchor_batch, longest = facts.anchor_tokens, shortest = longest;
  range.most = facts.anchor_batch * std::pow(tokens / facts.anchor_tokens, facts.exponent);
  for (const auto& [run, published] : facts.published) {
    largest = std::max(largest, published.batch);
    longest = std::max(longest, published.tokens);
    shortest = std::min(shortest, published.tokens);
    const double share = std::min(1.0, tokens / published.tokens);
    const double most = published.batch * std::pow(share, kFalls);
    if (most <= range.most) continue;
    range.most = most;
    range.by = {run, published, tokens < published.tokens};
  }
  range.most = std::min(range.most, largest);
  if (tokens > longest) range.beyond = longest;
  if (tokens < shortest) range.below = shortest;
  range.least = range.most * facts.least_share;
  return range;
}

BatchSpan SequencesOf(const BatchRange& range, int64_t seq_len) {
  const auto length = static_cast<double>(seq_len);
  BatchSpan batches;
  batches.most = std::max<int64_t>(1, static_cast<int64_t>(range.most / length));
  batches.least =
      std::clamp<int64_t>(static_cast<int64_t>(std::ceil(range.least / length)), 1, batches.most);
  return batches;
}

int64_t DividingBatch(const BatchSpan& batches, int64_t gpus) {
  for (int64_t part = gpus; part > 1; part /= 2) {
    const int64_t batch = batches.most / part * part;
    if (batch > 0 && batch >= batches.least) return batch;
    if (part % 2 != 0) break;
  }
  return batches.most;
}

}  // namespace orrery
