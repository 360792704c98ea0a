// SPDX-License-Identifier: Apache-2.0
// Selects runs, groups them, predicts them from shared shapes.
#include "calib/fit/case_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "calib/validate/validate.h"
#include "model/base/check.h"
#include "model/hardware/catalog.h"
#include "model/plan/lower/names.h"

namespace orrery {
namespace {

// Everything of a model and a workload, but names and batch, that shapes its operations.
std::string ShapeText(const CaseRow& row) {
  const ModelSpec& m = row.model;
  const Workload& w = row.work;
  return fmt::format(
      "{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}{}{}{}{}{}{} {} {} {}", m.layers,
      m.decoder_layers, m.hidden, m.ffn, m.gated, m.heads, m.kv_heads, m.head_dim, m.vocab,
      static_cast<int>(m.family), static_cast<int>(m.norm), m.tied_embeddings, w.seq_len,
      w.masked_positions,
      w.lora.key() * 256 + static_cast<int>(w.precision) * 16 + static_cast<int>(w.fp8),
      static_cast<int>(w.optimizer), m.linear_bias, m.qkv_bias, m.post_norm, m.pooler,
      m.embedding_norm, m.head_transform, m.head_bias, m.token_types, static_cast<int>(m.positions),
      static_cast<int>(m.activation));
}

bool IsAmong(const std::set<std::string>& names, const std::string& name) {
  return names.empty() || names.contains(name);
}

}  // namespace

bool RowFilter::Takes(const std::string& source, const std::string& gpu, const std::string& fabric,
                      const std::string& framework) const {
  return IsAmong(sources, source) && IsAmong(gpus, gpu) && IsAmong(fabrics, fabric) &&
         IsAmong(frameworks, framework);
}

CaseSource::CaseSource(std::vector<CaseRow> rows, const RowFilter& filter, ProfileStore* store) {
  for (const CasePrediction& prediction : PredictCases(std::move(rows))) {
    if (!prediction.time) {
      LeaveOut(prediction.row, prediction.row.refused.value_or("refused"));
      continue;
    }
    if (!prediction.compared()) {
      LeaveOut(prediction.row, "no time printed");
      continue;
    }
    Add(prediction.row, filter, store);
  }
  if (observations_.empty()) {
    std::string reasons;
    for (const auto& [reason, count] : left_out_) reasons += fmt::format("; {}: {}", count, reason);
    throw InputError("no row is left to fit" + reasons,
                     "check --gpu, --fabric, --framework and the job's sources");
  }
  NameGroups();
}

void CaseSource::LeaveOut(const CaseRow& row, const std::string& reason) {
  ++left_out_[reason];
  reasons_[row.name] = reason;
}

void CaseSource::Add(const CaseRow& row, const RowFilter& filter, ProfileStore* store) {
  const ClusterSummary* cluster = FindCluster(row);
  Observation seen;
  seen.gpu = store->Gpu(cluster->gpu);
  seen.fabric = store->Fabric(cluster->fabric_profile);
  seen.framework =
      store->SelectFramework(row.framework, cluster->name, row.strategy.flash_attention);
  const std::string& framework = store->framework(seen.framework).header.id;
  if (!IsAmong(filter.sources, row.source)) {
    LeaveOut(row, fmt::format("source {} is not selected", row.source));
  } else if (!IsAmong(filter.gpus, cluster->gpu)) {
    LeaveOut(row, fmt::format("ran on the GPU {}", cluster->gpu));
  } else if (!IsAmong(filter.fabrics, cluster->fabric_profile)) {
    LeaveOut(row, fmt::format("ran on the fabric {}", cluster->fabric_profile));
  } else if (!IsAmong(filter.frameworks, framework)) {
    LeaveOut(row, fmt::format("ran with the framework {}", framework));
  } else {
    seen.name = row.name;
    seen.source = row.source;
    seen.group = row.nodes == 1 ? "one node" : "many nodes";
    seen.model = fmt::format("{} layers of {}", row.model.layers, row.model.hidden);
    seen.topology = row.topology;
    seen.measured = row.measured_step_s;
    seen.run = IdentityOf({&store->gpu(seen.gpu), &store->fabric(seen.fabric),
                           &store->framework(seen.framework), cluster},
                          row.work, row.strategy,
                          SituationOf(row.model, row.work, row.strategy, row.nodes));
    runs_.push_back(
        {FindSweep(row, cluster, seen), row.work.global_batch, row.strategy, row.window});
    seen.sweep = fmt::format("{} {} {} {}", row.source, runs_.back().sweep, row.work.global_batch,
                             RecomputeText(row.strategy.recompute));
    observations_.push_back(std::move(seen));
  }
}

const ClusterSummary* CaseSource::FindCluster(const CaseRow& row) {
  Cluster& cluster = clusters_[{row.topology, row.nodes, row.gpus_per_node}];
  if (!cluster) {
    cluster = std::make_unique<ClusterSummary>(
        Summarise(LoadTopology(row.topology), row.nodes, row.gpus_per_node));
  }
  return cluster.get();
}

int CaseSource::FindSweep(const CaseRow& row, const ClusterSummary* cluster,
                          const Observation& profiles) {
  const std::string key = fmt::format("{} {} {} {} {}", row.topology, row.nodes, row.gpus_per_node,
                                      profiles.framework, ShapeText(row));
  const auto [found, fresh] = sweep_of_.emplace(key, static_cast<int>(sweeps_.size()));
  if (fresh) {
    sweeps_.push_back({row.model, row.work, cluster, profiles.gpu, profiles.fabric,
                       profiles.framework, std::make_unique<ShapeCache>()});
  }
  Sweep& sweep = sweeps_[found->second];
  (void)sweep.shapes->Of(row.model, row.work, orrery::KeyOf(row.model, row.strategy));
  return found->second;
}

Job CaseSource::JobOf(const Run& run, const ProfileStore& store) const {
  const Sweep& sweep = sweeps_[run.sweep];
  Job job(sweep.model, sweep.work,
          {&store.gpu(sweep.gpu), &store.fabric(sweep.fabric), &store.framework(sweep.framework),
           sweep.cluster});
  job.work.global_batch = run.global_batch;
  return job;
}

void CaseSource::Predict(const ProfileStore& store, const std::vector<int>& which,
                         std::vector<double>* values) const {
  std::map<std::pair<int, int64_t>, std::unique_ptr<StepPredictor>> predictors;
  values->clear();
  for (int index : which) {
    const Run& run = runs_[index];
    auto& predictor = predictors[{run.sweep, run.global_batch}];
    if (!predictor) {
      predictor =
          std::make_unique<StepPredictor>(JobOf(run, store), sweeps_[run.sweep].shapes.get());
    }
    const auto result = predictor->Predict(run.strategy, run.window);
    const auto* time = std::get_if<StepTime>(&result);
    ORRERY_CHECK(time != nullptr, "{} was predicted before", observations_[index].name);
    values->push_back(time->total);
  }
}

std::vector<Confidence> CaseSource::Confidences(const ProfileStore& store,
                                                const Trust& trust) const {
  std::vector<Confidence> confidences;
  for (const Run& run : runs_) {
    confidences.push_back(ConfidenceOf(JobOf(run, store), run.strategy, run.window, trust,
                                       sweeps_[run.sweep].shapes.get()));
  }
  return confidences;
}

// "mosaic a100-sxm4-40gb many nodes" where a source ran on several chips, else "vtrain one node";
// the number of nodes only where a source has both.
void CaseSource::NameGroups() {
  std::map<std::string, std::set<std::string>> chips, sizes, models;
  const auto chip = [&](const Observation& seen) {
    const Run& run = runs_[&seen - observations_.data()];
    return sweeps_[run.sweep].cluster->gpu;
  };
  for (const Observation& seen : observations_) {
    chips[seen.source].insert(chip(seen));
    sizes[seen.source].insert(seen.group);
    models[seen.source].insert(seen.model);
  }
  for (Observation& seen : observations_) {
    // One model on many platforms: leaving out a platform is what can be asked of such a source.
    if (models[seen.source].size() == 1) {
      const Run& run = runs_[&seen - observations_.data()];
      seen.model = fmt::format("{} {} precision {}", seen.topology, seen.group,
                               static_cast<int>(sweeps_[run.sweep].work.precision));
    }
  }
  for (Observation& seen : observations_) {
    std::string group = seen.source;
    if (chips[seen.source].size() > 1) group += " " + chip(seen);
    seen.model = group + ", " + seen.model;  // on one node and on many
    if (sizes[seen.source].size() > 1) group += " " + seen.group;
    seen.group = group;
  }
}

}  // namespace orrery
