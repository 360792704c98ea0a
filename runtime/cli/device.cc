// SPDX-License-Identifier: Apache-2.0
// Where ranks train.
#include "runtime/cli/device.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/units/text.h"

#ifdef ORRERY_HAS_CUDA
#include "runtime/comm/cuda_queue.h"
#include "runtime/comm/device_local.h"
#include "runtime/comm/nccl.h"
#include "runtime/device/cuda/device.h"
#include "runtime/device/cuda/probe.h"
#endif

namespace orrery::cli {
namespace {

[[noreturn]] void Refuse(const Flag& flag, std::string message, std::string hint) {
  throw InputError({{flag.where, "--device cuda: " + std::move(message), std::move(hint)}});
}

#ifdef ORRERY_HAS_CUDA

void CheckGpus(const RunFlags& flags, int64_t ranks_here, double arena_bytes, RunJob* job) {
  const Flag& flag = flags.device;
  const cuda::Verdict verdict = cuda::Judge(cuda::Probe(false), ORRERY_CUDA_ARCHITECTURE);
  if (!verdict.refusal.empty()) Refuse(flag, verdict.refusal, verdict.hint);
  const std::vector<cuda::Gpu> gpus = cuda::Probe(true).gpus;
  job->gpu = gpus[0].name;
  job->gpu_peak = cuda::PeakOf(gpus[0]);
  if (job->comm != Comm::kLocal && ranks_here > static_cast<int64_t>(gpus.size())) {
    Refuse(flag, fmt::format("{} processes for {} GPU{}: NCCL takes one each", ranks_here, gpus.size(),
                             gpus.size() == 1 ? "" : "s"),
           "--comm local: threads that share the first GPU");
  }
  const int64_t sharing = job->comm != Comm::kLocal ? 1 : ranks_here;
  for (const cuda::Gpu& gpu : gpus) {
    const double needed = arena_bytes * static_cast<double>(sharing);
    if (needed <= static_cast<double>(gpu.free_bytes)) continue;
    Refuse(flag,
           fmt::format("{} rank{} on a GPU need {}, and {} of {} are free on the {}", sharing,
                       sharing == 1 ? "" : "s", Format(Bytes{needed}),
                       Format(Bytes{static_cast<double>(gpu.free_bytes)}),
                       Format(Bytes{static_cast<double>(gpu.total_bytes)}), gpu.name),
           "a smaller --micro-batch or --seq-len, ZeRO, recompute, or more GPUs");
  }
}

#else

void CheckGpus(const RunFlags& flags, int64_t, double, RunJob*) {
  Refuse(flags.device, "this build has no CUDA", "configure with -DORRERY_CUDA=ON where nvcc and cuBLASLt are");
}

#endif

}  // namespace

void ReadDeviceFlag(const RunFlags& flags, int64_t ranks_here, double arena_bytes, RunJob* job) {
  const std::string& kind = flags.device.text;
  if (!flags.device.given || kind == "cpu") return;
  if (kind != "cuda") {
    throw InputError({{flags.device.where, fmt::format("--device: there is no device '{}'", kind),
                       "cpu or cuda"}});
  }
  CheckGpus(flags, ranks_here, arena_bytes, job);
  job->on_cuda = true;
}

#ifdef ORRERY_HAS_CUDA

namespace {

// Threads share the first GPU; processes take those of their machine in turn.
int GpuOf(const RunJob& job, int64_t rank) {
  if (job.place.local_rank >= 0) rank = job.place.local_rank;
  const auto gpus = static_cast<int64_t>(cuda::Probe(false).gpus.size());
  return static_cast<int>(rank % std::max<int64_t>(gpus, 1));
}

}  // namespace

struct GpuThreads::World {
  comm::DeviceWorld world{comm::MakeCudaQueue(0)};
};

GpuThreads::GpuThreads(const RunJob& job) {
  if (job.on_cuda && job.ranks() > 1) world_ = std::make_unique<World>();
}

std::unique_ptr<comm::Endpoint> GpuThreads::Connect(comm::Endpoint* control) {
  return world_ == nullptr ? nullptr : world_->world.Connect(control);
}

std::unique_ptr<comm::Endpoint> OverNccl(const RunJob& job, std::unique_ptr<comm::Endpoint> control) {
  if (!job.on_cuda || job.ranks() == 1) return control;
  comm::NcclOptions options;
  options.deadline_s = job.timeout_s;
  options.queue = comm::MakeCudaQueue(GpuOf(job, control->rank()));
  return comm::ConnectNccl(comm::nccl::Load(), std::move(control), options);
}

std::unique_ptr<device::Accelerator> OpenAccelerator(const RunJob& job, int64_t rank) {
  if (!job.on_cuda) return nullptr;
  return cuda::OpenDevice(job.comm == Comm::kLocal ? 0 : GpuOf(job, rank));
}

#else

struct GpuThreads::World {};
GpuThreads::GpuThreads(const RunJob&) {}
std::unique_ptr<comm::Endpoint> GpuThreads::Connect(comm::Endpoint*) { return nullptr; }
std::unique_ptr<comm::Endpoint> OverNccl(const RunJob&, std::unique_ptr<comm::Endpoint> control) {
  return control;
}
std::unique_ptr<device::Accelerator> OpenAccelerator(const RunJob&, int64_t) { return nullptr; }

#endif

GpuThreads::~GpuThreads() = default;

}  // namespace orrery::cli
