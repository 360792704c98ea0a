// SPDX-License-Identifier: Apache-2.0
// Splits texts.
#include "model/discover/lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/discover/observed.h"

namespace orrery::discover {
namespace {

constexpr std::size_t kMostLines = 2'000'000, kLongestLine = 65'536;

// Escape sequences: ESC [ digits letter.
std::string WithoutEscapes(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      plain += text[i];
      continue;
    }
    if (i + 1 < text.size() && text[i + 1] == '[') ++i;
    while (i + 1 < text.size() && !std::isalpha(static_cast<unsigned char>(text[i + 1]))) ++i;
    ++i;
  }
  return plain;
}

// "3" or "0-3" with the zeros in front: node[08-10] is node08, node09, node10.
void AddRange(const std::string& head, std::string_view range, const std::string& tail,
              const Location& where, std::vector<std::string>* names) {
  const std::size_t dash = range.find('-');
  const std::string_view low_text = range.substr(0, dash),
                         high_text =
                             dash == std::string_view::npos ? low_text : range.substr(dash + 1);
  const auto low = WholeOf(low_text), high = WholeOf(high_text);
  if (low && high && *high >= *low && *high - *low >= static_cast<int64_t>(kMostHosts))
    Refuse(where, fmt::format("'{}' is no range of hosts: it is too large, more than {}",
                              range.substr(0, 64), kMostHosts));
  if (!low || !high || *high < *low)
    Refuse(where, fmt::format("'{}' is no range of hosts", range.substr(0, 64)), "such as [0-3,7]");
  for (int64_t i = *low; i <= *high; ++i) {
    if (names->size() >= kMostHosts) Refuse(where, fmt::format("more than {} hosts", kMostHosts));
    names->push_back(fmt::format("{}{:0{}}{}", head, i, low_text.size(), tail));
  }
}

}  // namespace

std::vector<Line> LinesOf(const Source& source) {
  std::vector<Line> lines;
  std::string_view text = source.text;
  int number = 0;
  while (!text.empty() && lines.size() < kMostLines) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string line = WithoutEscapes(text.substr(0, std::min(end, kLongestLine)));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    lines.push_back({std::move(line), ++number});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<std::string> WordsOf(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = text.find_first_not_of(" \t", at);
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min(text.find_first_of(" \t", begin), text.size());
    words.emplace_back(text.substr(begin, end - begin));
    at = end;
  }
  return words;
}

std::string Behind(std::string_view text, std::string_view key) {
  for (std::size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    if (at > 0 && text[at - 1] != ' ' && text[at - 1] != '\t') continue;
    const std::string_view rest = text.substr(at + key.size());
    return std::string(rest.substr(0, rest.find_first_of(" \t")));
  }
  return "";
}

std::optional<int64_t> WholeOf(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty() || value < 0)
    return std::nullopt;
  return value;
}

std::vector<std::string> HostsOf(std::string_view list, const Location& where) {
  std::vector<std::string> names;
  while (!list.empty()) {
    // To the next comma outside of brackets.
    std::size_t end = 0;
    for (bool inside = false; end < list.size() && (inside || list[end] != ','); ++end) {
      if (list[end] == '[') inside = true;
      if (list[end] == ']') inside = false;
    }
    const std::string_view part = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    const std::size_t open = part.find('[');
    if (open == std::string_view::npos) {
      if (!part.empty()) names.emplace_back(part);
    } else {
      const std::size_t close = part.find(']', open);
      if (close == std::string_view::npos)
        Refuse(where, fmt::format("the '[' of '{}' is never closed", part.substr(0, 64)),
               "such as node[0-3,7]");
      if (close == open + 1 || part.find('[', open + 1) != std::string_view::npos)
        Refuse(where, fmt::format("'{}' is no list of hosts", part.substr(0, 64)),
               "such as node[0-3,7]");
      std::string_view ranges = part.substr(open + 1, close - open - 1);
      const std::string head(part.substr(0, open)), tail(part.substr(close + 1));
      while (!ranges.empty()) {
        const std::size_t comma = std::min(ranges.find(','), ranges.size());
        AddRange(head, ranges.substr(0, comma), tail, where, &names);
        ranges.remove_prefix(std::min(comma + 1, ranges.size()));
      }
    }
    if (names.size() > kMostHosts) Refuse(where, fmt::format("more than {} hosts", kMostHosts));
  }
  return names;
}

}  // namespace orrery::discover
