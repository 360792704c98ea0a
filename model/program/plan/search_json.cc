// SPDX-License-Identifier: Apache-2.0
// The JSON of `plan --nodes N --model NAME`, schema orrery.plan/1.
#include <nlohmann/json.hpp>

#include "model/program/common/candidate_report.h"
#include "model/program/common/names.h"
#include "model/program/plan/search_report.h"

namespace orrery::report {
namespace {

// With the digest, which costs the text of the plan.
nlohmann::ordered_json RecordOf(Candidate candidate) {
  if (candidate.plan) candidate.digest = ir::Digest(*candidate.plan);
  return CandidateJson(candidate);
}

nlohmann::ordered_json CountsJson(const SearchCounts& counts) {
  return {{"space", counts.space},
          {"illegal", counts.illegal},
          {"over_memory", counts.over_memory},
          {"bounded", counts.bounded},
          {"evaluated", counts.evaluated},
          {"exact_memory", counts.exact_memory},
          {"exact_over_memory", counts.exact_over_memory},
          {"layers_moved",
           {{"layouts", counts.shares.moved},
            {"steps_priced", counts.shares.priced},
            {"faster", counts.shares.faster},
            {"bounded", counts.shares.bounded},
            {"too_long", counts.shares.too_long}}}};
}

template <class List, class One>
nlohmann::ordered_json ArrayOf(const List& list, One one) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const auto& element : list) json.push_back(one(element));
  return json;
}

}  // namespace

nlohmann::ordered_json SearchJson(const Job& job, const SearchResult& result) {
  nlohmann::ordered_json json = {{"schema", "orrery.plan/1"}, {"engine", "closed"}};
  json.update(JobJson(job));
  json["objective"] = Name(job.request.objective);
  json["ranked_by"] = Aim(job.request);
  json["feasible"] = result.feasible();
  json["complete"] = result.complete;
  json["ranked"] = ArrayOf(result.ranked, [&](const Candidate& candidate) {
    nlohmann::ordered_json one = RecordOf(candidate);
    one["tie_with_first"] = candidate.tie_with_first;
    if (candidate.equals)
      one["equal_shares"] = {{"step_time_s", candidate.equals->seconds},
                             {"fits", candidate.equals->fits},
                             {"lower_bound_s", candidate.equals->bound},
                             {"gain", 1 - candidate.time.total / candidate.equals->seconds}};
    if (result.refinement) one.update(SimulatedJson(candidate));
    return one;
  });
  if (result.refinement) json["refinement"] = RefinementJson(job.request, result);
  json["comparisons"] = ArrayOf(result.comparisons, [](const Comparison& comparison) {
    nlohmann::ordered_json one = {{"other", RecordOf(comparison.other)},
                                  {"words", comparison.words}};
    one["saved_s"] = nlohmann::ordered_json::object();
    for (const TermDifference& term : comparison.terms) one["saved_s"][term.term] = term.seconds;
    return one;
  });
  json["limits"] = ArrayOf(result.limits, [](const Limit& limit) -> nlohmann::ordered_json {
    return {{"resource", limit.resource},
            {"step_time_s", limit.step_seconds},
            {"gain", limit.gain},
            {"words", limit.words}};
  });
  json["unlimited"] = result.unlimited ? RecordOf(*result.unlimited) : nlohmann::ordered_json();
  json["nearly_full"] =
      result.nearly_full ? RecordOf(*result.nearly_full) : nlohmann::ordered_json();
  json["near_misses"] = ArrayOf(result.near_misses, [&](const Candidate& miss) {
    nlohmann::ordered_json one = RecordOf(miss);
    one["words"] = NearMiss(job, result, miss);
    return one;
  });
  if (result.feasible())
    json["remarks"] = {{"nearly_full", NearlyFull(job, result)}, {"ties", Ties(result)}};
  json["rejections"] =
      ArrayOf(result.rejections, [](const Rejection& rejection) -> nlohmann::ordered_json {
        return {{"reason", rejection.reason},
                {"strategies", rejection.strategies},
                {"example", rejection.example}};
      });
  json["closest"] = result.closest ? RecordOf(*result.closest) : nlohmann::ordered_json();
  json["remedies"] = ArrayOf(result.remedies, [](const Remedy& remedy) -> nlohmann::ordered_json {
    return {{"change", remedy.change},
            {"flag", remedy.flag},
            {"candidate", RecordOf(remedy.candidate)}};
  });
  json["counts"] = CountsJson(result.counts);
  return json;
}

}  // namespace orrery::report
