// SPDX-License-Identifier: Apache-2.0
// What a YAML parser needs to be told about JSON, and what it does not say about brackets.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace orrery {

// The text begins like a JSON document (or a YAML flow collection).
bool LooksLikeJson(std::string_view text);

// The text as YAML takes it: tabs become spaces, one for one so that places stay right, and
// surrogate pairs become YAML's long escape (places behind one in its line move by two).
std::string JsonForParser(std::string_view text);

// Explains why a JSON text is broken.
struct JsonFault {
  std::size_t offset;  // in bytes
  std::string message;
};

// The first quote, bracket or brace that is never closed or closed by the wrong one.
std::optional<JsonFault> FindUnbalanced(std::string_view text);

// Of a YAML text, the bracket or brace that is open at an offset, where the parser looked for its end in vain.
std::optional<JsonFault> FindOpenFlow(std::string_view yaml, std::size_t until);

}  // namespace orrery
