// SPDX-License-Identifier: Apache-2.0
// How far the two engines are apart, without contention, over the catalogue:
//   bench_engines [-v] [--models A,B] [--topologies A,B] [--frameworks A,B] [--situations A,B] [--nodes N]
//   bench_engines [-v] --random JOBS [--users] [--seed N] [--from N]
// Plans: every topology x every framework x six situations (ZeRO 1, 2, 3, LAMB, EFA, slow TCP), the best five layouts of
// each on four nodes, or --nodes; or random jobs (random_jobs.h), like those of users or of the whole catalogue. Prints the share of plans within bounds and the largest difference of each term as a share
// of the step; -v: a line a plan.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "bench/engines/engine_parity.h"

namespace orrery {
namespace {

constexpr double kEffort = 2e6;  // of the simulation of a random job: 0.3 s

struct Totals {
  int plans = 0, within_1 = 0, within_3 = 0, terms_within_2 = 0, both = 0;
  double worst = 0;
  std::map<std::string, double> terms;

  void Add(const EnginePair& pair) {
    const double apart = std::abs(pair.Apart()), term = pair.WorstTerm();
    ++plans;
    within_1 += apart <= 0.01;
    within_3 += apart <= 0.03;
    terms_within_2 += term <= 0.02;
    both += apart <= 0.03 && term <= 0.02;
    worst = std::max(worst, apart);
    for (const BreakdownTerm& row : BreakdownTerms()) {
      double& most = terms[row.key];
      most = std::max(
          most, std::abs(pair.closed.*row.seconds - pair.event.*row.seconds) / pair.event_seconds);
    }
  }

  void Print() const {
    const auto share = [&](int count) { return 100.0 * count / std::max(1, plans); };
    fmt::print(
        "{} plans. Total within 1 %: {:.1f} %, 3 %: {:.1f} %; every term within 2 %: {:.1f} %; "
        "total "
        "within 3 % and terms within 2 %: {:.1f} %; worst total {:.1f} %\n",
        plans, share(within_1), share(within_3), share(terms_within_2), share(both), 100 * worst);
    for (const auto& [key, value] : terms) fmt::print("  {} {:.1f} %\n", key, 100 * value);
  }
};

void PrintPair(const EnginePair& pair) {
  std::string terms;
  for (const BreakdownTerm& term : BreakdownTerms()) {
    terms += fmt::format(" {}={:.4g}/{:.4g}", term.key, 1e3 * pair.closed.*term.seconds,
                         1e3 * pair.event.*term.seconds);
  }
  fmt::print("{:+.2f}% {} | {:.4g}/{:.4g} ms:{}\n", 100 * pair.Apart(), pair.where,
             1e3 * pair.closed_seconds, 1e3 * pair.event_seconds, terms);
}

std::vector<std::string> Listed(const std::string& text) {
  std::vector<std::string> names;
  std::stringstream words(text);
  for (std::string name; std::getline(words, name, ',');) names.push_back(name);
  return names;
}

int Main(const std::vector<std::string>& arguments) {
  ParitySelection selection;
  bool verbose = false;
  DrawnJobs kind = DrawnJobs::kCatalogue;
  int64_t jobs = 0, seed = 1, from = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "-v") {
      verbose = true;
      continue;
    }
    if (arguments[i] == "--users") {
      kind = DrawnJobs::kUsers;
      continue;
    }
    int64_t* number = arguments[i] == "--nodes"    ? &selection.nodes
                      : arguments[i] == "--random" ? &jobs
                      : arguments[i] == "--seed"   ? &seed
                      : arguments[i] == "--from"   ? &from
                                                   : nullptr;
    if (number != nullptr && i + 1 < arguments.size()) {
      *number = std::max(1L, std::strtol(arguments[++i].c_str(), nullptr, 10));
      continue;
    }
    std::vector<std::string>* names = arguments[i] == "--models"       ? &selection.models
                                      : arguments[i] == "--topologies" ? &selection.topologies
                                      : arguments[i] == "--frameworks" ? &selection.frameworks
                                      : arguments[i] == "--situations" ? &selection.situations
                                                                       : nullptr;
    if (names == nullptr || i + 1 == arguments.size()) {
      fmt::print(stderr, "bench_engines: unknown argument '{}'\n", arguments[i]);
      return 2;
    }
    *names = Listed(arguments[++i]);
  }
  Totals totals;
  const auto visit = [&](const EnginePair& pair) {
    totals.Add(pair);
    if (verbose) PrintPair(pair);
  };
  if (jobs > 0) {
    CompareRandom(static_cast<uint64_t>(seed), static_cast<uint64_t>(from),
                  static_cast<uint64_t>(jobs), kEffort, visit, kind);
  } else {
    CompareEngines(selection, visit);
  }
  totals.Print();
  return 0;
}

}  // namespace
}  // namespace orrery

int main(int argc, char** argv) { return orrery::Main({argv + 1, argv + argc}); }
