// SPDX-License-Identifier: Apache-2.0
// The device of a rank that `--device` asks for, and how ranks on GPUs talk.
#pragma once

#include <memory>
#include <string>

#include "model/program/common/flags.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/device_queue.h"
#include "runtime/device/accelerator.h"
#include "runtime/program/common/rank_flags.h"

namespace orrery::cli {

struct RankJob {
  Comm comm = Comm::kLocal;
  launch::Place place;
  bool on_cuda = false;  // ranks compute on GPUs
  bool graphs = false;   // and launch CUDA graphs
  std::string gpu;       // their name
  double gpu_peak = 0;   // FLOP/s by data sheet; 0: unknown
  double timeout_s = 120;
};

// Reads --device, and whether this build and this machine's GPUs can do it: `ranks_here` ranks of
// `bytes` each. `job->comm` is known. Throws InputError.
void ReadDeviceFlag(const Flag& flag, int64_t ranks_here, double bytes, RankJob* job);

// Reads --cuda-graphs, behind --device; `times_ops`: each op is timed, which graphs cannot. Throws InputError.
void ReadGraphsFlag(const Flag& flag, bool times_ops, RankJob* job);

// Null: kernels run on the rank's thread. Threads share the first GPU; processes take those of their
// machine in turn, by the local rank that the launcher says, else by their own. Throws
// cpu::KernelError.
std::unique_ptr<device::Accelerator> OpenAccelerator(const RankJob& job, int64_t rank);
// Streams, events and copies of the same GPU; null likewise.
std::shared_ptr<comm::DeviceQueue> OpenQueue(const RankJob& job, int64_t rank);

// Ranks as threads that share the first GPU: collectives by kernels that read each other's memory.
class GpuThreads {
 public:
  explicit GpuThreads(const RankJob& job);
  ~GpuThreads();
  // Null: the job is not on a GPU.
  std::unique_ptr<comm::Endpoint> Connect(comm::Endpoint* control);

 private:
  struct World;
  std::unique_ptr<World> world_;
};

// Processes with a GPU each: `control` itself where the job is not on GPUs, null where a rank has
// failed, which was said: also where machines have different GPUs. Rank 0 says on standard
// error which NCCL it is and what the environment tells it. Throws InputError.
std::unique_ptr<comm::Endpoint> OverNccl(const RankJob& job,
                                         std::unique_ptr<comm::Endpoint> control,
                                         const std::string& speaker);

int64_t GpusHere();  // 0: none, or a build without CUDA

// What CUDA's driver calls itself, "580.82.07"; "" where there is none.
std::string DriverText();

}  // namespace orrery::cli
