// SPDX-License-Identifier: Apache-2.0
// The constants of each profile: key, member, range. Readers and documentation derive from here.
#pragma once

#include <span>
#include <variant>

#include "model/cost/profile.h"

namespace orrery {

template <class Profile>
struct ConstantRow {
  const char* key;
  std::variant<double Profile::*, Seconds Profile::*, Bytes Profile::*, BytesPerSecond Profile::*,
               FlopsPerSecond Profile::*>
      member;
  double min = 0;  // of the value in SI base units
  double max = 0;
  bool required = true;
};

std::span<const ConstantRow<GpuProfile>> GpuConstants();
std::span<const ConstantRow<FabricProfile>> FabricConstants();
std::span<const ConstantRow<StackProfile>> StackConstants();

}  // namespace orrery
