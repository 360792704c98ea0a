// SPDX-License-Identifier: Apache-2.0
// Two readings of one text say the same, at the same places.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "model/base/yaml_tree.h"

namespace orrery {

inline void ExpectSame(const Location& a, const Location& b, const std::string& text) {
  EXPECT_EQ(a.line, b.line) << text;
  EXPECT_EQ(a.column, b.column) << text;
}

inline void ExpectSame(const YamlTree& a, const YamlTree& b, const std::string& text) {
  ASSERT_EQ(a.kind, b.kind) << text;
  EXPECT_EQ(a.text, b.text) << text;
  EXPECT_EQ(a.quoted, b.quoted) << text;
  ExpectSame(a.where, b.where, text);
  ASSERT_EQ(a.elements.size(), b.elements.size()) << text;
  for (std::size_t i = 0; i < a.elements.size(); ++i)
    ExpectSame(*a.elements[i], *b.elements[i], text);
  ASSERT_EQ(a.members.size(), b.members.size()) << text;
  for (std::size_t i = 0; i < a.members.size(); ++i) {
    EXPECT_EQ(a.members[i].key, b.members[i].key) << text;
    ExpectSame(a.members[i].key_where, b.members[i].key_where, text);
    ExpectSame(*a.members[i].value, *b.members[i].value, text);
  }
}

}  // namespace orrery
