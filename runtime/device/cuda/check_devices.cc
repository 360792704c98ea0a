// SPDX-License-Identifier: Apache-2.0
// What is wrong with the GPUs that were found, in words.
#include <fmt/format.h>

#include "model/base/text.h"
#include "runtime/device/cuda/probe.h"

namespace orrery::cuda {
namespace {

std::string Version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

DeviceCheck CheckModels(const std::vector<Gpu>& gpus, int architecture) {
  for (size_t i = 0; i < gpus.size(); ++i) {
    const Gpu& gpu = gpus[i];
    if (10 * gpu.major + gpu.minor < architecture) {
      return {fmt::format(
                  "GPU {} ({}) has compute capability {}.{}, and this build is for {}.{} and newer",
                  i, gpu.name, gpu.major, gpu.minor, architecture / 10, architecture % 10),
              fmt::format("build with -DORRERY_CUDA_ARCHITECTURE={}{}", gpu.major, gpu.minor)};
    }
    if (gpu.name != gpus[0].name) {
      return {
          fmt::format("GPU 0 is a {} and GPU {} a {}: ranks of different speed wait for each other",
                      gpus[0].name, i, gpu.name),
          "choose equal ones with CUDA_VISIBLE_DEVICES"};
    }
  }
  return {};
}

}  // namespace

DeviceCheck CheckDevices(const Findings& found, int architecture) {
  if (found.driver == 0)
    return {"there is no NVIDIA driver here", "run on a machine with a GPU, or leave --device out"};
  // Minor versions of CUDA are compatible with each other.
  if (found.driver / 1000 < found.runtime / 1000) {
    return {fmt::format("the NVIDIA driver takes CUDA up to {}, and this program needs {}",
                        Version(found.driver), Version(found.runtime)),
            "install a newer driver, or build with an older CUDA"};
  }
  if (!found.error.empty())
    return {"CUDA cannot be used: " + found.error, "nvidia-smi may tell more"};
  if (found.gpus.empty()) return {"there is no GPU here", "CUDA_VISIBLE_DEVICES may hide them"};
  return CheckModels(found.gpus, architecture);
}

DeviceCheck CheckRanks(const std::vector<Gpu>& gpus, int64_t ranks, bool shared, double bytes) {
  const auto count = static_cast<int64_t>(gpus.size());
  if (!shared && ranks > count) {
    return {fmt::format("{} processes for {} GPU{}: NCCL takes one each", ranks, count,
                        count == 1 ? "" : "s"),
            "--comm local: threads that share the first GPU"};
  }
  const int64_t sharing = shared ? ranks : 1;
  const double needed = bytes * static_cast<double>(sharing);
  for (int64_t i = 0; i < (shared ? 1 : ranks); ++i) {
    const Gpu& gpu = gpus[static_cast<size_t>(i)];
    if (needed <= static_cast<double>(gpu.free_bytes)) continue;
    return {fmt::format("{} rank{} on GPU {} need{} {}, and {} of {} are free on the {}", sharing,
                        sharing == 1 ? "" : "s", i, sharing == 1 ? "s" : "", Format(Bytes{needed}),
                        Format(Bytes{static_cast<double>(gpu.free_bytes)}),
                        Format(Bytes{static_cast<double>(gpu.total_bytes)}), gpu.name),
            "smaller tensors (--micro-batch, --seq-len, -e), ZeRO, recompute, or more GPUs"};
  }
  return {};
}

std::string MixedModels(const std::vector<std::string>& gpus,
                        const std::vector<std::string>& places) {
  for (size_t i = 1; i < gpus.size(); ++i) {
    if (gpus[i] == gpus[0]) continue;
    return fmt::format("{} has a {} and {} a {}: ranks of different speed wait for each other",
                       places[0], gpus[0], places[i], gpus[i]);
  }
  return "";
}

std::string NoRoom(const Gpu& gpu, int64_t arena_bytes, int64_t scratch_bytes) {
  const auto text = [](int64_t bytes) { return Format(Bytes{static_cast<double>(bytes)}); };
  return fmt::format(
      "out of memory: the plan's arena takes {} and kernels' scratch memory {}, and {} of {} are "
      "free on the {}",
      text(arena_bytes), text(scratch_bytes), text(gpu.free_bytes), text(gpu.total_bytes),
      gpu.name);
}

// NVIDIA's data sheet of H100 SXM and H200: 989.4 TFLOP/s with 132 multiprocessors.
double PeakOf(const Gpu& gpu) {
  return gpu.major == 9 && gpu.minor == 0 ? 989.4e12 * gpu.processors / 132 : 0;
}

}  // namespace orrery::cuda
