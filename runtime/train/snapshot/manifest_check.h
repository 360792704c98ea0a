// SPDX-License-Identifier: Apache-2.0
// What every manifest that a run wrote fulfils. A snapshot may come from anywhere: its hash says that
// it is whole, not that it is honest.
#pragma once

#include <string>
#include <string_view>

#include "runtime/train/snapshot/manifest.h"

namespace orrery::snapshot {

inline constexpr int64_t kShardAlignment = 64;  // bytes: where slices begin in a shard file

// Step, samples, names of files; slices within their parameter and within the model's shapes, one
// behind the other in their file. So sizes, products and loops that use them stay within bounds.
// Throws SnapshotError, which names the shard and the parameter.
void CheckManifest(const Manifest& manifest);

// At most 64 printable ASCII characters of a text that somebody else wrote; others become '?'.
std::string PlainText(std::string_view text);

}  // namespace orrery::snapshot
