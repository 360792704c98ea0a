// SPDX-License-Identifier: Apache-2.0
// The report of `plan simulate`.
#include "model/program/simulate/simulate_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/base/text.h"
#include "model/program/common/candidate_report.h"
#include "model/program/common/provenance.h"
#include "model/program/common/table.h"
#include "model/program/common/time_report.h"
#include "model/program/simulate/analysis_report.h"

namespace orrery::report {
namespace {

std::vector<std::size_t> OnePerStage(const Simulation& simulation) {
  return Representatives(simulation.result, simulation.stages);
}

// The closed form prices groups of one communicator that meet on links of several nodes as they share them.
StepTime WithoutContention(StepTime closed) {
  const double share = (closed.total - closed.contention) / closed.total;
  closed.total *= share;
  closed.low *= share;
  closed.high *= share;
  closed.contention = 0;
  return closed;
}

// The candidate with the step of this simulation: in the closed form's place, or of a plan text in the place of the step
// that PredictPlan() simulated.
Prediction SimulatedCandidate(const Simulation& simulation) {
  Prediction candidate = simulation.candidate;
  const StepTime before =
      simulation.contention ? candidate.time : WithoutContention(candidate.time);
  const bool from_text = candidate.simulated.has_value();
  StepTime time = simulation.analysis ? simulation.analysis->time : UnknownTime();
  time.total = simulation.seconds();
  if (from_text || !simulation.perturbation.empty()) {  // no reason for the engines to agree
    time.low = before.low * time.total / before.total;
    time.high = before.high * time.total / before.total;
  } else {
    time = WithInterval(time, before);
  }
  if (!from_text) candidate.closed_form = before;
  candidate.simulated = SimulatedStep{.ops = simulation.result.ops,
                                      .shared = {},
                                      .repeated = simulation.simulated_micro_batches > 0,
                                      .perturbed = !simulation.perturbation.empty(),
                                      .uneven = {}};
  if (simulation.analysis) {
    candidate.simulated->shared = simulation.analysis->contention;
    candidate.simulated->uneven = simulation.analysis->uneven;
  }
  candidate.SetTime(time);
  return candidate;
}

std::string SimulatedLine(const char* label, const std::string& text) {
  return fmt::format("  {:<16}{}\n", label, Fold(text, 18));
}

std::string Disturbance(const Simulation& simulation) {
  if (simulation.perturbation.empty()) return "";
  const double before = simulation.undisturbed;
  const double more = 100 * (simulation.seconds() / before - 1);
  return SimulatedLine("perturbation", simulation.perturbation) +
         SimulatedLine("slowdown", fmt::format("{:+.1f} % against {} unperturbed", more,
                                               Format(Seconds(before))));
}

std::string ClosedFormLine(const Simulation& simulation, const Prediction& simulated) {
  if (!simulated.closed_form) return "none: needs --model and a layout";
  const StepTime& closed = *simulated.closed_form;
  const double difference = closed.total / simulated.time.total - 1;
  const std::string why = EngineDifference(simulated);
  return fmt::format("{}, {} {} than simulated{}{}", TimeWithInterval(closed),
                     Percent(std::abs(difference)), difference < 0 ? "less" : "more",
                     simulation.perturbation.empty() ? "" : "; without the perturbation",
                     why.empty() ? "" : ". " + why);
}

std::string Times(const Simulation& simulation) {
  const Prediction simulated = SimulatedCandidate(simulation);
  std::string step =
      fmt::format("{}, {}", TimeWithInterval(simulated.time),
                  simulation.contention ? simulation.network + " network" : "contention off");
  if (!simulated.no_interval.empty()) step += "; no interval: " + simulated.no_interval;
  if (simulation.fixed > 0)
    step += fmt::format("; includes {} of fixed costs outside the ops",
                        Format(Seconds(simulation.fixed)));
  std::string text = SimulatedLine("step", step);
  text += Disturbance(simulation);
  if (!simulation.candidate.interval_basis.empty())
    text += SimulatedLine("interval from", simulation.candidate.interval_basis);
  text += SimulatedLine("throughput",
                        fmt::format("{} tokens/s, MFU {}{}", Scaled(simulated.tokens_per_second),
                                    Percent(simulated.mfu), MaskedNote(simulated)));
  return text + SimulatedLine("closed form", ClosedFormLine(simulation, simulated));
}

std::string LinkTable(const Simulation& simulation) {
  Table table({{"link"}, {"busy", true}, {"carries", true}, {"rate reached", true}});
  for (const LinkBusy& link : simulation.links)
    table.Row({link.name, Percent(link.busy), Format(Bytes(link.bytes)), Percent(link.efficiency)});
  return table.Text();
}

std::string AnalysisSections(const Simulation& simulation) {
  if (!simulation.analysis) {
    return "\nToo many ops to record: no breakdown, no critical path, no memory over time.\n";
  }
  const StepAnalysis& analysis = *simulation.analysis;
  return BreakdownSection(analysis) + StageSection(analysis) + PathSection(analysis) +
         MemorySection(analysis);
}

std::string Effort(const Simulation& simulation) {
  const sim::StepResult& result = simulation.result;
  std::string ranks = fmt::format("all {} ranks", simulation.ranks);
  if (static_cast<int64_t>(result.ranks.size()) < simulation.ranks) {
    ranks =
        fmt::format("{} of {} ranks, with the traffic of all (the others behave like one of these)",
                    result.ranks.size(), simulation.ranks);
  }
  if (simulation.simulated_micro_batches > 0) {
    ranks += fmt::format(", and {} of {} micro-batches, which the others repeat",
                         simulation.simulated_micro_batches, simulation.candidate.micro_batches);
  }
  return Fold(fmt::format("Simulated {}: {} ops in {} tasks, {} of computing time.", ranks,
                          result.ops, result.tasks, Format(Seconds(simulation.wall))),
              0) +
         "\n";
}

nlohmann::ordered_json RankJson(const Simulation& simulation, std::size_t r) {
  return {{"rank", simulation.result.ranks[r]},
          {"stage", simulation.stages[r]},
          {"end_s", simulation.result.times[r].end}};
}

}  // namespace

std::string SimulationText(const Job& job, const Simulation& simulation) {
  const Prediction& candidate = simulation.candidate;
  std::string text = JobHeader(job);
  text += fmt::format("\n{}\n", Fold(LayoutWords(job, candidate), 0));
  if (!simulation.scenario.empty()) text += SimulatedLine("scenario", simulation.scenario);
  text += Times(simulation);
  if (candidate.memory && (!candidate.memory->fits || candidate.memory->nearly_full))
    text += SimulatedLine("memory", candidate.memory->summary);
  text += AnalysisSections(simulation);
  if (!simulation.links.empty()) text += "\nBusiest links\n" + LinkTable(simulation);
  return text + "\n" + Effort(simulation) + "\nProfiles\n" + ProvenanceText(job);
}

nlohmann::ordered_json SimulationJson(const Job& job, const Simulation& simulation) {
  const sim::StepResult& result = simulation.result;
  const Prediction candidate = SimulatedCandidate(simulation);
  const StepTime& step = candidate.ClosedForm();
  StepTime micro_step = simulation.micro_step;
  micro_step.low = micro_step.total * (step.low / step.total);
  micro_step.high = micro_step.total * (step.high / step.total);
  const PredictReport record{candidate, micro_step, Window::kStep, simulation.micro_step.total,
                             simulation.printed_s};
  nlohmann::ordered_json json = RecordJson(job, record, "orrery.simulate/1", "event");
  json["digest"] = simulation.digest;
  json["network"] = simulation.network;
  json["contention"] = simulation.contention;
  json["scenario"] = simulation.scenario;
  json["perturbation"] = simulation.perturbation;
  if (!simulation.perturbation.empty()) json["undisturbed_step_time_s"] = simulation.undisturbed;
  json["step_time_s"] = simulation.seconds();
  json["played_s"] = result.seconds;
  json["closed_form_step_time_s"] = json["prediction"]["closed_form_step_time_s"];
  json["fixed_s"] = simulation.fixed;
  json["ranks"] = nlohmann::ordered_json::array();
  for (const std::size_t r : OnePerStage(simulation)) {
    json["ranks"].push_back(RankJson(simulation, r));
    if (simulation.analysis)
      AddRankAnalysis(*simulation.analysis, json["ranks"].size() - 1, &json["ranks"].back());
  }
  if (simulation.analysis) AddAnalysisJson(*simulation.analysis, &json);
  json["links"] = nlohmann::ordered_json::array();
  for (const LinkBusy& link : simulation.links)
    json["links"].push_back({{"link", link.name},
                             {"bytes", link.bytes},
                             {"busy", link.busy},
                             {"efficiency", link.efficiency}});
  json["plan_ranks"] = simulation.ranks;
  json["executed_ranks"] = result.ranks.size();
  json["simulated_micro_batches"] = simulation.simulated_micro_batches > 0
                                        ? simulation.simulated_micro_batches
                                        : candidate.micro_batches;
  json["ops"] = result.ops;
  json["tasks"] = result.tasks;
  json["wall_s"] = simulation.wall;
  json["closed_form"] = nullptr;
  if (!simulation.candidate.simulated) {
    Prediction closed = simulation.candidate;
    if (!simulation.contention) closed.SetTime(WithoutContention(closed.time));
    json["closed_form"] = CandidateJson(closed);
  }
  return json;
}

}  // namespace orrery::report
