// SPDX-License-Identifier: Apache-2.0
// Prices a layout, lowers it, simulates it where asked.
#include "model/twin/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/arch/parameters.h"
#include "model/base/check.h"
#include "model/plan/ir/verify.h"
#include "model/plan/lower/lower.h"

namespace orrery {

MemoryLimits LimitsOf(const Job& job) {
  MemoryLimits limits = LimitsOf(*job.gpu, *job.framework);
  if (job.memory_limit) limits.capacity = *job.memory_limit;
  return limits;
}

Prediction PredictionOf(const Job& job, const Strategy& layout, const StepTime& time) {
  Prediction prediction;
  prediction.strategy = layout;
  prediction.nodes = job.cluster.nodes;
  prediction.global_batch = job.work.global_batch;
  prediction.micro_batches = MicroBatches(job.work, layout);
  prediction.time = time;
  const double sequences = static_cast<double>(job.work.global_batch);
  const double tokens = sequences * static_cast<double>(job.work.seq_len);
  prediction.tokens_per_second = tokens / time.total;
  const Flops flops =
      ModelFlopsPerSequence(job.model, job.work.seq_len, job.work.masked_positions) * sequences;
  prediction.mfu = flops.value / (time.total * static_cast<double>(layout.ranks()) *
                                  job.gpu->Peak(job.work.precision).value);
  if (const auto price = job.price()) {
    prediction.price_per_step = Dollars(*price * time.total);
    prediction.price_per_billion_tokens = Dollars(*price * time.total / tokens * 1e9);
  }
  return prediction;
}

ir::Plan LowerLegal(const Job& job, const Strategy& layout) {
  LowerResult lowered = Lower(job.model, job.work, layout);
  auto* plan = std::get_if<ir::Plan>(&lowered);
  ORRERY_CHECK(plan != nullptr, "{} is refused: {}", DescribeLayout(layout),
               std::get<Refusal>(lowered).reason);
  return std::move(*plan);
}

ir::Plan AddPlan(const Job& job, int window, Prediction* prediction) {
  ir::Plan plan = LowerLegal(job, prediction->strategy);
  prediction->memory = ReportMemory(plan, LimitsOf(job), Communicators(prediction->strategy));
  ir::VerifyOptions options;
  options.window = window;
  prediction->verify_findings = static_cast<int>(ir::Verify(plan, options).size());
  return plan;
}

Confidence ConfidenceOf(const Job& job, const Strategy& layout, Window window, const Trust& trust,
                        ShapeCache* shapes) {
  const auto predict = [&](const CostSetting& prices) {
    StepPredictor predictor({job.model, job.work, prices}, shapes);
    return std::get<StepTime>(predictor.Predict(layout, window)).total;
  };
  return ConfidenceOf(trust, job.prices(),
                      SituationOf(job.model, job.work, layout, job.cluster.nodes),
                      predict(job.prices()), predict);
}

void AddConfidence(const Job& job, const Trust& trust, Prediction* prediction) {
  ShapeCache shapes;
  Confidence confidence = ConfidenceOf(job, prediction->strategy, Window::kStep, trust, &shapes);
  StepTime& closed = prediction->closed_form ? *prediction->closed_form : prediction->time;
  closed.low = confidence.low;
  closed.high = confidence.high;
  if (prediction->closed_form) prediction->time = WithInterval(prediction->time, closed);
  prediction->outside = std::move(confidence.outside);
  constexpr std::size_t kNearest = 3;
  prediction->nearest = NearestRuns(job, prediction->strategy, kNearest);
  prediction->difference = confidence.difference;
  prediction->difference_pairs = confidence.pairs;
}

StepTime SimulateStep(const ir::Plan& plan, const Cluster& cluster, const CostSetting& prices,
                      SimulatedStep* step) {
  sim::SimulationOptions options;
  options.keep_links = step != nullptr;
  sim::Simulation simulation(plan, cluster, prices, options);
  simulation.Run();
  if (step != nullptr) *step = {simulation.result().ops, simulation.SharedLinks()};
  return simulation.time();
}

StepTime WithInterval(StepTime simulated, const StepTime& closed) {
  const double ratio = simulated.total / closed.total;
  simulated.low = closed.low * ratio;
  simulated.high = closed.high * ratio;
  if (std::abs(1 / ratio - 1) > kEnginesDiffer) {
    simulated.low = std::min(simulated.low, closed.total);
    simulated.high = std::max(simulated.high, closed.total);
  }
  return simulated;
}

void TakeSimulated(const StepTime& time, SimulatedStep step, Prediction* prediction) {
  const double ratio = time.total / prediction->time.total;
  prediction->closed_form = prediction->time;
  prediction->time = WithInterval(time, prediction->time);
  prediction->tokens_per_second /= ratio;
  prediction->mfu /= ratio;
  if (prediction->price_per_step) *prediction->price_per_step *= ratio;
  if (prediction->price_per_billion_tokens) *prediction->price_per_billion_tokens *= ratio;
  prediction->simulated = std::move(step);
}

std::variant<Prediction, Refusal> Predict(const Job& job, const Strategy& layout, Engine engine) {
  if (layout.ranks() != job.cluster.ranks()) {
    return Refusal{fmt::format("{} takes {} GPUs, the cluster has {}", DescribeLayout(layout),
                               layout.ranks(), job.cluster.ranks()),
                   "tp x pp x dp must be the number of GPUs"};
  }
  const auto closed = StepPredictor(job).Predict(layout);
  if (const auto* refusal = std::get_if<Refusal>(&closed)) return *refusal;
  Prediction prediction = PredictionOf(job, layout, std::get<StepTime>(closed));
  const ir::Plan plan = AddPlan(job, 0, &prediction);
  prediction.digest = ir::Digest(plan);
  AddConfidence(job, LoadTrust(), &prediction);
  if (engine == Engine::kEvent) {
    SimulatedStep step;
    const Cluster cluster =
        BuildCluster(*job.topology, job.cluster.nodes, job.cluster.gpus_per_node);
    const StepTime time = SimulateStep(plan, cluster, job.prices(), &step);
    TakeSimulated(time, std::move(step), &prediction);
  }
  return prediction;
}

}  // namespace orrery
