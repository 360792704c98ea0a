// SPDX-License-Identifier: Apache-2.0
// Writes a bundle: gives the files that were read names that say nothing of this machine.
#include "model/program/common/bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "model/arch/data_root.h"
#include "model/base/write_file.h"
#include "model/program/common/program.h"
#include "model/program/common/public_paths.h"
#include "model/program/common/version.h"

namespace orrery::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

fs::path Resolved(const std::string& path) {
  std::error_code error;
  fs::path full = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? fs::absolute(path, error).lexically_normal() : full;
}

// "": not below it.
std::string Below(const fs::path& path, const fs::path& folder) {
  const fs::path relative = path.lexically_relative(folder);
  return relative.empty() || *relative.begin() == ".." ? "" : relative.string();
}

// A file that names another one finds it where it was: files below one folder stay below one.
class BundledNames {
 public:
  explicit BundledNames(const std::vector<SourcePtr>& sources) {
    const fs::path root = Resolved(DataRoot());
    std::vector<fs::path> users;
    for (const std::string& folder : UserFolders()) users.push_back(Resolved(folder));
    std::set<fs::path> folders, others;
    for (const SourcePtr& source : sources) {
      const fs::path path = Resolved(source->name);
      std::string& name = names_[path];
      if (!name.empty()) continue;
      for (const fs::path& user : users) {
        if (const std::string below = Below(path, user); name.empty() && !below.empty())
          name = ".orrery/" + below;
      }
      if (name.empty()) name = Below(path, root);
      if (!name.empty()) continue;
      others.insert(path);
      folders.insert(path.parent_path());
    }
    for (const fs::path& path : others) {
      int number = 0;
      for (const fs::path& folder : folders) {  // outer ones come first
        if (number += IsOutermost(folder, folders); Below(path, folder).empty()) continue;
        names_[path] = fmt::format("files/{}/{}", number, Below(path, folder));
        break;
      }
    }
  }

  // "": was not read.
  std::string Of(const std::string& path) const {
    const auto found = names_.find(Resolved(path));
    return found == names_.end() ? "" : found->second;
  }

 private:
  static bool IsOutermost(const fs::path& folder, const std::set<fs::path>& folders) {
    return std::ranges::none_of(folders, [&](const fs::path& other) {
      return other != folder && !Below(folder, other).empty();
    });
  }

  std::map<fs::path, std::string> names_;
};

// "--topology=a.yaml,b.yaml" with each file by its name in the bundle.
std::string Renamed(const std::string& word, const BundledNames& names) {
  const auto renamed = [&](const std::string& text) {
    std::error_code error;
    if (!fs::is_regular_file(text, error)) return text;
    const std::string name = names.Of(text);
    return name.empty() ? text : name;
  };
  const std::size_t value = word.starts_with("--") ? word.find('=') + 1 : 0;
  if (value == 0 && word.starts_with("--")) return word;
  std::string text = word.substr(0, value);
  for (std::size_t at = value; at <= word.size();) {
    const std::size_t end = std::min(word.find(',', at), word.size());
    text += renamed(word.substr(at, end - at));
    if (end < word.size()) text += ',';
    at = end + 1;
  }
  return text;
}

// Without the flags that say where answers go.
std::vector<std::string> Question(const BundledNames& names) {
  const std::vector<std::string>& words = WordsOfCommand();
  std::vector<std::string> question;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    if (std::ranges::find(kOutputFlags, name) == kOutputFlags.end()) {
      question.push_back(Renamed(words[i], names));
    } else if (name == words[i] && i + 1 < words.size() && !words[i + 1].starts_with("-")) {
      ++i;
    }
  }
  return question;
}

[[noreturn]] void CannotWriteBundle(const Flag& flag, const std::string& why) {
  throw InputError({{flag.where, fmt::format("cannot write '{}': {}", flag.text, why),
                     "--bundle names a file in a folder that exists"}});
}

}  // namespace

void CheckBundle(const Flag& flag) {
  if (!flag.given) return;
  if (const std::string why = WhyNotWritable(flag.text); !why.empty()) CannotWriteBundle(flag, why);
}

void WriteBundle(const Flag& flag, const ordered_json& answer) {
  if (!flag.given) return;
  const std::vector<SourcePtr> sources = RecordedSources();
  const BundledNames names(sources);
  std::map<std::string, const std::string*> files;
  for (const SourcePtr& source : sources) files[names.Of(source->name)] = &source->text;
  ordered_json json = {{"schema", kBundleSchema},
                       {"version", kVersion},
                       {"commit", kCommit},
                       {"question", Question(names)},
                       {"files", ordered_json::array()},
                       {"answer", WithPublicPaths(answer)}};
  for (const auto& [path, text] : files) json["files"].push_back({{"path", path}, {"text", *text}});
  const std::string text = json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  if (const std::string why = WriteTextFile(flag.text, text); !why.empty())
    CannotWriteBundle(flag, why);
}

}  // namespace orrery::cli
