// SPDX-License-Identifier: Apache-2.0
#include "model/base/host_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/plain_text.h"

namespace orrery {
namespace {

constexpr std::size_t kLongestShown = 64;  // letters of a faulty list

// The numbers of "08-10,12", with the zeros of each range's first; empty: it is none, for the reason `why`.
std::vector<std::string> ExpandRange(const std::string& text, std::size_t most, std::string* why) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, comma - at);
    const std::size_t dash = part.find('-');
    const std::string first = part.substr(0, dash);
    const std::string last = dash == std::string::npos ? first : part.substr(dash + 1);
    int64_t from = 0, to = 0;
    if (ParseInteger(first, &from) != NumberFault::kNone ||
        ParseInteger(last, &to) != NumberFault::kNone || from < 0 || to < from) {
      *why = fmt::format("'{}' is no range of hosts", part.substr(0, kLongestShown));
      return {};
    }
    for (int64_t n = from; n <= to && all.size() < most; ++n)
      all.push_back(fmt::format("{:0{}}", n, first.size()));
    at = comma + 1;
  }
  return all;
}

// One name, whose first bracket is expanded and the rest likewise.
bool ExpandName(const std::string& name, std::size_t most, std::vector<std::string>* all,
                std::string* why) {
  if (all->size() >= most) return true;  // brackets multiply: the rest is not counted
  const std::size_t open = name.find('['), close = name.find(']');
  const auto fails = [&](const char* form) {
    *why = fmt::format(fmt::runtime(form), name.substr(0, kLongestShown));
    return false;
  };
  if (open == std::string::npos) {
    if (name.empty() || close != std::string::npos) return fails("'{}' is no list of hosts");
    all->push_back(name);
    return true;
  }
  if (close == std::string::npos) return fails("the '[' of '{}' is never closed");
  if (close <= open + 1) return fails("'{}' is no list of hosts");
  const auto numbers = ExpandRange(name.substr(open + 1, close - open - 1), most, why);
  return !numbers.empty() && std::all_of(numbers.begin(), numbers.end(), [&](const auto& number) {
    return ExpandName(name.substr(0, open) + number + name.substr(close + 1), most, all, why);
  });
}

}  // namespace

std::vector<std::string> ExpandHosts(const std::string& text, std::size_t most, std::string* why) {
  std::vector<std::string> all;
  std::string reason;
  if (why == nullptr) why = &reason;
  bool inside = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '[' || c == ']') inside = c == '[';
    if (c != ',' || (inside && i < text.size())) continue;
    if (!ExpandName(text.substr(begin, i - begin), most, &all, why)) return {};
    begin = i + 1;
  }
  return all;
}

std::vector<HostLine> HostLinesOf(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r", kSlots = "slots=";
  std::vector<HostLine> all;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, std::min(end, text.find('#')));
    text.remove_prefix(std::min(end + 1, text.size()));
    HostLine made{"", "", number};
    for (std::size_t begin = line.find_first_not_of(kBlanks); begin < line.size();
         begin = line.find_first_not_of(kBlanks, begin)) {
      const std::size_t stop = std::min(line.find_first_of(kBlanks, begin), line.size());
      const std::string_view word = line.substr(begin, stop - begin);
      if (made.hosts.empty())
        made.hosts = word;
      else if (word.starts_with(kSlots))
        made.slots = word.substr(kSlots.size());
      begin = stop;
    }
    if (made.hosts.empty()) continue;
    const std::size_t colon = made.hosts.find(':');
    int64_t slots = 0;
    if (colon == made.hosts.rfind(':') && colon != std::string::npos &&
        ParseInteger(made.hosts.substr(colon + 1), &slots) == NumberFault::kNone) {
      made.slots = made.hosts.substr(colon + 1);
      made.hosts.resize(colon);
    }
    all.push_back(std::move(made));
  }
  return all;
}

}  // namespace orrery
