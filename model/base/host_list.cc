// SPDX-License-Identifier: Apache-2.0
#include "model/base/host_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/plain_text.h"

namespace orrery {
namespace {

// The numbers of "08-10,12", with the zeros of each range's first; empty: it is none.
std::vector<std::string> ExpandRange(const std::string& text, std::size_t most) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, comma - at);
    const std::size_t dash = part.find('-');
    const std::string first = part.substr(0, dash);
    const std::string last = dash == std::string::npos ? first : part.substr(dash + 1);
    int64_t from = 0, to = 0;
    if (ParseInteger(first, &from) != NumberFault::kNone ||
        ParseInteger(last, &to) != NumberFault::kNone || from < 0 || to < from)
      return {};
    for (int64_t n = from; n <= to && all.size() < most; ++n)
      all.push_back(fmt::format("{:0{}}", n, first.size()));
    at = comma + 1;
  }
  return all;
}

// One name, whose first bracket is expanded and the rest likewise.
bool ExpandName(const std::string& name, std::size_t most, std::vector<std::string>* all) {
  const std::size_t open = name.find('['), close = name.find(']');
  if (open == std::string::npos) {
    if (name.empty() || close != std::string::npos) return false;
    if (all->size() < most) all->push_back(name);
    return true;
  }
  if (close == std::string::npos || close < open) return false;
  const auto numbers = ExpandRange(name.substr(open + 1, close - open - 1), most);
  return !numbers.empty() && std::all_of(numbers.begin(), numbers.end(), [&](const auto& number) {
    return ExpandName(name.substr(0, open) + number + name.substr(close + 1), most, all);
  });
}

}  // namespace

std::vector<std::string> ExpandHosts(const std::string& text, std::size_t most) {
  std::vector<std::string> all;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (depth < 0 || depth > 1) return {};
    if (c != ',' || (depth > 0 && i < text.size())) continue;
    if (!ExpandName(text.substr(begin, i - begin), most, &all)) return {};
    begin = i + 1;
  }
  return all;
}

}  // namespace orrery
