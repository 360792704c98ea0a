// SPDX-License-Identifier: Apache-2.0
// Compares a question with each calibrated run.
#include "model/twin/kinship.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/base/csv.h"
#include "model/twin/nearest.h"

namespace orrery {
namespace {

constexpr double kMostOfColumn = 1e12;  // of any column
constexpr const char* kNames[kKins] = {"same layer shape on a known cluster",
                                       "same model on a known cluster",
                                       "new model on a known cluster",
                                       "new cluster",
                                       "new chip",
                                       "new framework or fact"};
constexpr const char* kTexts[] = {"framework", "gpu", "fabric", "topology", "facts"};

bool SameShape(const Situation& a, const Situation& b) {
  return std::ranges::all_of(
      std::array{kAtHidden, kAtSeqLen, kAtMicroTokens, kAtTensor},
      [&](Feature feature) { return std::abs(std::log(a[feature] / b[feature])) < 1e-3; });
}

bool SameModel(const Situation& a, const Situation& b) {
  return a[kAtHidden] == b[kAtHidden] && a[kAtLayers] == b[kAtLayers];
}

// "megatron-deepspeed" of the site "megatron-deepspeed@vtrain-a100", and of the file that calibrates it; a release keeps its
// name.
std::string ReleaseOf(const FrameworkProfile& framework, const std::string& topology) {
  const std::string calibrated = CalibrationOf(framework).site;
  if (!calibrated.empty()) return calibrated.substr(0, calibrated.rfind('@'));
  const std::string id = framework.header.id.find('/') == std::string::npos
                             ? framework.header.id
                             : std::filesystem::path(framework.header.id).stem().string();
  const std::string site = "@" + topology;
  return id.ends_with(site) ? id.substr(0, id.size() - site.size()) : id;
}

// Where the memory size stands in the name of a GPU, "-80gb"; npos: nowhere.
std::pair<std::size_t, std::size_t> MemoryIn(std::string_view gpu) {
  for (std::size_t dash = gpu.find('-'); dash != std::string::npos;
       dash = gpu.find('-', dash + 1)) {
    std::size_t end = dash + 1;
    while (end < gpu.size() && std::isdigit(static_cast<unsigned char>(gpu[end])) != 0) ++end;
    if (end > dash + 1 && gpu.compare(end, 2, "gb") == 0) return {dash, end + 2};
  }
  return {std::string::npos, gpu.size()};
}

// "b200-sxm-together" of "b200-sxm-180gb-together".
std::string PartOf(const std::string& gpu) {
  const auto [begin, end] = MemoryIn(gpu);
  return gpu.substr(0, begin) + gpu.substr(end);
}

std::string_view ChipPart(std::string_view gpu) { return gpu.substr(0, MemoryIn(gpu).first); }
std::string_view FamilyPart(std::string_view framework) {
  return framework.substr(0, framework.find_first_of("@+"));
}

class KinFinder {
 public:
  KinFinder(const RunIdentity& asked, const std::vector<const RunIdentity*>& runs)
      : asked_(asked), runs_(runs), chip_(ChipOf(asked.gpu)) {
    const std::string_view family = FamilyPart(asked.framework);
    for (const RunIdentity* run : runs)
      alike_.push_back({FamilyPart(run->framework) == family, ChipPart(run->gpu) == chip_});
  }

  Kinship Run() {
    kinship_.new_framework = None([&](const RunIdentity& r) { return SameRelease(r); });
    new_family_ = std::ranges::none_of(alike_, &Alike::family);
    kinship_.new_chip = std::ranges::none_of(alike_, &Alike::chip);
    kinship_.new_gpu = None([&](const RunIdentity& r) { return r.gpu == asked_.gpu; });
    kinship_.new_fabric = asked_.at[kAtNodes] > 1 && None([&](const RunIdentity& r) {
                            return r.fabric == asked_.fabric && r.at[kAtNodes] > 1;
                          });
    kinship_.new_site = None([&](const RunIdentity& r) { return SameSite(r); });
    if (kinship_.new_framework)
      Say(fmt::format("{}: no calibrated run of this framework", asked_.framework));
    if (None([&](const RunIdentity& r) { return r.topology == asked_.topology; }))
      Say(fmt::format("{}: no calibrated run on it", asked_.topology));
    else if (kinship_.new_site && !kinship_.new_framework)
      Say(fmt::format("{}: no calibrated run of this framework on it", asked_.topology));
    if (kinship_.new_chip) Say(fmt::format("{}: no calibrated run on this chip", asked_.gpu));
    if (kinship_.new_fabric)
      Say(fmt::format("{}: no calibrated run between nodes on this network", asked_.fabric));
    const bool new_fact = NewFacts();
    kinship_.kin = kinship_.new_framework || new_fact ? Kin::kNewFramework
                   : kinship_.new_chip                ? Kin::kNewChip
                   : kinship_.new_site                ? Kin::kNewCluster
                                                      : OnKnownCluster();
    AddDoublings();
    return std::move(kinship_);
  }

 private:
  // With the question; what is compared with every run, for one fact after another.
  struct Alike {
    bool family, chip;
  };

  template <class Is>
  bool None(const Is& is) const {
    return std::ranges::none_of(runs_, [&](const RunIdentity* run) { return is(*run); });
  }
  bool SameRelease(const RunIdentity& run) const { return run.framework == asked_.framework; }
  bool SameSite(const RunIdentity& run) const {
    return run.topology == asked_.topology && SameRelease(run);
  }
  void Say(std::string what) { kinship_.outside.push_back(std::move(what)); }

  Kin OnKnownCluster() const {
    if (!None([&](const RunIdentity& r) { return SameSite(r) && SameShape(r.at, asked_.at); }))
      return Kin::kShape;
    return None([&](const RunIdentity& r) { return SameSite(r) && SameModel(r.at, asked_.at); })
               ? Kin::kCluster
               : Kin::kModel;
  }

  // A site whose chips have a profile of their own runs products at another clock. "": that part has no runs.
  std::string KnownPart() const {
    std::string part = PartOf(asked_.gpu);
    const bool known = !None([&](const RunIdentity& run) { return PartOf(run.gpu) == part; });
    return known ? part : "";
  }

  bool NewFacts() {
    std::map<std::string, std::vector<std::string>> by_reason;
    for (const auto& [key, value] : asked_.facts) {
      const bool kernel = key == kAttentionFact || key == kProductsFact;
      const auto none = [&, &key = key, &value = value](const auto& of) {
        for (std::size_t i = 0; i < runs_.size(); ++i) {
          if (!of(alike_[i], *runs_[i])) continue;
          const auto fact = runs_[i]->facts.find(key);
          if (fact != runs_[i]->facts.end() && fact->second == value) return false;
        }
        return true;
      };
      const std::string part = key == kProductsFact ? KnownPart() : "";
      const bool new_here =
          kernel && !kinship_.new_chip && none([&](const Alike& alike, const RunIdentity& run) {
            return alike.chip && (part.empty() || PartOf(run.gpu) == part);
          });
      const bool new_to_family =
          none([&](const Alike& alike, const RunIdentity&) { return new_family_ || alike.family; });
      if (!new_here && !new_to_family) continue;
      kinship_.new_attention |= key == kAttentionFact && new_here;
      const std::string reason = new_here ? fmt::format("with it on {}", chip_)
                                 : new_family_
                                     ? "with it"
                                     : fmt::format("of {} with it", FamilyOf(asked_.framework));
      by_reason[reason].push_back(fmt::format("{} {}", key, value));
    }
    for (const auto& [reason, facts] : by_reason)
      Say(fmt::format("{}: no calibrated run {}", fmt::join(facts, ", "), reason));
    return !by_reason.empty();
  }

  // Of the release's runs; where it has none, of all.
  void AddDoublings() {
    for (int feature = 0; feature < kFeatures; ++feature) {
      double low = 0, high = 0;
      for (const RunIdentity* run : runs_) {
        if (!kinship_.new_framework && !SameRelease(*run)) continue;
        const double value = run->at[feature];
        low = high == 0 ? value : std::min(low, value);
        high = std::max(high, value);
      }
      const double at = asked_.at[feature];
      if (high == 0 || at <= 0 || (at >= low && at <= high)) continue;
      kinship_.doublings += std::abs(std::log2(at / (at < low ? low : high)));
      const char* name = at == 1 ? kOneFeature[feature] : kFeatureNames[feature];
      Say(low == high ? fmt::format("{} {}: calibrated on {}", at, name, low)
                      : fmt::format("{} {}: calibrated on {} to {}", at, name, low, high));
    }
    kinship_.doublings = std::min(kinship_.doublings, kMostDoublings);
  }

  const RunIdentity& asked_;
  const std::vector<const RunIdentity*>& runs_;
  const std::string chip_;
  std::vector<Alike> alike_;  // by run
  bool new_family_ = false;
  Kinship kinship_;
};

}  // namespace

const char* NameOf(Kin kin) { return kNames[static_cast<int>(kin)]; }

Kinship KinshipOf(const RunIdentity& asked, const std::vector<const RunIdentity*>& runs) {
  return KinFinder(asked, runs).Run();
}

RunIdentity IdentityOf(const CostSetting& setting, const Workload& work, const Strategy& strategy,
                       const Situation& at) {
  return {ReleaseOf(*setting.framework, setting.cluster->name),
          setting.gpu->header.id,
          setting.fabric->header.id,
          setting.cluster->name,
          FactsOf(setting, work, strategy),
          at};
}

std::string FamilyOf(const std::string& framework) { return std::string(FamilyPart(framework)); }

std::string ChipOf(const std::string& gpu) { return std::string(ChipPart(gpu)); }

std::string SiteOf(const RunIdentity& run) {
  return fmt::format("{}@{}, {}", run.framework, run.topology,
                     run.at[kAtNodes] > 1 ? "several nodes" : "one node");
}

std::string IdentityColumns() {
  std::string text;
  for (const char* name : kTexts) text += fmt::format(",{}", name);
  for (const char* name : kFeatureNames) text += fmt::format(",{}", name);
  return text;
}

std::string IdentityCells(const RunIdentity* run) {
  if (run == nullptr) return std::string(std::size(kTexts) + kFeatures, ',');
  std::string text = fmt::format(",{},{},{},{},{}", run->framework, run->gpu, run->fabric,
                                 run->topology, FactsText(run->facts));
  for (const double value : run->at) text += fmt::format(",{:g}", value);
  return text;
}

IdentityReader::IdentityReader(const CsvTable& table) : table_(table) {
  for (int feature = 0; feature < kFeatures; ++feature)
    columns_[feature] = table.IndexOf(kFeatureNames[feature]);
}

RunIdentity IdentityReader::Read(std::size_t row) {
  const std::string_view text = table_.View(row, "facts");
  const auto [facts, added] = known_.try_emplace(text);
  if (added) facts->second = ReadFacts(text);
  RunIdentity run{
      table_.Text(row, "framework"), table_.Text(row, "gpu"), table_.Text(row, "fabric"),
      table_.Text(row, "topology"),  facts->second,           {}};
  for (int feature = 0; feature < kFeatures; ++feature)
    run.at[feature] = table_.Number(row, columns_[feature], 1e-6, kMostOfColumn).value_or(1);
  return run;
}

}  // namespace orrery
