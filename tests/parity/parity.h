// SPDX-License-Identifier: Apache-2.0
// Parity of a lowered plan with the single rank: loss and gradient norm of a few training steps.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "model/arch/model_spec.h"
#include "model/plan/lower/lower.h"
#include "tests/interpreter/interpreter.h"

namespace orrery::parity {

inline constexpr double kTolerance = 1e-9;  // relative
inline constexpr int kSteps = 5;

// A model and a training job; `key` tells references apart.
struct Job {
  std::string key;
  ModelSpec model;
  Workload work;
  OptimizerSettings optimizer;
  double initial_loss_scale = 1;
  // Low precision: casts that round nothing, compared with a reference without casts; else the reference casts blocks of
  // the same rows: it has micro-batches of so many sequences (0: one of all).
  bool exact_casts = false;
  int reference_micro_batch = 0;
  bool fp8_weights = false;     // of the reference
  bool split_products = false;  // of all plans: other parameters
};

struct Case {
  const Job* job;
  Strategy strategy;
  bool uniform_dtype =
      true;  // every buffer in one type; else the types that the precision asks for
  uint64_t order_seed = 1;
};

struct Outcome {
  double worst = 0;      // relative deviation
  std::string failure;   // empty: parity holds
  int64_t executed = 0;  // op instances
};

std::string Describe(const Case& c);

// What one rank computes with one micro-batch and no option taken; computed once per job.
std::vector<interpreter::StepResult> Reference(const Job& job);

// Lowers, verifies and executes; stops at the first step that deviates.
Outcome RunCase(const Case& c);

struct Summary {
  int64_t plans = 0, executed = 0;
  double worst = 0;
  std::string worst_case;
  std::vector<std::string> failures;                 // description and reason
  std::string Text(const std::string& title) const;  // one line of figures, then up to 20 failures
};
// Runs all cases on as many threads as there are cores.
Summary RunAll(const std::vector<Case>& cases);

}  // namespace orrery::parity
