// SPDX-License-Identifier: Apache-2.0
// Shapes that several models share; their files.
#include "calib/fit/layer_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "model/arch/data_root.h"
#include "model/base/diagnostics.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kLeastModels = 2;
constexpr double kWidestFactor = 2.5;

FitParameter ParameterOf(int framework, const std::string& shape, double spread,
                         const ProfileStore& store) {
  FitParameter parameter;
  const std::string key = kLayerPrefix + shape;
  parameter.shape = shape;
  parameter.names = {{ProfileLayer::kFramework, store.framework(framework).header.id, key}};
  parameter.heirs = {{ProfileLayer::kFramework, framework}};
  parameter.heir_keys = {key};
  parameter.before = store.Get(ProfileLayer::kFramework, framework, key);
  parameter.prior = 1;
  const double widest = std::log(kWidestFactor);
  parameter.variable = {std::clamp(std::log(parameter.before), -widest, widest), 0, spread, -widest,
                        widest};
  return parameter;
}

std::string LineOf(const FittedConstant& layer) {
  return fmt::format(
      "  - {{shape: \"{}\", time: {:.4g}, spread: {:.2g}, points: {}, source: \"fitted around 1 on "
      "{} rows\"}}\n",
      layer.parameter.shape, layer.after, layer.spread, layer.points,
      layer.groups.empty() ? "no" : fmt::format("{}", fmt::join(layer.groups, ", ")));
}

}  // namespace

std::vector<FitParameter> LayerParameters(const std::vector<Observation>& observations,
                                          double spread, const ProfileStore& store) {
  std::map<std::pair<int, std::string>, std::set<std::string>> models;
  for (const Observation& seen : observations) {
    if (seen.framework >= 0 && !seen.shape.empty())
      models[{seen.framework, seen.shape}].insert(seen.model);
  }
  std::vector<FitParameter> parameters;
  for (const auto& [at, names] : models) {
    if (names.size() >= kLeastModels)
      parameters.push_back(ParameterOf(at.first, at.second, spread, store));
  }
  return parameters;
}

std::map<std::string, std::string> LayerFiles(const FitResult& result) {
  std::map<std::string, std::string> files;
  for (const FittedConstant& constant : result.constants) {
    const FitParameter& parameter = constant.parameter;
    if (parameter.shape.empty()) continue;
    std::string& text = files[parameter.names.front().file];
    if (constant.verdict != Verdict::kKept) text += LineOf(constant);
  }
  for (auto& [framework, text] : files) {
    if (text.empty()) continue;
    text = fmt::format(
        "# SPDX-License-Identifier: Apache-2.0\n# Written by plan calibrate: what layers of these "
        "shapes took, over the formulas of model/price.\ntitle: \"Measured layers of {}\"\n"
        "layers:\n{}",
        framework, text);
  }
  return files;
}

std::vector<std::string> WriteLayerFiles(const FitResult& result, const std::string& folder) {
  const fs::path home =
      folder.empty() ? fs::path(DataRoot()) / "calib" / "profiles" : fs::path(folder);
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& [framework, text] : LayerFiles(result)) {
    const fs::path path = home / "layer" / (framework + ".yaml");
    if (text.empty()) {
      fs::remove(path, error);
      continue;
    }
    fs::create_directories(path.parent_path(), error);
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    if (!file) throw InputError(fmt::format("cannot write {}", path.string()));
    paths.push_back(path.string());
  }
  return paths;
}

}  // namespace orrery
