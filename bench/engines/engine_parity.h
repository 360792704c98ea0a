// SPDX-License-Identifier: Apache-2.0
// The two engines side by side, without contention, on plans that users get: best layouts of searches with profiles and
// topologies as shipped.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/engines/random_jobs.h"
#include "model/price/breakdown.h"
#include "model/twin/search.h"

namespace orrery {

struct ParitySelection {
  std::vector<std::string> models = {"gpt2-xl"};
  std::vector<std::string> topologies;  // empty: the whole catalogue
  std::vector<std::string> frameworks;  // empty: all
  std::vector<std::string> situations;  // of ParitySituations(); empty: all
  int64_t nodes = 4;                    // fewer where a topology has fewer
  FixedAxes fixed;                      // of every search
  int64_t seq_len = 1024, global_batch = 512;
  Fp8 fp8 = Fp8::kOff;
  SkippedLayers fp8_skip = {};
  Lora lora = {};
  Optimizer optimizer = Optimizer::kAdam;  // where the situation names none
  std::string facts;  // of all frameworks, over their own: "fp8_weights=current"
  // One of so many parts of all combinations of topology, framework and situation. Of six, each part has each topology with
  // each framework in one situation, and each framework in each situation.
  uint64_t parts = 1, part = 0;
};

// "zero1", "zero2", "zero3", "lamb", "efa", "tcp".
std::vector<std::string> ParitySituations();

struct EnginePair {
  std::string where;  // "gpt2-xl on dgx-a100-80, megatron, zero1: tp 2, ..."
  Breakdown closed, event;
  double closed_seconds = 0, event_seconds = 0;

  double Apart() const { return closed_seconds / event_seconds - 1; }
  // Largest difference of a term, as a share of the simulated step.
  double WorstTerm(const BreakdownTerm** term = nullptr) const;
};

// One layout of a job, simulated.
EnginePair CompareLayout(const Job& job, const Strategy& layout, const StepTime& closed,
                         bool contention = false);

// Calls `visit` for so many random jobs (random_jobs.h) from number `from` on, but for those that take more than `effort` to
// simulate.
void CompareRandom(uint64_t seed, uint64_t from, uint64_t jobs, double effort,
                   const std::function<void(const EnginePair&)>& visit,
                   DrawnJobs kind = DrawnJobs::kCatalogue);

// Calls `visit` for every ranked layout. What a framework or a GPU refuses is left out.
void CompareEngines(const ParitySelection& selection,
                    const std::function<void(const EnginePair&)>& visit);

}  // namespace orrery
