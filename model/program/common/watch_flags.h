// SPDX-License-Identifier: Apache-2.0
// The flags of `plan watch`: known to `plan` for help and completion, used by its own program.
#pragma once

#include "model/program/common/flags.h"

namespace orrery::cli {

struct WatchFlags {
  WatchFlags();

  Flag log, against, once, stop, patience, idle, json;
  FlagSet set;
};

Description DescribeWatch();

}  // namespace orrery::cli
