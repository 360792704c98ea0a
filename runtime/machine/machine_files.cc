// SPDX-License-Identifier: Apache-2.0
// Prints the two files.
#include "runtime/machine/machine_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <stdexcept>

#include "model/base/write_file.h"
#include "model/plan/lower/names.h"

namespace orrery::machine {
namespace {

constexpr const char* kSource = "plan bench --calibrate on this machine, all cores busy";
constexpr double kMicroseconds = 1e6;

std::string KernelRows(const std::vector<KernelTime>& kernels) {
  std::string text, last;
  for (const KernelTime& kernel : kernels) {
    if (kernel.of.kernel != last) text += fmt::format("    {}:\n", last = kernel.of.kernel);
    // Trailing extents of 1 stay away, the first one never does.
    std::size_t extents = kernel.of.shape.size();
    while (extents > 1 && kernel.of.shape[extents - 1] == 1) --extents;
    text += "      - [";
    for (std::size_t i = 0; i < extents; ++i) text += fmt::format("{:.0f}, ", kernel.of.shape[i]);
    text += fmt::format("{:.4g}]\n", kernel.seconds * kMicroseconds);
  }
  return text;
}

std::string CollectiveRows(const std::vector<CollectiveTime>& times) {
  std::string text, last;
  std::vector<double> spreads;
  for (const CollectiveTime& time : times) {
    if (time.collective != last) text += fmt::format("  {}:\n", last = time.collective);
    text += fmt::format("    - [{}, {}, {:.4g}]\n", time.ranks, time.bytes,
                        time.seconds * kMicroseconds);
    spreads.push_back(time.spread);
  }
  if (spreads.empty()) return "";
  std::nth_element(spreads.begin(),
                   spreads.begin() + static_cast<std::ptrdiff_t>(spreads.size() / 2),
                   spreads.end());
  return fmt::format(
             "# Ranks, bytes, microseconds; the slowest of three passes took {:.0f} % longer, in "
             "the median.\n"
             "collectives:\n",
             100 * spreads[spreads.size() / 2]) +
         text;
}

std::string LeftOutText(const std::vector<LeftOut>& models) {
  std::string text;
  for (const LeftOut& m : models)
    text += fmt::format(
        "# Left out of the table: {}: measured {:.2f} ms of kernels a step, by the table {:+.1f} "
        "%.\n",
        m.name, 1e3 * m.measured, 100 * (m.predicted / m.measured - 1));
  return text;
}

void Write(const std::filesystem::path& path, const std::string& text) {
  if (const std::string why = WriteTextFile(path.string(), text); !why.empty())
    throw std::runtime_error(fmt::format("cannot write '{}': {}", path.string(), why));
}

}  // namespace

std::string TopologyText(const Measured& m) {
  const int64_t ranks = std::max<int64_t>(8, 4 * m.cores);
  std::string devices;
  for (int64_t rank = 0; rank < ranks; ++rank)
    devices += fmt::format("{}gpu{}", rank > 0 ? ", " : "", rank);
  return fmt::format(
      "# SPDX-License-Identifier: Apache-2.0\n"
      "# Written by `plan bench --calibrate`.\n"
      "name: this-machine\n"
      "description: \"This machine: CPU processes that exchange messages through shared memory\"\n"
      "source: \"{}\"\n"
      "evidence: B\n"
      "gpu: ./{}\n"
      "fabric_profile: localhost\n"
      "frameworks: {{orrery: orrery-cpu}}\n"
      "cores: {}\n"
      "nodes: 1\n"
      "max_nodes: 1\n"
      "node:\n"
      "  gpus: {}\n"
      "  scale_up: {{kind: pcie, link: shared memory}}\n"
      "  pcie:\n"
      "    rate: 8GB/s\n"
      "    tree:\n"
      "      - {{host: cpu0, devices: [{}]}}\n",
      kSource, kProfileFile, m.cores, ranks, devices);
}

std::string ProfileText(const Measured& m) {
  const std::string peak = fmt::format(
      "{{value: {:.4g}TFLOP/s, source: \"{}: product of 1024 x 1024 x 1024, best of 8\"}}",
      m.kernels.peak * 1e-12, kSource);
  return fmt::format(
             "# SPDX-License-Identifier: Apache-2.0\n"
             "# Written by `plan bench --calibrate`: kernels in training steps of small models.\n"
             "{}"
             "title: \"One core of this machine\"\n"
             "inherits: localhost-cpu\n"
             "constants:\n"
             "  peak_fp32: {}\n"
             "  memory: {{value: {:.4g}GB, source: \"an equal share of the memory\"}}\n"
             "# The extents of a shape (kernel_table.h), then microseconds.\n"
             "kernels:\n"
             "  {}:\n",
             LeftOutText(m.kernels.left_out), peak,
             m.memory_bytes / static_cast<double>(m.cores) * 1e-9,
             NameIn(kPrecisionNames, m.precision)) +
         KernelRows(m.kernels.kernels) + CollectiveRows(m.collectives);
}

void WriteMachine(const Measured& measured, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw std::runtime_error(fmt::format("cannot make {}: {}", folder, error.message()));
  Write(std::filesystem::path(folder) / kTopologyFile, TopologyText(measured));
  Write(std::filesystem::path(folder) / kProfileFile, ProfileText(measured));
}

}  // namespace orrery::machine
