// SPDX-License-Identifier: Apache-2.0
// How far the two engines are apart: bench_engines [-v] [--models a,b] [--topologies a,b] [--frameworks a,b]
//
// Plans: every topology x every framework x six situations (ZeRO 1, 2, 3, LAMB, EFA, slow TCP), the best five layouts of
// each, on four nodes (fewer where the topology has fewer), profiles as shipped. Prints the share of plans within 1, 3,
// 5 and 10 % and the largest difference of each term as a share of the step; -v: one CSV row a plan and engine.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "model/arch/catalogue.h"
#include "model/engine/event/simulation.h"
#include "model/hardware/catalog.h"
#include "model/plan/lower/lower.h"
#include "model/price/layer_factors.h"
#include "model/twin/search.h"

namespace orrery {
namespace {

struct Situation_ {
  const char* name;
  std::optional<int> zero;
  std::optional<Optimizer> optimizer;
  const char* fabric;
};
constexpr Situation_ kSituations[] = {{"zero1", 1, {}, ""},   {"zero2", 2, {}, ""},
                                      {"zero3", 3, {}, ""},   {"lamb", {}, Optimizer::kLamb, ""},
                                      {"efa", {}, {}, "efa"}, {"tcp", {}, {}, "tcp"}};

struct Totals {
  int plans = 0, within1 = 0, within3 = 0, within5 = 0, within10 = 0;
  double worst = 0;
  std::map<std::string, double> terms;
};

void Compare(const std::string& label, const SearchRequest& request, const Profiles& profiles,
             const Candidate& candidate, bool verbose, Totals* totals) {
  const Cluster cluster = BuildCluster(request.topology, candidate.nodes, request.gpus_per_node);
  Workload work = request.work;
  work.global_batch = candidate.global_batch;
  const LowerResult lowered = Lower(request.model, work, candidate.strategy);
  const auto& plan = std::get<ir::Plan>(lowered);
  const CostSetting setting{&profiles.gpu, &profiles.fabric, &profiles.framework, &cluster.summary};
  const Pricer pricer(setting, work.precision,
                      LayerFactor(profiles.gpu, profiles.framework, request.model, work,
                                  KeyOf(candidate.strategy)));
  sim::SimulationOptions options;
  options.contention = false;
  sim::Simulation simulation(plan, cluster, pricer, FixedCosts(setting, LayersOf(plan)), options);
  const double event = simulation.Run();
  const Breakdown parts = simulation.breakdown();
  const double closed = candidate.time.total;
  const double difference = std::abs(closed / event - 1);
  ++totals->plans;
  totals->within1 += difference <= 0.01;
  totals->within3 += difference <= 0.03;
  totals->within5 += difference <= 0.05;
  totals->within10 += difference <= 0.10;
  totals->worst = std::max(totals->worst, difference);
  std::string row;
  for (const BreakdownTerm& term : BreakdownTerms()) {
    const double apart = (candidate.time.*term.seconds - parts.*term.seconds) / event;
    double& most = totals->terms[term.key];
    most = std::max(most, std::abs(apart));
    row += fmt::format(" {}={:.4g}/{:.4g}", std::string(term.key).substr(0, 6),
                       1e3 * candidate.time.*term.seconds, 1e3 * parts.*term.seconds);
  }
  if (verbose)
    fmt::print("{:+.2f}% {} {} | {:.4g}/{:.4g} ms:{}\n", 100 * (closed / event - 1), label,
               DescribeLayout(candidate.strategy, candidate.micro_batches), 1e3 * closed,
               1e3 * event, row);
  if (std::abs(parts.Total() / event - 1) > 1e-6)
    fmt::print("BREAKDOWN {} != {}\n", parts.Total(), event);
}

std::vector<std::string> Listed(const char* text, std::vector<std::string> all) {
  if (text == nullptr) return all;
  std::vector<std::string> names;
  std::string rest = text;
  for (std::size_t at; (at = rest.find(',')) != std::string::npos; rest = rest.substr(at + 1))
    names.push_back(rest.substr(0, at));
  names.push_back(rest);
  return names;
}

int Main(int argc, char** argv) {
  bool verbose = false;
  const char *models = "gpt2-xl", *topologies = nullptr, *frameworks = nullptr,
             *situations = nullptr;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "-v")) verbose = true;
    if (i + 1 >= argc) continue;
    if (!std::strcmp(argv[i], "--models")) models = argv[i + 1];
    if (!std::strcmp(argv[i], "--topologies")) topologies = argv[i + 1];
    if (!std::strcmp(argv[i], "--frameworks")) frameworks = argv[i + 1];
    if (!std::strcmp(argv[i], "--situations")) situations = argv[i + 1];
  }
  Totals totals;
  for (const std::string& model : Listed(models, {})) {
    for (const std::string& topology : Listed(topologies, TopologyNames())) {
      for (const std::string& framework : Listed(frameworks, FrameworkNames())) {
        for (const Situation_& situation : kSituations) {
          if (situations != nullptr &&
              std::string(situations).find(situation.name) == std::string::npos)
            continue;
          SearchRequest request;
          const LoadedModel loaded = LoadModel(model);
          request.model = loaded.spec;
          request.topology = LoadTopology(topology);
          request.framework = framework;
          request.nodes = {std::min<int64_t>(4, request.topology.nodes)};
          request.work.seq_len = 1024;
          request.work.global_batch = 512;
          request.work.optimizer = situation.optimizer.value_or(Optimizer::kAdam);
          request.fixed.zero = situation.zero;
          if (*situation.fabric != '\0') request.topology.fabric_profile = situation.fabric;
          try {
            const Profiles profiles = LoadProfiles(request);
            request.work.precision = profiles.gpu.peak_bf16.value > 0   ? Precision::kBf16
                                     : profiles.gpu.peak_fp16.value > 0 ? Precision::kFp16
                                                                        : Precision::kFp32;
            const SearchResult result = Search(request, profiles);
            for (const Candidate& candidate : result.ranked)
              Compare(topology + " " + framework + " " + situation.name, request, profiles,
                      candidate, verbose, &totals);
          } catch (const InputError& error) {
            if (verbose && std::string(error.what()).find("ZeRO") == std::string::npos)
              fmt::print("skipped {} {} {}: {}\n", topology, framework, situation.name,
                         error.what());
          }
        }
      }
    }
  }
  const auto share = [&](int count) { return 100.0 * count / std::max(1, totals.plans); };
  fmt::print(
      "{} plans; within 1 %: {:.1f} %, 3 %: {:.1f} %, 5 %: {:.1f} %, 10 %: {:.1f} %; worst {:.1f} "
      "%\n",
      totals.plans, share(totals.within1), share(totals.within3), share(totals.within5),
      share(totals.within10), 100 * totals.worst);
  for (const auto& [key, value] : totals.terms) fmt::print("  {} {:.1f} %\n", key, 100 * value);
  return 0;
}

}  // namespace
}  // namespace orrery

int main(int argc, char** argv) { return orrery::Main(argc, argv); }
