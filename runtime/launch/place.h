// SPDX-License-Identifier: Apache-2.0
// What the launcher of this process says through the environment.
#pragma once

#include <cstdint>
#include <string>

namespace orrery::launch {

enum class Launcher {
  kNone,  // started by hand
  kMpi,   // OpenMPI, PMIx, MPICH, Slurm
  kTcp,   // torchrun and whatever else sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
};

struct Place {
  Launcher launcher = Launcher::kNone;
  int64_t rank = 0, size = 0;  // size 0: by hand
  int64_t on_host = 1;         // ranks on this machine, as far as is known
  int64_t local_rank = -1;     // among them; -1: unknown
  std::string address;         // of rank 0, where ranks meet over TCP
  int port = 0;
};

// MPI's variables come first. Throws InputError: variables of the second kind that are missing or
// no numbers that can be.
Place FindPlace();

}  // namespace orrery::launch
