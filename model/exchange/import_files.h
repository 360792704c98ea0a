// SPDX-License-Identifier: Apache-2.0
// The files of an import and those that they name: configurations, scripts, programs, hostfiles.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/exchange/document.h"
#include "model/exchange/mapping.h"

namespace orrery::exchange {

// What they say, by whose settings it is.
struct Collected {
  std::map<Target, Settings> targets;
  Settings launch;                 // of the launchers around a training command
  Settings records;                // of this project's own files
  Settings files;                  // that name files
  Settings unread, counts;         // of words and numbers that only a shell knows
  Settings gpus;                   // kinds that a scheduler is asked for
  std::vector<std::string> notes;  // what was read, what is missing
};

// `given`, `open`: see Import(). Throws InputError: a file of no known kind, or one that is missing and without which nothing can
// be predicted.
Collected Collect(std::vector<SourcePtr> sources, const Values& given, const OpenNamed& open);

}  // namespace orrery::exchange
