// SPDX-License-Identifier: Apache-2.0
// Looks topologies up by name or path.
#include "model/hardware/catalog.h"

#include <algorithm>
#include <filesystem>

#include "model/arch/data_root.h"
#include "model/hardware/read_parts.h"

namespace orrery {

namespace fs = std::filesystem;

bool LooksLikePath(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".yaml") || text.ends_with(".yml") ||
         text.ends_with(".json");
}

std::vector<std::string> YamlNames(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;  // a missing folder holds nothing
  for (const auto& entry : fs::directory_iterator(fs::path(DataRoot()) / folder, error)) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> TopologyNames() { return YamlNames("topologies"); }

TopologySpec LoadTopology(const std::string& name_or_path) {
  std::string path = name_or_path;
  if (!LooksLikePath(name_or_path)) {
    const std::vector<std::string> names = TopologyNames();
    if (!std::binary_search(names.begin(), names.end(), name_or_path)) {
      const std::string near = SuggestName(name_or_path, names);
      throw InputError("no topology '" + name_or_path + "'",
                       near.empty() ? "`plan list topologies` shows all of them" : near);
    }
    path = (fs::path(DataRoot()) / "topologies" / (name_or_path + ".yaml")).string();
  }
  Diagnostics diagnostics;
  TopologySpec spec = ReadTopology(ReadSource(path), &diagnostics);
  diagnostics.ThrowIfAny();
  return spec;
}

}  // namespace orrery
