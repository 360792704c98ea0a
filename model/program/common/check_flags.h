// SPDX-License-Identifier: Apache-2.0
// The flags of `plan check`: known to `plan` for help and completion, used by its own program.
#pragma once

#include "model/program/common/flags.h"

namespace orrery::cli {

struct CheckFlags {
  CheckFlags();

  Flag topology, disk, tolerance, compute, memory, skew, timeout, comm, json;
  FlagSet set;
};

Description DescribeCheck();

}  // namespace orrery::cli
