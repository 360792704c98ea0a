// SPDX-License-Identifier: Apache-2.0
// Predictions of published runs, grouped so that profiles and layer tables are shared.
#include "calib/validate/validate.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <tuple>

#include "calib/validate/event_engine.h"
#include "calib/validate/predict_memory.h"
#include "model/cost/measured_collectives.h"
#include "model/cost/trust.h"
#include "model/input/diagnostics.h"
#include "model/topo/catalog.h"
#include "model/topo/summary.h"

namespace orrery {
namespace {

// Profiles and topologies by name; an unknown one is remembered as its message.
template <class T>
class Cache {
 public:
  template <class Load>
  const T* Get(const std::string& name, Load load, std::string* reason) {
    auto found = entries_.find(name);
    if (found == entries_.end()) {
      Entry entry;
      try {
        entry.value = std::make_unique<T>(load());
      } catch (const InputError& error) {
        entry.reason =
            error.diagnostics().empty() ? error.what() : error.diagnostics().front().message;
      }
      found = entries_.emplace(name, std::move(entry)).first;
    }
    if (!found->second.value) *reason = found->second.reason;
    return found->second.value.get();
  }

 private:
  struct Entry {
    std::unique_ptr<T> value;
    std::string reason;
  };
  std::map<std::string, Entry> entries_;
};

// Rows that share a predictor: equal model, workload but for the batch, cluster and software.
using PredictorKey =
    std::tuple<std::string, std::string, int64_t, int, bool, std::array<int64_t, 12>>;

PredictorKey KeyOf(const CaseRow& row) {
  const ModelSpec& m = row.model;
  return {row.topology,
          row.software,
          row.nodes,
          row.gpus_per_node,
          row.strategy.flash_attention,
          {m.layers, m.hidden, m.ffn, m.gated, m.heads, m.kv_heads, m.vocab,
           static_cast<int64_t>(m.family), static_cast<int64_t>(m.norm), row.work.seq_len,
           static_cast<int64_t>(row.work.precision), static_cast<int64_t>(row.work.optimizer)}};
}

class CasePredictor {
 public:
  explicit CasePredictor(Engine engine) : engine_(engine) {}

  void Predict(CasePrediction* prediction) {
    CaseRow& row = prediction->row;
    if (row.refused) return;
    std::string reason;
    const Setting* setting = FindSetting(row, &reason);
    if (setting == nullptr) {
      row.refused = reason;
      return;
    }
    if (setting->cost.gpu->Peak(row.work.precision).value <= 0) {
      row.refused =
          fmt::format("{} has no arithmetic of this precision", setting->cost.gpu->header.id);
      return;
    }
    const Strategy as_read = row.strategy;
    FollowStack(*setting->cost.stack, &row.strategy);
    FollowStack(*setting->cost.stack, &row.work);
    if (const auto memory = memory_.Predict(row, *setting->cost.gpu, *setting->cost.stack)) {
      prediction->predicted_mem_gib = memory->device_gib;
      prediction->predicted_allocator_gib = memory->allocator_gib;
    }
    if (ReadsAsFlash(row, prediction->predicted_mem_gib, *setting)) {
      row.strategy = as_read;
      row.strategy.flash_attention = true;
      row.notes.emplace_back(
          "attention is not printed and would not fit if materialised: read as flash");
      Predict(prediction);
      return;
    }
    auto& step = steps_[{KeyOf(row), row.work.global_batch}];
    if (!step) step = std::make_unique<StepPredictor>(row.model, row.work, setting->cost);
    const auto result = step->Predict(row.strategy, row.window);
    if (const auto* refusal = std::get_if<Refusal>(&result)) {
      row.refused = refusal->reason;
      return;
    }
    prediction->time = std::get<StepTime>(result);
    AddConfidence(prediction, *setting);
    if (engine_ == Engine::kEvent) Simulate(prediction, *setting);
  }

 private:
  struct Setting {
    const TopologySpec* topology = nullptr;
    ClusterSummary cluster;
    CostSetting cost;
  };

  void AddConfidence(CasePrediction* prediction, const Setting& setting) {
    const CaseRow& row = prediction->row;
    ShapeCache& shapes = shapes_[KeyOf(row)];
    const auto predict = [&](const CostSetting& cost) {
      StepPredictor predictor(row.model, row.work, cost, &shapes);
      return std::get<StepTime>(predictor.Predict(row.strategy, row.window)).total;
    };
    Confidence confidence =
        ConfidenceOf(trust_, setting.cost, SituationOf(row.model, row.work, row.strategy, row.nodes),
                     prediction->time->total, predict);
    prediction->time->low = confidence.low;
    prediction->time->high = confidence.high;
    prediction->outside = std::move(confidence.outside);
  }

  void Simulate(CasePrediction* prediction, const Setting& setting) {
    CaseRow& row = prediction->row;
    const auto simulated =
        SimulateCase(row, *setting.topology, setting.cost, *prediction->time);
    if (const auto* refusal = std::get_if<Refusal>(&simulated)) {
      row.refused = refusal->reason;
      prediction->time.reset();
      return;
    }
    prediction->time = std::get<StepTime>(simulated);
  }

  // The score matrices of a run whose attention nobody printed must at least have fitted.
  static bool ReadsAsFlash(const CaseRow& row, const std::optional<double>& gib,
                           const Setting& setting) {
    const bool open = row.flash_assumed && !row.strategy.flash_attention && gib.has_value();
    return open && *gib * 1073741824.0 > setting.cost.gpu->memory.value;
  }

  const Setting* FindSetting(const CaseRow& row, std::string* reason) {
    const auto key = std::make_tuple(row.topology, row.software, row.nodes, row.gpus_per_node,
                                     row.strategy.flash_attention);
    auto found = settings_.find(key);
    if (found == settings_.end()) {
      found = settings_.emplace(key, MakeSetting(row)).first;
    }
    if (!found->second.first) *reason = found->second.second;
    return found->second.first.get();
  }

  std::pair<std::unique_ptr<Setting>, std::string> MakeSetting(const CaseRow& row) {
    std::string reason;
    const TopologySpec* spec = topologies_.Get(
        row.topology, [&] { return LoadTopology(row.topology); }, &reason);
    if (spec == nullptr) return {nullptr, reason};
    auto setting = std::make_unique<Setting>();
    setting->topology = spec;
    try {
      setting->cluster = Summarise(*spec, row.nodes, row.gpus_per_node);
    } catch (const InputError& error) {
      return {nullptr,
              error.diagnostics().empty() ? error.what() : error.diagnostics().front().message};
    }
    const ClusterSummary& cluster = setting->cluster;
    if (cluster.gpu == kUnknownGpu)
      return {nullptr, fmt::format("topology {} does not name its GPU", row.topology)};
    setting->cost.cluster = &setting->cluster;
    setting->cost.gpu = gpus_.Get(
        cluster.gpu, [&] { return LoadGpuProfile(cluster.gpu); }, &reason);
    setting->cost.fabric = fabrics_.Get(
        cluster.fabric_profile + " " + cluster.collectives + " " + cluster.gpu,
        [&] {
          return LoadFabricProfile(cluster.fabric_profile, cluster.collectives, cluster.gpu);
        },
        &reason);
    const bool flash = row.strategy.flash_attention;
    const std::string stack = fmt::format("{} {} {}", row.software, row.topology, flash);
    setting->cost.stack = stacks_.Get(
        stack, [&] { return SelectStackProfile(row.software, row.topology, flash); }, &reason);
    if (!setting->cost.gpu || !setting->cost.fabric || !setting->cost.stack)
      return {nullptr, reason};
    return {std::move(setting), ""};
  }

  Engine engine_;
  Trust trust_ = LoadTrust();
  std::map<PredictorKey, ShapeCache> shapes_;
  Cache<TopologySpec> topologies_;
  Cache<GpuProfile> gpus_;
  Cache<FabricProfile> fabrics_;
  Cache<StackProfile> stacks_;
  std::map<std::tuple<std::string, std::string, int64_t, int, bool>,
           std::pair<std::unique_ptr<Setting>, std::string>>
      settings_;
  std::map<std::pair<PredictorKey, int64_t>, std::unique_ptr<StepPredictor>> steps_;
  MemoryPredictor memory_;
};

}  // namespace

std::vector<CasePrediction> PredictCases(std::vector<CaseRow> rows, Engine engine) {
  CasePredictor predictor(engine);
  std::vector<CasePrediction> predictions;
  predictions.reserve(rows.size());
  for (CaseRow& row : rows) {
    predictions.push_back({std::move(row), std::nullopt, {}, std::nullopt, std::nullopt});
    predictor.Predict(&predictions.back());
  }
  return predictions;
}

std::vector<CaseRow> LoadCases(const std::string& path) {
  Diagnostics diagnostics;
  const CsvTable table = CsvTable::Parse(ReadSource(path), CaseColumns(), &diagnostics);
  diagnostics.ThrowIfAny();
  std::vector<CaseRow> rows = ReadCases(table);
  diagnostics.ThrowIfAny();
  if (rows.empty()) throw InputError(fmt::format("{} has no rows", path));
  return rows;
}

}  // namespace orrery
