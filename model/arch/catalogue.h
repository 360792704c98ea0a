// SPDX-License-Identifier: Apache-2.0
// Models by name or by file: scenarios/models/*.yaml, own YAML files, HuggingFace config.json.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/arch/model_spec.h"
#include "model/base/diagnostics.h"

namespace orrery {

// A parameter count as its source prints it: "1557611200" is exact, "1.5B" is right to half a unit
// of its last digit (M = 1e6, B = 1e9, T = 1e12).
struct PublishedParameters {
  std::string text;
  double value = 0;
  double tolerance = 0;   // 0: exact
  bool backbone = false;  // the source counts the model without its training head
  std::string source;
};

struct LoadedModel {
  ModelSpec spec;
  TrainingDefaults defaults;
  std::optional<PublishedParameters> published;
  std::vector<std::string> notes;  // what the reader inferred or left out; to be shown to the user
  std::map<std::string, std::string> without_effect;  // keys of a config.json, and why
  std::string origin;                                 // the file it was read from
  std::string hf_family;                              // of a config.json; else ""
  SourcePtr hf_config;                                // its text; else null
};

// A catalogue name, a YAML file, a HuggingFace config.json, or a folder that holds one. A catalogue
// name wins over a file of the same name; write ./NAME for the file. Throws InputError.
LoadedModel LoadModel(const std::string& name_or_path);

// All catalogue names, sorted.
std::vector<std::string> ModelNames();
bool IsModel(const std::string& name_or_path);  // one of them, or the path of a file

// MLM predictions per sequence of `seq_len`: what the defaults say for this length, else 15 % of
// the positions (Devlin et al. 2018), rounded up; 0 when the model has no masked-LM head.
int64_t MaskedPositions(const ModelSpec& spec, const TrainingDefaults& defaults, int64_t seq_len);

}  // namespace orrery
