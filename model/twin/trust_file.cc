// SPDX-License-Identifier: Apache-2.0
// trust.json: read and written.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>

#include "model/arch/data_root.h"
#include "model/hardware/profile_reader.h"
#include "model/twin/nearest.h"
#include "model/twin/trust.h"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kSchema = "orrery.trust/3";

// Three significant digits.
double Short(double value) { return std::strtod(fmt::format("{:.3g}", value).c_str(), nullptr); }

Json KinJson(Kin kin, const KinErrors& errors) {
  return {{"kin", NameOf(kin)},
          {"groups", errors.groups},
          {"rows", errors.rows},
          {"spread", Short(errors.spread)},
          {"quantile", Short(errors.quantile)},
          {"covered", Short(errors.covered)}};
}

void ReadKin(const Json& json, Trust* trust) {
  const std::string name = json.at("kin");
  int kin = 0;
  while (kin < kKins && name != NameOf(static_cast<Kin>(kin))) ++kin;
  if (kin == kKins) throw std::out_of_range("another kinship");
  trust->kin[static_cast<std::size_t>(kin)] = {json.at("groups"), json.at("rows"),
                                               json.at("spread"), json.at("quantile"),
                                               json.at("covered")};
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
  for (const Json& kin : json.at("kin")) ReadKin(kin, &trust);
  trust.sites = json.at("sites").get<std::map<std::string, double>>();
  for (const Json& one : json.at("differences"))
    trust.differences[one.at("framework")] = {one.at("difference"), one.at("pairs")};
  return trust;
}

}  // namespace

Trust ParseTrust(const SourcePtr& source) {
  try {
    const Json json = Json::parse(source->text);
    if (json.at("schema") != kSchema) throw std::out_of_range("another schema");
    return TrustOf(json);
  } catch (const std::exception&) {  // a library's words name neither cause nor cure
    throw InputError(fmt::format("{} is damaged, or of another release", source->name),
                     "plan calibrate --in-place writes it");
  }
}

Trust LoadTrust() {
  const auto path = std::filesystem::path(DataRoot()) / "calib" / "profiles" / "trust.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  static std::mutex mutex;
  static SourcePtr known;
  static Trust parsed;
  const std::lock_guard lock(mutex);
  if (const SourcePtr source = ReadUnchanged(path.string()); source != known) {
    parsed = ParseTrust(source);
    known = source;
  }
  Trust trust = parsed;
  const auto runs = CalibratedRuns();
  trust.runs.assign(runs->begin(), runs->end());
  return trust;
}

std::string TrustText(const Trust& trust) {
  const std::size_t n = trust.constants.size();
  Json json = {{"schema", kSchema},
               {"kin", Json::array()},
               {"differences", Json::array()},
               {"constants", trust.constants},
               {"spread", Json::array()},
               {"correlation", Json::array()}};
  for (int kin = 0; kin < kKins; ++kin)
    json["kin"].push_back(KinJson(static_cast<Kin>(kin), trust.kin[static_cast<std::size_t>(kin)]));
  for (const auto& [framework, one] : trust.differences)
    json["differences"].push_back(
        {{"framework", framework}, {"difference", Short(one.difference)}, {"pairs", one.pairs}});
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
  for (const char* key : {"kin", "differences", "constants", "correlation"}) {
    text += fmt::format(",\n\"{}\": [", key);
    bool first = true;
    for (const Json& one : json[key]) {
      text += fmt::format("{}\n{}", first ? "" : ",", one.dump());
      first = false;
    }
    text += "]";
  }
  Json sites = Json::object(), spreads = Json::object();
  for (const auto& [name, factor] : trust.sites) sites[name] = Short(factor);
  for (const auto& [name, spread] : trust.site_spread) spreads[name] = Short(spread);
  return text + fmt::format(",\n\"spread\": {},\n\"sites\": {},\n\"site_spread\": {}}}\n",
                            json["spread"].dump(), sites.dump(), spreads.dump());
}

}  // namespace orrery
