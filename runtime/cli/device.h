// SPDX-License-Identifier: Apache-2.0
// The device of a rank that `plan run --device` asks for.
#pragma once

#include <memory>

#include "runtime/cli/run_job.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/accelerator.h"

namespace orrery::cli {

// Null: kernels run on the rank's thread. Processes of a machine take its GPUs in turn, by the local rank that the
// launcher says, else by their own. Throws cpu::KernelError.
std::unique_ptr<device::Accelerator> OpenAccelerator(const RunJob& job, int64_t rank);

// Ranks as threads that train on the first GPU together: collectives by kernels that read each other's memory.
class GpuThreads {
 public:
  explicit GpuThreads(const RunJob& job);
  ~GpuThreads();
  // Null: the job does not train on a GPU, or is one rank.
  std::unique_ptr<comm::Endpoint> Connect(comm::Endpoint* control);

 private:
  struct World;
  std::unique_ptr<World> world_;
};

// Processes with a GPU each: `control` itself where the job does not need NCCL. Throws CommError.
std::unique_ptr<comm::Endpoint> OverNccl(const RunJob& job, std::unique_ptr<comm::Endpoint> control);

}  // namespace orrery::cli
