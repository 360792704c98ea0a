// SPDX-License-Identifier: Apache-2.0
// Intervals from slopes, covariances and left-out errors.
#include "model/twin/trust.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "model/arch/data_root.h"
#include "model/framework/profile.h"
#include "model/hardware/profile_tables.h"
#include "model/price/pricer.h"
#include "model/twin/nearest.h"

namespace orrery {
namespace {

constexpr double kStep = 0.01;         // of a logarithm
constexpr double kWorthSaying = 0.02;  // of a logarithm: what widens an interval visibly

// Multiplies a constant of a profile; false: the table has no such key.
template <class Profile>
bool Bump(std::span<const ConstantRow<Profile>> table, const std::string& key, double factor,
          Profile* profile) {
  for (const ConstantRow<Profile>& row : table) {
    if (key != row.key) continue;
    std::visit(
        [&](auto member) {
          using Value = std::remove_reference_t<decltype(profile->*member)>;
          if constexpr (std::is_same_v<Value, double>) {
            profile->*member *= factor;
          } else {
            profile->*member = Value((profile->*member).value * factor);
          }
        },
        row.member);
    return true;
  }
  return false;
}

// A setting whose profiles may be changed.
struct Changed {
  explicit Changed(const CostSetting& setting)
      : gpu(*setting.gpu),
        fabric(*setting.fabric),
        framework(*setting.framework),
        cluster(*setting.cluster),
        at(setting) {
    at.cluster = &cluster;
    at.gpu = &gpu;
    at.fabric = &fabric;
    at.framework = &framework;
  }
  Changed(const Changed&) = delete;
  Changed& operator=(const Changed&) = delete;

  const ProfileHeader& Header(const std::string& folder) const {
    return folder == "gpu" ? gpu.header : folder == "fabric" ? fabric.header : framework.header;
  }
  void Multiply(const std::string& folder, const std::string& key, double factor) {
    if (folder == "gpu") (void)Bump(GpuConstants(), key, factor, &gpu);
    if (folder == "fabric") (void)Bump(FabricConstants(), key, factor, &fabric);
    if (folder == "framework") (void)Bump(FrameworkConstants(), key, factor, &framework);
  }

  GpuProfile gpu;
  FabricProfile fabric;
  FrameworkProfile framework;
  ClusterSummary cluster;
  CostSetting at;
};

struct Place {
  std::string folder, file, key;
};

Place PlaceOf(const std::string& name) {
  const std::size_t slash = name.find('/'), colon = name.find(':');
  if (slash == std::string::npos || colon == std::string::npos || colon < slash) return {};
  return {name.substr(0, slash), name.substr(slash + 1, colon - slash - 1), name.substr(colon + 1)};
}

// What the catalogue calls a file of constants; "": a user's, of which the fit knows nothing.
std::string NameOfFile(const std::string& folder, const std::string& file) {
  const std::filesystem::path path(file);
  const auto catalogue = std::filesystem::path(DataRoot()) / "calib" / "profiles" / folder;
  return path.parent_path() == catalogue ? path.stem().string() : "";
}

// Whether the setting's profile takes the constant from that file.
bool Reaches(const Place& place, const Changed& profiles) {
  if (place.key.empty()) return false;
  const auto& constants = profiles.Header(place.folder).constants;
  const auto found = constants.find(place.key);
  return found != constants.end() && NameOfFile(place.folder, found->second.file) == place.file;
}

double SlopeOf(const std::vector<Place>& places, double total, const PredictWith& predict,
               Changed* profiles) {
  for (const Place& place : places) profiles->Multiply(place.folder, place.key, std::exp(kStep));
  const double moved = predict(profiles->at);
  for (const Place& place : places) profiles->Multiply(place.folder, place.key, std::exp(-kStep));
  return std::log(moved / total) / kStep;
}

// `site`: the framework's profile alone, whose factor was fitted around all other constants as they stand.
double FittedVariance(const Trust& trust, bool site, double total, const PredictWith& predict,
                      Changed* profiles) {
  const std::string& id = profiles->framework.header.id;
  const std::size_t n = trust.constants.size();
  std::vector<std::pair<std::size_t, double>> slopes;
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<Place> places;
    for (const std::string& name : trust.constants[i]) {
      const Place place = PlaceOf(name);
      const bool counts = !site || (place.folder == kFrameworkFolder && place.file == id);
      if (counts && Reaches(place, *profiles)) places.push_back(place);
    }
    if (places.empty()) continue;
    const double slope = SlopeOf(places, total, predict, profiles);
    if (slope != 0) slopes.emplace_back(i, slope);
  }
  double variance = 0;
  for (const auto& [i, a] : slopes) {
    for (const auto& [j, b] : slopes) variance += a * b * trust.covariance[i * n + j];
  }
  return std::max(0.0, variance);
}

bool IsPrior(const Provenance& known) { return known.source.starts_with("prior"); }

bool IsFitted(const Trust& trust, const std::string& folder, const std::string& key,
              const Provenance& known) {
  const std::string name = fmt::format("{}/{}:{}", folder, NameOfFile(folder, known.file), key);
  return std::any_of(trust.constants.begin(), trust.constants.end(), [&](const auto& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  });
}

// Of hardware without a calibrated run: its constants that are priors, each on its own.
double PriorVariance(const Trust& trust, const std::string& folder, double total,
                     const PredictWith& predict, Changed* profiles) {
  double variance = 0;
  const auto constants = profiles->Header(folder).constants;
  for (const auto& [key, known] : constants) {
    if (!IsPrior(known) || IsFitted(trust, folder, key, known)) continue;
    const double spread = known.spread.value_or(kPriorSpread);
    const double slope = SlopeOf({{folder, known.file, key}}, total, predict, profiles);
    variance += slope * slope * spread * spread;
  }
  return variance;
}

// What files of a user state of the constants that they measured.
double OwnVariance(const std::string& folder, double total, const PredictWith& predict,
                   Changed* profiles) {
  double variance = 0;
  const auto constants = profiles->Header(folder).constants;
  for (const auto& [key, known] : constants) {
    if (!known.spread || IsPrior(known) || !NameOfFile(folder, known.file).empty()) continue;
    const double slope = SlopeOf({{folder, known.file, key}}, total, predict, profiles);
    variance += slope * slope * *known.spread * *known.spread;
  }
  return variance;
}

// Of a site that no run knows: it lies as far from its family as calibrated sites do.
double SiteVariance(const Trust& trust, double total, const PredictWith& predict,
                    Changed* profiles) {
  double variance = 0;
  for (const auto& [name, spread] : trust.site_spread) {
    const Place place = PlaceOf(name);
    if (!Reaches(place, *profiles)) continue;
    const double slope = SlopeOf({place}, total, predict, profiles);
    variance += slope * slope * spread * spread;
  }
  return variance;
}

// Of links between nodes whose rates are known so well: those of NICs, or of the sockets that keep them from theirs.
double RateVariance(double spread, double total, const PredictWith& predict, Changed* profiles) {
  if (profiles->cluster.nodes < 2) return 0;
  BytesPerSecond& nics = profiles->cluster.nic_rate;
  const BytesPerSecond given = nics;
  nics = BytesPerSecond(given.value * std::exp(kStep));
  const double slope = SlopeOf({{"fabric", "", "socket_stream"}}, total, predict, profiles);
  nics = given;
  return slope * slope * spread * spread;
}

}  // namespace

double HalfWidth(const KinErrors& of_class, double site, double variance, double doublings) {
  const double spread = site * of_class.spread;
  return of_class.quantile * (1 + kPerDoubling * doublings) * std::sqrt(spread * spread + variance);
}

double ChipBesideFramework(const std::array<KinErrors, kKins>& kin) {
  const double chip = kin[static_cast<std::size_t>(Kin::kNewChip)].spread;
  const double cluster = kin[static_cast<std::size_t>(Kin::kNewCluster)].spread;
  return std::max(0.0, chip * chip - cluster * cluster);
}

bool Trust::empty() const {
  return std::ranges::all_of(kin, [](const KinErrors& errors) { return errors.groups == 0; });
}

Confidence ConfidenceOf(const Trust& trust, const CostSetting& setting, const RunIdentity& asked,
                        double total, const PredictWith& predict) {
  Confidence confidence;
  confidence.total = total;
  const ResidualInterval residuals = ResidualsOf(setting);
  confidence.low = total * residuals.low;
  confidence.high = total * residuals.high;
  if (trust.empty()) return confidence;
  Changed profiles(setting);
  std::vector<const RunIdentity*> runs;
  for (const RunIdentity& run : trust.runs) runs.push_back(&run);
  const SiteCalibration calibrated = CalibrationOf(*setting.framework);
  for (const RunIdentity& run : calibrated.runs) runs.push_back(&run);
  Kinship kinship = KinshipOf(asked, runs);
  const bool own_site = kinship.kin <= Kin::kCluster && !calibrated.site.empty();
  double variance = FittedVariance(trust, own_site, total, predict, &profiles);
  if (kinship.new_site) {
    variance += SiteVariance(trust, total, predict, &profiles);
    const bool guess = setting.cluster->assumed;
    const double assumed = guess ? RateVariance(kAssumedRate, total, predict, &profiles) : 0;
    variance += assumed;
    if (assumed > kWorthSaying * kWorthSaying)
      kinship.outside.push_back(
          fmt::format("{}: its file assumes the rates between nodes", setting.cluster->name));
  }
  for (const auto& [folder, is_new] : {std::pair{"framework", kinship.new_framework},
                                       std::pair{"gpu", kinship.new_gpu || kinship.new_attention},
                                       std::pair{"fabric", kinship.new_fabric}}) {
    variance += OwnVariance(folder, total, predict, &profiles);
    if (is_new) variance += PriorVariance(trust, folder, total, predict, &profiles);
  }
  if (kinship.new_fabric && !(kinship.new_site && setting.cluster->assumed))
    variance += RateVariance(kNewNetwork, total, predict, &profiles);
  const KinErrors& of_class = trust.kin[static_cast<std::size_t>(kinship.kin)];
  if (kinship.new_chip && kinship.kin == Kin::kNewFramework)
    variance += ChipBesideFramework(trust.kin);
  const auto site = trust.sites.find(SiteOf(asked));
  const bool known_site = kinship.kin <= Kin::kCluster && site != trust.sites.end();
  const double f =
      HalfWidth(of_class, known_site ? site->second : 1.0, variance, kinship.doublings);
  confidence.low = total * std::exp(-f);
  confidence.high = total * std::exp(f);
  confidence.basis =
      fmt::format("{}, {} groups of calibrated runs", NameOf(kinship.kin), of_class.groups);
  confidence.outside = std::move(kinship.outside);
  const auto own = trust.differences.find(setting.framework->header.id);
  const auto all = trust.differences.find("");
  if (const auto& swept = own != trust.differences.end() ? own : all;
      swept != trust.differences.end()) {
    confidence.difference = swept->second.difference;
    confidence.pairs = swept->second.pairs;
  }
  return confidence;
}

}  // namespace orrery
