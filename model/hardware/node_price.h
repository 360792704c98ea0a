// SPDX-License-Identifier: Apache-2.0
// What a node may cost.
#pragma once

namespace orrery {

inline constexpr double kMostNodePrice = 100'000;  // USD/h; more is a slip of the pen

}  // namespace orrery
