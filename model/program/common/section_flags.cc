// SPDX-License-Identifier: Apache-2.0
// Fills flags from a section of a file.
#include <algorithm>

#include "model/program/common/flags.h"

namespace orrery::cli {
namespace {

std::string FlagKey(const Flag& flag) {
  std::string key = flag.name.substr(2);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

}  // namespace

void FillFlags(const Node& root, const char* section, const std::vector<Flag*>& flags) {
  const auto node = root.Find(section);
  if (!node) return;
  for (Flag* flag : flags) {
    const std::string key = FlagKey(*flag);
    if (!node->Has(key)) continue;
    std::string text = node->String(key);
    if (text.empty()) node->ErrorAt(key, "'" + key + "' is empty");
    if (flag->given) continue;
    flag->text = std::move(text);
    flag->given = true;
    flag->where = node->where(key);
  }
  node->RejectUnknownKeys();
}

}  // namespace orrery::cli
