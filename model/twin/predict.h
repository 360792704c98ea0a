// SPDX-License-Identifier: Apache-2.0
// One layout of a job in, what the twin says of its step out: the one door to both engines.
//
//   const Job job = MakeJob(...);
//   const auto result = Predict(job, strategy);   // Prediction or Refusal
//
// The search folds the closed form of millions of layouts with StepPredictor and completes the best with the same parts;
// `plan simulate` plays plans with sim::Simulation, as SimulateLayout() does. So every command gives one step time per job
// and layout: see Engine::kAuto. Times are seconds.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "model/engine/event/simulation.h"
#include "model/memory/memory.h"
#include "model/twin/nearest.h"
#include "model/twin/stage_gpus.h"
#include "model/twin/steady.h"
#include "model/twin/step_predictor.h"
#include "model/twin/trust.h"

namespace orrery {

// kAuto, the rule of every answer that names no engine: simulated, but for plans that take more than Job::most_effort or
// that the cluster cannot route; those keep the closed form, and the answer says so.
enum class Engine { kAuto, kClosed, kEvent };

struct Prediction {
  Strategy strategy;
  int64_t nodes = 0;
  int64_t global_batch = 0;
  int64_t micro_batches = 0;
  StepTime time;  // of the step: simulated where there is a simulation, else in closed form
  std::optional<StepTime> closed_form;     // where `time` is simulated
  std::optional<SimulatedStep> simulated;  // `time` is
  std::string
      not_simulated;  // why the rule of kAuto left `time` to the closed form; "": it did not
  double tokens = 0, model_flops = 0;        // of the step; without recomputation
  double masked_flops = 0;                   // of those, what a causal mask leaves out
  double peak_flops = 0;                     // FLOP/s of all GPUs
  std::optional<double> dollars_per_second;  // of all nodes
  double tokens_per_second = 0;
  double mfu = 0;                      // model_flops / (step time x peak_flops)
  std::optional<MemoryReport> memory;  // exact, from the lowered plan
  std::vector<int>
      shares;  // layers of each stage, where those or GPUs differ or a layout names them
  std::optional<Dollars> price_per_step, price_per_billion_tokens;
  std::string no_interval;           // why `time` has none; "": it has
  std::vector<NearRun> nearest;      // published runs
  std::vector<std::string> outside;  // in what the calibration does not cover it
  std::string
      interval_basis;  // errors of which runs give the interval: "new cluster, 16 groups ..."
  double difference =
      0;  // 80 % of differences between layouts are known to this (logarithm); 0: unknown
  int difference_pairs = 0;  // published pairs behind it
  std::string digest;        // of the lowered plan

  const StepTime& ClosedForm() const { return closed_form ? *closed_form : time; }
  // The rule of kAuto was applied.
  bool settled() const { return simulated || !not_simulated.empty(); }
  // MFU without what a causal mask leaves out.
  double MaskedMfu() const { return mfu * (1 - masked_flops / model_flops); }
  // Simulated unperturbed, and more than kEnginesDiffer from the closed form.
  bool EnginesDiffer() const;
  // One step time in every answer: throughput, MFU and prices follow it.
  void SetTime(const StepTime& step);
};

// Everything but `outside` and `difference` costs less than a millisecond; the interval takes one closed form per
// calibrated constant, a simulation up to seconds. Refusal: the layout cannot be lowered, or is for another number of
// GPUs. Throws InputError: the plan cannot be simulated with kEvent (too many ops, no route between ranks).
std::variant<Prediction, Refusal> Predict(const Job& job, const Strategy& layout,
                                          Engine engine = Engine::kAuto);

// A plan from elsewhere, simulated: degrees and micro-batch of the strategy are read off its mesh, the rest of it is not
// known, nor is the closed form. The interval takes one simulation per calibrated constant; NaN where those together are
// more than a few seconds, see Prediction::no_interval. Throws InputError: the plan is for another number of GPUs, or cannot be
// simulated.
Prediction PredictPlan(const Job& job, const ir::Plan& plan);
// The job of a plan, without a model: sequences, tokens and precision as the plan has them.
Workload WorkOf(const ir::Plan& plan);

// Its parts.

Cluster ClusterOf(const Job& job);
// Of a layout that CheckStrategy() lets pass.
ir::Plan LowerLegal(const Job& job, const Strategy& layout);
// Times and what follows from them, without interval, plan or memory.
Prediction PredictionOf(const Job& job, const Strategy& layout, const StepTime& time);
// Of the plan.
void AddMemory(const Job& job, const ir::Plan& plan, Prediction* prediction);
// The same of a layout that lowers to `plan`, in time that does not grow with its micro-batches.
void AddMemoryOfLayout(const Job& job, const ir::Plan& plan, Prediction* prediction);
// What is known of the time of a layout in closed form. `shapes`: of the job's model and workload, may be null.
Confidence ConfidenceOf(const Job& job, const Strategy& layout, Window window, const Trust& trust,
                        ShapeCache* shapes);
void AddConfidence(const Job& job, const Trust& trust, Prediction* prediction,
                   ShapeCache* shapes = nullptr);

// Effort of a simulation, counted in ops and never by a clock, so that one question always gets one answer: each op takes
// about 0.14 us of a core.
// `alike`: replicas are, and executed once.
double SimulationEffort(const ir::Plan& plan, bool alike = true);
// The same where `plan` is the layout's: of its first pair of short steps (steady.h), if it has some.
double SimulationEffort(const ir::Plan& plan, const Strategy& layout, bool alike = true);
// By the rule of kAuto: the simulated step in the place of the closed form, or why not.
void Settle(const Job& job, const ir::Plan& plan, const Cluster& cluster, Prediction* prediction,
            Learn learn = Learn::kAll);

// Puts a simulated step in the closed form's place: one step time in every answer.
void TakeSimulated(const StepTime& time, SimulatedStep step, Prediction* prediction);
// With the interval of the closed form, moved along; it covers both where the engines are further apart than
// kEnginesDiffer.
StepTime WithInterval(StepTime simulated, const StepTime& closed);

// Engines further apart than this are named in the answer.
inline constexpr double kEnginesDiffer = 0.05;

// "tp 8, pp 16, dp 32 (ZeRO 1), micro-batch 2 x 32, interleaved x 3, recompute selective, sequence parallel"
std::string DescribeLayout(const Strategy& strategy, int64_t micro_batches = 0);

}  // namespace orrery
