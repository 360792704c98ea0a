// SPDX-License-Identifier: Apache-2.0
// Finds a model by name, file or folder and reads it with the right reader.
#include "model/arch/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "model/arch/data_root.h"
#include "model/arch/readers.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModels = "scenarios/models";

bool IsYaml(const fs::path& path) {
  return path.extension() == ".yaml" || path.extension() == ".yml";
}

bool LooksLikeFile(const std::string& text) {
  const fs::path path(text);
  return text.find('/') != std::string::npos || IsYaml(path) || path.extension() == ".json";
}

// HuggingFace files are named config.json in a folder named after the model. "": the caller named no such folder, and the one
// that they are in has a name of its own.
std::string HfName(const fs::path& path) {
  if (path.filename() != "config.json") return path.stem().string();
  const std::string folder = path.lexically_normal().parent_path().filename().string();
  return folder == "." || folder == ".." ? "" : folder;
}

bool StartsAsJson(const Source& source) {
  const auto first = source.text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && source.text[first] == '{';
}

LoadedModel LoadFile(fs::path path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    path /= "config.json";
    const fs::path adapters = path.parent_path() / "adapter_config.json";
    if (!fs::exists(path, error) && fs::exists(adapters, error)) return LoadFile(adapters);
    if (!fs::exists(path, error)) {
      throw InputError(
          fmt::format("no config.json in folder '{}'", path.parent_path().string()),
          "name a model of `plan list models`, a YAML file or a HuggingFace config.json");
    }
  }
  const SourcePtr source = ReadSource(path.string(), std::size_t{16} << 20);
  const bool json = path.extension() == ".json" || (!IsYaml(path) && StartsAsJson(*source));
  return json ? ReadHfConfig(source, HfName(path)) : ReadModelYaml(source);
}

}  // namespace

std::vector<std::string> ModelNames() { return NamesOfKind(kModels); }

bool IsModel(const std::string& name_or_path) {
  std::error_code error;
  return LooksLikeFile(name_or_path) || !FileOfName(kModels, name_or_path).empty() ||
         fs::exists(name_or_path, error);
}

LoadedModel LoadModel(const std::string& name_or_path) {
  if (name_or_path.empty() || name_or_path.find('\0') != std::string::npos) {
    throw InputError("the model's name is empty", "see `plan list models`");
  }
  if (!LooksLikeFile(name_or_path)) {
    if (const std::string file = FileOfName(kModels, name_or_path); !file.empty()) {
      LoadedModel model = LoadFile(file);
      model.spec.name = name_or_path;  // a copy of another model is not that one
      return model;
    }
    std::error_code error;
    if (!fs::exists(name_or_path, error)) {
      const std::string near = SuggestName(name_or_path, ModelNames());
      throw InputError(fmt::format("unknown model '{}'", name_or_path),
                       near.empty() ? "`plan list models` shows all of them" : near);
    }
  }
  return LoadFile(name_or_path);
}

int64_t MaskedPositions(const ModelSpec& spec, const TrainingDefaults& defaults, int64_t seq_len) {
  if (spec.family != Family::kEncoder) return 0;
  if (defaults.masked_positions && defaults.seq_len.value_or(seq_len) == seq_len) {
    return std::min(seq_len, *defaults.masked_positions);
  }
  for (const auto& [length, positions] : defaults.masked_positions_at) {
    if (length == seq_len) return std::min(seq_len, positions);
  }
  return (seq_len * 3 + 19) / 20;
}

}  // namespace orrery
