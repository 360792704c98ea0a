// SPDX-License-Identifier: Apache-2.0
// Reads the YAML that people mostly write, and JSON, without a general parser: thirty times as fast.
//
// Plain: block maps and lists, flow maps and lists, scalars on one line, plain or in quotes without escapes, and
// comments. Whatever else YAML knows, and whatever is wrong, is not plain.
#pragma once

#include <memory>

#include "model/base/yaml_tree.h"

namespace orrery {

// The tree that ReadAnyYaml() makes of it, with the same places. Null: the text is not plain.
std::shared_ptr<YamlTree> ReadPlainYaml(const SourcePtr& source);

}  // namespace orrery
