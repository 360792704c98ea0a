// SPDX-License-Identifier: Apache-2.0
// What files of other programs say, without their syntax: keys and values with their places.
//
// Nested keys are joined by dots ("zero_optimization.stage"). A key of a command line stands without its dashes, a switch
// has the value "". Everything that a file says is text that somebody else wrote: it is compared and converted, never run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/base/diagnostics.h"

namespace orrery::exchange {

// How `unresolved` of a setting, or of a word of a script, ends where a variable has no value in the file: the environment gives
// it, and scripts mostly take it as empty.
inline constexpr std::string_view kUnset = "is not set in this file";
inline bool IsUnset(std::string_view unresolved) { return unresolved.ends_with(kUnset); }

struct Setting {
  std::string key, value;
  Location where;
  std::string unresolved;  // why a shell would be needed to know the value; "": it is known
  bool flag =
      false;  // of a command line, which wins over configurations where the program has it so
  std::string said = "";  // the key as the file has it, where it is an old spelling; "": `key`
};
using Settings = std::vector<Setting>;

// Settings by key, with a note of which were asked for. The settings must outlive it.
class SettingIndex {
 public:
  // Throws InputError: one key with two values.
  explicit SettingIndex(const Settings& settings);

  // Null: absent. Marks the key as known. Throws InputError: the value needs a shell.
  const Setting* Find(const std::string& key) const;
  bool Has(const std::string& key) const { return Find(key) != nullptr; }
  // The value without marking the key; "": absent or unknown.
  std::string Peek(const std::string& key) const;
  // nullopt: absent. Throws InputError: no whole number from `min` on.
  std::optional<int64_t> Whole(const std::string& key, int64_t min = 0) const;
  std::optional<double> Number(const std::string& key) const;

  std::vector<const Setting*> Unused() const;  // that nobody asked for, in file order
  std::vector<std::string> Asked() const;  // keys that somebody asked for and that are not there

 private:
  const Settings& settings_;
  std::map<std::string, std::size_t> at_;
  mutable std::vector<bool> used_;
  mutable std::set<std::string> absent_;
};

// "train.sh:12" of a place, for sentences; "" where the place is unknown.
std::string Place(const Location& where);

// A value that a field of the layout or of the workload has by a file.
struct Value {
  std::string text;
  Location where;
  std::string key;  // that said so
};
// By name of the field.
using Values = std::map<std::string, Value>;

// The file that a setting of a file names; null: it cannot be found. Key "source": one that a script takes in.
using OpenNamed = std::function<SourcePtr(const Setting& names)>;

}  // namespace orrery::exchange
