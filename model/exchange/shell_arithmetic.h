// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic of shells: what stands in $((...)), ((...)) and behind let.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::exchange {

// Letters of a variable's name at the front of `text`.
std::size_t NameLength(std::string_view text);

using LookUp = std::function<std::optional<int64_t>(const std::string& name)>;
using Assign = std::function<void(const std::string& name, int64_t value)>;
// By all operators of bash. `assign` takes what NAME=, NAME*=, NAME++ and their like leave, in order. nullopt: it needs a
// shell, or overflows; then nothing was assigned.
std::optional<int64_t> Calculate(std::string_view text, const LookUp& value_of,
                                 const Assign& assign = nullptr);
// Variables that such a text assigns, where its value is not known.
std::vector<std::string> AssignedIn(std::string_view text);

}  // namespace orrery::exchange
