// SPDX-License-Identifier: Apache-2.0
// JSON is nearly a subset of YAML; this file is about the rest.
#include "model/base/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <vector>

namespace orrery {
namespace {

// The code point of a JSON surrogate pair (\ud83d\ude00) at the front of `text`; 0: there is none.
unsigned SurrogatePair(std::string_view text) {
  unsigned high = 0, low = 0;
  const auto unit = [&](std::size_t at, unsigned* value) {
    if (text.substr(at, 2) != "\\u" || text.size() < at + 6) return false;
    const char* end = text.data() + at + 6;
    return std::from_chars(end - 4, end, *value, 16).ptr == end;
  };
  if (!unit(0, &high) || !unit(6, &low)) return 0;
  if (high < 0xD800 || high > 0xDBFF || low < 0xDC00 || low > 0xDFFF) return 0;
  return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

// The offset behind the closing quote of the string that opens at `start`; npos: there is none.
std::size_t EndOfString(std::string_view text, std::size_t start) {
  for (std::size_t i = start + 1; i < text.size(); ++i) {
    if (text[i] == '"') return i + 1;
    if (text[i] == '\\') ++i;
  }
  return std::string_view::npos;
}

}  // namespace

bool LooksLikeJson(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  return start != std::string_view::npos && (text[start] == '{' || text[start] == '[');
}

std::string JsonForParser(std::string_view text) {
  std::string copy;
  copy.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\') {
      if (const unsigned code = SurrogatePair(text.substr(i))) {
        copy += fmt::format("\\U{:08x}", code);
        i += 11;
        continue;
      }
      copy += c;
      if (++i == text.size()) break;
      copy += text[i];
      continue;
    }
    copy += c == '\t' || c == '\r' ? ' ' : c;
  }
  return copy;
}

std::optional<JsonFault> FindUnbalanced(std::string_view text) {
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"') {
      const std::size_t end = EndOfString(text, i);
      if (end == std::string_view::npos) return JsonFault{i, "this quote is never closed"};
      i = end;
      continue;
    }
    if (c == '{' || c == '[') open.push_back(i);
    if (c == '}' || c == ']') {
      if (open.empty()) return JsonFault{i, fmt::format("this '{}' closes nothing", c)};
      const char opener = text[open.back()];
      if ((opener == '{') != (c == '}')) {
        return JsonFault{i, fmt::format("this '{}' cannot close a '{}'", c, opener)};
      }
      open.pop_back();
    }
    ++i;
  }
  if (open.empty()) return std::nullopt;
  return JsonFault{open.back(), fmt::format("this '{}' is never closed", text[open.back()])};
}

namespace {

// Behind the closing quote of either kind; npos: there is none.
std::size_t EndOfScalar(std::string_view yaml, std::size_t quote) {
  if (yaml[quote] == '"') return EndOfString(yaml, quote);
  const std::size_t end = yaml.find('\'', quote + 1);
  return end == std::string_view::npos ? end : end + 1;
}

}  // namespace

// Outside of brackets, one opens a value only where the value begins: a plain text may hold any.
std::optional<JsonFault> FindOpenFlow(std::string_view yaml, std::size_t until) {
  std::vector<std::size_t> open;
  bool begins = true;  // a value may begin here
  for (std::size_t i = 0; i < std::min(until, yaml.size()); ++i) {
    const char c = yaml[i];
    const bool spaced = i == 0 || std::isspace(static_cast<unsigned char>(yaml[i - 1])) != 0;
    if (c == '#' && spaced) {
      i = std::min(yaml.find('\n', i), yaml.size()) - 1;
    } else if ((c == '"' || c == '\'') && begins) {
      const std::size_t end = EndOfScalar(yaml, i);
      if (end == std::string_view::npos) break;
      i = end - 1;
      begins = false;
    } else if ((c == '{' || c == '[') && (begins || !open.empty())) {
      open.push_back(i);
      begins = true;
    } else if ((c == '}' || c == ']') && !open.empty()) {
      open.pop_back();
      begins = false;
    } else if (c == '\n' || c == ':' || c == '-' || c == ',') {
      begins = true;
    } else if (c != ' ') {
      begins = false;
    }
  }
  if (open.empty()) return std::nullopt;
  return JsonFault{open.back(), fmt::format("this '{}' is never closed", yaml[open.back()])};
}

}  // namespace orrery
