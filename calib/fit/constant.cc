// SPDX-License-Identifier: Apache-2.0
// Names, ranges and texts of constants.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "calib/fit/profile_store.h"
#include "model/base/check.h"
#include "model/base/diagnostics.h"
#include "model/base/text.h"
#include "model/hardware/profile_tables.h"

namespace orrery {
namespace {

constexpr const char* kOldFolder = "stack";  // what "framework" was called; until the next release
constexpr ProfileLayer kLayers[] = {ProfileLayer::kGpu, ProfileLayer::kFabric,
                                    ProfileLayer::kFramework};

template <class Profile>
std::optional<ConstantRange> FindRange(std::span<const ConstantRow<Profile>> table,
                                       const std::string& key) {
  for (const auto& row : table) {
    if (key == row.key)
      return ConstantRange{row.min, row.max, static_cast<ConstantKind>(row.member.index())};
  }
  return std::nullopt;
}

std::optional<ConstantRange> FindRange(ProfileLayer layer, const std::string& key) {
  switch (layer) {
    case ProfileLayer::kGpu:
      return FindRange(GpuConstants(), key);
    case ProfileLayer::kFabric:
      return FindRange(FabricConstants(), key);
    case ProfileLayer::kFramework:
      return FindRange(FrameworkConstants(), key);
  }
  return std::nullopt;
}

struct Prefix {
  double scale;
  const char* name;
};

// The largest prefix that leaves a number of at least one; else the smallest.
std::string WithPrefix(double value, std::initializer_list<Prefix> prefixes) {
  for (const Prefix& prefix : prefixes) {
    if (value >= prefix.scale) return fmt::format("{:.4g}{}", value / prefix.scale, prefix.name);
  }
  const Prefix& last = *(prefixes.end() - 1);
  return fmt::format("{:.4g}{}", value / last.scale, last.name);
}

template <class Q>
double ParseAs(const std::string& text, const std::string& what) {
  TextError error;
  const std::optional<Q> quantity = ParseQuantity<Q>(text, &error);
  if (!quantity) throw InputError(fmt::format("{}: {}", what, error.message), error.hint);
  return quantity->value;
}

double ParseNumber(const std::string& text, const std::string& what) {
  std::size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used != text.size() || text.empty() || !std::isfinite(value))
    throw InputError(fmt::format("{}: '{}' is not a number", what, text));
  return value;
}

}  // namespace

const char* FolderOf(ProfileLayer layer) {
  switch (layer) {
    case ProfileLayer::kGpu:
      return "gpu";
    case ProfileLayer::kFabric:
      return "fabric";
    case ProfileLayer::kFramework:
      return "framework";
  }
  ORRERY_CHECK(false, "layer {}", static_cast<int>(layer));
}

std::string ConstantName::Text() const {
  return fmt::format("{}/{}:{}", FolderOf(layer), file, key);
}

ConstantName ParseConstantName(const std::string& text) {
  const std::size_t slash = text.find('/');
  const std::size_t colon = text.find(':');
  if (slash == std::string::npos || colon == std::string::npos || colon < slash)
    throw InputError(fmt::format("'{}' does not name a constant", text),
                     "write FOLDER/FILE:KEY, for example framework/megatron:kernel_gap");
  const std::string written = text.substr(0, slash);
  const std::string folder = written == kOldFolder ? FolderOf(ProfileLayer::kFramework) : written;
  ConstantName name;
  name.file = text.substr(slash + 1, colon - slash - 1);
  name.key = text.substr(colon + 1);
  const auto* layer = std::find_if(std::begin(kLayers), std::end(kLayers),
                                   [&](ProfileLayer l) { return folder == FolderOf(l); });
  if (layer == std::end(kLayers))
    throw InputError(fmt::format("no profiles of kind '{}'", folder),
                     "one of: gpu, fabric, framework");
  name.layer = *layer;
  if (!FindRange(name.layer, name.key))
    throw InputError(fmt::format("no constant named '{}' in {} profiles", name.key, folder),
                     SuggestName(name.key, KeysOf(name.layer)));
  return name;
}

ConstantRange RangeOf(const ConstantName& name) {
  auto range = FindRange(name.layer, name.key);
  ORRERY_CHECK(range.has_value(), "constant {}", name.Text());
  // Slips are what the reader's range catches; a fit stays within what can be.
  if (name.key.starts_with("gemm_efficiency")) range->max = 1.0;
  return *range;
}

std::vector<std::string> KeysOf(ProfileLayer layer) {
  std::vector<std::string> keys;
  const auto add = [&](const auto& table) {
    for (const auto& row : table) keys.emplace_back(row.key);
  };
  if (layer == ProfileLayer::kGpu) add(GpuConstants());
  if (layer == ProfileLayer::kFabric) add(FabricConstants());
  if (layer == ProfileLayer::kFramework) add(FrameworkConstants());
  return keys;
}

std::string FormatConstant(double value, ConstantKind kind) {
  switch (kind) {
    case ConstantKind::kNumber:
      return fmt::format("{:.4g}", value);
    case ConstantKind::kSeconds:
      return WithPrefix(value, {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}});
    case ConstantKind::kBytes:
      return WithPrefix(value, {{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}, {1, "B"}});
    case ConstantKind::kBytesPerSecond:
      return WithPrefix(value, {{1e9, "GB/s"}, {1e6, "MB/s"}});
    case ConstantKind::kFlopsPerSecond:
      return WithPrefix(value, {{1e12, "TFLOP/s"}, {1e9, "GFLOP/s"}});
  }
  ORRERY_CHECK(false, "kind {}", static_cast<int>(kind));
}

double ParseConstant(const std::string& text, ConstantKind kind, const std::string& what) {
  switch (kind) {
    case ConstantKind::kNumber:
      return ParseNumber(text, what);
    case ConstantKind::kSeconds:
      return ParseAs<Seconds>(text, what);
    case ConstantKind::kBytes:
      return ParseAs<Bytes>(text, what);
    case ConstantKind::kBytesPerSecond:
      return ParseAs<BytesPerSecond>(text, what);
    case ConstantKind::kFlopsPerSecond:
      return ParseAs<FlopsPerSecond>(text, what);
  }
  ORRERY_CHECK(false, "kind {}", static_cast<int>(kind));
}

}  // namespace orrery
