// SPDX-License-Identifier: Apache-2.0
// Selects the rows that print memory and predicts them from their demands.
#include "calib/fit/memory_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "calib/validate/validate.h"
#include "model/hardware/catalog.h"

namespace orrery {
namespace {

constexpr double kGib = 1073741824.0;
constexpr const char* kMemoryKeys[] = {"memory_buffers",       "memory_communicator",
                                       "memory_context",       "memory_fragmentation",
                                       "memory_gradient_copy", "memory_loss"};

bool Takes(const std::set<std::string>& names, const std::string& name) {
  return names.empty() || names.contains(name);
}

MemoryKind KindOf(const CaseRow& row, const MemoryKinds& kinds) {
  if (row.memory_kind != MemoryKind::kNotSaid) return row.memory_kind;
  const auto found = kinds.find(row.source);
  return found == kinds.end() ? MemoryKind::kNotSaid : found->second;
}

}  // namespace

Needs NeedsOf(const std::vector<ParameterRequest>& requests) {
  Needs needs;
  for (const ParameterRequest& request : requests) {
    const std::string& key = request.names.front().key;
    const bool memory = std::any_of(std::begin(kMemoryKeys), std::end(kMemoryKeys),
                                    [&](const char* known) { return key == known; });
    (memory ? needs.memory : needs.time) = true;
  }
  return needs;
}

MemorySource::MemorySource(const std::vector<CaseRow>& rows, const MemoryKinds& kinds,
                           const RowFilter& filter, ProfileStore* store) {
  std::vector<CaseRow> printed;
  for (const CaseRow& row : rows) {
    if (row.measured_mem_gib && *row.measured_mem_gib > 0) printed.push_back(row);
  }
  if (printed.empty()) return;
  // Predicting them reads attention that nobody printed as the row's memory allows.
  for (const CasePrediction& prediction : PredictCases(std::move(printed))) {
    if (prediction.row.refused) {
      ++left_out_[*prediction.row.refused];
    } else {
      Add(prediction.row, kinds, filter, store);
    }
  }
}

void MemorySource::Add(const CaseRow& row, const MemoryKinds& kinds, const RowFilter& filter,
                       ProfileStore* store) {
  const ClusterSummary cluster =
      Summarise(LoadTopology(row.topology), row.nodes, row.gpus_per_node);
  Observation seen;
  seen.gpu = store->Gpu(cluster.gpu);
  seen.framework =
      store->SelectFramework(row.framework, cluster.name, row.strategy.flash_attention);
  const bool taken = Takes(filter.sources, row.source) && Takes(filter.gpus, cluster.gpu) &&
                     Takes(filter.fabrics, cluster.fabric_profile) &&
                     Takes(filter.frameworks, store->framework(seen.framework).header.id);
  const MemoryKind kind = KindOf(row, kinds);
  const RunDemand* demand = predictor_.Demand(row, HoldingOf(store->framework(seen.framework)));
  if (!taken) {
    ++left_out_["memory of runs that are not selected"];
  } else if (kind == MemoryKind::kNotSaid) {
    ++left_out_[fmt::format("memory of {}: the rows (memory_by) do not say who printed it",
                            row.source)];
  } else if (demand != nullptr) {
    seen.name = row.name;
    seen.source = row.source;
    seen.group = fmt::format("{} memory, {}", row.source,
                             kind == MemoryKind::kDevice ? "device" : "allocator");
    seen.model = fmt::format("{}, {} layers of {}", seen.group, row.model.layers, row.model.hidden);
    seen.topology = row.topology;
    seen.measured = *row.measured_mem_gib * kGib;
    seen.step_time = false;
    figures_.push_back({demand, kind});
    observations_.push_back(std::move(seen));
  }
}

void MemorySource::Predict(const ProfileStore& store, const std::vector<int>& which,
                           std::vector<double>* values) const {
  values->clear();
  for (const int index : which) {
    const Figure& figure = figures_[index];
    const Observation& seen = observations_[index];
    const PredictedMemory memory =
        MemoryOf(*figure.demand, store.gpu(seen.gpu), store.framework(seen.framework));
    values->push_back(
        kGib * (figure.kind == MemoryKind::kDevice ? memory.device_gib : memory.allocator_gib));
  }
}

}  // namespace orrery
