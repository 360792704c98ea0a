// SPDX-License-Identifier: Apache-2.0
// Loads profiles with their chains of inheritance; sets constants in all heirs.
#include "calib/fit/profile_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "model/arch/data_root.h"
#include "model/base/check.h"
#include "model/base/diagnostics.h"
#include "model/base/node.h"
#include "model/framework/presets.h"
#include "model/hardware/profile_tables.h"

namespace orrery {
namespace {

std::string PathOf(ProfileLayer layer, const std::string& id) {
  return (std::filesystem::path(DataRoot()) / "calib" / "profiles" / FolderOf(layer) /
          (id + ".yaml"))
      .string();
}

template <class Profile>
const ConstantRow<Profile>& RowOf(std::span<const ConstantRow<Profile>> table,
                                  const std::string& key) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const auto& row) { return key == row.key; });
  ORRERY_CHECK(found != table.end(), "constant {}", key);
  return *found;
}

struct Getter {
  template <class Profile>
  static double Read(const Profile& profile, double Profile::*member) {
    return profile.*member;
  }
  template <class Profile, class Q>
  static double Read(const Profile& profile, Q Profile::*member) {
    return (profile.*member).value;
  }
};

template <class Profile>
double GetIn(const Profile& profile, std::span<const ConstantRow<Profile>> table,
             const std::string& key) {
  return std::visit([&](auto member) { return Getter::Read(profile, member); },
                    RowOf(table, key).member);
}

template <class Profile>
void SetIn(Profile* profile, std::span<const ConstantRow<Profile>> table, const std::string& key,
           double value) {
  std::visit(
      [&](auto member) {
        using Value = std::remove_reference_t<decltype(profile->*member)>;
        profile->*member = Value(value);
      },
      RowOf(table, key).member);
}

}  // namespace

void ProfileStore::ReadChain(ProfileLayer layer, const std::string& id) {
  std::string at = id;
  while (!at.empty() && !files_.contains({layer, at})) {
    Diagnostics diagnostics;
    const Node root = Node::Parse(ReadSource(PathOf(layer, at)), &diagnostics);
    File file;
    file.parent = root.String("inherits", "");
    for (const std::string& key : root.Child("constants").Keys()) file.keys.insert(key);
    const std::string next = file.parent;
    files_.emplace(FileKey{layer, at}, std::move(file));
    at = next;
  }
}

int ProfileStore::Gpu(const std::string& id) {
  const FileKey key{ProfileLayer::kGpu, id};
  if (const auto found = index_.find(key); found != index_.end()) return found->second;
  gpus_.push_back(LoadGpuProfile(id));
  ReadChain(ProfileLayer::kGpu, id);
  return index_[key] = static_cast<int>(gpus_.size()) - 1;
}

int ProfileStore::Fabric(const std::string& id) {
  const FileKey key{ProfileLayer::kFabric, id};
  if (const auto found = index_.find(key); found != index_.end()) return found->second;
  fabrics_.push_back(LoadFabricProfile(id));
  ReadChain(ProfileLayer::kFabric, id);
  return index_[key] = static_cast<int>(fabrics_.size()) - 1;
}

int ProfileStore::Framework(const std::string& id) {
  const FileKey key{ProfileLayer::kFramework, id};
  if (const auto found = index_.find(key); found != index_.end()) return found->second;
  frameworks_.push_back(LoadFrameworkProfile(id));
  ReadChain(ProfileLayer::kFramework, id);
  return index_[key] = static_cast<int>(frameworks_.size()) - 1;
}

int ProfileStore::SelectFramework(const std::string& framework, const std::string& topology,
                                  bool flash) {
  const auto [name, facts] = SplitReference(framework);
  const auto site = index_.find({ProfileLayer::kFramework, name + "@" + topology});
  const int base = site != index_.end()
                       ? site->second
                       : Framework(SelectFrameworkProfile(name, topology, flash).header.id);
  return facts.empty() ? base : WithFacts(base, facts);
}

// One more profile under the same file: constants that are set there reach it, too.
int ProfileStore::WithFacts(int base, const std::string& facts) {
  const std::string& id = frameworks_[base].header.id;
  const FileKey key{ProfileLayer::kFramework, orrery::WithFacts(id, facts)};
  if (const auto found = index_.find(key); found != index_.end()) return found->second;
  const std::string file =
      HasProfile(kFrameworkFolder, id) ? id : files_.at({key.first, id}).parent;
  FrameworkProfile profile = frameworks_[base];
  profile.preset = ShareFrameworkProfile(orrery::WithFacts(file, facts))->preset;
  frameworks_.push_back(std::move(profile));
  return index_[key] = static_cast<int>(frameworks_.size()) - 1;
}

void ProfileStore::AddSite(const std::string& id, const std::string& base) {
  FrameworkProfile profile = framework(Framework(base));
  profile.header.id = id;
  profile.header.title = id;
  profile.header.path.clear();
  frameworks_.push_back(std::move(profile));
  files_[{ProfileLayer::kFramework, id}].parent = base;
  index_[{ProfileLayer::kFramework, id}] = static_cast<int>(frameworks_.size()) - 1;
}

const ProfileHeader& ProfileStore::Header(ProfileLayer layer, int index) const {
  if (layer == ProfileLayer::kGpu) return gpus_[index].header;
  if (layer == ProfileLayer::kFabric) return fabrics_[index].header;
  return frameworks_[index].header;
}

int ProfileStore::Count(ProfileLayer layer) const {
  if (layer == ProfileLayer::kGpu) return static_cast<int>(gpus_.size());
  if (layer == ProfileLayer::kFabric) return static_cast<int>(fabrics_.size());
  return static_cast<int>(frameworks_.size());
}

ConstantName ProfileStore::Resolve(ProfileLayer layer, int index, const std::string& key) const {
  std::string at = Header(layer, index).id;
  for (;;) {
    const auto found = files_.find({layer, at});
    if (found == files_.end()) break;
    if (found->second.keys.contains(key) || found->second.parent.empty()) break;
    at = found->second.parent;
  }
  return {layer, at, key};
}

void ProfileStore::Override(const ConstantName& name) {
  const auto found = files_.find({name.layer, name.file});
  if (found == files_.end())
    throw InputError(
        fmt::format("{}: no row uses a profile that is or inherits '{}'", name.Text(), name.file));
  found->second.keys.insert(name.key);
}

bool ProfileStore::Owns(const ConstantName& name) const {
  const auto found = files_.find({name.layer, name.file});
  return found != files_.end() && found->second.keys.contains(name.key);
}

bool ProfileStore::IsInherited(ProfileLayer layer, int index, const std::string& file) const {
  std::string at = Header(layer, index).id;
  while (at != file) {
    const auto found = files_.find({layer, at});
    if (found == files_.end() || found->second.parent.empty()) return false;
    at = found->second.parent;
  }
  return true;
}

const std::string& ProfileStore::Parent(ProfileLayer layer, const std::string& file) const {
  static const std::string kNone;
  const auto found = files_.find({layer, file});
  return found == files_.end() ? kNone : found->second.parent;
}

std::vector<int> ProfileStore::Heirs(const ConstantName& name) const {
  std::vector<int> heirs;
  for (int i = 0; i < Count(name.layer); ++i) {
    if (Resolve(name.layer, i, name.key).file == name.file) heirs.push_back(i);
  }
  return heirs;
}

double ProfileStore::Get(ProfileLayer layer, int index, const std::string& key) const {
  if (layer == ProfileLayer::kGpu) return GetIn(gpus_[index], GpuConstants(), key);
  if (layer == ProfileLayer::kFabric) return GetIn(fabrics_[index], FabricConstants(), key);
  return GetIn(frameworks_[index], FrameworkConstants(), key);
}

void ProfileStore::Set(ProfileLayer layer, int index, const std::string& key, double value) {
  if (layer == ProfileLayer::kGpu) return SetIn(&gpus_[index], GpuConstants(), key, value);
  if (layer == ProfileLayer::kFabric) return SetIn(&fabrics_[index], FabricConstants(), key, value);
  SetIn(&frameworks_[index], FrameworkConstants(), key, value);
}

double ProfileStore::Value(const ConstantName& name) const {
  const std::vector<int> heirs = Heirs(name);
  if (heirs.empty())
    throw InputError(
        fmt::format("{}: no row uses a profile with this constant", name.Text()),
        "constants that a nearer file overrides have no effect; name that file instead");
  return Get(name.layer, heirs.front(), name.key);
}

void ProfileStore::SetValue(const ConstantName& name, double value) {
  for (int heir : Heirs(name)) Set(name.layer, heir, name.key, value);
}

const Provenance* ProfileStore::Find(const ConstantName& name) const {
  for (int i = 0; i < Count(name.layer); ++i) {
    const ProfileHeader& header = Header(name.layer, i);
    if (!IsInherited(name.layer, i, name.file)) continue;
    const auto found = header.constants.find(name.key);
    if (found != header.constants.end()) return &found->second;
  }
  return nullptr;
}

}  // namespace orrery
