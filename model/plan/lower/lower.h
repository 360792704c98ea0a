// SPDX-License-Identifier: Apache-2.0
// From a model, a workload and a strategy to the plan IR. The only place that knows strategies by name.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "model/arch/model_spec.h"
#include "model/plan/ir/plan.h"
#include "model/plan/lower/strategy.h"

namespace orrery {

// A layout that cannot be built: which dimension or option stands against it, and what would work.
struct Refusal {
  std::string reason;
  std::string hint;
};

struct OptimizerSettings {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
};

struct LowerOptions {
  std::optional<ir::Dtype>
      uniform_dtype;  // every buffer in one type (the reference interpreter uses kF64)
  OptimizerSettings optimizer;
  bool loss_scaling = true;  // fp16 only: dynamic loss scale
  bool exact_casts = false;  // low precision: casts that round nothing (proves a plan)
  ir::Init adapter_init = ir::Init::kZeros;  // of the second matrix of an adapter
  int amax_history = 1;                      // delayed scales: steps that a scale looks back
};

// Legality alone, without building anything; nullopt: the strategy can be lowered.
std::optional<Refusal> CheckStrategy(const ModelSpec& model, const Workload& work,
                                     const Strategy& strategy);
// Its parts, one behind the other, for searches: what a layer says is the same of all schedules, chunks and layouts; what the
// pipeline says, without adapters and offload, of all that a layer recomputes and of every context.
std::optional<Refusal> CheckOfStep(const ModelSpec& model, const Workload& work,
                                   const Strategy& strategy);
std::optional<Refusal> CheckOfLayer(const ModelSpec& model, const Workload& work,
                                    const Strategy& strategy);
std::optional<Refusal> CheckOfPipeline(const ModelSpec& model, const Workload& work,
                                       const Strategy& strategy);

using LowerResult = std::variant<ir::Plan, Refusal>;
LowerResult Lower(const ModelSpec& model, const Workload& work, const Strategy& strategy,
                  const LowerOptions& options = {});

// `plan`, which Lower() made of this work and strategy, with so many micro-batches: other schedules of the same blocks. The
// loss keeps the scale of the plan's own batch.
ir::Plan WithMicroBatches(ir::Plan plan, const Workload& work, const Strategy& strategy,
                          int64_t micro_batches);

// Micro-batches per step: global_batch / (data_parallel * micro_batch); 0 if it does not divide.
int64_t MicroBatches(const Workload& work, const Strategy& strategy);

// Vocabulary rows after padding to a multiple of tp (each rank's shard is equally long).
int64_t PaddedVocab(const ModelSpec& model, int tp);

}  // namespace orrery
