// SPDX-License-Identifier: Apache-2.0
// Speed of the search: one line `name = value unit` per figure.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "bench/recorded.h"
#include "model/arch/catalogue.h"
#include "model/hardware/catalog.h"
#include "model/twin/runner.h"

namespace orrery {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double CoreSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

SearchRequest LargeJob() {
  SearchRequest request;
  request.model = LoadModel("gpt3-175b").spec;
  request.work.seq_len = 2048;
  request.work.global_batch = 2048;
  request.work.precision = Precision::kBf16;
  request.topology = LoadTopology("selene");
  request.nodes = {512};
  return request;
}

SearchRequest ReadmeJob() {
  SearchRequest request;
  const LoadedModel loaded = LoadModel("bert-1.5b");
  request.model = loaded.spec;
  request.work.seq_len = 128;
  request.work.global_batch = 12288;
  request.work.masked_positions = 20;
  request.work.optimizer = Optimizer::kLamb;
  request.topology = LoadTopology("aws-dl1");
  request.nodes = {32};
  return request;
}

// Every strategy through memory bound and closed form, on one core: first with the layer tables and memory forms
// to be made, then with them at hand. Of pipelines that formulas do not describe a bound, and closer ones or a walk as far
// as it can be among the best. Seconds of the core, so that other programs do not count.
void EvaluateAll() {
  SearchRequest request = LargeJob();
  request.threads = 1;
  const Profiles profiles = LoadProfiles(request);
  double cold = 0, warm = 0;
  SearchCounts counts;
  for (int repeat = 0; repeat < 3; ++repeat) {
    Runner runner(request, profiles);
    double start = CoreSeconds();
    runner.Run(false);
    counts = runner.counts();
    const auto evaluated = static_cast<double>(counts.evaluated);
    cold = std::max(cold, evaluated / (CoreSeconds() - start));
    start = CoreSeconds();
    runner.Run(false);
    warm = std::max(warm, evaluated / (CoreSeconds() - start));
  }
  fmt::print("search_space = {} strategies\n", counts.space);
  fmt::print("search_space_legal = {} strategies\n", counts.evaluated);
  fmt::print("search_evaluations_one_core = {:.0f} strategies/s\n", warm);
  fmt::print("search_evaluations_one_core_with_tables = {:.0f} strategies/s\n", cold);
  PrintRecorded("calculon_one_core", 78, "strategies/s");
  PrintRecorded("calculon_one_core_without_logging", 483, "strategies/s");
}

void SearchAll() {
  SearchRequest request = LargeJob();
  request.threads = 2;
  const double start = Now();
  const SearchResult result = Search(request);
  fmt::print("search_gpt3_175b_4096_gpus_wall = {:.3f} s\n", Now() - start);
  PrintRecorded("calculon_gpt3_175b_4096_gpus_cpu", 12.4, "s");
  PrintRecorded("calculon_gpt3_175b_4096_gpus_cpu_without_logging", 2.0, "s");
  fmt::print("search_gpt3_175b_4096_gpus_best_step = {:.3f} s\n", result.ranked.front().time.total);
}

void PlanReadme() {
  const double start = Now();
  const SearchResult result = Search(ReadmeJob());
  fmt::print("plan_bert_1_5b_32_nodes_wall = {:.3f} s\n", Now() - start);
  fmt::print("plan_bert_1_5b_32_nodes_best_step = {:.3f} s\n", result.ranked.front().time.total);
}

// What the simulation of the best five adds.
void Refined(const char* name, SearchRequest request) {
  request.refine = 5;
  request.threads = 2;
  const double start = Now();
  const SearchResult result = Search(request);
  fmt::print("{}_refined_wall = {:.3f} s\n", name, Now() - start);
  fmt::print("{}_refined = {} layouts\n", name, result.refinement->simulated);
}

}  // namespace
}  // namespace orrery

// Any argument: the evaluations alone.
int main(int argc, char**) {
  orrery::EvaluateAll();
  if (argc > 1) return 0;
  orrery::SearchAll();
  orrery::PlanReadme();
  orrery::Refined("plan_bert_1_5b_32_nodes", orrery::ReadmeJob());
  orrery::Refined("search_gpt3_175b_4096_gpus", orrery::LargeJob());
}
