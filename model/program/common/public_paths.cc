// SPDX-License-Identifier: Apache-2.0
// Finds the paths of input files in texts, as they were given, resolved and shown.
#include "model/program/common/public_paths.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "model/arch/data_root.h"
#include "model/base/input_files.h"

namespace orrery::cli {
namespace {

namespace fs = std::filesystem;

// Another word of a path goes on here: "/a/b" is not found in "/a/bc", nor in "x/a/b".
bool GoesOn(char c, bool before) {
  const auto u = static_cast<unsigned char>(c);
  return std::isalnum(u) != 0 || c == '_' || c == '-' || u >= 0x80 ||
         (before && (c == '/' || c == '.' || c == '~'));
}

class PublicNames {
 public:
  PublicNames() {
    std::error_code error;
    try {
      root_ = DataRoot();
    } catch (const InputError&) {  // said by whoever needs it
    }
    AddFolder(root_, "");
    for (const std::string& path : InputNames()) Add(path);
    AddFolder(fs::current_path(error).string(), "");
    names_.assign(by_path_.begin(), by_path_.end());
    std::ranges::stable_sort(names_, [](const auto& a, const auto& b) {
      return a.first.size() > b.first.size();  // the most that is known of a path
    });
  }

  std::string Of(std::string text) const {
    for (const auto& [path, name] : names_) {
      for (std::size_t at = 0; (at = text.find(path, at)) != text.npos;) {
        const std::size_t end = at + path.size();
        const bool apart = (at == 0 || !GoesOn(text[at - 1], true)) &&
                           (path.back() == '/' || end == text.size() || !GoesOn(text[end], false));
        if (apart) text.replace(at, path.size(), name);
        at += apart ? name.size() : 1;
      }
    }
    return text;
  }

  void Rename(nlohmann::ordered_json* json) const {
    if (json->is_string()) {
      const auto& text = json->get_ref<const std::string&>();
      if (text.find('/') != text.npos) *json = Of(text);
    } else if (json->is_structured()) {
      for (nlohmann::ordered_json& part : *json) Rename(&part);
    }
  }

 private:
  void AddFolder(const std::string& folder, const std::string& name) {
    if (folder.size() > 1) by_path_.try_emplace(folder + "/", name);
  }

  void Add(const std::string& path) {
    std::error_code error;
    const fs::path full = fs::absolute(path, error).lexically_normal();
    const fs::path below = full.lexically_relative(root_);
    const bool of_catalogue = !root_.empty() && !below.empty() && *below.begin() != "..";
    // A bundle that is opened is its own catalogue, with the other files of its question next to that (bundle.h).
    if (of_catalogue && *below.begin() != "files") return;
    const std::string shown = ShownPath(full.string());
    const std::string name = IsUserFile(full.string()) ? shown : full.filename().string();
    for (const std::string& one : {path, full.string(), shown}) {
      if (one != name && one.find('/') != one.npos) by_path_.try_emplace(one, name);
    }
    if (name == shown) return;
    // A model may be named by its folder.
    const fs::path folder = full.parent_path();
    for (const std::string& one : {folder.string(), ShownPath(folder.string())}) {
      if (one.size() > 1 && (one.front() == '/' || one.front() == '~'))
        by_path_.try_emplace(one, folder.filename().string());
    }
  }

  std::string root_;  // of the catalogue; "": unknown
  std::map<std::string, std::string> by_path_;
  std::vector<std::pair<std::string, std::string>> names_;
};

}  // namespace

std::string WithPublicPaths(std::string text) { return PublicNames().Of(std::move(text)); }

nlohmann::ordered_json WithPublicPaths(nlohmann::ordered_json json) {
  PublicNames().Rename(&json);
  return json;
}

}  // namespace orrery::cli
