// SPDX-License-Identifier: Apache-2.0
// What the launcher of this process says through the environment.
#pragma once

#include <cstdint>
#include <string>

namespace orrery::launch {

enum class Launcher {
  kNone,  // started by hand
  kMpi,   // OpenMPI, PMIx, MPICH, Slurm
  kTcp,  // torchrun and whatever else sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; srun, AWS Batch
};

struct Place {
  Launcher launcher = Launcher::kNone;
  std::string launched_by;     // name of its row (launchers.h)
  int64_t rank = 0, size = 0;  // size 0: by hand
  int64_t on_host = 1;         // ranks on this machine, as far as is known
  int64_t local_rank = -1;     // among them; -1: unknown
  std::string address;         // of rank 0, where ranks meet over TCP
  int port = 0;
  std::string secret;  // of the run: ORRERY_SECRET, or the file that ORRERY_SECRET_FILE names
  std::string listen;  // ORRERY_LISTEN: rank 0's address to listen at; empty: `address`
};

// MPI's variables come first, then RANK and its like, then the other rows of launchers.h. Throws InputError: variables of the second kind that are missing or
// no numbers that can be, no secret where ranks on several machines meet over TCP, and tasks of srun
// that could not find each other.
Place FindPlace();

// The secret; empty: none was given. Throws InputError: one that can be guessed, or a file that cannot
// be read or that others may read.
std::string FindSecret();

}  // namespace orrery::launch
