// SPDX-License-Identifier: Apache-2.0
// All profiles of a fit in memory, with the constants that several of them inherit.
//
// A constant is named "framework/megatron:kernel_gap": folder, file, key. Its value reaches every
// profile whose nearest file with that key is this one, so that setting it moves all heirs and no
// others. Values are in SI base units.
#pragma once

#include <compare>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/framework/profile.h"

namespace orrery {

enum class ProfileLayer { kGpu, kFabric, kFramework };
const char* FolderOf(ProfileLayer layer);

struct ConstantName {
  ProfileLayer layer = ProfileLayer::kFramework;
  std::string file;  // id of the profile file
  std::string key;
  auto operator<=>(const ConstantName&) const = default;
  std::string Text() const;
};

// "framework/megatron:kernel_gap". Throws InputError with the nearest known names.
ConstantName ParseConstantName(const std::string& text);

// Range and kind of a constant, from the tables of profile_tables.h.
enum class ConstantKind { kNumber, kSeconds, kBytes, kBytesPerSecond, kFlopsPerSecond };
struct ConstantRange {
  double min = 0, max = 0;
  ConstantKind kind = ConstantKind::kNumber;
};
ConstantRange RangeOf(const ConstantName& name);
std::vector<std::string> KeysOf(ProfileLayer layer);

// "51.67us", "560GB/s", "0.4795": four significant digits.
std::string FormatConstant(double value, ConstantKind kind);
// The reverse, with unit. Throws InputError.
double ParseConstant(const std::string& text, ConstantKind kind, const std::string& what);

class ProfileStore {
 public:
  // Index of a loaded profile; loads it at first use. Throws InputError for an unknown id.
  int Gpu(const std::string& id);
  int Fabric(const std::string& id);
  int Framework(const std::string& id);
  // The profile of a framework at a site, by the rule of SelectFrameworkProfile(); `framework` may carry facts
  // ("megatron+tp_overlap=on").
  int SelectFramework(const std::string& framework, const std::string& topology, bool flash);
  // Makes `id` (framework@topology) an heir of `base` without constants of its own.
  void AddSite(const std::string& id, const std::string& base);

  const GpuProfile& gpu(int index) const { return gpus_[index]; }
  const FabricProfile& fabric(int index) const { return fabrics_[index]; }
  const FrameworkProfile& framework(int index) const { return frameworks_[index]; }
  const ProfileHeader& Header(ProfileLayer layer, int index) const;

  // The file whose constant reaches this profile.
  ConstantName Resolve(ProfileLayer layer, int index, const std::string& key) const;
  // From now on `name.file` sets the constant itself, with its present value.
  void Override(const ConstantName& name);
  bool Owns(const ConstantName& name) const;  // the file itself, as it stands on disk or overridden
  // Whether the file is this profile or one that it inherits.
  bool IsInherited(ProfileLayer layer, int index, const std::string& file) const;
  const std::string& Parent(ProfileLayer layer, const std::string& file) const;

  // Profiles that a constant reaches, by index.
  std::vector<int> Heirs(const ConstantName& name) const;
  double Get(ProfileLayer layer, int index, const std::string& key) const;
  void Set(ProfileLayer layer, int index, const std::string& key, double value);
  // Of an heir. Throws InputError when no loaded profile inherits the constant.
  double Value(const ConstantName& name) const;
  void SetValue(const ConstantName& name, double value);
  const Provenance* Find(const ConstantName& name) const;  // null: nobody has it

 private:
  struct File {
    std::string parent;
    std::set<std::string> keys;
  };
  using FileKey = std::pair<ProfileLayer, std::string>;
  void ReadChain(ProfileLayer layer, const std::string& id);
  int Count(ProfileLayer layer) const;
  int WithFacts(int base, const std::string& facts);

  std::deque<GpuProfile> gpus_;
  std::deque<FabricProfile> fabrics_;
  std::deque<FrameworkProfile> frameworks_;
  std::map<FileKey, int> index_;
  std::map<FileKey, File> files_;
};

}  // namespace orrery
