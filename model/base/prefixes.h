// SPDX-License-Identifier: Apache-2.0
// Binary prefixes (IEC 80000-13).
#pragma once

namespace orrery {

inline constexpr double kKi = 1024.0, kMi = kKi * kKi, kGi = kMi * kKi, kTi = kGi * kKi,
                        kPi = kTi * kKi;

}  // namespace orrery
