// SPDX-License-Identifier: Apache-2.0
// The JSON of a validation.
#include <nlohmann/json.hpp>

#include "calib/program/validate/report.h"
#include "calib/validate/memory_errors.h"
#include "calib/validate/ranking.h"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

// Seconds of the step by term; they add up to the prediction of the closed form.
Json PartsJson(const StepTime& t) {
  Json json;
  for (const BreakdownTerm& term : BreakdownTerms()) json[term.key] = t.*term.seconds;
  return json;
}

Json CaseJson(const CasePrediction& c) {
  const CaseRow& row = c.row;
  const Strategy& s = row.strategy;
  return {{"case", row.name},
          {"place", row.place},
          {"source", row.source},
          {"topology", row.topology},
          {"nodes", row.nodes},
          {"gpus", row.nodes * row.gpus_per_node},
          {"tp", s.tp},
          {"pp", s.pp},
          {"dp", s.data_parallel()},
          {"zero", s.zero},
          {"micro_batch", s.micro_batch},
          {"measured_step_s", row.measured_step_s > 0 ? Json(row.measured_step_s) : Json(nullptr)},
          {"predicted_step_s", c.time ? Json(c.time->total) : Json(nullptr)},
          {"interval_s", c.time ? Json::array({c.time->low, c.time->high}) : Json(nullptr)},
          {"parts_s", c.time ? PartsJson(*c.time) : Json(nullptr)},
          {"measured_mem_gib", OrNull(row.measured_mem_gib)},
          {"predicted_mem_gib", OrNull(c.predicted_mem_gib)},
          {"predicted_allocator_gib", OrNull(c.predicted_allocator_gib)},
          {"notes", row.notes},
          {"outside", c.outside},
          {"refused", row.refused ? Json(*row.refused) : Json(nullptr)}};
}

Json MemoryErrorsJson(const MemoryErrors& errors) {
  if (errors.rows == 0) return nullptr;
  return {
      {"rows", errors.rows}, {"mean", errors.mean}, {"bias", errors.bias}, {"worst", errors.worst}};
}

Json SourceJson(const std::string& name, const std::vector<const CasePrediction*>& members) {
  const ErrorSummary errors = Summarise(members);
  const RankingSummary ranking = SummariseRanking(FindSweeps(members));
  Json json = {{"source", name},
               {"rows", errors.rows},
               {"predicted", errors.predicted},
               {"mean", errors.mean},
               {"median", errors.median},
               {"bias", errors.bias},
               {"worst", errors.worst},
               {"worst_case", errors.worst_case},
               {"inside_80", errors.inside}};
  json["sweeps"] = ranking.sweeps;
  json["tau"] = ranking.sweeps > 0 ? Json(ranking.tau) : Json(nullptr);
  json["regret"] = ranking.sweeps > 0 ? Json(ranking.regret) : Json(nullptr);
  json["memory_allocator"] = MemoryErrorsJson(SummariseMemory(members, MemoryKind::kAllocator));
  json["memory_device"] = MemoryErrorsJson(SummariseMemory(members, MemoryKind::kDevice));
  return json;
}

}  // namespace

Json ValidationJson(const std::vector<CasePrediction>& cases) {
  Json out = {
      {"schema", "orrery.validate/1"}, {"cases", Json::array()}, {"sources", Json::array()}};
  for (const CasePrediction& c : cases) out["cases"].push_back(CaseJson(c));
  for (const auto& [name, members] : BySource(cases))
    out["sources"].push_back(SourceJson(name, members));
  return out;
}

}  // namespace orrery
