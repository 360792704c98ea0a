// SPDX-License-Identifier: Apache-2.0
// The device of a rank that `plan run --device` asks for.
#pragma once

#include <memory>

#include "runtime/cli/run_job.h"
#include "runtime/device/accelerator.h"

namespace orrery::cli {

// Null: kernels run on the rank's thread. Ranks of a machine take its GPUs in turn, by the local rank that a launcher
// set (OMPI_COMM_WORLD_LOCAL_RANK, LOCAL_RANK, SLURM_LOCALID), else by their own. Throws cpu::KernelError.
std::unique_ptr<device::Accelerator> OpenAccelerator(const RunJob& job, int64_t rank);

}  // namespace orrery::cli
