// SPDX-License-Identifier: Apache-2.0
// Groups rows into sweeps; tau and regret.
#include "calib/validate/ranking.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

namespace orrery {
namespace {

// What the rows of one sweep share. Recomputation and fused attention belong to the layout.
using SweepKey =
    std::tuple<std::string, std::string, std::string, int64_t, int, std::array<int64_t, 15>>;

SweepKey SweepOf(const CaseRow& row) {
  const ModelSpec& m = row.model;
  const Workload& w = row.work;
  return {row.source,
          row.topology,
          row.framework,
          row.nodes,
          row.gpus_per_node,
          {static_cast<int64_t>(m.family), static_cast<int64_t>(m.norm), m.layers, m.decoder_layers,
           m.hidden, m.ffn, m.gated, m.heads, m.kv_heads, m.vocab, w.seq_len, w.global_batch,
           w.fp8_skip.key() * 65536 + w.lora.key() * 256 + static_cast<int64_t>(w.precision) * 16 +
               static_cast<int64_t>(w.fp8),
           static_cast<int64_t>(w.optimizer), static_cast<int64_t>(row.window)}};
}

void Judge(Sweep* sweep) {
  std::vector<double> predicted, measured;
  for (const CasePrediction* c : sweep->rows) {
    predicted.push_back(c->time->total);
    measured.push_back(c->row.measured_step_s);
  }
  sweep->tau = KendallTau(predicted, measured);
  const auto chosen = std::min_element(predicted.begin(), predicted.end()) - predicted.begin();
  const auto best = std::min_element(measured.begin(), measured.end()) - measured.begin();
  const auto at = [](std::ptrdiff_t i) { return static_cast<std::size_t>(i); };
  sweep->regret = measured[at(chosen)] / measured[at(best)] - 1;
  sweep->chosen = sweep->rows[at(chosen)]->row.name;
  sweep->best = sweep->rows[at(best)]->row.name;
}

int Sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

}  // namespace

double KendallTau(const std::vector<double>& predicted, const std::vector<double>& measured) {
  int64_t agree = 0, apart_predicted = 0, apart_measured = 0;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    for (std::size_t j = i + 1; j < predicted.size(); ++j) {
      const int p = Sign(predicted[i] - predicted[j]), m = Sign(measured[i] - measured[j]);
      agree += p * m;
      apart_predicted += p != 0;
      apart_measured += m != 0;
    }
  }
  if (apart_predicted == 0 || apart_measured == 0) return 0;
  return static_cast<double>(agree) /
         std::sqrt(static_cast<double>(apart_predicted) * static_cast<double>(apart_measured));
}

std::vector<Sweep> FindSweeps(const std::vector<const CasePrediction*>& cases) {
  std::map<SweepKey, Sweep> groups;
  for (const CasePrediction* c : cases) {
    if (c->compared()) groups[SweepOf(c->row)].rows.push_back(c);
  }
  std::vector<Sweep> sweeps;
  for (auto& [key, sweep] : groups) {
    const auto equal = [&](const CasePrediction* c) {
      return c->time->total == sweep.rows.front()->time->total;
    };
    if (sweep.rows.size() < kLeastSwept) continue;
    if (std::all_of(sweep.rows.begin(), sweep.rows.end(), equal))
      continue;  // repeats of one layout
    Judge(&sweep);
    sweeps.push_back(std::move(sweep));
  }
  return sweeps;
}

RankingSummary SummariseRanking(const std::vector<Sweep>& sweeps) {
  RankingSummary summary;
  summary.sweeps = static_cast<int>(sweeps.size());
  for (const Sweep& sweep : sweeps) {
    summary.rows += static_cast<int>(sweep.rows.size());
    summary.tau += sweep.tau / summary.sweeps;
    summary.regret += sweep.regret / summary.sweeps;
    summary.best_found += sweep.regret == 0;
    if (sweep.regret >= summary.worst_regret) {
      summary.worst_regret = sweep.regret;
      summary.worst_case = sweep.chosen;
    }
  }
  return summary;
}

}  // namespace orrery
