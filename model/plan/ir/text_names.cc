// SPDX-License-Identifier: Apache-2.0
// Quoting and references of the plan text.
#include "model/plan/ir/text_names.h"

#include <unordered_map>

#include "model/plan/ir/text_words.h"

namespace orrery::ir {

std::string Quoted(std::string_view name) {
  if (IsBareName(name)) return std::string(name);
  std::string text = "\"";
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (c == '\n') {
      text += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      text += "\\x";
      text += "0123456789abcdef"[byte >> 4];
      text += "0123456789abcdef"[byte & 15];
    } else {
      text += c;
    }
  }
  text += '"';
  return text;
}

Names::Names(const std::vector<std::string_view>& names) {
  std::unordered_map<std::string_view, int> uses;
  uses.reserve(names.size());
  for (const std::string_view name : names) ++uses[name];
  refs_.reserve(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    refs_.push_back(uses[names[i]] == 1 ? Quoted(names[i]) : "%" + std::to_string(i));
  }
}

std::string_view Names::operator[](int64_t index) const {
  if (index >= 0 && index < static_cast<int64_t>(refs_.size())) return refs_[index];
  return strays_.emplace_back("%" + std::to_string(index));
}

}  // namespace orrery::ir
