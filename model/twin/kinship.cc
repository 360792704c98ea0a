// SPDX-License-Identifier: Apache-2.0
// Compares a question with each calibrated run.
#include "model/twin/kinship.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "model/base/csv.h"
#include "model/plan/lower/names.h"

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

// "megatron-deepspeed" of the site "megatron-deepspeed@vtrain-a100"; a release keeps its name.
std::string ReleaseOf(const FrameworkProfile& framework, const std::string& topology) {
  const std::string& id = framework.header.id;
  const std::string site = "@" + topology;
  return id.ends_with(site) ? id.substr(0, id.size() - site.size()) : id;
}

RunFacts FactsOf(const CostSetting& setting, const Workload& work, const Strategy& strategy) {
  const FrameworkPreset& preset = *setting.framework->preset;
  const auto kernel = strategy.flash_attention ? preset.FusedAttention(*setting.gpu) : std::nullopt;
  RunFacts facts;
  facts["attention"] = "standard";
  for (const auto& [name, known] : kAttentionKernelNames) {
    // The same kernel in a fixed order of sums is next of kin, not another.
    const std::string_view word = name;
    if (kernel == known) facts["attention"] = word.substr(0, word.find("-deterministic"));
  }
  facts["fp32_grads"] = strategy.fp32_grads ? "on" : "off";
  if (strategy.tp > 1 && strategy.sequence_parallel)
    facts["tp_overlap"] = preset.tp_overlap ? "on" : "off";
  // From here on what a plain run does not have. Adam and AdamW are one kernel.
  if (work.optimizer != Optimizer::kAdam && work.optimizer != Optimizer::kAdamW)
    facts["optimizer"] = NameIn(kOptimizerNames, work.optimizer);
  if (strategy.cp > 1) facts["cp method"] = NameIn(kCpMethodNames, strategy.context.method);
  if (strategy.pp > 1 && strategy.schedule != PipelineSchedule::k1F1B &&
      strategy.schedule != PipelineSchedule::kInterleaved)
    facts["schedule"] = NameIn(kScheduleNames, strategy.schedule);
  if (work.lora.on()) facts["trained"] = "adapters";
  if (!preset.compile) facts["compile"] = "off";
  if (strategy.offload.on()) facts["offload"] = OffloadText(strategy.offload);
  if (work.lora.packed()) facts["frozen weights"] = NameIn(kLoraBaseNames, work.lora.base);
  if (work.fp8 != Fp8::kOff) facts["products"] = NameIn(kProductNames, FormOf(work.fp8).product);
  return facts;
}

std::string FactsText(const RunFacts& facts) {
  std::string text;
  for (const auto& [key, value] : facts)
    text += fmt::format("{}{}={}", text.empty() ? "" : ";", key, value);
  return text;
}

RunFacts ReadFacts(const std::string& text) {
  RunFacts facts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(';', begin), text.size());
    const std::string fact = text.substr(begin, end - begin);
    const std::size_t at = fact.find('=');
    if (at != std::string::npos) facts[fact.substr(0, at)] = fact.substr(at + 1);
    begin = end + 1;
  }
  return facts;
}

class KinFinder {
 public:
  KinFinder(const RunIdentity& asked, const std::vector<const RunIdentity*>& runs)
      : asked_(asked), runs_(runs), chip_(ChipOf(asked.gpu)) {}

  Kinship Run() {
    kinship_.new_framework = None([&](const RunIdentity& r) { return SameRelease(r); });
    kinship_.new_chip = None([&](const RunIdentity& r) { return ChipOf(r.gpu) == chip_; });
    kinship_.new_gpu = None([&](const RunIdentity& r) { return r.gpu == asked_.gpu; });
    kinship_.new_fabric = asked_.at[kAtNodes] > 1 && None([&](const RunIdentity& r) {
                            return r.fabric == asked_.fabric && r.at[kAtNodes] > 1;
                          });
    kinship_.new_site = None([&](const RunIdentity& r) { return SameSite(r); });
    if (kinship_.new_framework)
      Say(fmt::format("{}: no calibrated run of this framework", asked_.framework));
    else if (kinship_.new_site)
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

  bool NewFacts() {
    bool any = false;
    for (const auto& [key, value] : asked_.facts) {
      const bool by_chip = (key == "attention" || key == "products") && !kinship_.new_chip;
      if (!None([&, &key = key, &value = value](const RunIdentity& run) {
            const auto fact = run.facts.find(key);
            return fact != run.facts.end() && fact->second == value &&
                   (!by_chip || ChipOf(run.gpu) == chip_);
          }))
        continue;
      any = true;
      kinship_.new_attention |= key == "attention";
      Say(fmt::format("{} {}: no calibrated run {}", key, value,
                      by_chip ? fmt::format("with it on {}", chip_) : "with it"));
    }
    return any;
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

std::string ChipOf(const std::string& gpu) {
  for (std::size_t dash = gpu.find('-'); dash != std::string::npos;
       dash = gpu.find('-', dash + 1)) {
    std::size_t end = dash + 1;
    while (end < gpu.size() && std::isdigit(static_cast<unsigned char>(gpu[end])) != 0) ++end;
    if (end > dash + 1 && gpu.compare(end, 2, "gb") == 0) return gpu.substr(0, dash);
  }
  return gpu;
}

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

RunIdentity ReadIdentity(const CsvTable& table, std::size_t row) {
  RunIdentity run{table.Text(row, "framework"),        table.Text(row, "gpu"),
                  table.Text(row, "fabric"),           table.Text(row, "topology"),
                  ReadFacts(table.Text(row, "facts")), {}};
  for (int feature = 0; feature < kFeatures; ++feature)
    run.at[feature] = table.Number(row, kFeatureNames[feature], 1e-6, kMostOfColumn).value_or(1);
  return run;
}

}  // namespace orrery
