// SPDX-License-Identifier: Apache-2.0
// Where the files lie that have names: models, topologies, profiles, offers, scenarios.
//
// Each is looked for in the project's folder, in the user's, then in the catalogue that came with the program:
//   .orrery/ of the working directory or of the nearest folder above it, if the caller or root owns it
//   $XDG_DATA_HOME/orrery, by default ~/.local/share/orrery
//   DataRoot()
// The first two hold models/, topologies/, offers/, scenarios/ and profiles/{gpu,fabric,framework,...}.
#pragma once

#include <string>
#include <vector>

#include "model/base/diagnostics.h"

namespace orrery {

// The folder that holds `scenarios/models`: $ORRERY_ROOT when set; else the nearest folder above
// the library that holds this function or above the running program, or a share/orrery there.
// Throws InputError when $ORRERY_ROOT holds no catalogue or when none is found.
std::string DataRoot();

// The file of the running program; where there is no /proc, the one that it was started by. "": neither is known.
std::string RunningProgram();

// Those of the project and of the user that exist, in this order.
std::vector<std::string> UserFolders();
// A project's folder that UserFolders(), if it was asked, passed over: neither the caller nor root owns it. "": none.
std::string FolderOfAnother();

// A folder below DataRoot(). Throws InputError: it is missing, as after a copy that was cut short.
std::string CatalogueFolder(const std::string& kind);
// `kind`: a folder of the catalogue, such as "topologies" or "calib/profiles/gpu". Names are those of its YAML files,
// sorted.
std::vector<std::string> NamesOfKind(const std::string& kind);
// What load() makes of each name; without the files that it refuses, which are left to whoever names them.
template <class Load>
auto AllReadable(const std::vector<std::string>& names, Load&& load) {
  std::vector<decltype(load(names.front()))> all;
  for (const std::string& name : names) {
    try {
      all.push_back(load(name));
    } catch (const InputError&) {
    }
  }
  return all;
}
// The file of a name; "": there is none, or it is no name ("../x", "a/b", ".x"). Throws InputError where a file of a user
// is a link that leaves the user's folder: of a project that somebody sent, an error would print another file.
std::string FileOfName(const std::string& kind, const std::string& name);

// Whether text that names something of the catalogue is the path of a YAML file instead.
bool IsYamlPath(const std::string& text);

// In one of UserFolders().
bool IsUserFile(const std::string& path);
// As answers print it: below DataRoot() and below the working directory relative to it, below the home folder with ~.
std::string ShownPath(const std::string& path);

// The file that `text` names in the file `from`, relative to its folder. Throws InputError when that lies, links
// followed, outside of the folder of `from` (of its user folder or catalogue, if it is of one): a file that somebody
// sent can then not make an error print another file of its reader's.
std::string ReferencedFile(const std::string& from, const std::string& text);

}  // namespace orrery
