// SPDX-License-Identifier: Apache-2.0
// Masks samples.
#include "runtime/data/masking.h"

#include <algorithm>
#include <utility>

#include "model/plan/ir/draws.h"

namespace orrery::train {
namespace {

using ir::HashOf;
using ir::UniformOf;

enum Draw : uint64_t { kPlace = 1001, kKind, kToken };  // apart from the keys of other draws

uint64_t Bits(const Masking& masking, Draw draw, int64_t sample, int64_t position) {
  return HashOf(
      {masking.seed, draw, static_cast<uint64_t>(sample), static_cast<uint64_t>(position)});
}

// The positions with the smallest hashes, in rising order.
std::vector<int32_t> Choose(const Masking& masking, int64_t sample, int64_t length) {
  std::vector<std::pair<uint64_t, int32_t>> order;
  for (int32_t p = 0; p < length; ++p) order.emplace_back(Bits(masking, kPlace, sample, p), p);
  const auto end = order.begin() + std::min(masking.positions, length);
  std::nth_element(order.begin(), end == order.end() ? end - 1 : end, order.end());
  std::vector<int32_t> chosen;
  for (auto it = order.begin(); it != end; ++it) chosen.push_back(it->second);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace

void Mask(const Masking& masking, int64_t number, TokenSample* sample) {
  sample->input = sample->tokens;
  sample->masked = Choose(masking, number, static_cast<int64_t>(sample->tokens.size()));
  for (const int32_t p : sample->masked) {
    const double kind = UniformOf(Bits(masking, kKind, number, p));
    uint32_t& token = sample->input[static_cast<std::size_t>(p)];
    if (kind < 0.8) {
      token = masking.mask_token;
    } else if (kind < 0.9) {
      token = static_cast<uint32_t>(UniformOf(Bits(masking, kToken, number, p)) *
                                    static_cast<double>(masking.random_below));
    }
  }
}

}  // namespace orrery::train
