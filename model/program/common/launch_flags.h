// SPDX-License-Identifier: Apache-2.0
// The flags of `plan launch`: known to `plan` for help and completion, used by its own program.
#pragma once

#include "model/program/common/flags.h"

namespace orrery::cli {

struct LaunchFlags {
  LaunchFlags();

  Flag nodes, least, deadline, late, main, port, index, hosts, slots, interface, names, show, ssh;
  Flag check, test, disk, tolerance, compute, memory;
  Flag hostfile, start, json;
  FlagSet set;
};

Description DescribeLaunch();

}  // namespace orrery::cli
