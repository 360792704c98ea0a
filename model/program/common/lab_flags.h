// SPDX-License-Identifier: Apache-2.0
// The flags of `plan lab`: known to `plan` for help and completion, used by its own program.
#pragma once

#include <string>
#include <vector>

#include "model/program/common/flags.h"

namespace orrery::cli {

std::vector<std::string> LabActions();

struct LabFlags {
  LabFlags();

  Flag action, node;
  Flag name, json;
  Flag nodes, rate, latency, racks, oversubscription, queue, fifo, machine;
  Flag ranks;
  FlagSet set;
};

Description DescribeLab();

}  // namespace orrery::cli
