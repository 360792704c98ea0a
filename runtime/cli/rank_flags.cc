// SPDX-License-Identifier: Apache-2.0
// Reads --comm and --timeout.
#include "runtime/cli/rank_flags.h"

#include <algorithm>

#include "model/units/text.h"

namespace orrery::cli {

double ReadTimeout(const Flag& flag, Diagnostics* diagnostics) {
  if (!flag.given) return 120;
  TextError error;
  const std::optional<Seconds> time = ParseQuantity<Seconds>(flag.text, &error);
  if (!time) diagnostics->Error(flag.where, "--timeout: " + error.message, error.hint);
  return time ? std::max(time->value, 0.01) : 120;
}

bool OverMpi(const Flag& comm, const launch::MpiPlace& place, int64_t ranks,
             Diagnostics* diagnostics) {
#ifdef ORRERY_HAS_MPI
  constexpr bool kBuilt = true;
#else
  constexpr bool kBuilt = false;
#endif
  const auto kind = ReadName(comm, {"mpi", "local"}, diagnostics);
  if (!kind) {
    if (place.size > 0) return kBuilt;
    return kBuilt && ranks > 1 && !launch::FindMpirun().empty();
  }
  if (*kind == 0 && !kBuilt) {
    diagnostics->Error(comm.where, "this build has no MPI",
                       "install libopenmpi-dev and build again, or --comm local");
  } else if (*kind == 0 && place.size == 0 && launch::FindMpirun().empty()) {
    diagnostics->Error(comm.where, "there is no mpirun on PATH",
                       "install openmpi-bin, or --comm local");
  } else if (*kind == 1 && place.size > 1) {
    diagnostics->Error(comm.where, "mpirun has started processes, and local is one process",
                       "leave --comm out, or run it without mpirun");
  }
  return *kind == 0;
}

}  // namespace orrery::cli
