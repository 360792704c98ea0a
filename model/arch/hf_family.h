// SPDX-License-Identifier: Apache-2.0
// Which architecture a HuggingFace config.json describes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/arch/model_spec.h"
#include "model/base/node.h"

namespace orrery {

// A HuggingFace `model_type` that this project can plan.
struct HfFamily {
  const char* model_type;
  const char* class_prefix;  // of `architectures`: LlamaForCausalLM
  void (*read)(const Node& node, ModelSpec* spec, std::vector<std::string>* notes);
};

std::span<const HfFamily> HfFamilies();
std::string SupportedHfFamilies();  // "bert, bloom, ..."

// The family by `model_type`, else by `architectures`, else by the keys that are there; what was
// inferred goes to `notes`. nullptr: unknown, and recorded in the node's diagnostics.
const HfFamily* FindHfFamily(const Node& node, std::vector<std::string>* notes);

}  // namespace orrery
