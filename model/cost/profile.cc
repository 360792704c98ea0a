// SPDX-License-Identifier: Apache-2.0
// Reads profile files: constants with provenance, inheritance, rejection of unknown keys.
#include "model/cost/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "model/arch/data_root.h"
#include "model/cost/kernel_factors_file.h"
#include "model/cost/profile_tables.h"
#include "model/input/check.h"
#include "model/input/node.h"
#include "model/lower/names.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
constexpr int kMaxInheritance = 8;
constexpr std::size_t kMaxProfileBytes = 1 << 20;
constexpr double kLeastFactor = 0.2, kMostFactor = 5.0;  // of a measured layer

std::string Folder(const std::string& folder) {
  return (fs::path(DataRoot()) / "calib" / "profiles" / folder).string();
}

// Every file of the folder, base files included.
std::vector<std::string> AllIds(const std::string& folder) {
  std::vector<std::string> ids;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(Folder(folder), error)) {
    if (entry.path().extension() == ".yaml") ids.push_back(entry.path().stem().string());
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

SourcePtr LoadFile(const std::string& folder, const std::string& id) {
  if (id.find('/') != std::string::npos) return ReadSource(id, kMaxProfileBytes);
  const std::vector<std::string> ids = AllIds(folder);
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) {
    throw InputError(fmt::format("no {} profile named '{}'", folder, id), SuggestName(id, ids));
  }
  return ReadSource((fs::path(Folder(folder)) / (id + ".yaml")).string(), kMaxProfileBytes);
}

std::map<std::string, double> LoadLayerFactors(const std::string& stack) {
  const fs::path path = fs::path(Folder("layer")) / (stack + ".yaml");
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  return ReadLayerFactors(ReadSource(path.string(), kMaxProfileBytes));
}

// The text keys that a profile may have besides its constants.
void ReadText(const Node& root, const char* key, std::string* out) {
  if (root.Has(key)) *out = root.String(key);
}

struct Setter {
  const Node& entry;  // the map with `value`
  double min, max;

  template <class Profile>
  void operator()(Profile* profile, double Profile::*member) const {
    profile->*member = entry.Number("value", min, max);
  }
  template <class Profile>
  void operator()(Profile* profile, Seconds Profile::*member) const {
    profile->*member = Checked(entry.ReadSeconds("value"));
  }
  template <class Profile>
  void operator()(Profile* profile, Bytes Profile::*member) const {
    profile->*member = Checked(entry.ReadBytes("value"));
  }
  template <class Profile>
  void operator()(Profile* profile, BytesPerSecond Profile::*member) const {
    profile->*member = Checked(entry.ReadBytesPerSecond("value"));
  }
  template <class Profile>
  void operator()(Profile* profile, FlopsPerSecond Profile::*member) const {
    profile->*member = Checked(entry.ReadFlopsPerSecond("value"));
  }

 private:
  template <class Q>
  Q Checked(Q quantity) const {
    if (quantity.value < min || quantity.value > max) {
      entry.ErrorAt("value", "this value is out of any plausible range");
    }
    return quantity;
  }
};

template <class Profile>
void ReadConstant(const Node& constants, const ConstantRow<Profile>& row, const std::string& file,
                  Profile* profile) {
  const std::optional<Node> entry = constants.Find(row.key);
  if (!entry) return;
  const Setter setter{*entry, row.min, row.max};
  std::visit([&](auto member) { setter(profile, member); }, row.member);
  Provenance provenance;
  provenance.value = entry->String("value");
  provenance.unit = entry->String("unit", "");
  if (entry->Has("spread")) provenance.spread = entry->Number("spread", 0, 100);
  provenance.points = static_cast<int>(entry->Integer("points", 0, 1000000000, 0));
  provenance.source = entry->String("source");
  provenance.file = file;
  entry->RejectUnknownKeys();
  profile->header.constants[row.key] = std::move(provenance);
}

// Text keys beyond the header's that only stacks have.
void ReadExtra(const Node& root, StackProfile* profile) {
  ReadText(root, "without_flash", &profile->without_flash);
  ReadText(root, "algorithm", &profile->algorithm);
  ReadText(root, "attention", &profile->attention);
  if (!root.Has("allocates")) return;
  const std::string words = root.String("allocates");
  if (words != "layout" && words != "tensors") {
    root.ErrorAt(
        "allocates",
        "software allocates 'layout' (the plan's, in one piece) or 'tensors' (one by one)");
  }
  profile->static_layout = words == "layout";
}

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

void ReadExtra(const Node& root, GpuProfile* profile) {
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
void ReadExtra(const Node&, FabricProfile*) {}

template <class Profile>
void ReadInto(const std::string& folder, const std::string& id, ProfileSource load,
              std::span<const ConstantRow<Profile>> table, int depth, Profile* profile) {
  if (depth > kMaxInheritance) {
    throw InputError(fmt::format("profile '{}' inherits itself", id),
                     "break the cycle of 'inherits' keys");
  }
  const SourcePtr source = load(folder, id);
  Diagnostics diagnostics;
  const Node root = Node::Parse(source, &diagnostics);
  diagnostics.ThrowIfAny();
  if (root.Has("inherits"))
    ReadInto(folder, root.String("inherits"), load, table, depth + 1, profile);
  profile->header.id = id;
  profile->header.path = source->name;
  ReadText(root, "title", &profile->header.title);
  (void)root.Bool("abstract", false);
  ReadExtra(root, profile);
  const Node constants = root.Child("constants");
  for (const auto& row : table) ReadConstant(constants, row, source->name, profile);
  constants.RejectUnknownKeys();
  root.RejectUnknownKeys();
  diagnostics.ThrowIfAny();
}

template <class Profile>
Profile Read(const std::string& folder, const std::string& id, ProfileSource load,
             std::span<const ConstantRow<Profile>> table) {
  Profile profile;
  ReadInto(folder, id, load, table, 0, &profile);
  std::string missing;
  for (const auto& row : table) {
    if (row.required && !profile.header.constants.contains(row.key)) {
      missing += (missing.empty() ? "" : ", ") + std::string(row.key);
    }
  }
  if (!missing.empty()) {
    throw InputError(fmt::format("{}: profile '{}' lacks {}", profile.header.path, id, missing),
                     "add them, or inherit a profile that has them");
  }
  return profile;
}

bool IsAbstract(const std::string& folder, const std::string& id) {
  Diagnostics ignored;
  const Node root = Node::Parse(LoadFile(folder, id), &ignored);
  return root.Bool("abstract", false);
}

}  // namespace

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
  return Read<GpuProfile>("gpu", id, load, GpuConstants());
}
FabricProfile ReadFabricProfile(const std::string& id, ProfileSource load) {
  return Read<FabricProfile>("fabric", id, load, FabricConstants());
}
StackProfile ReadStackProfile(const std::string& id, ProfileSource load) {
  return Read<StackProfile>("stack", id, load, StackConstants());
}

std::map<std::string, double> ReadLayerFactors(const SourcePtr& source) {
  Diagnostics diagnostics;
  const Node root = Node::Parse(source, &diagnostics);
  diagnostics.ThrowIfAny();
  (void)root.String("title", "");
  std::map<std::string, double> factors;
  for (const Node& entry : root.Items("layers")) {
    const std::string shape = entry.String("shape");
    if (!factors.emplace(shape, entry.Number("time", kLeastFactor, kMostFactor)).second)
      entry.ErrorAt("shape", "this shape is named twice");
    (void)entry.Number("spread", 0, 100);
    (void)entry.Integer("points", 1, 1000000000);
    (void)entry.String("source");
    entry.RejectUnknownKeys();
  }
  root.RejectUnknownKeys();
  diagnostics.ThrowIfAny();
  return factors;
}

GpuProfile LoadGpuProfile(const std::string& id) { return ReadGpuProfile(id, LoadFile); }
FabricProfile LoadFabricProfile(const std::string& id) { return ReadFabricProfile(id, LoadFile); }
StackProfile LoadStackProfile(const std::string& id) {
  StackProfile stack = ReadStackProfile(id, LoadFile);
  stack.layer_factors = LoadLayerFactors(id);
  return stack;
}

std::vector<std::string> ProfileIds(const std::string& folder) {
  std::vector<std::string> ids = AllIds(folder);
  std::erase_if(ids, [&](const std::string& id) { return IsAbstract(folder, id); });
  return ids;
}

StackProfile SelectStackProfile(const std::string& framework, const std::string& topology,
                                bool flash_attention) {
  const std::vector<std::string> ids = AllIds("stack");
  const std::string site = framework + "@" + topology;
  if (std::find(ids.begin(), ids.end(), site) != ids.end()) return LoadStackProfile(site);
  StackProfile stack = LoadStackProfile(framework);
  if (flash_attention || stack.without_flash.empty()) return stack;
  return LoadStackProfile(stack.without_flash);
}

void FollowStack(const StackProfile& stack, Strategy* strategy) {
  FollowSoftware(VisibleReductionOf(stack), strategy);
}

void FollowStack(const StackProfile& stack, Workload* work) {
  if (stack.mlm_all_positions > 0.5) work->masked_positions = 0;
}

}  // namespace orrery
