// SPDX-License-Identifier: Apache-2.0
// Reads HuggingFace config.json files by the rules of their family.
#include <fmt/format.h>

#include "model/arch/enum_names.h"
#include "model/arch/hf_family.h"
#include "model/arch/readers.h"

namespace orrery {

LoadedModel ReadHfConfig(SourcePtr source, const std::string& name) {
  Diagnostics diagnostics;
  const Node file = Node::Parse(source, &diagnostics);
  diagnostics.ThrowIfAny();
  LoadedModel model;
  model.origin = source->name;
  model.spec.name = name;
  const auto family = FindHfFamily(file, &model.notes);
  diagnostics.ThrowIfAny();
  for (const std::string& note : family->Notes()) model.notes.push_back(note);
  const std::string inside = family->Text("inside");
  const Node config = inside.empty() ? file : file.Child(inside);
  diagnostics.ThrowIfAny();
  model.without_effect = family->Account(config, false);
  if (!inside.empty()) model.without_effect.merge(family->Account(file, true));
  const Fields fields([&](const std::string& key) { return family->Find(config, key); });
  model.spec.family = fields.Choice<Family>("family", kFamilyNames, Family::kDecoder);
  ReadTransformer(fields, diagnostics, &model.spec);
  diagnostics.ThrowIfAny();
  return model;
}

}  // namespace orrery
