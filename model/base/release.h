// SPDX-License-Identifier: Apache-2.0
// Which release this is, for readers of files; CMake's project() says the same (model/program/common/CMakeLists.txt).
#pragma once

namespace orrery {

inline constexpr const char* kRelease = "0.1.0";

}  // namespace orrery
