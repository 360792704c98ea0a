// SPDX-License-Identifier: Apache-2.0
// The tree behind Node: what a YAML or JSON text says and where it says it.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "model/base/diagnostics.h"

namespace orrery {

struct YamlTree {
  enum class Kind { kNull, kScalar, kSequence, kMap };

  struct Member {
    std::string key;
    Location key_where;
    std::shared_ptr<YamlTree> value;
  };

  Kind kind = Kind::kNull;
  Location where;
  std::string text;     // of a scalar
  bool quoted = false;  // of a scalar: '...', "..." or a block; never a number or a truth value
  std::vector<std::shared_ptr<YamlTree>> elements;
  std::vector<Member> members;  // in file order; a duplicate has been recorded

  // Notes that reading leaves behind.
  mutable std::set<std::string> asked;  // keys that somebody asked for, present or not
  mutable bool complained = false;      // it was said that this is no map
};

// Deeper nesting is refused, so that nothing recurses without bound.
inline constexpr int kMostNested = 64;

// Reads one document. What is wrong is recorded and null comes back. Refused besides bad syntax:
// text that is no UTF-8, control characters, tabs as indentation, duplicate keys, keys that are not
// plain text, anchors, tags, more than one document, an empty document, nesting above kMostNested.
std::shared_ptr<YamlTree> ReadYaml(const SourcePtr& source, Diagnostics* diagnostics);

}  // namespace orrery
