// SPDX-License-Identifier: Apache-2.0
// Lines and words of what other programs print.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/base/diagnostics.h"

namespace orrery::discover {

struct Line {
  std::string text;  // without escape sequences of terminals and the line's end
  int number = 0;
};

// At most 2 million lines of at most 64 KiB count.
std::vector<Line> LinesOf(const Source& source);
std::vector<std::string> WordsOf(std::string_view text);
// Behind `key` up to the next blank: "8" of "GPUs=8 x" for "GPUs="; "": not there.
std::string Behind(std::string_view text, std::string_view key);
std::optional<int64_t> WholeOf(std::string_view text);  // digits only

// ExpandHosts() of a list that may be empty. Throws InputError at `where`: brackets that do not fit, more than kMostHosts
// names.
std::vector<std::string> HostsOf(std::string_view list, const Location& where);

}  // namespace orrery::discover
