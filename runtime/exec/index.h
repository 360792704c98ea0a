// SPDX-License-Identifier: Apache-2.0
// Signed numbers of plans as indices of containers.
#pragma once

#include <cstddef>

namespace orrery::exec {

template <class T>
constexpr std::size_t At(T number) {
  return static_cast<std::size_t>(number);
}

}  // namespace orrery::exec
