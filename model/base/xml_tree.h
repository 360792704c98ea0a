// SPDX-License-Identifier: Apache-2.0
// XML as a tree of elements with attributes, each with its line; text between them, comments and
// processing instructions are skipped. Read by libexpat; documents that declare entities are refused.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/base/diagnostics.h"

namespace orrery {

struct XmlElement {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<XmlElement> children;
  Location where;

  const std::string* Find(std::string_view attribute) const;  // null: not there
  // Throw InputError with the element's place: missing, no number, out of range.
  const std::string& Text(std::string_view attribute) const;
  int Whole(std::string_view attribute, int min, int max) const;
  int Whole(std::string_view attribute, int min, int max, int fallback) const;
  double Number(std::string_view attribute, double min, double max) const;
};

// The one outermost element. Throws InputError: not well-formed, more than 64 levels or 100,000 elements,
// entities.
XmlElement ReadXml(const SourcePtr& source);

}  // namespace orrery
