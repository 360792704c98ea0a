// SPDX-License-Identifier: Apache-2.0
// How far apart two names are, for "did you mean" hints.
#pragma once

#include <cstddef>
#include <string_view>

namespace orrery {

// Least number of single-character insertions, deletions, substitutions and swaps of neighbours
// that turn `a` into `b`; a change of case alone counts half. In units of half edits.
std::size_t HalfEdits(std::string_view a, std::string_view b);

}  // namespace orrery
