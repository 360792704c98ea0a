// SPDX-License-Identifier: Apache-2.0
// Signed ids as container indices.
#pragma once

#include <cstddef>
#include <cstdint>

namespace orrery::sim {

inline std::size_t At(int64_t index) { return static_cast<std::size_t>(index); }

}  // namespace orrery::sim
