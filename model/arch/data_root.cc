// SPDX-License-Identifier: Apache-2.0
// Finds the catalogues from the environment, the program's own place, or the source tree.
#include "model/arch/data_root.h"

#include <cstdlib>
#include <filesystem>

#include "model/base/diagnostics.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

bool HoldsCatalogue(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder / "scenarios" / "models", error);
}

// Around the program, or of the source tree.
std::string FindRoot() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  for (fs::path at = program.parent_path(); !at.empty(); at = at.parent_path()) {
    if (HoldsCatalogue(at)) return at.string();
    if (HoldsCatalogue(at / "share" / "orrery")) return (at / "share" / "orrery").string();
    if (at == at.root_path()) break;
  }
  if (HoldsCatalogue(ORRERY_DATA_SOURCE_DIR)) return ORRERY_DATA_SOURCE_DIR;
  throw InputError("cannot find the model and topology catalogues",
                   "set ORRERY_ROOT to the folder that holds scenarios/ and topologies/");
}

}  // namespace

std::string DataRoot() {
  if (const char* root = std::getenv("ORRERY_ROOT"); root != nullptr && *root != '\0') {
    if (HoldsCatalogue(root)) return root;
    throw InputError(std::string("ORRERY_ROOT is '") + root + "', which has no scenarios/models",
                     "set it to the folder that holds scenarios/ and topologies/, or unset it");
  }
  static const std::string found = FindRoot();  // one command asks hundreds of times
  return found;
}

}  // namespace orrery
