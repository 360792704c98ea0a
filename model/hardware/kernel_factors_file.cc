// SPDX-License-Identifier: Apache-2.0
// Reads measured shapes of kernels.
#include "model/hardware/kernel_factors_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/arch/workload.h"

namespace orrery {
namespace {

constexpr double kMostShapeExtent = 1e12, kMostRatio = 20;
constexpr double kLeastRule = 1e-4, kMostRule = 3, kMostReach = 64;
constexpr int64_t kMostMeasurements = 1'000'000'000;

std::vector<KernelFactors::Measured> ReadShapes(const Node& kernel) {
  std::vector<KernelFactors::Measured> measured;
  for (const Node& row : kernel.Items("shapes")) {
    const std::vector<Node> numbers = row.Elements();
    KernelFactors::Measured one;
    if (numbers.size() != one.shape.size() + 1) {
      row.Error("a measured shape is its four extents and measured over formula",
                "such as [4096, 4096, 1024, 1, 1.034] for a product");
      continue;
    }
    for (std::size_t i = 0; i < one.shape.size(); ++i)
      one.shape[i] = numbers[i].AsNumber(1, kMostShapeExtent);
    one.log_ratio = std::log(std::clamp(numbers.back().AsNumber(1 / kMostRatio, kMostRatio),
                                        1 / kMostRatio, kMostRatio));
    measured.push_back(one);
  }
  if (measured.size() > kMostFactorShapes)
    kernel.ErrorAt("shapes", fmt::format("at most {} shapes of a kernel", kMostFactorShapes));
  return measured;
}

void ReadOneKernel(const Node& kernel, const std::string& name, KernelFactors* factors) {
  const KernelFactors::Rule rule{kernel.Number("spread", kLeastRule, kMostRule),
                                 kernel.Number("reach", 0.01, kMostReach),
                                 kernel.Number("noise", kLeastRule, kMostRule)};
  (void)kernel.Integer("points", 1, kMostMeasurements);
  (void)kernel.String("source");
  if (const auto errors = kernel.Find("left_out_error")) {
    (void)errors->Number("formula", 0, kMostRatio);
    (void)errors->Number("table", 0, kMostRatio);
    errors->RejectUnknownKeys();
  }
  const std::vector<KernelFactors::Measured> measured = ReadShapes(kernel);
  kernel.RejectUnknownKeys();
  const bool sound = rule.spread >= kLeastRule && rule.reach >= 0.01 && rule.noise >= kLeastRule;
  if (sound && measured.size() <= kMostFactorShapes) factors->Set(name, rule, measured);
}

}  // namespace

void ReadKernelFactors(const Node& factors, GpuProfile* profile) {
  for (const auto& [name, precision] : kPrecisionNames) {
    const std::optional<Node> kernels = factors.Find(name);
    if (!kernels) continue;
    for (const std::string& kernel : kernels->Keys())
      ReadOneKernel(kernels->Child(kernel), kernel,
                    &profile->factors[static_cast<std::size_t>(precision)]);
  }
  factors.RejectUnknownKeys();
}

}  // namespace orrery
