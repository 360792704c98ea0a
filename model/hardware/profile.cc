// SPDX-License-Identifier: Apache-2.0
// Reads the profiles of chips and networks, with their tables of measured kernels.
#include "model/hardware/profile.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>

#include "model/arch/data_root.h"
#include "model/base/check.h"
#include "model/base/input_files.h"
#include "model/base/node.h"
#include "model/hardware/kernel_factors_file.h"
#include "model/hardware/profile_tables.h"

namespace orrery {
namespace {

constexpr std::size_t kMaxProfileBytes = 1 << 20;

// `mm: [[m, n, k, us], ...]`: the shape, then the time in microseconds.
void ReadKernel(const Node& rows, const std::string& kernel, KernelTable* table) {
  constexpr double kMostExtent = 1e15, kMicrosecond = 1e-6;
  for (const Node& row : rows.Elements()) {
    const std::vector<Node> numbers = row.Elements();
    KernelTable::Shape shape = {1, 1, 1, 1};
    if (numbers.size() < 2 || numbers.size() > shape.size() + 1) {
      row.Error("a measured kernel is one to four extents and its microseconds",
                "such as [128, 256, 256, 151.2] for a product");
      continue;
    }
    for (std::size_t i = 0; i + 1 < numbers.size(); ++i)
      shape[i] = numbers[i].AsNumber(1, kMostExtent);
    table->Add(kernel, shape, numbers.back().AsNumber(1e-4, 1e12) * kMicrosecond);
  }
}

// `all_reduce: [[ranks, bytes, us], ...]`
void ReadCollective(const Node& rows, const std::string& collective, GpuProfile* profile) {
  constexpr double kMostMessage = 1e15, kMicrosecond = 1e-6;
  constexpr int64_t kMostMembers = 1 << 20;
  for (const Node& row : rows.Elements()) {
    const std::vector<Node> numbers = row.Elements();
    if (numbers.size() != 3) {
      row.Error("a measured collective is its ranks, bytes and microseconds",
                "such as [2, 1024, 5.1]");
      continue;
    }
    const auto ranks = static_cast<int>(numbers[0].AsInteger(2, kMostMembers));
    profile->collectives[ranks].Add(collective, {numbers[1].AsNumber(1, kMostMessage), 1, 1, 1},
                                    numbers[2].AsNumber(1e-4, 1e12) * kMicrosecond);
  }
}

void ReadTables(const Node& root, GpuProfile* profile) {
  profile_reader::ReadText(root, "memory_note", &profile->memory_note);
  (void)root.Find("calibration");  // of `plan calibrate`: calib/fit/calibration_record.h
  if (const std::optional<Node> collectives = root.Find("collectives")) {
    for (const std::string& name : collectives->Keys())
      ReadCollective(collectives->Child(name), name, profile);
  }
  if (const std::optional<Node> factors = root.Find("kernel_factors"))
    ReadKernelFactors(*factors, profile);
  const std::optional<Node> kernels = root.Find("kernels");
  if (!kernels) return;
  for (const auto& [name, precision] : kPrecisionNames) {
    const std::optional<Node> table = kernels->Find(name);
    if (!table) continue;
    for (const std::string& kernel : table->Keys())
      ReadKernel(table->Child(kernel), kernel,
                 &profile->kernels[static_cast<std::size_t>(precision)]);
  }
  kernels->RejectUnknownKeys();
}

bool IsAbstract(const std::string& folder, const std::string& id) {
  SourcePtr source;
  try {
    source = LoadProfileFile(folder, id);
  } catch (const InputError&) {
    return false;  // whoever loads it says why
  }
  if (source->text.find("abstract") == std::string::npos) return false;  // parsing takes longer
  Diagnostics ignored;
  const Node root = Node::Parse(source, &ignored);
  return root.Bool("abstract", false);
}

}  // namespace

std::vector<std::string> AllProfileIds(const std::string& folder) {
  return NamesOfKind("calib/profiles/" + folder);
}

std::string ProfileFile(const std::string& folder, const std::string& id) {
  return FileOfName("calib/profiles/" + folder, id);
}

bool HasProfile(const std::string& folder, const std::string& id) {
  return !ProfileFile(folder, id).empty();
}

SourcePtr ReadUnchanged(const std::string& path) {
  struct Known {
    timespec time{};
    off_t size = 0;
    SourcePtr source;
  };
  static std::mutex mutex;
  static std::map<std::string, Known> by_path;
  struct stat now {};
  if (stat(path.c_str(), &now) != 0 || !S_ISREG(now.st_mode))
    return ReadSource(path, kMaxProfileBytes);  // says what is wrong
  const std::lock_guard lock(mutex);
  Known& known = by_path[path];
  if (known.source && known.time.tv_sec == now.st_mtim.tv_sec &&
      known.time.tv_nsec == now.st_mtim.tv_nsec && known.size == now.st_size) {
    NoteInput(path);
    return known.source;
  }
  known = {now.st_mtim, now.st_size, ReadSource(path, kMaxProfileBytes)};
  return known.source;
}

SourcePtr LoadProfileFile(const std::string& folder, const std::string& id) {
  if (id.find('/') != std::string::npos) return ReadSource(id, kMaxProfileBytes);
  const std::string file = ProfileFile(folder, id);
  if (file.empty()) {
    const std::string hint = SuggestName(id, AllProfileIds(folder));
    throw InputError(fmt::format("no {} profile named '{}'", folder, id),
                     hint.empty() && folder == "gpu" ? "`plan list gpus` shows all of them" : hint);
  }
  return ReadUnchanged(file);
}

FlopsPerSecond GpuProfile::Peak(Precision precision) const {
  switch (precision) {
    case Precision::kFp32:
      return peak_fp32;
    case Precision::kTf32:
      return peak_tf32;
    case Precision::kFp16:
      return peak_fp16;
    case Precision::kBf16:
      return peak_bf16;
  }
  ORRERY_CHECK(false, "precision {}", static_cast<int>(precision));
}

FlopsPerSecond GpuProfile::Peak(ProductType product, Precision precision) const {
  if (product != ProductType::kPlain && GemmEfficiency(product, precision) <= 0) return {};
  switch (product) {
    case ProductType::kPlain:
      return Peak(precision);
    case ProductType::kFp8:
    case ProductType::kFp8Block:
      return peak_fp8;
    case ProductType::kMxfp8:
      return peak_mxfp8;
    case ProductType::kNvfp4:
      return peak_nvfp4;
  }
  ORRERY_CHECK(false, "product {}", static_cast<int>(product));
}

double GpuProfile::GemmEfficiency(ProductType product, Precision precision) const {
  switch (product) {
    case ProductType::kPlain:
      return GemmEfficiency(precision);
    case ProductType::kFp8:
      return gemm_efficiency_fp8;
    case ProductType::kFp8Block:
      return gemm_efficiency_fp8_block;
    case ProductType::kMxfp8:
      return gemm_efficiency_mxfp8;
    case ProductType::kNvfp4:
      return gemm_efficiency_nvfp4;
  }
  ORRERY_CHECK(false, "product {}", static_cast<int>(product));
}

std::string GpuProfile::WhyNo(Fp8 recipe, std::string* hint) const {
  const ProductType product = FormOf(recipe).product;
  if (product == ProductType::kPlain || Peak(product, Precision::kBf16).value > 0) return "";
  std::string others;
  for (const auto& [name, other] : kFp8Names) {
    if (other == Fp8::kOff || Peak(FormOf(other).product, Precision::kBf16).value > 0)
      others += fmt::format("{}--fp8 {}", others.empty() ? "" : ", ", name);
  }
  *hint = others;
  constexpr double kBlackwell = 10.0;
  const bool newer = product == ProductType::kMxfp8 || product == ProductType::kNvfp4;
  if (newer && compute_capability > 0 && compute_capability < kBlackwell) {
    return fmt::format("{} needs compute capability 10.0, {} has {:.1f}", NameIn(kFp8Names, recipe),
                       header.id, compute_capability);
  }
  return fmt::format("{} has no {} products (--fp8 {})", header.id, NameIn(kProductNames, product),
                     NameIn(kFp8Names, recipe));
}

double GpuProfile::AttentionRate(AttentionKernel kernel) const {
  switch (kernel) {
    case AttentionKernel::kTriton:
      return attention_triton;
    case AttentionKernel::kFa2:
    case AttentionKernel::kFa2Deterministic:
      return attention_fa2;
    case AttentionKernel::kFa3:
      return attention_fa3;
    case AttentionKernel::kFa4:
      return attention_fa4;
    case AttentionKernel::kCudnn:
    case AttentionKernel::kCudnnDeterministic:
      return attention_cudnn;
  }
  return 0;
}

double GpuProfile::AttentionBackward(AttentionKernel kernel) const {
  const auto known = [](double value, double otherwise) { return value > 0 ? value : otherwise; };
  const double fa2 = known(attention_backward_fa2, attention_backward);
  const double cudnn = known(attention_backward_cudnn, attention_backward);
  switch (kernel) {
    case AttentionKernel::kTriton:
      return attention_backward;
    case AttentionKernel::kFa2:
      return fa2;
    case AttentionKernel::kFa3:
      return known(attention_backward_fa3, attention_backward);
    case AttentionKernel::kFa4:
      return known(attention_backward_fa4, attention_backward);
    case AttentionKernel::kCudnn:
      return cudnn;
    case AttentionKernel::kFa2Deterministic:
      return fa2 * known(attention_deterministic_fa2, 1);
    case AttentionKernel::kCudnnDeterministic:
      return cudnn * known(attention_deterministic_cudnn, 1);
  }
  return attention_backward;
}

double GpuProfile::AttentionRamp(AttentionKernel kernel, bool backward) const {
  const bool fa2 = kernel == AttentionKernel::kFa2 || kernel == AttentionKernel::kFa2Deterministic;
  return backward && fa2 && attention_ramp_backward_fa2 > 0 ? attention_ramp_backward_fa2
                                                            : attention_ramp;
}

double GpuProfile::GemmEfficiency(Precision precision) const {
  switch (precision) {
    case Precision::kFp32:
      return gemm_efficiency_fp32;
    case Precision::kTf32:
      return gemm_efficiency_tf32;
    case Precision::kFp16:
      return gemm_efficiency_fp16;
    case Precision::kBf16:
      return gemm_efficiency_bf16;
  }
  ORRERY_CHECK(false, "precision {}", static_cast<int>(precision));
}

std::optional<double> GpuProfile::MeasuredCollective(std::string_view collective, int ranks,
                                                     double bytes) const {
  std::optional<double> below, above;
  int ranks_below = 0, ranks_above = 0;
  for (const auto& [measured, table] : collectives) {
    const std::optional<double> time = table.Seconds(collective, {bytes, 1, 1, 1});
    if (!time) continue;
    if (measured <= ranks) below = time, ranks_below = measured;
    if (measured >= ranks && !above) above = time, ranks_above = measured;
  }
  if (!below || !above) return below ? below : above;
  if (ranks_above == ranks_below) return below;
  const double share = std::log(static_cast<double>(ranks) / ranks_below) /
                       std::log(static_cast<double>(ranks_above) / ranks_below);
  return *below * std::pow(*above / *below, share);
}

GpuProfile ReadGpuProfile(const std::string& id, ProfileSource load) {
  return ReadProfile<GpuProfile>("gpu", id, load, GpuConstants(), ReadTables);
}
FabricProfile ReadFabricProfile(const std::string& id, ProfileSource load) {
  return ReadProfile<FabricProfile>("fabric", id, load, FabricConstants());
}

GpuProfile LoadGpuProfile(const std::string& id) {
  static ProfileCache<GpuProfile> cache("gpu", GpuConstants(), ReadTables);
  const std::shared_ptr<const GpuProfile> profile = cache.Load(id);
  profile_reader::RequireConstants(*profile, GpuConstants());
  return *profile;
}
FabricProfile LoadFabricProfile(const std::string& id) {
  static ProfileCache<FabricProfile> cache("fabric", FabricConstants(), nullptr);
  const std::shared_ptr<const FabricProfile> profile = cache.Load(id);
  profile_reader::RequireConstants(*profile, FabricConstants());
  return *profile;
}
std::vector<std::string> ProfileIds(const std::string& folder) {
  std::vector<std::string> ids = AllProfileIds(folder);
  std::erase_if(ids, [&](const std::string& id) { return IsAbstract(folder, id); });
  return ids;
}

}  // namespace orrery
