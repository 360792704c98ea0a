// SPDX-License-Identifier: Apache-2.0
// Looks topologies up by name or path.
#include "model/topo/catalog.h"

#include <algorithm>
#include <filesystem>

#include "model/arch/data_root.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

std::string Folder() { return (fs::path(DataRoot()) / "topologies").string(); }

bool LooksLikePath(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".yaml") || text.ends_with(".yml") ||
         text.ends_with(".json");
}

}  // namespace

std::vector<std::string> TopologyNames() {
  std::vector<std::string> names;
  std::error_code error;  // a missing folder is an empty catalogue
  for (const auto& entry : fs::directory_iterator(Folder(), error)) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TopologySpec LoadTopology(const std::string& name_or_path) {
  std::string path = name_or_path;
  if (!LooksLikePath(name_or_path)) {
    const std::vector<std::string> names = TopologyNames();
    if (!std::binary_search(names.begin(), names.end(), name_or_path)) {
      throw InputError("no topology '" + name_or_path + "'", SuggestName(name_or_path, names));
    }
    path = (fs::path(Folder()) / (name_or_path + ".yaml")).string();
  }
  Diagnostics diagnostics;
  TopologySpec spec = ReadTopology(ReadSource(path), &diagnostics);
  diagnostics.ThrowIfAny();
  return spec;
}

}  // namespace orrery
