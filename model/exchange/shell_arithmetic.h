// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic of shells: what stands in $((...)).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace orrery::exchange {

// Letters of a variable's name at the front of `text`.
std::size_t NameLength(std::string_view text);

using LookUp = std::function<std::optional<int64_t>(const std::string& name)>;
// Sums, products and brackets of numbers and variables; nullopt: it needs a shell, or overflows.
std::optional<int64_t> Calculate(std::string_view text, const LookUp& value_of);

}  // namespace orrery::exchange
