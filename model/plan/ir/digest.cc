// SPDX-License-Identifier: Apache-2.0
// The identity of a plan: XXH3-128 of its text without title and framework.
#include <fmt/format.h>
#include <xxhash.h>

#include "model/plan/ir/text_names.h"

namespace orrery::ir {

std::string Digest(const Plan& plan) {
  const std::string text = TextWithoutTitle(plan);
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace orrery::ir
