// SPDX-License-Identifier: Apache-2.0
// Reads profile files: constants with provenance, inheritance, rejection of unknown keys.
//
// A profile is a struct with a ProfileHeader and a table that names its constants (ConstantRow).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/base/edit_distance.h"
#include "model/base/node.h"
#include "model/hardware/profile.h"

namespace orrery {

template <class Profile>
struct ConstantRow {
  const char* key;
  std::variant<double Profile::*, Seconds Profile::*, Bytes Profile::*, BytesPerSecond Profile::*,
               FlopsPerSecond Profile::*>
      member;
  double min = 0;  // of the value in SI base units
  double max = 0;
  bool required = true;
};

// Reads the keys that a profile has besides its header and its constants.
template <class Profile>
using ExtraKeys = void (*)(const Node& root, Profile* profile);

// Of calib/profiles/FOLDER and of users' profiles/FOLDER (model/arch/data_root.h): every file, base files included,
// sorted; the file of an id, "" when there is none.
std::vector<std::string> AllProfileIds(const std::string& folder);
std::string ProfileFile(const std::string& folder, const std::string& id);
bool HasProfile(const std::string& folder, const std::string& id);
// By id, or by path (with a '/'). A file of the catalogue is opened again only when it has changed:
// until then the same object comes back. Throws InputError: no such file, with the nearest ids.
SourcePtr LoadProfileFile(const std::string& folder, const std::string& id);
// The text of a file of the catalogue, opened again only when its size or its time has changed.
// Threads may call this at the same time.
SourcePtr ReadUnchanged(const std::string& path);

namespace profile_reader {

// Profiles that are being read, each an heir of the next.
using Heirs = std::vector<std::string>;
inline constexpr std::size_t kMostHeirs = 8;

inline void ReadText(const Node& root, const char* key, std::string* out) {
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

inline Provenance ReadProvenance(const Node& entry, const std::string& file) {
  Provenance provenance;
  provenance.value = entry.String("value");
  provenance.unit = entry.String("unit", "");
  if (entry.Has("spread")) provenance.spread = entry.Number("spread", 0, 100);
  provenance.points = static_cast<int>(entry.Integer("points", 0, 1000000000, 0));
  provenance.source = entry.String("source");
  provenance.file = file;
  entry.RejectUnknownKeys();
  return provenance;
}

template <class Profile>
void ReadConstant(const Node& constants, const ConstantRow<Profile>& row, const std::string& file,
                  Profile* profile) {
  const std::optional<Node> entry = constants.Find(row.key);
  if (!entry) return;
  const Setter setter{*entry, row.min, row.max};
  std::visit([&](auto member) { setter(profile, member); }, row.member);
  profile->header.constants[row.key] = ReadProvenance(*entry, file);
}

// A key that is nearly one of the table's is a slip.
template <class Profile>
bool IsSlip(const std::string& key, std::span<const ConstantRow<Profile>> table) {
  constexpr std::size_t kTwoEdits = 4;
  return std::ranges::any_of(table, [&](const auto& row) {
    const std::string_view known = row.key;
    const std::size_t longer = std::max(known.size(), key.size());
    return 2 * (longer - std::min(known.size(), key.size())) <= kTwoEdits &&
           HalfEdits(key, known) <= kTwoEdits;
  });
}

// Shares of rates that the table does not list, of profiles that may have them.
template <class Profile>
void ReadMoreEfficiencies(const Node& constants, std::span<const ConstantRow<Profile>> table,
                          const std::string& file, Profile* profile) {
  if constexpr (requires { profile->more_efficiencies; }) {
    constexpr double kLeast = 0.01, kMost = 2;
    for (const std::string& key : constants.Keys()) {
      if (!IsEfficiencyKey(key) || IsSlip(key, table)) continue;
      const Node entry = constants.Child(key);
      profile->more_efficiencies[key] = entry.Number("value", kLeast, kMost);
      profile->header.constants[key] = ReadProvenance(entry, file);
    }
  }
}

// The profile that `id` inherits, an error at the key for a path or a cycle.
inline std::string ReadParent(const Node& root, const std::string& id, const Heirs& heirs) {
  const std::string parent = root.String("inherits");
  // A name: a path could lead anywhere, and an error in that file would print it.
  if (parent.find('/') != std::string::npos)
    root.ErrorAt("inherits", "a profile inherits another by its name, '" + parent + "' is a path",
                 "put that file into .orrery/profiles/ and name it without folder and .yaml");
  if (parent == id || std::ranges::count(heirs, parent) > 0)
    root.ErrorAt("inherits", fmt::format("profile '{}' inherits itself", parent),
                 "break the cycle of 'inherits' keys");
  else if (heirs.size() >= kMostHeirs)
    root.ErrorAt("inherits", fmt::format("more than {} profiles inherit one another", kMostHeirs),
                 "a profile of a chip or framework needs two or three");
  return parent;
}

// Reads one file over what it inherits: `inherit(parent, profile)` fills that in. `heirs` led to this file.
template <class Profile, class Inherit>
void ReadFile(const std::string& id, const SourcePtr& source,
              std::span<const ConstantRow<Profile>> table, ExtraKeys<Profile> extra,
              const Heirs& heirs, const Inherit& inherit, Profile* profile) {
  Diagnostics diagnostics;
  const Node root = Node::Parse(source, &diagnostics);
  diagnostics.ThrowIfAny();
  if (root.Has("inherits")) {
    const std::string parent = ReadParent(root, id, heirs);
    diagnostics.ThrowIfAny();
    inherit(parent, profile);
  }
  profile->header.id = id;
  profile->header.path = source->name;
  ReadText(root, "title", &profile->header.title);
  (void)root.Bool("abstract", false);
  if (extra != nullptr) extra(root, profile);
  // What inherits may have none of its own.
  if (root.Has("constants") || !root.Has("inherits")) {
    const Node constants = root.Child("constants");
    for (const auto& row : table) ReadConstant(constants, row, source->name, profile);
    ReadMoreEfficiencies(constants, table, source->name, profile);
    constants.RejectUnknownKeys();
  }
  root.RejectUnknownKeys();
  diagnostics.ThrowIfAny();
}

template <class Profile>
void ReadInto(const std::string& folder, const std::string& id, ProfileSource load,
              std::span<const ConstantRow<Profile>> table, ExtraKeys<Profile> extra, Heirs* heirs,
              Profile* profile) {
  const auto inherit = [&](const std::string& parent, Profile* base) {
    heirs->push_back(id);
    ReadInto(folder, parent, load, table, extra, heirs, base);
    heirs->pop_back();
  };
  ReadFile(id, load(folder, id), table, extra, *heirs, inherit, profile);
}

template <class Profile>
void RequireConstants(const Profile& profile, std::span<const ConstantRow<Profile>> table) {
  std::string missing;
  for (const auto& row : table) {
    if (row.required && !profile.header.constants.contains(row.key)) {
      missing += (missing.empty() ? "" : ", ") + std::string(row.key);
    }
  }
  if (!missing.empty()) {
    throw InputError(
        fmt::format("{}: profile '{}' lacks {}", profile.header.path, profile.header.id, missing),
        "add them, or inherit a profile that has them");
  }
}

}  // namespace profile_reader

// Profiles of a folder as they were read: each file is parsed at most once per state of it, whoever asks. A source is the
// same object as long as its file has not changed (LoadProfileFile), and so is what was read from it and from all that it
// inherits. Threads may call Load() at the same time.
template <class Profile>
class ProfileCache {
 public:
  ProfileCache(std::string folder, std::span<const ConstantRow<Profile>> table,
               ExtraKeys<Profile> extra)
      : folder_(std::move(folder)), table_(table), extra_(extra) {}

  // Complete or not, see RequireConstants(). Throws InputError: unknown or malformed keys with their places.
  std::shared_ptr<const Profile> Load(const std::string& id) {
    const std::lock_guard lock(mutex_);
    profile_reader::Heirs heirs;
    return Load(id, &heirs)->profile;
  }

 private:
  struct Entry {
    SourcePtr source;
    std::shared_ptr<const Entry> parent;
    std::shared_ptr<const Profile> profile;
  };

  std::shared_ptr<const Entry> LoadParent(const std::string& parent, const std::string& id,
                                          profile_reader::Heirs* heirs) {
    heirs->push_back(id);
    auto entry = Load(parent, heirs);
    heirs->pop_back();
    return entry;
  }

  std::shared_ptr<const Entry> Load(const std::string& id, profile_reader::Heirs* heirs) {
    auto entry = std::make_shared<Entry>();
    entry->source = LoadProfileFile(folder_, id);
    const std::pair key{id, entry->source->name};
    const std::shared_ptr<const Entry> known = entries_[key];
    if (known && known->source == entry->source &&
        (!known->parent ||
         known->parent == LoadParent(known->parent->profile->header.id, id, heirs)))
      return known;
    auto profile = std::make_shared<Profile>();
    profile_reader::ReadFile<Profile>(
        id, entry->source, table_, extra_, *heirs,
        [&](const std::string& parent, Profile* base) {
          entry->parent = LoadParent(parent, id, heirs);
          *base = *entry->parent->profile;
        },
        profile.get());
    entry->profile = std::move(profile);
    return entries_[key] = entry;
  }

  const std::string folder_;
  const std::span<const ConstantRow<Profile>> table_;
  const ExtraKeys<Profile> extra_;
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<const Entry>>
      entries_;  // by id and path
};

// Throws InputError: unknown, missing or malformed constants with their places.
template <class Profile>
Profile ReadProfile(const std::string& folder, const std::string& id, ProfileSource load,
                    std::span<const ConstantRow<Profile>> table,
                    ExtraKeys<Profile> extra = nullptr) {
  Profile profile;
  profile_reader::Heirs heirs;
  profile_reader::ReadInto(folder, id, load, table, extra, &heirs, &profile);
  profile_reader::RequireConstants(profile, table);
  return profile;
}

}  // namespace orrery
