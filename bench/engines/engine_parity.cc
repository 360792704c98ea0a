// SPDX-License-Identifier: Apache-2.0
// Searches, simulates, compares.
#include "bench/engines/engine_parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "model/arch/catalogue.h"
#include "model/framework/presets.h"
#include "model/hardware/catalog.h"
#include "model/twin/step_predictor.h"

namespace orrery {
namespace {

struct Circumstance {
  const char* name;
  std::optional<int> zero;
  std::optional<Optimizer> optimizer;
  const char* fabric;
};
constexpr Circumstance kSituations[] = {{"zero1", 1, {}, ""},   {"zero2", 2, {}, ""},
                                        {"zero3", 3, {}, ""},   {"lamb", {}, Optimizer::kLamb, ""},
                                        {"efa", {}, {}, "efa"}, {"tcp", {}, {}, "tcp"}};

SearchRequest RequestOf(const ParitySelection& selection, const std::string& model,
                        const std::string& topology, const std::string& framework,
                        const Circumstance& situation) {
  SearchRequest request;
  request.model = LoadModel(model).spec;
  request.topology = LoadTopology(topology);
  request.framework = selection.facts.empty() ? framework : WithFacts(framework, selection.facts);
  request.nodes = {std::min(selection.nodes, request.topology.nodes)};
  request.work.fp8 = selection.fp8;
  request.work.fp8_skip = selection.fp8_skip;
  request.work.lora = selection.lora;
  request.work.seq_len = selection.seq_len;
  request.work.global_batch = selection.global_batch;
  request.work.optimizer = situation.optimizer.value_or(selection.optimizer);
  request.fixed = selection.fixed;
  request.fixed.zero = situation.zero;
  if (*situation.fabric != '\0') request.topology.fabric_profile = situation.fabric;
  return request;
}

// Combinations are numbered as in a Latin square: by topology + 5 x framework + situation.
constexpr uint64_t kFrameworkStep = 5;

bool Selected(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::ranges::find(names, name) != names.end();
}

void CompareBest(SearchRequest request, const std::string& label,
                 const std::function<void(const EnginePair&)>& visit) {
  try {
    const Profiles profiles = LoadProfiles(request);
    request.work.precision = profiles.gpu.peak_bf16.value > 0   ? Precision::kBf16
                             : profiles.gpu.peak_fp16.value > 0 ? Precision::kFp16
                                                                : Precision::kFp32;
    const Job job = JobOf(request, profiles);
    const SearchResult result = Search(request, profiles);
    for (const Candidate& candidate : result.ranked) {
      EnginePair pair = CompareLayout(job, candidate.strategy, candidate.time);
      pair.where = label + ": " + DescribeLayout(candidate.strategy, candidate.micro_batches);
      visit(pair);
    }
  } catch (const InputError&) {  // the framework lacks the ZeRO stage, the topology names no GPU
  }
}

}  // namespace

std::vector<std::string> ParitySituations() {
  std::vector<std::string> names;
  for (const Circumstance& situation : kSituations) names.emplace_back(situation.name);
  return names;
}

double EnginePair::WorstTerm(const BreakdownTerm** worst) const {
  double most = -1;
  for (const BreakdownTerm& term : BreakdownTerms()) {
    const double apart = std::abs(closed.*term.seconds - event.*term.seconds) / event_seconds;
    if (apart <= most) continue;
    most = apart;
    if (worst != nullptr) *worst = &term;
  }
  return most;
}

EnginePair CompareLayout(const Job& job, const Strategy& layout, const StepTime& closed,
                         bool contention) {
  const Cluster cluster = ClusterOf(job);
  const ir::Plan plan = LowerLegal(job, layout);
  sim::SimulationOptions options;
  options.contention = contention;
  options.merge_alike = true;
  sim::Simulation simulation(plan, cluster, job.prices(), options);
  EnginePair pair;
  pair.event_seconds = simulation.Run();
  pair.event = simulation.breakdown();
  pair.closed_seconds = closed.total;
  pair.closed = closed;
  if (!contention) {
    pair.closed_seconds -= closed.contention;
    pair.closed.contention = 0;
  }
  return pair;
}

void CompareRandom(uint64_t seed, uint64_t from, uint64_t jobs, double effort,
                   const std::function<void(const EnginePair&)>& visit, DrawnJobs kind) {
  for (uint64_t number = from; number < from + jobs; ++number) {
    const std::unique_ptr<RandomJob> drawn = DrawJob(seed, number, kind);
    if (drawn == nullptr || SimulationEffort(LowerLegal(drawn->job, drawn->layout)) > effort)
      continue;
    EnginePair pair =
        CompareLayout(drawn->job, drawn->layout,
                      std::get<StepTime>(StepPredictor(drawn->job).Predict(drawn->layout)));
    pair.where = std::to_string(number) + ": " + drawn->name;
    visit(pair);
  }
}

void CompareEngines(const ParitySelection& selection,
                    const std::function<void(const EnginePair&)>& visit) {
  for (const std::string& model : selection.models) {
    uint64_t of_topology = 0;
    for (const std::string& topology : TopologyNames()) {
      ++of_topology;
      if (!Selected(selection.topologies, topology)) continue;
      uint64_t of_framework = of_topology;
      for (const std::string& framework : FrameworkNames()) {
        of_framework += kFrameworkStep;
        if (!Selected(selection.frameworks, framework)) continue;
        uint64_t number = of_framework;
        for (const Circumstance& situation : kSituations) {
          if (number++ % selection.parts != selection.part) continue;
          if (!Selected(selection.situations, situation.name)) continue;
          CompareBest(RequestOf(selection, model, topology, framework, situation),
                      fmt::format("{} on {}, {}, {}", model, topology, framework, situation.name),
                      visit);
        }
      }
    }
  }
}

}  // namespace orrery
