// SPDX-License-Identifier: Apache-2.0
// What a text file may contain, and numbers written in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "model/base/diagnostics.h"

namespace orrery {

// Length in bytes of the well-formed UTF-8 character at the front of `text`; 0: there is none.
std::size_t Utf8Length(std::string_view text);

// The text without a leading UTF-8 byte order mark.
std::string_view WithoutByteOrderMark(std::string_view text);

// True when the text is UTF-8 without control characters other than tab, LF and CR. Otherwise the
// first offending place is recorded.
bool CheckPlainText(const SourcePtr& source, Diagnostics* diagnostics);

inline bool IsDigit(char c) { return c >= '0' && c <= '9'; }

enum class NumberFault { kNone, kMalformed, kOutOfRange };

// The whole text as a decimal number. No sign '+', no digit separators, no hexadecimal, no nan or
// inf; an integer has digits only. A number that its type cannot hold is out of range.
NumberFault ParseInteger(std::string_view text, int64_t* value);
NumberFault ParseNumber(std::string_view text, double* value);

}  // namespace orrery
