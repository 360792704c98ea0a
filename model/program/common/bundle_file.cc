// SPDX-License-Identifier: Apache-2.0
// Reads a bundle, which anybody may have made.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "model/base/diagnostics.h"
#include "model/program/common/bundle.h"

namespace orrery::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int kDeepest = 100;
constexpr std::size_t kMostFiles = 10000, kMostWords = 10000;

struct Reader {
  const SourcePtr& source;

  [[noreturn]] void Refuse(const std::string& why) const {
    throw InputError({{Location{source}, fmt::format("'{}' is no bundle: {}", source->name, why),
                       "`plan ... --bundle FILE` writes one"}});
  }
  const ordered_json& Key(const ordered_json& of, const char* key) const {
    const auto at = of.find(key);
    if (at == of.end()) Refuse(fmt::format("it has no \"{}\"", key));
    return *at;
  }
  std::string Text(const ordered_json& of, const char* key) const {
    const ordered_json& value = Key(of, key);
    if (!value.is_string()) Refuse(fmt::format("\"{}\" is no text", key));
    return value.get<std::string>();
  }
  // Files are written below an empty folder.
  void CheckPath(const std::string& path) const {
    const fs::path file(path);
    bool inside =
        !path.empty() && !file.is_absolute() && path.find('\0') == path.npos && file.has_filename();
    for (const fs::path& part : file) inside = inside && part != ".." && part != ".";
    if (!inside) Refuse(fmt::format("the path '{}' leaves its folder", path));
  }
  // It is asked again: it may read the bundle's files and write none.
  void CheckQuestion(const std::vector<std::string>& words) const {
    const bool command = !words.empty() && !words.front().starts_with("-");
    if (command && std::ranges::find(kBundledCommands, words.front()) == kBundledCommands.end())
      Refuse(
          fmt::format("its question is a `plan {}`, and bundles hold predictions", words.front()));
    for (const std::string& word : words) {
      const std::string name = word.substr(0, word.find('='));
      if (std::ranges::find(kOutputFlags, name) != kOutputFlags.end())
        Refuse(fmt::format("its question has {}", name));
      for (std::size_t at = 0; at <= word.size();) {
        const std::size_t end = std::min(word.find_first_of("=,", at), word.size());
        const std::string value = word.substr(at, end - at);
        if (value.starts_with('/') || value.starts_with('~') || value.find("..") != value.npos) {
          const bool range = value.find('/') == value.npos;  // "1..8"
          if (!range) Refuse(fmt::format("its question names '{}', outside of it", value));
        }
        at = end + 1;
      }
    }
  }
};

}  // namespace

Bundle ReadBundle(const std::string& path) {
  const SourcePtr source = ReadSource(path);
  const Reader reader{source};
  // What walks an answer is recursive.
  const auto shallow = [&](int depth, ordered_json::parse_event_t, const ordered_json&) {
    if (depth > kDeepest) reader.Refuse("it is nested too deeply");
    return true;
  };
  const ordered_json json = ordered_json::parse(source->text, shallow, false);
  if (json.is_discarded() || !json.is_object()) reader.Refuse("no JSON document");
  if (const std::string schema = reader.Text(json, "schema"); schema != kBundleSchema)
    reader.Refuse(fmt::format("its schema is '{}', this program reads {}", schema, kBundleSchema));
  Bundle bundle{reader.Text(json, "version"), reader.Text(json, "commit"), {}, {}, {}};
  const ordered_json& question = reader.Key(json, "question");
  const ordered_json& files = reader.Key(json, "files");
  if (!question.is_array() || question.size() > kMostWords)
    reader.Refuse("\"question\" is no list of words");
  if (!files.is_array() || files.size() > kMostFiles)
    reader.Refuse("\"files\" is no list of files");
  for (const ordered_json& word : question) {
    if (!word.is_string()) reader.Refuse("\"question\" is no list of words");
    bundle.question.push_back(word.get<std::string>());
  }
  reader.CheckQuestion(bundle.question);
  std::set<std::string> paths;
  for (const ordered_json& file : files) {
    if (!file.is_object()) reader.Refuse("\"files\" is no list of files");
    bundle.files.emplace_back(reader.Text(file, "path"), reader.Text(file, "text"));
    reader.CheckPath(bundle.files.back().first);
    if (!paths.insert(bundle.files.back().first).second)
      reader.Refuse(fmt::format("it has '{}' twice", bundle.files.back().first));
  }
  bundle.answer = reader.Key(json, "answer");
  if (!bundle.answer.is_object()) reader.Refuse("\"answer\" is no JSON object");
  return bundle;
}

}  // namespace orrery::cli
