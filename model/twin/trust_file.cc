// SPDX-License-Identifier: Apache-2.0
// trust.json: read and written.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/arch/data_root.h"
#include "model/twin/trust.h"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kScales[] = {"any", "one node", "several nodes"};
constexpr const char* kSchema = "orrery.trust/2";

// Three significant digits.
double Short(double value) { return std::stod(fmt::format("{:.3g}", value)); }

Json FrameworkJson(const FrameworkTrust& framework) {
  Json json = {{"framework", framework.profile},
               {"scale", kScales[static_cast<int>(framework.scale)]},
               {"rows", framework.rows},
               {"spread", Short(framework.spread)},
               {"low", Short(framework.low)},
               {"high", Short(framework.high)},
               {"difference", Short(framework.difference)},
               {"pairs", framework.pairs},
               {"gpus", framework.gpus},
               {"fabrics", framework.fabrics},
               {"clusters", framework.clusters}};
  for (int i = 0; i < kFeatures; ++i)
    json["range"][kFeatureNames[i]] = {framework.range[i].first, framework.range[i].second};
  return json;
}

FrameworkTrust FrameworkOf(const Json& json) {
  FrameworkTrust framework;
  framework.profile = json.at("framework");
  const std::string scale = json.at("scale");
  const auto* known = std::find(std::begin(kScales), std::end(kScales), scale);
  if (known == std::end(kScales)) throw std::out_of_range("another scale");
  framework.scale = static_cast<RunScale>(known - std::begin(kScales));
  framework.rows = json.at("rows");
  framework.spread = json.at("spread");
  framework.low = json.at("low");
  framework.high = json.at("high");
  framework.difference = json.at("difference");
  framework.pairs = json.at("pairs");
  framework.gpus = json.at("gpus").get<std::set<std::string>>();
  framework.fabrics = json.at("fabrics").get<std::set<std::string>>();
  framework.clusters = json.value("clusters", std::set<std::string>{});  // older files name none
  for (int i = 0; i < kFeatures; ++i) {
    const Json& range = json.at("range").at(kFeatureNames[i]);
    framework.range[i] = {range.at(0), range.at(1)};
  }
  return framework;
}

Trust TrustOf(const Json& json) {
  Trust trust;
  trust.constants = json.at("constants").get<std::vector<std::vector<std::string>>>();
  const std::size_t n = trust.constants.size();
  const auto spread = json.at("spread").get<std::vector<double>>();
  const Json& rows = json.at("correlation");
  if (spread.size() != n || rows.size() != n) throw std::out_of_range("one row per constant");
  trust.covariance.assign(n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    trust.covariance[i * n + i] = spread[i] * spread[i];
    for (std::size_t j = 0; j < i; ++j) {
      const double covariance = rows[i].at(j).get<double>() * spread[i] * spread[j];
      trust.covariance[i * n + j] = trust.covariance[j * n + i] = covariance;
    }
  }
  trust.site_spread = json.value("site_spread", std::map<std::string, double>{});
  for (const Json& framework : json.at("frameworks"))
    trust.frameworks.push_back(FrameworkOf(framework));
  return trust;
}

}  // namespace

Trust ParseTrust(const SourcePtr& source) {
  try {
    const Json json = Json::parse(source->text);
    if (json.at("schema") != kSchema) throw std::out_of_range("another schema");
    return TrustOf(json);
  } catch (const std::exception& error) {
    throw InputError(fmt::format("{} is damaged: {}", source->name, error.what()),
                     "plan calibrate --in-place writes it");
  }
}

Trust LoadTrust() {
  const auto path = std::filesystem::path(DataRoot()) / "calib" / "profiles" / "trust.json";
  std::error_code error;
  return std::filesystem::exists(path, error) ? ParseTrust(ReadSource(path.string())) : Trust();
}

std::string TrustText(const Trust& trust) {
  const std::size_t n = trust.constants.size();
  Json json = {{"schema", kSchema},
               {"frameworks", Json::array()},
               {"constants", trust.constants},
               {"spread", Json::array()},
               {"correlation", Json::array()}};
  for (const FrameworkTrust& framework : trust.frameworks)
    json["frameworks"].push_back(FrameworkJson(framework));
  const auto at = [&](std::size_t i, std::size_t j) { return trust.covariance[i * n + j]; };
  for (std::size_t i = 0; i < n; ++i) {
    json["spread"].push_back(Short(std::sqrt(at(i, i))));
    Json row = Json::array();
    for (std::size_t j = 0; j < i; ++j)
      row.push_back(std::round(1000 * at(i, j) / std::sqrt(at(i, i) * at(j, j))) / 1000);
    json["correlation"].push_back(row);
  }
  // One line per member of the lists: small differences between versions.
  std::string text = fmt::format("{{\"schema\": \"{}\"", kSchema);
  for (const char* key : {"frameworks", "constants", "correlation"}) {
    text += fmt::format(",\n\"{}\": [", key);
    bool first = true;
    for (const Json& one : json[key]) {
      text += fmt::format("{}\n{}", first ? "" : ",", one.dump());
      first = false;
    }
    text += "]";
  }
  Json sites = Json::object();
  for (const auto& [name, spread] : trust.site_spread) sites[name] = Short(spread);
  return text + fmt::format(",\n\"spread\": {},\n\"site_spread\": {}}}\n", json["spread"].dump(),
                            sites.dump());
}

}  // namespace orrery
