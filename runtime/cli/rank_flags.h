// SPDX-License-Identifier: Apache-2.0
// The flags that say how ranks are started: --comm and --timeout.
#pragma once

#include "model/cli/flags.h"
#include "runtime/launch/mpirun.h"

namespace orrery::cli {

// Seconds; 120 when it was not given.
double ReadTimeout(const Flag& flag, Diagnostics* diagnostics);

// Whether `ranks` ranks are to be processes of MPI (true) or threads of this one, from --comm, from
// how this process was started and from what this build and machine have.
bool OverMpi(const Flag& comm, const launch::MpiPlace& place, int64_t ranks,
             Diagnostics* diagnostics);

}  // namespace orrery::cli
