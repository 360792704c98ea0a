// SPDX-License-Identifier: Apache-2.0
// What files of other programs say of a job and its layout: `--from FILE`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/arch/catalogue.h"
#include "model/exchange/document.h"
#include "model/exchange/mapping.h"

namespace orrery::exchange {

struct Imported {
  Values values;          // by field; without a place: the program's default
  Values training;        // by flag of `plan run`: rates, steps and the like of the training itself
  std::string framework;  // of --framework
  std::optional<LoadedModel> model;
  std::string model_name, topology, facts;  // of this project's own records; "": not said
  std::vector<std::string> notes;   // what was read, what has no effect here, what is not modelled
  Settings gpus;                    // kinds that a scheduler is asked for, "h100"
  std::optional<Setting> no_nodes;  // what the files say of nodes and is not understood
  std::optional<Diagnostic> no_layout;  // why the files have no layout that plans model
  std::optional<Diagnostic> no_model;   // what the files say of a model that nobody knows here
};

// `sources` add up: a launch script and the configuration that it names. `model`: of the user, for settings that count its
// layers. Throws InputError: a file of no known kind, two values for one field (with both places), settings of two programs
// that do not go together, or what plans do not model. `given`: what flags say, by field: it wins over the files, and
// what follows from it is checked against them. A value that is "auto" nobody gave. `open`: finds configurations that files
// name and that are none of the sources; without them what they say is unknown. `trains`: settings of a training are read, too;
// otherwise they have no effect.
Imported Import(const std::vector<SourcePtr>& sources, const std::optional<LoadedModel>& model,
                const Values& given = {}, const OpenNamed& open = nullptr, bool trains = false);

}  // namespace orrery::exchange
