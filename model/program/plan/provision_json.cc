// SPDX-License-Identifier: Apache-2.0
// The JSON of `plan provision`, schema orrery.provision/1.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/arch/data_root.h"
#include "model/program/common/candidate_report.h"
#include "model/program/common/names.h"
#include "model/program/common/step_picture.h"
#include "model/program/plan/provision_report.h"

namespace orrery::report {
namespace {

using Json = nlohmann::ordered_json;

Json OfferJson(const ProvisionAnswer& answer, const Quote& quote) {
  const PriceAge age = AgeOf(answer, quote.price);
  Json json = {{"id", quote.Name()},
               {"provider", quote.offer.provider},
               {"instance", quote.offer.instance},
               {"topology", quote.offer.topology},
               {"stand_in", quote.offer.stand_in},
               {"kind", NameOf(quote.price.kind)},
               {"region", quote.price.region},
               {"price_usd_per_hour", quote.price.price.value},
               {"date", quote.price.date.Text()},
               {"age_days", age.days},
               {"age", age.words},
               {"old", age.old},
               {"billed_at_least_s", quote.price.term.value},
               {"billed_in_steps_of_s", quote.price.quantum.value},
               {"note", quote.offer.note},
               {"source", quote.price.source},
               {"evidence", std::string(1, quote.price.evidence)}};
  if (IsUserFile(quote.offer.file)) json["user_file"] = ShownPath(quote.offer.file);
  return json;
}

Json RowJson(const ProvisionAnswer& answer, std::size_t index) {
  const Row& row = answer.result->rows[index];
  const RunEstimate& run = row.run;
  Json json = {{"offer", OfferJson(answer, (*answer.quotes)[row.quote])},
               {"nodes", row.nodes},
               {"precision", Name((*answer.sites)[row.site].request.work.precision)},
               {"on_frontier", row.on_frontier},
               {"tie", row.tie},
               {"beyond_limits", BeyondLimits(answer, row).words},
               {"plan", CandidateJson(row.candidate)}};
  json.update(RunJson(run));
  json["finish_probability"] =
      answer.run->deadline ? Json(run.ProbabilityWithin(*answer.run->deadline)) : Json();
  json["budget_probability"] = answer.run->budget ? Json(WithinBudget(answer, row)) : Json();
  for (const auto& [of, ratio] : answer.margin_costs) {
    if (of == index) json["memory_margin_cost"] = ratio - 1;
  }
  for (const auto& [of, replay] : answer.replays) {
    if (of == index)
      json["replay"] = {
          {"runs", replay.runs}, {"mean_s", replay.mean.value}, {"sd_s", replay.deviation.value}};
  }
  return json;
}

}  // namespace

nlohmann::ordered_json ProvisionJson(const ProvisionAnswer& answer) {
  const cli::LongRun& run = *answer.run;
  const Provisioned& result = *answer.result;
  Json json = {{"schema", "orrery.provision/1"}};
  json["question"] = {{"model", answer.TheJob().model.spec.name},
                      {"parameters", answer.TheJob().parameters},
                      {"tokens", run.conditions.tokens},
                      {"deadline_s", run.deadline ? Json(run.deadline->value) : Json()},
                      {"budget_usd", run.budget ? Json(run.budget->value) : Json()},
                      {"failures_per_1000_node_days", run.conditions.failures.rate.value},
                      {"recovery", run.conditions.recovery.name},
                      {"checkpoint", run.conditions.checkpoint.name},
                      {"storage", run.conditions.storage.name},
                      {"input", run.conditions.input.name},
                      {"straggler", run.conditions.run.straggler.value},
                      {"setup_s", run.conditions.run.setup.value}};
  if (answer.range) json["question"]["batch_tokens"] = {answer.range->least, answer.range->most};
  json["question"]["batch_searched"] = answer.range && !answer.batch_given;
  json["question"]["batch_words"] = BatchWords(answer);
  json["feasible"] = result.feasible;
  json["answers"] = Json::array();
  for (std::size_t i = 0; i < result.rows.size(); ++i)
    json["answers"].push_back(RowJson(answer, i));
  json["frontier"] = result.frontier;
  json["frontier_shown"] = ShownPlaces(answer);  // in the table, of the frontier's places
  // Against the row before; that of the first is null.
  json["day_sooner_usd"] = Json::array();
  for (std::size_t i = 0; i < result.frontier.size(); ++i) {
    const std::optional<Dollars> sooner = PerDaySooner(result, i);
    json["day_sooner_usd"].push_back(sooner ? Json(sooner->value) : Json());
  }
  json["frontier_notes"] = result.frontier.empty() ? "" : FrontierNotes(answer);
  json["cheapest"] = result.cheapest ? Json(*result.cheapest) : Json();
  json["fastest"] = result.fastest ? Json(*result.fastest) : Json();
  json["sure_probability"] = kSure;
  json["sure"] = result.sure ? Json(*result.sure) : Json();
  json["fastest_sure"] = result.fastest_sure ? Json(*result.fastest_sure) : Json();
  json["enough"] = {{"budget_usd", Json()}, {"deadline_s", Json()}};
  if (!result.feasible &&
      !result.frontier.empty()) {  // each with the other limit, where any keeps that
    const std::size_t in_time = result.cheapest.value_or(result.frontier.front()),
                      in_budget = result.fastest.value_or(result.frontier.back());
    if (run.budget) json["enough"]["budget_usd"] = EnoughMoney(result.rows[in_time].run.cost).value;
    if (run.deadline)
      json["enough"]["deadline_s"] = EnoughDays(result.rows[in_budget].run.time).value;
  }
  json["memory_margin"] = answer.memory_margin;
  json["advice"] = result.frontier.empty() ? std::vector<std::string>() : AdviceOf(answer);
  json["rejected"] = Json::array();
  for (std::size_t q = 0; q < answer.quotes->size(); ++q) {
    const bool any =
        std::ranges::any_of(result.rows, [&](const Row& row) { return row.quote == q; });
    if (any) continue;
    const QuoteBounds& bounds = result.bounds[q];
    json["rejected"].push_back(
        {{"offer", OfferJson(answer, (*answer.quotes)[q])},
         {"reason", result.no_layout[q].empty() ? "bounded" : result.no_layout[q]},
         {"least",
          {{"time_s", bounds.known ? Json(bounds.least_time.value) : Json()},
           {"cost_usd", bounds.known ? Json(bounds.least_cost.value) : Json()}}}});
  }
  for (const auto& [offer, why] : answer.left_out)
    json["rejected"].push_back({{"offer", {{"id", offer}}}, {"reason", why}});
  json["nodes_not_sold"] = answer.nodes_left_out;
  json["losers"] = LosersJson(answer);
  Job told = answer.TheJob();
  std::erase_if(told.decisions, SearchedByProvision);
  const Json job = JobJson(told);
  json["defaults"] = job["defaults"];
  if (job.contains("facts")) json["facts"] = job["facts"];
  json["units"] = {{"all", result.units}, {"evaluated", result.evaluated}};
  return json;
}

nlohmann::ordered_json PictureJson(const ProvisionAnswer& answer) {
  const Row& row = answer.result->rows[answer.Told()];
  const Site& site = (*answer.sites)[row.site];
  nlohmann::ordered_json picture = {{"row", answer.Told()}};
  AddStepPicture(JobOf(site.request, site.profiles, row.nodes, row.candidate.global_batch),
                 row.candidate.strategy, &picture);
  return picture;
}

}  // namespace orrery::report
