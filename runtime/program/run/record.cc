// SPDX-License-Identifier: Apache-2.0
// The record of a run as JSON.
#include "runtime/program/run/record.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/base/median.h"

namespace orrery::cli {
namespace {

using Json = nlohmann::ordered_json;

bool Disturbed(const std::vector<RankPart>& parts, std::size_t step) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const RankPart& part) { return part.steps[step].switches > 0; });
}

// The step lasts until its last rank is done.
double Slowest(const std::vector<RankPart>& parts, std::size_t step) {
  double seconds = 0;
  for (const RankPart& part : parts) seconds = std::max(seconds, part.steps[step].result.seconds);
  return seconds;
}

double SlowestLoad(const std::vector<RankPart>& parts, std::size_t step) {
  double seconds = 0;
  for (const RankPart& part : parts) seconds = std::max(seconds, part.steps[step].result.load_s);
  return seconds;
}

Json StepJson(const std::vector<RankPart>& parts, std::size_t s) {
  const launch::StepRecord& record = parts[0].steps[s];
  return {{"step", record.step},
          {"loss", record.result.loss},
          {"gradient_norm", record.result.gradient_norm},
          {"seconds", Slowest(parts, s)},
          {"rank_0_seconds", record.result.seconds},
          {"load_s", SlowestLoad(parts, s)},
          {"disturbed", Disturbed(parts, s)}};
}

Json RankJson(const RankPart& part) {
  std::vector<double> compute, communicate, wait, load, shares;
  for (const launch::StepRecord& step : part.steps) {
    const exec::StepResult& r = step.result;
    compute.push_back(r.compute_s);
    communicate.push_back(r.communicate_s);
    wait.push_back(r.wait_s);
    load.push_back(r.load_s);
    shares.push_back((r.compute_s + r.communicate_s + r.wait_s) / r.seconds);
  }
  return {{"rank", part.rank},
          {"host", part.host},
          {"arena_bytes", part.arena_bytes},
          {"compute_s", Median(compute)},
          {"communicate_s", Median(communicate)},
          {"wait_s", Median(wait)},
          {"load_s", Median(load)},
          {"op_share", Median(shares)}};
}

}  // namespace

const std::string& HostOfPlace(const RunJob& job, const std::vector<RankPart>& parts,
                               std::size_t place) {
  return parts[place * parts.size() / job.plan.nodes.size()].host;
}

std::string PartText(const RankPart& part) {
  Json steps = Json::array();
  for (const launch::StepRecord& s : part.steps) {
    const exec::StepResult& r = s.result;
    steps.push_back({s.step, r.loss, r.gradient_norm, r.seconds, r.compute_s, r.communicate_s,
                     r.wait_s, s.switches, r.load_s});
  }
  return Json{
      {"rank", part.rank}, {"host", part.host}, {"arena_bytes", part.arena_bytes}, {"steps", steps}}
      .dump();
}

RankPart ReadPart(const std::string& text) {
  const Json json = Json::parse(text);
  RankPart part{json["rank"], json["host"], json["arena_bytes"], {}};
  const auto number = [](const Json& value) { return value.is_null() ? 0 : value.get<double>(); };
  for (const Json& s : json["steps"]) {
    part.steps.push_back({s[0],
                          {number(s[1]), number(s[2]), number(s[3]), number(s[4]), number(s[5]),
                           number(s[6]), number(s[8])},
                          s[7]});
  }
  return part;
}

StepSeconds SecondsOf(const std::vector<RankPart>& parts) {
  StepSeconds seconds;
  std::vector<double> calm, all;
  for (std::size_t s = 0; s < parts[0].steps.size(); ++s) {
    if (s == 0 && parts[0].steps.size() > 1) {
      seconds.first_left_out = true;
      continue;
    }
    const bool disturbed = Disturbed(parts, s);
    seconds.disturbed += disturbed ? 1 : 0;
    all.push_back(Slowest(parts, s));
    if (!disturbed) calm.push_back(all.back());
  }
  const std::vector<double>& counted = calm.empty() ? all : calm;
  if (counted.empty()) return seconds;
  seconds.all_disturbed = calm.empty();
  seconds.min = *std::min_element(counted.begin(), counted.end());
  seconds.max = *std::max_element(counted.begin(), counted.end());
  seconds.median = Median(counted);
  seconds.counted = static_cast<int64_t>(counted.size());
  return seconds;
}

double InputShare(const std::vector<RankPart>& parts) {
  std::vector<double> shares;
  for (std::size_t s = 0; s < parts[0].steps.size(); ++s)
    shares.push_back(SlowestLoad(parts, s) / Slowest(parts, s));
  return Median(shares);
}

double Mfu(const RunJob& job, double seconds, double peak_flops_per_s) {
  if (!(peak_flops_per_s > 0)) return 0;  // unknown
  return job.facts.flops / (seconds * static_cast<double>(job.ranks()) * peak_flops_per_s);
}

Json RunJson(const RunJob& job, const std::vector<RankPart>& parts, double peak_flops_per_s) {
  const StepSeconds seconds = SecondsOf(parts);
  Json steps = Json::array(), ranks = Json::array();
  int64_t largest = 0;
  for (std::size_t s = 0; s < parts[0].steps.size(); ++s) steps.push_back(StepJson(parts, s));
  for (const RankPart& part : parts) {
    ranks.push_back(RankJson(part));
    largest = std::max(largest, part.arena_bytes);
  }
  Json placed;
  for (std::size_t place = 0; place < job.plan.nodes.size(); ++place)
    placed.push_back({{"node", job.plan.nodes[place]}, {"host", HostOfPlace(job, parts, place)}});
  return {
      {"schema", "orrery.run/1"},
      {"name", job.name},
      {"title", job.plan.title},
      {"layout", job.layout},
      {"digest", job.digest},
      {"device", job.on_cuda ? "cuda" : "cpu"},
      {"comm", CommName(job.comm)},
      {"ranks", job.ranks()},
      {"placement", placed},
      {"seed", job.seed},
      {"data", job.data},
      {"samples_per_step", job.facts.samples},
      {"tokens_per_step", job.facts.tokens},
      {"flops_per_step", job.facts.flops},
      {"parameters", job.facts.parameters},
      {"peak_flops_per_s", peak_flops_per_s},
      {"step_time_s",
       {{"min", seconds.min},
        {"median", seconds.median},
        {"max", seconds.max},
        {"spread", seconds.median > 0 ? (seconds.max - seconds.min) / seconds.median : 0},
        {"steps", seconds.counted},
        {"disturbed", seconds.disturbed}}},
      {"tokens_per_s", static_cast<double>(job.facts.tokens) / seconds.median},
      {"rate_of", job.facts.has_tokens ? "tokens" : "samples"},  // without tokens a sample is one
      {"mfu", Mfu(job, seconds.median, peak_flops_per_s)},
      {"arena_bytes", largest},
      {"per_rank", ranks},
      {"steps", steps}};
}

}  // namespace orrery::cli
