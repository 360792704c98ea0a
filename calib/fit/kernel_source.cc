// SPDX-License-Identifier: Apache-2.0
// Selects timed kernels, predicts them, and tables their deviations by shape.
#include "calib/fit/kernel_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "model/plan/lower/names.h"
#include "model/price/op_shape.h"

namespace orrery {
namespace {

using measured::KernelKind;
using measured::KernelSample;

constexpr const char* kProductKernel = "mm";
constexpr const char* kGroupedKernel = "mm_grouped";
constexpr double kAligned = 16;  // bytes of rows whose products stand in tables
constexpr std::size_t kMostShapes = 20;
constexpr double kLeastBetween = 0.01;  // spread between shapes, at least

std::optional<Precision> PrecisionOf(const std::string& dtype) {
  for (const auto& [name, precision] : kPrecisionNames) {
    if (dtype == name) return precision;
  }
  return std::nullopt;
}

double BytesOf(Precision precision) {
  return precision == Precision::kBf16 || precision == Precision::kFp16 ? 2 : 4;
}

AttentionShape AttentionOf(const KernelSample& s, double element_bytes) {
  AttentionShape shape;
  shape.batch = static_cast<double>(s.batch);
  shape.heads = static_cast<double>(s.heads);
  shape.seq_q = static_cast<double>(s.seq_q);
  shape.seq_kv = static_cast<double>(s.seq_kv);
  shape.head_dim = static_cast<double>(s.head_dim);
  shape.element_bytes = element_bytes;
  shape.causal = s.causal;
  shape.backward = s.op == "backward";
  return shape;
}

// What adding to the output moves beyond writing it once in the type of the operands.
double AccumulatedBytes(const KernelSample& s, const GemmShape& gemm) {
  constexpr double kFloat = 4;
  const double elements = gemm.m * gemm.n * gemm.batch;
  if (s.epilogue == "accumulate_fp32") return elements * (2 * kFloat - gemm.element_bytes);
  return s.epilogue == "accumulate" ? elements * gemm.element_bytes : 0;
}

// Fused attention is what the profiles know apart from a software; "flash", or no word, is FlashAttention 2.
std::optional<AttentionKernel> FusedKernel(const std::string& algorithm) {
  if (algorithm.empty() || algorithm == "flash") return AttentionKernel::kFa2;
  for (const auto& [name, kernel] : kAttentionKernelNames) {
    if (algorithm == name) return kernel;
  }
  return std::nullopt;
}

FrameworkProfile Taking(AttentionKernel kernel, FrameworkProfile framework) {
  auto preset = std::make_shared<FrameworkPreset>();
  preset->attention = {kernel};
  framework.preset = std::move(preset);
  return framework;
}

// Products of several experts run beside each other, but none fills the waves of another
// (TransformerEngine's general_grouped_gemm: one product per expert on four streams).
double Product(const OpCost& cost, GemmShape shape, bool grouped) {
  if (!grouped) return cost.Gemm(shape);
  const double experts = std::exchange(shape.batch, 1);
  return experts * cost.Gemm(shape);
}

struct Shrunk {
  std::string name;
  int points = 0;
  double factor = 1;
};

std::vector<Shrunk> Shrink(const std::map<std::string, std::vector<double>>& groups) {
  double within = 0, between = 0;
  int rows = 0;
  const auto mean = [](const std::vector<double>& values) {
    double sum = 0;
    for (double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  };
  for (const auto& [name, logs] : groups) {
    const double middle = mean(logs);
    for (double log : logs) within += (log - middle) * (log - middle);
    between += middle * middle / static_cast<double>(groups.size());
    rows += static_cast<int>(logs.size());
  }
  within /= std::max(1, rows - static_cast<int>(groups.size()));
  const double ratio = within / std::max(between, kLeastBetween * kLeastBetween);
  std::vector<Shrunk> table;
  for (const auto& [name, logs] : groups) {
    const double n = static_cast<double>(logs.size());
    table.push_back({name, static_cast<int>(logs.size()), std::exp(mean(logs) * n / (n + ratio))});
  }
  std::sort(table.begin(), table.end(), [](const Shrunk& a, const Shrunk& b) {
    return std::abs(std::log(a.factor)) > std::abs(std::log(b.factor));
  });
  return table;
}

}  // namespace

KernelSource::KernelSource(const std::vector<KernelSample>& samples, const std::string& gpu,
                           ProfileStore* store) {
  Observation seen;
  seen.gpu = store->Gpu(gpu);
  seen.source = "kernels";
  seen.topology = gpu;
  seen.step_time = false;
  for (const KernelSample& sample : samples) {
    const std::string reason = Add(sample, store->gpu(seen.gpu), seen);
    if (!reason.empty()) ++left_out_[reason];
  }
  if (!observations_.empty()) return;
  std::string reasons;
  for (const auto& [reason, count] : left_out_) reasons += fmt::format("; {}: {}", count, reason);
  throw InputError("no timed kernel to fit" + reasons);
}

std::string KernelSource::Add(const KernelSample& s, const GpuProfile& gpu, Observation seen) {
  const std::optional<Precision> precision = PrecisionOf(s.dtype);
  if (s.kind == KernelKind::kLaunch || s.kind == KernelKind::kOptimizer)
    return fmt::format("kernels of kind {} depend on the framework", Name(s.kind));
  if (!precision || gpu.Peak(*precision).value <= 0)
    return fmt::format("{} is not supported by {}", s.dtype, gpu.header.id);
  if (s.seconds < kShortestKernel) return "calls dominated by launch time";
  Kernel kernel{*precision, TrafficShape{s.bytes}};
  const double bytes = BytesOf(*precision);
  if (s.kind == KernelKind::kGemm || s.kind == KernelKind::kGrouped) {
    GemmShape gemm{static_cast<double>(s.m), static_cast<double>(s.n), static_cast<double>(s.k),
                   static_cast<double>(s.batch), bytes};
    gemm.row_bytes = RowBytes(
        {s.op[0] == 't' ? gemm.m : gemm.k, s.op.ends_with('t') ? gemm.k : gemm.n, gemm.n}, bytes);
    kernel.shape = gemm;
    kernel.grouped = s.kind == KernelKind::kGrouped;
    kernel.accumulated = AccumulatedBytes(s, gemm);
    seen.group = fmt::format("{} {}", Name(s.kind), s.dtype);
    seen.model = fmt::format("{} n {} k {}", seen.group, s.n, s.k);
    seen.name = fmt::format("{} m {} batch {}", seen.model, s.m, s.batch);
  } else if (s.kind == KernelKind::kAttention) {
    const std::optional<AttentionKernel> fused = FusedKernel(s.algorithm);
    if (!fused) return "attention that is not fused";
    kernel.attention = *fused;
    kernel.shape = AttentionOf(s, bytes);
    seen.group = fmt::format("attention {} {}", s.op, s.dtype);
    seen.model = fmt::format("{}, {} heads of {}{}", seen.group, s.heads, s.head_dim,
                             s.causal ? ", causal" : "");
    seen.name = fmt::format("{}, {} x {}", seen.model, s.batch, s.seq_q);
  } else {
    if (s.bytes <= 0) return "streaming kernels without their bytes";
    seen.group = "streaming";
    seen.model = "streaming " + s.op;
    seen.name = fmt::format("{} {:.0f} bytes", seen.model, s.bytes);
  }
  seen.measured = s.seconds;
  kernels_.push_back(kernel);
  observations_.push_back(std::move(seen));
  return "";
}

void KernelSource::Predict(const ProfileStore& store, const std::vector<int>& which,
                           std::vector<double>* values) const {
  FrameworkProfile bare;  // a kernel alone: no gap, each operand moved once
  bare.elementwise_traffic = 1;
  values->clear();
  for (int index : which) {
    const Kernel& kernel = kernels_[index];
    const FrameworkProfile framework = Taking(kernel.attention, bare);
    const OpCost cost =
        OpCost(store.gpu(observations_[index].gpu), framework, kernel.precision).WithoutFactors();
    if (const auto* gemm = std::get_if<GemmShape>(&kernel.shape)) {
      values->push_back(Product(cost, *gemm, kernel.grouped) + cost.Stream(kernel.accumulated));
    } else if (const auto* attention = std::get_if<AttentionShape>(&kernel.shape)) {
      values->push_back(cost.Attention(*attention));
    } else {
      values->push_back(cost.Traffic(std::get<TrafficShape>(kernel.shape)));
    }
  }
}

std::optional<KernelSource::Place> KernelSource::PlaceOf(int observation) const {
  const Kernel& kernel = kernels_[static_cast<std::size_t>(observation)];
  if (const auto* gemm = std::get_if<GemmShape>(&kernel.shape)) {
    if (gemm->row_bytes < kAligned) return std::nullopt;
    return Place{kernel.precision,
                 kernel.grouped ? kGroupedKernel : kProductKernel,
                 {gemm->m, gemm->n, gemm->k, kernel.grouped ? 1 : gemm->batch}};
  }
  if (const auto* s = std::get_if<AttentionShape>(&kernel.shape))
    return Place{kernel.precision,
                 s->TableBy(kernel.attention),
                 {s->batch * s->heads, s->seq_q, s->seq_kv, s->head_dim}};
  return std::nullopt;
}

std::string RenderShapes(const Evidence& evidence, const std::vector<double>& errors) {
  std::map<std::string, std::vector<double>> groups;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const Observation& seen = *evidence.observations()[i];
    if (seen.source == "kernels") groups[seen.model].push_back(-errors[i]);
  }
  if (groups.empty()) return "";
  std::string out = fmt::format("\n{:<54}{:>7}{:>22}\n", "shape", "calls", "measured/predicted");
  const std::vector<Shrunk> table = Shrink(groups);
  for (std::size_t i = 0; i < std::min(kMostShapes, table.size()); ++i)
    out += fmt::format("{:<54}{:>7}{:>22.3f}\n", table[i].name, table[i].points, table[i].factor);
  return out +
         "Factors are shrunk towards 1 by the spread within shapes over the spread between "
         "shapes.\n";
}

}  // namespace orrery
