// SPDX-License-Identifier: Apache-2.0
// States and activations in memory of the host: every layout equals one rank that keeps all of them. Built with
// ORRERY_PARITY_SAMPLE, a part of the plans.
#include <gtest/gtest.h>

#include <iostream>

#include "model/plan/lower/names.h"
#include "tests/parity/grid.h"
#include "tests/parity/jobs.h"

namespace orrery::parity {
namespace {

constexpr uint64_t kSeed = 611;
#ifdef ORRERY_PARITY_SAMPLE
constexpr std::size_t kPlans = ORRERY_PARITY_SAMPLE;  // of each job, choice and number of ranks
#else
constexpr std::size_t kPlans = 300;
#endif

using Cases = std::vector<Case> (*)(const Job&, int, uint64_t);
void ExpectParity(const Job& job, const Offload& offload, std::initializer_list<int> ranks,
                  Cases grid = Grid, bool gradients = false) {
  std::vector<Case> cases;
  for (const int n : ranks) {
    std::vector<Case> legal;
    for (Case c : grid(job, n, kSeed)) {
      c.strategy.offload = offload;
      c.strategy.gradients_on_host = gradients;
      if (offload.weights && n == 1) c.strategy.zero = 3;  // grids shard over several ranks alone
      if (!CheckStrategy(job.model, job.work, c.strategy)) legal.push_back(c);
    }
    const std::vector<Case> some = Sample(legal, kPlans, kSeed);
    EXPECT_FALSE(some.empty()) << job.key << " on " << n << " ranks";
    cases.insert(cases.end(), some.begin(), some.end());
  }
  const Summary summary = RunAll(cases);
  std::cout << summary.Text(job.key + ", offload " + OffloadText(offload) +
                            (gradients ? " and gradients" : ""));
  EXPECT_TRUE(summary.failures.empty());
}

TEST(OffloadParity, StatesOnTheHost) {
  ExpectParity(TinyGpt(true), {1, false}, {1, 2, 4, 8});
  ExpectParity(TinyLlama(), {1, false}, {1, 2, 4});
}

TEST(OffloadParity, SomeOfTheStates) {
  ExpectParity(TinyGpt(true), {0.5, false}, {1, 2, 4});
  ExpectParity(TinyLlama(), {0.3, false}, {2, 4});
}

TEST(OffloadParity, Activations) {
  ExpectParity(TinyGpt(true), {0, true}, {1, 2, 4, 8});
  ExpectParity(TinyLlama(), {0, true}, {1, 2, 4});
}

TEST(OffloadParity, ActivationsOfTheFirstLayers) {
  for (const int layers : {1, 2}) ExpectParity(TinyGpt(true), {0, true, false, layers}, {1, 2, 4});
}

// Gradients go to the host behind each reduction, or each backward pass of one rank, and add up there.
TEST(OffloadParity, GradientsBehindEachReduction) {
  ExpectParity(TinyGpt(true), {1, false}, {1, 2, 4, 8}, Grid, true);
  ExpectParity(TinyGpt(false), {0.5, true}, {1, 2, 4}, Grid, true);
  ExpectParity(TinyLlama(), {1, false, true}, {1, 2, 4}, Grid, true);
  ExpectParity(TinyLlama(), {1, false}, {2, 4}, ContextGrid, true);
  ExpectParity(TinyT5(), {1, false}, {1, 2}, Grid, true);
  Job job = TinyLlama();
  job.key += " lora";
  job.work.lora = {2, 5, kLoraAll};
  ExpectParity(job, {1, false}, {1, 2, 4}, Grid, true);
}

// Casts and their scales travel, where products read them.
TEST(OffloadParity, ActivationsInFewBits) {
  for (const Fp8 recipe : {Fp8::kDelayed, Fp8::kCurrent, Fp8::kMxfp8, Fp8::kNvfp4}) {
    Job job = LowPrecisionLlama(recipe);
    job.key += " exact";
    job.exact_casts = true;
    ExpectParity(job, {0, true}, {1, 2});
    ExpectParity(job, {1, true}, {2});
  }
}

TEST(OffloadParity, StatesAndActivations) {
  for (const Job& job : {TinyGemma(), TinyOlmo(), TinyNeox(), TinyGptj()})
    ExpectParity(job, {1, true}, {1, 2, 4});
}

// Each pass copies weights, of one rank whole, of several the shard that is gathered.
TEST(OffloadParity, Weights) {
  ExpectParity(TinyGpt(true), {1, false, true}, {1, 2, 4, 8});
  ExpectParity(TinyLlama(), {1, true, true}, {1, 2, 4});
  ExpectParity(TinyLlama(), {1, false, true}, {2, 4}, ContextGrid);
  ExpectParity(TinyT5(), {1, false, true}, {1, 2});
}

// Ranks that share sequences shard states over both axes.
TEST(OffloadParity, StatesOfRanksThatShareSequences) {
  ExpectParity(TinyLlama(), {1, false}, {2, 4}, ContextGrid);
}

// What dropout drops comes back with the activations.
TEST(OffloadParity, MasksOfDropout) {
  Job job = TinyGpt(true);
  job.key += " dropout";
  job.work.dropout = 0.1;
  ExpectParity(job, {0.5, true}, {1, 2, 4});
}

TEST(OffloadParity, AdaptersAlone) {
  Job job = TinyLlama();
  job.key += " lora";
  job.work.lora = {2, 5, kLoraAll};
  ExpectParity(job, {1, true}, {1, 2, 4});
  ExpectParity(job, {1, false, true}, {1, 2, 4});
}

}  // namespace
}  // namespace orrery::parity
