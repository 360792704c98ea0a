// SPDX-License-Identifier: Apache-2.0
// The record of a run as JSON.
#include "runtime/program/run/record.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace orrery::cli {
namespace {

using Json = nlohmann::ordered_json;

// What JSON has no number for, such as the norm of a step that overflowed.
double Finite(double value) { return std::isfinite(value) ? value : 0; }

Json StepJson(const RunStep& step) {
  return {{"step", step.step},
          {"loss", step.loss},
          {"gradient_norm", step.gradient_norm},
          {"seconds", step.seconds},
          {"rank_0_seconds", step.rank_0_seconds},
          {"load_s", step.load_s},
          {"disturbed", step.disturbed}};
}

Json RankJson(const RankPart& part) {
  return {{"rank", part.rank},
          {"host", part.host},
          {"arena_bytes", part.arena_bytes},
          {"compute_s", part.compute_s},
          {"communicate_s", part.communicate_s},
          {"wait_s", part.wait_s},
          {"load_s", part.load_s},
          {"op_share", part.op_share}};
}

}  // namespace

const std::string& HostOfPlace(const RunJob& job, const std::vector<RankPart>& parts,
                               std::size_t place) {
  return parts[place * parts.size() / job.plan.nodes.size()].host;
}

std::string PartText(const RankPart& part) {
  return Json{
      {"rank", part.rank},
      {"host", part.host},
      {"arena_bytes", part.arena_bytes},
      {"steps", part.steps},
      {"medians", {part.compute_s, part.communicate_s, part.wait_s, part.load_s, part.op_share}}}
      .dump();
}

RankPart ReadPart(const std::string& text) {
  const Json json = Json::parse(text);
  const Json& medians = json["medians"];
  const auto median = [&](std::size_t i) {
    return medians.at(i).is_null() ? 0 : medians.at(i).get<double>();
  };
  return {json["rank"], json["host"], json["arena_bytes"], json["steps"], median(0),
          median(1),    median(2),    median(3),           median(4)};
}

void Summarise(const StepLog<launch::StepRecord>& steps, RankPart* part) {
  constexpr std::size_t kColumns = 5;
  part->steps = steps.size();
  const std::vector<double> medians = MediansOf(
      [&](const auto& see) {
        steps.ForEach([&](const launch::StepRecord& step) {
          const exec::StepResult& r = step.result;
          const double compute = Finite(r.compute_s), communicate = Finite(r.communicate_s),
                       wait = Finite(r.wait_s);
          const double row[kColumns] = {compute, communicate, wait, Finite(r.load_s),
                                        (compute + communicate + wait) / Finite(r.seconds)};
          see(row);
        });
      },
      kColumns);
  part->compute_s = medians[0];
  part->communicate_s = medians[1];
  part->wait_s = medians[2];
  part->load_s = medians[3];
  part->op_share = medians[4];
}

void Merge(const launch::StepRecord& record, bool first_rank, RunStep* step) {
  const exec::StepResult& r = record.result;
  const double seconds = Finite(r.seconds), load = Finite(r.load_s);
  if (first_rank)
    *step = {record.step, Finite(r.loss), Finite(r.gradient_norm), 0, 0, seconds, false};
  step->seconds = std::max(step->seconds, seconds);
  step->load_s = std::max(step->load_s, load);
  step->disturbed |= record.switches > 0;
}

StepSeconds SecondsOf(const StepLog<RunStep>& steps) {
  StepSeconds seconds;
  seconds.first_left_out = steps.size() > 1;
  int64_t number = 0, behind = 0;
  const auto each = [&](const auto& see) {  // that counts at all
    number = 0;
    steps.ForEach([&](const RunStep& step) {
      if (number++ > 0 || !seconds.first_left_out) see(step);
    });
  };
  each([&](const RunStep& step) {
    ++behind;
    seconds.disturbed += step.disturbed ? 1 : 0;
  });
  if (behind == 0) return seconds;
  seconds.all_disturbed = seconds.disturbed == behind;
  seconds.min = std::numeric_limits<double>::infinity();
  const Rows counted = [&](const auto& see) {
    each([&](const RunStep& step) {
      if (!step.disturbed || seconds.all_disturbed) see(std::span(&step.seconds, 1));
    });
  };
  counted([&](std::span<const double> row) {
    ++seconds.counted;
    seconds.min = std::min(seconds.min, row[0]);
    seconds.max = std::max(seconds.max, row[0]);
  });
  seconds.median = MediansOf(counted, 1)[0];
  return seconds;
}

double InputShare(const StepLog<RunStep>& steps) {
  return MediansOf(
      [&](const auto& see) {
        steps.ForEach([&](const RunStep& step) {
          const double share = step.load_s / step.seconds;
          see(std::span(&share, 1));
        });
      },
      1)[0];
}

double Mfu(const RunJob& job, double seconds, double peak_flops_per_s) {
  if (!(peak_flops_per_s > 0)) return 0;  // unknown
  return job.facts.flops / (seconds * static_cast<double>(job.ranks()) * peak_flops_per_s);
}

Json RunJson(const RunJob& job, const RunRecord& record, double peak_flops_per_s) {
  const std::vector<RankPart>& parts = record.parts;
  const StepSeconds seconds = SecondsOf(record.steps);
  Json steps = Json::array(), ranks = Json::array();
  int64_t largest = 0;
  record.steps.ForEach([&](const RunStep& step) { steps.push_back(StepJson(step)); });
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
