// SPDX-License-Identifier: Apache-2.0
// The one pretended NCCL of a test program.
#pragma once

#include <dlfcn.h>

#include "tests/comm_nccl/fake_nccl.h"

namespace orrery::comm {

inline const FakeControls& Fake() {
  static const FakeControls controls = [] {
    void* library = dlopen(ORRERY_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
    using Get = FakeControls (*)();
    return reinterpret_cast<Get>(dlsym(library, "fake_nccl_controls"))();
  }();
  return controls;
}

}  // namespace orrery::comm
