// SPDX-License-Identifier: Apache-2.0
// What a YAML parser complains of, in our words.
#pragma once

#include <string_view>

namespace orrery {

struct SyntaxFault {
  const char* message;
  const char* hint;
};

// `complaint`: of yaml-cpp. One that is not known has words that say no more than that the text is wrong there.
SyntaxFault WordsOfSyntax(std::string_view complaint);

// Of a flow that has no end: the parser names the place where it gave up.
inline constexpr const char* kOpenFlow = "a bracket or brace is never closed";

}  // namespace orrery
