// SPDX-License-Identifier: Apache-2.0
// The YAML of the catalogues, in a twentieth of the time that yaml-cpp takes: a command reads a dozen such files.
//
// Maps and lists by indentation or in brackets; scalars of one line, plain or in quotes without escapes; comments. Whatever
// else a text holds, right or wrong, yaml-cpp reads: it knows all of YAML and what to say of a fault.
#pragma once

#include <memory>

#include "model/base/yaml_tree.h"

namespace orrery {

// Null: more than that. Else the tree that ReadAnyYaml() builds from yaml-cpp's events, equal in every place. The text is
// UTF-8 without control characters (CheckPlainText) and no JSON.
std::shared_ptr<YamlTree> ReadPlainYaml(const SourcePtr& source);

}  // namespace orrery
