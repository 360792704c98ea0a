// SPDX-License-Identifier: Apache-2.0
// Reads profile files: constants with provenance, inheritance, rejection of unknown keys.
#include "model/cost/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "model/arch/data_root.h"
#include "model/cost/profile_tables.h"
#include "model/input/check.h"
#include "model/input/node.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
constexpr int kMaxInheritance = 8;
constexpr std::size_t kMaxProfileBytes = 1 << 20;

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
  const std::vector<std::string> ids = AllIds(folder);
  if (std::find(ids.begin(), ids.end(), id) == ids.end()) {
    throw InputError(fmt::format("no {} profile named '{}'", folder, id), SuggestName(id, ids));
  }
  return ReadSource((fs::path(Folder(folder)) / (id + ".yaml")).string(), kMaxProfileBytes);
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
}
void ReadExtra(const Node&, GpuProfile*) {}
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

GpuProfile ReadGpuProfile(const std::string& id, ProfileSource load) {
  return Read<GpuProfile>("gpu", id, load, GpuConstants());
}
FabricProfile ReadFabricProfile(const std::string& id, ProfileSource load) {
  return Read<FabricProfile>("fabric", id, load, FabricConstants());
}
StackProfile ReadStackProfile(const std::string& id, ProfileSource load) {
  return Read<StackProfile>("stack", id, load, StackConstants());
}

GpuProfile LoadGpuProfile(const std::string& id) { return ReadGpuProfile(id, LoadFile); }
FabricProfile LoadFabricProfile(const std::string& id) { return ReadFabricProfile(id, LoadFile); }
StackProfile LoadStackProfile(const std::string& id) { return ReadStackProfile(id, LoadFile); }

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
  if (stack.data_exposed < 1 || strategy->zero >= 2) return;
  strategy->overlap_grad_reduce = false;
  strategy->reduce_in_backward = false;
  strategy->overlap_param_gather = false;
}

}  // namespace orrery
