// SPDX-License-Identifier: Apache-2.0
// How the plan text refers to named things.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "model/plan/ir/plan.h"

namespace orrery::ir {

// The name as it stands in the text: bare, or in quotes with escapes \" \\ \n \xNN.
std::string Quoted(std::string_view name);

// The references to the elements of one list: the name where it is unique, else %index.
class Names {
 public:
  Names() = default;
  template <class Named>
  static Names Of(const std::vector<Named>& list) {
    std::vector<std::string_view> names;
    names.reserve(list.size());
    for (const Named& element : list) names.push_back(element.name);
    return Names(names);
  }
  static Names OfStrings(const std::vector<std::string>& list) {
    return Names(std::vector<std::string_view>(list.begin(), list.end()));
  }

  // An index outside the list comes out as %index, which no parser accepts.
  std::string_view operator[](int64_t index) const;
  bool Unique(int64_t index) const { return refs_[index][0] != '%'; }

 private:
  explicit Names(const std::vector<std::string_view>& names);
  std::vector<std::string> refs_;
  mutable std::deque<std::string> strays_;  // references to indices outside the list
};

// ToText but for title and framework: what the digest covers.
std::string TextWithoutTitle(const Plan& plan);

}  // namespace orrery::ir
