// SPDX-License-Identifier: Apache-2.0
// Where ranks compute.
#include "runtime/program/common/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "model/base/text.h"

#ifdef ORRERY_HAS_CUDA
#include "runtime/comm/cuda_queue.h"
#include "runtime/comm/device_local.h"
#include "runtime/comm/gather.h"
#include "runtime/comm/nccl.h"
#include "runtime/device/cuda/device.h"
#include "runtime/device/cuda/probe.h"
#include "runtime/device/cuda/products_lt.h"
#endif

namespace orrery::cli {
namespace {

[[noreturn]] void Refuse(const Flag& flag, std::string message, std::string hint) {
  throw InputError({{flag.where, "--device cuda: " + std::move(message), std::move(hint)}});
}

#ifdef ORRERY_HAS_CUDA

void CheckGpus(const Flag& flag, int64_t ranks_here, double bytes, RankJob* job) {
  const cuda::DeviceCheck check = cuda::CheckDevices(cuda::Probe(false), ORRERY_CUDA_ARCHITECTURE);
  if (!check.refusal.empty()) Refuse(flag, check.refusal, check.hint);
  AtFlag(flag, [] { cuda::LoadProducts(); });
  const std::vector<cuda::Gpu> gpus = cuda::Probe(true).gpus;
  job->gpu = gpus[0].name;
  job->gpu_peak = cuda::PeakOf(gpus[0]);
  const cuda::DeviceCheck room =
      cuda::CheckRanks(gpus, ranks_here, job->comm == Comm::kLocal, bytes);
  if (!room.refusal.empty()) Refuse(flag, room.refusal, room.hint);
}

int GpuOf(const RankJob& job, int64_t rank) {
  if (job.comm == Comm::kLocal) return 0;
  if (job.place.local_rank >= 0) rank = job.place.local_rank;
  return static_cast<int>(rank % std::max<int64_t>(GpusHere(), 1));
}

// Machines of one run may have different GPUs. Rank 0 ends the run then.
void RefuseMixed(const RankJob& job, comm::Endpoint* control) {
  const std::string place = fmt::format("rank {} on {}", control->rank(), control->host());
  const auto places = comm::GatherText(control, place, job.timeout_s);
  const auto gpus = comm::GatherText(control, job.gpu, job.timeout_s);
  const std::string why = cuda::MixedModels(gpus, places);
  if (!why.empty()) control->Abort(why);
}

#else

void CheckGpus(const Flag& flag, int64_t, double, RankJob*) {
  Refuse(flag, "this build has no CUDA",
         "configure with -DORRERY_CUDA=ON where nvcc and cuBLASLt are");
}

#endif

}  // namespace

void ReadDeviceFlag(const Flag& flag, int64_t ranks_here, double bytes, RankJob* job) {
  if (!flag.given || flag.text == "cpu") return;
  if (flag.text != "cuda") {
    throw InputError(
        {{flag.where, fmt::format("--device: there is no device '{}'", flag.text), "cpu or cuda"}});
  }
  CheckGpus(flag, ranks_here, bytes, job);
  job->on_cuda = true;
}

void ReadGraphsFlag(const Flag& flag, bool times_ops, RankJob* job) {
  if (!flag.given || flag.text == "off") return;
  if (flag.text != "on")
    throw InputError(
        {{flag.where, fmt::format("--cuda-graphs: '{}' is neither on nor off", flag.text),
          "on or off"}});
  if (!job->on_cuda)
    throw InputError(
        {{flag.where, "--cuda-graphs on: ranks compute on the CPU", "add --device cuda"}});
  job->graphs = !times_ops;
}

#ifdef ORRERY_HAS_CUDA

struct GpuThreads::World {
  comm::DeviceWorld world{comm::MakeCudaQueue(0)};
};

GpuThreads::GpuThreads(const RankJob& job) {
  if (job.on_cuda) world_ = std::make_unique<World>();
}

std::unique_ptr<comm::Endpoint> GpuThreads::Connect(comm::Endpoint* control) {
  return world_ == nullptr ? nullptr : world_->world.Connect(control);
}

std::unique_ptr<comm::Endpoint> OverNccl(const RankJob& job,
                                         std::unique_ptr<comm::Endpoint> control,
                                         const std::string& speaker) {
  if (!job.on_cuda) return control;
  comm::NcclOptions options;
  options.deadline_s = job.timeout_s;
  options.queue = OpenQueue(job, control->rank());
  const comm::nccl::ApiPtr api = comm::nccl::Load();
  try {
    RefuseMixed(job, control.get());
  } catch (const comm::CommError& error) {
    if (!error.peer_failed)
      control->Abort(
          fmt::format("rank {} on {}: {}", control->rank(), control->host(), error.what()));
    return nullptr;
  }
  if (control->rank() == 0) fmt::print(stderr, "{}: {}\n", speaker, comm::nccl::Describe(*api));
  return comm::ConnectNccl(api, std::move(control), options);
}

int64_t GpusHere() { return static_cast<int64_t>(cuda::Probe(false).gpus.size()); }

std::unique_ptr<device::Accelerator> OpenAccelerator(const RankJob& job, int64_t rank) {
  return job.on_cuda ? cuda::OpenDevice(GpuOf(job, rank), job.graphs) : nullptr;
}

std::shared_ptr<comm::DeviceQueue> OpenQueue(const RankJob& job, int64_t rank) {
  return job.on_cuda ? comm::MakeCudaQueue(GpuOf(job, rank)) : nullptr;
}

#else

int64_t GpusHere() { return 0; }
struct GpuThreads::World {};
GpuThreads::GpuThreads(const RankJob&) {}
std::unique_ptr<comm::Endpoint> GpuThreads::Connect(comm::Endpoint*) { return nullptr; }
std::unique_ptr<comm::Endpoint> OverNccl(const RankJob&, std::unique_ptr<comm::Endpoint> control,
                                         const std::string&) {
  return control;
}
std::unique_ptr<device::Accelerator> OpenAccelerator(const RankJob&, int64_t) { return nullptr; }
std::shared_ptr<comm::DeviceQueue> OpenQueue(const RankJob&, int64_t) { return nullptr; }

#endif

GpuThreads::~GpuThreads() = default;

// "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build ..."
std::string DriverText() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line, word;
  std::getline(file, line);
  std::istringstream words(line);
  while (words >> word) {
    if (word.find_first_not_of("0123456789.") == std::string::npos &&
        word.find('.') != std::string::npos)
      return word;
  }
  return "";
}

}  // namespace orrery::cli
