// SPDX-License-Identifier: Apache-2.0
// Looks topologies up by name or path.
#include "model/hardware/catalog.h"

#include <filesystem>

#include "model/arch/data_root.h"
#include "model/hardware/cluster_file.h"
#include "model/hardware/read_parts.h"

namespace orrery {

namespace fs = std::filesystem;

bool LooksLikePath(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".yaml") || text.ends_with(".yml") ||
         text.ends_with(".json");
}

std::vector<std::string> TopologyNames() { return NamesOfKind("topologies"); }

TopologySpec LoadTopology(const std::string& name_or_path) {
  std::string path = name_or_path;
  std::error_code error;
  bool by_name = false;
  const bool dotted = name_or_path.find('.') != std::string::npos;  // "dump.xml"
  if (!LooksLikePath(name_or_path) && !(dotted && fs::is_regular_file(name_or_path, error))) {
    path = FileOfName("topologies", name_or_path);
    by_name = !path.empty();
    if (path.empty() && fs::is_regular_file(name_or_path, error)) path = name_or_path;  // "hosts"
    if (path.empty()) {
      const std::string near = SuggestName(name_or_path, TopologyNames());
      throw InputError("no topology '" + name_or_path + "'",
                       near.empty() ? "`plan list topologies` shows all of them" : near);
    }
  }
  Diagnostics diagnostics;
  const SourcePtr source = ReadSource(path);
  RefuseMachineFile(source, "a topology of this program");  // no YAML with a thousand errors
  TopologySpec spec = ReadTopology(source, &diagnostics);
  diagnostics.ThrowIfAny();
  if (by_name) spec.name = name_or_path;  // a copy of another topology is not that one
  spec.file = path;
  return spec;
}

}  // namespace orrery
