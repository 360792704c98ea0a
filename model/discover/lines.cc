// SPDX-License-Identifier: Apache-2.0
// Splits texts.
#include "model/discover/lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/host_list.h"
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
  if (list.empty()) return {};
  std::string why;
  auto names = ExpandHosts(std::string(list), kMostHosts + 1, &why);
  if (names.empty()) Refuse(where, why, "such as node[0-3,7]");
  if (names.size() > kMostHosts)
    Refuse(where, fmt::format("'{}' is no range of hosts: it is too large, more than {}",
                              list.substr(0, 64), kMostHosts));
  return names;
}

}  // namespace orrery::discover
