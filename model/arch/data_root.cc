// SPDX-License-Identifier: Apache-2.0
// Finds the catalogues from the environment, or from the place of the program or library; and what users put before them.
#include "model/arch/data_root.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>

#include "model/base/diagnostics.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool HoldsCatalogue(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder / "scenarios" / "models", error);
}

// "": no folder above `file` holds one.
std::string RootAbove(const fs::path& file) {
  for (fs::path at = file.parent_path(); !at.empty(); at = at.parent_path()) {
    if (HoldsCatalogue(at)) return at.string();
    if (const fs::path share = at / "share" / "orrery"; HoldsCatalogue(share))
      return share.string();
    if (at == at.root_path()) break;
  }
  return "";
}

// The library that holds this function, in another program (Python's, or one that links liborrery); "": none.
fs::path OwnLibrary() {
  Dl_info here{}, program{};
  std::error_code error;
  if (dladdr(reinterpret_cast<const void*>(&DataRoot), &here) == 0 || here.dli_fname == nullptr ||
      dladdr(reinterpret_cast<const void*>(getauxval(AT_ENTRY)), &program) == 0 ||
      here.dli_fbase == program.dli_fbase)
    return "";
  return fs::canonical(here.dli_fname, error);
}

std::string FindRoot() {
  for (const fs::path& file : {OwnLibrary(), fs::path(RunningProgram())}) {
    if (std::string root = RootAbove(file); !root.empty()) return root;
  }
  throw InputError("cannot find the model and topology catalogues",
                   "set ORRERY_ROOT to the folder that holds scenarios/ and topologies/");
}

// Anybody can make a folder /tmp/.orrery.
bool IsOwn(const fs::path& folder) {
  struct stat status {};
  return stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         (status.st_uid == geteuid() || status.st_uid == 0);
}

std::vector<std::string> FindUserFolders(const fs::path& here, const std::string& data,
                                         const std::string& home, std::string* passed_over) {
  std::vector<std::string> folders;
  std::error_code unknown;
  for (fs::path at = here; !at.empty(); at = at.parent_path()) {
    const fs::path own = at / ".orrery";
    if (IsOwn(own)) {
      folders.push_back(own.string());
      break;
    }
    if (passed_over->empty() && fs::is_directory(own, unknown)) *passed_over = own.string();
    if (at == at.root_path()) break;
  }
  // A relative XDG_DATA_HOME is to be ignored (XDG Base Directory Specification 0.8).
  fs::path user = data;
  if (!user.is_absolute()) user = home.empty() ? fs::path() : fs::path(home) / ".local" / "share";
  std::error_code error;
  if (!user.empty() && fs::is_directory(user / "orrery", error))
    folders.push_back((user / "orrery").string());
  return folders;
}

// "calib/profiles/gpu": "profiles/gpu"; "scenarios/models": "models".
std::string UserKind(const std::string& kind) {
  for (const char* prefix : {"calib/", "scenarios/"}) {
    if (kind.starts_with(prefix)) return kind.substr(std::string(prefix).size());
  }
  return kind;
}

// The user's first.
std::vector<fs::path> FoldersOf(const std::string& kind) {
  std::vector<fs::path> folders;
  for (const std::string& user : UserFolders()) folders.push_back(fs::path(user) / UserKind(kind));
  folders.emplace_back(CatalogueFolder(kind));
  return folders;
}

bool IsBelow(const fs::path& path, const fs::path& folder) {
  const fs::path relative = path.lexically_relative(folder);
  return !relative.empty() && *relative.begin() != "..";
}

fs::path Resolved(const fs::path& path) {
  std::error_code error;
  const fs::path full = fs::weakly_canonical(fs::absolute(path), error);
  return error ? fs::absolute(path, error).lexically_normal() : full;
}

// The name of a file in a project's folder says nothing of what it is linked to: see ReferencedFile().
std::string WithinUser(const std::string& file, const std::string& user) {
  if (IsBelow(Resolved(file), Resolved(user))) return file;
  throw InputError(fmt::format("'{}' is a link that leaves '{}'", ShownPath(file), ShownPath(user)),
                   "put the file itself there, or give its path");
}

}  // namespace

std::string RunningProgram() {
  std::error_code error;
  if (fs::path file = fs::read_symlink("/proc/self/exe", error); !error) return file.string();
  // A static program in a root of its own. The kernel keeps the name that it was given.
  const auto* name = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  return name == nullptr ? "" : fs::canonical(name, error).string();
}

std::string DataRoot() {
  if (const std::string root = Environment("ORRERY_ROOT"); !root.empty()) {
    static std::mutex mutex;
    static std::string known;
    const std::lock_guard lock(mutex);
    if (root == known || HoldsCatalogue(root)) return known = root;
    throw InputError("ORRERY_ROOT is '" + root + "', which has no scenarios/models",
                     "set it to the folder that holds scenarios/ and topologies/, or unset it");
  }
  static const std::string found = FindRoot();  // one command asks hundreds of times
  return found;
}

std::string CatalogueFolder(const std::string& kind) {
  const fs::path folder = fs::path(DataRoot()) / kind;
  std::error_code error;
  if (fs::is_directory(folder, error)) return folder.string();
  throw InputError(
      fmt::format("this installation is incomplete: there is no folder {}", folder.string()),
      "install Orrery again, or set ORRERY_ROOT to a whole copy of its catalogues");
}

namespace {

struct KnownFolders {
  std::mutex mutex;
  std::vector<std::string> of, folders;  // one command asks hundreds of times
  std::string passed_over;
} known_folders;

}  // namespace

std::string FolderOfAnother() {
  const std::lock_guard lock(known_folders.mutex);
  return known_folders.passed_over;
}

std::vector<std::string> UserFolders() {
  std::error_code error;
  std::vector<std::string> wanted = {fs::current_path(error).string(), Environment("XDG_DATA_HOME"),
                                     Environment("HOME")};
  KnownFolders& known = known_folders;
  const std::lock_guard lock(known.mutex);
  if (wanted != known.of) {
    known.passed_over.clear();
    known.folders = FindUserFolders(wanted[0], wanted[1], wanted[2], &known.passed_over);
    known.of = std::move(wanted);
  }
  return known.folders;
}

std::vector<std::string> NamesOfKind(const std::string& kind) {
  std::set<std::string> names;
  for (const fs::path& folder : FoldersOf(kind)) {
    std::error_code error;  // a missing folder of the user holds nothing
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".yaml") names.insert(entry.path().stem().string());
    }
  }
  return {names.begin(), names.end()};
}

std::string FileOfName(const std::string& kind, const std::string& name) {
  if (name.empty() || name.front() == '.' || name.find_first_of(std::string("/\0", 2)) != name.npos)
    return "";
  // One command asks hundreds of times: no paths taken apart, no folder looked at whose file is there.
  const auto in = [&](const std::string& folder, const std::string& below) {
    const char* slash = folder.ends_with('/') ? "" : "/";
    std::string file = folder + slash + below + "/" + name + ".yaml";
    return access(file.c_str(), F_OK) == 0 ? file : "";
  };
  for (const std::string& user : UserFolders()) {
    if (const std::string file = in(user, UserKind(kind)); !file.empty())
      return WithinUser(file, user);
  }
  std::string file = in(DataRoot(), kind);
  if (file.empty()) (void)CatalogueFolder(kind);
  return file;
}

bool IsYamlPath(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".yaml");
}

bool IsUserFile(const std::string& path) {
  for (const std::string& folder : UserFolders()) {
    if (IsBelow(path, folder)) return true;
  }
  return false;
}

std::string ShownPath(const std::string& path) {
  if (!fs::path(path).is_absolute()) return path;
  std::error_code error;
  for (const std::string& folder : {DataRoot(), fs::current_path(error).string()}) {
    if (IsBelow(path, folder)) return fs::path(path).lexically_relative(folder).string();
  }
  const std::string home = Environment("HOME");
  if (home.size() > 1 && IsBelow(path, home))
    return "~/" + fs::path(path).lexically_relative(home).string();
  return path;
}

std::string ReferencedFile(const std::string& from, const std::string& text) {
  const fs::path folder = fs::path(from).parent_path();
  const fs::path file = (folder / text).lexically_normal();
  fs::path root = Resolved(folder.empty() ? "." : folder);
  std::vector<std::string> roots = UserFolders();
  roots.push_back(DataRoot());
  for (const std::string& outer : roots) {
    if (IsBelow(root, Resolved(outer))) {
      root = Resolved(outer);
      break;
    }
  }
  if (!IsBelow(Resolved(file), root)) {
    throw InputError(fmt::format("'{}' leaves the folder of the file that names it", text),
                     "put the file next to it, or into .orrery/ and name it without a path");
  }
  return file.string();
}

}  // namespace orrery
