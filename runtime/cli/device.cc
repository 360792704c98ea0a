// SPDX-License-Identifier: Apache-2.0
// Where ranks train.
#include "runtime/cli/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "model/units/text.h"

#ifdef ORRERY_HAS_CUDA
#include "runtime/device/cuda/device.h"
#include "runtime/device/cuda/probe.h"
#endif

namespace orrery::cli {
namespace {

[[noreturn]] void Refuse(const Flag& flag, std::string message, std::string hint) {
  throw InputError({{flag.where, "--device cuda: " + std::move(message), std::move(hint)}});
}

#ifdef ORRERY_HAS_CUDA

// Ranks that share a GPU, at most.
int64_t Sharing(int64_t ranks, std::size_t gpus) {
  return (ranks + static_cast<int64_t>(gpus) - 1) / static_cast<int64_t>(gpus);
}

void CheckGpus(const Flag& flag, int64_t ranks_here, double arena_bytes, RunJob* job) {
  const cuda::Verdict verdict = cuda::Judge(cuda::Probe(false), ORRERY_CUDA_ARCHITECTURE);
  if (!verdict.refusal.empty()) Refuse(flag, verdict.refusal, verdict.hint);
  const std::vector<cuda::Gpu> gpus = cuda::Probe(true).gpus;
  job->gpu = gpus[0].name;
  job->gpu_peak = cuda::PeakOf(gpus[0]);
  const int64_t sharing = Sharing(ranks_here, gpus.size());
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

void CheckGpus(const Flag& flag, int64_t, double, RunJob*) {
  Refuse(flag, "this build has no CUDA", "configure with -DORRERY_CUDA=ON where nvcc and cuBLASLt are");
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
  if (job->ranks() > 1)
    Refuse(flags.device, fmt::format("the plan is for {} ranks, and one is what GPUs train so far", job->ranks()),
           "--ranks 1, or leave --device out");
  CheckGpus(flags.device, ranks_here, arena_bytes, job);
  job->on_cuda = true;
}

#ifdef ORRERY_HAS_CUDA
std::unique_ptr<device::Accelerator> OpenAccelerator(const RunJob& job, int64_t rank) {
  if (!job.on_cuda) return nullptr;
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK", "SLURM_LOCALID"}) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    rank = std::atoi(text);
    break;
  }
  const auto gpus = static_cast<int64_t>(cuda::Probe(false).gpus.size());
  return cuda::OpenDevice(static_cast<int>(rank % std::max<int64_t>(gpus, 1)));
}
#else
std::unique_ptr<device::Accelerator> OpenAccelerator(const RunJob&, int64_t) { return nullptr; }
#endif

}  // namespace orrery::cli
