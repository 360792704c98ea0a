// SPDX-License-Identifier: Apache-2.0
// Trains a small GPT on threads and sets op times against step times.
#include "bench/runtime/executor_share.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "bench/runtime/small_gpt.h"
#include "model/plan/ir/plan_facts.h"
#include "runtime/data/synthetic.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/train/peak.h"
#include "runtime/train/train_rank.h"

namespace orrery {
namespace {

constexpr int64_t kExecutorSteps = 12;

ir::Plan GptPlan(int replicas, int batch) {
  Strategy strategy;
  strategy.dp = replicas;
  strategy.micro_batch = batch;
  return SmallGptPlan(Precision::kFp32, strategy);
}

// Rank 0's steps.
class KeepSteps : public launch::StepHook {
 public:
  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override {
    if (executor->image().rank == 0) steps.push_back(record.result);
  }
  std::vector<exec::StepResult> steps;
};

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void BenchRanks(int replicas, int batch, const char* name, double peak) {
  const ir::Plan plan = GptPlan(replicas, batch);
  KeepSteps keep;
  launch::TrainOptions options;
  options.steps = kExecutorSteps;
  const std::string failure =
      launch::RunLocalRanks(plan.mesh.ranks(), [&](comm::Endpoint* endpoint) {
        train::SyntheticSource data({.seed = 1, .vocab = 4096});
        launch::TrainRank(plan, endpoint, &data, options, {&keep});
      });
  if (!failure.empty()) {
    fmt::print(stderr, "{}\n", failure);
    std::exit(1);
  }
  std::vector<double> ops, seconds, waits;
  for (const exec::StepResult& step : keep.steps) {
    ops.push_back((step.compute_s + step.communicate_s + step.wait_s) / step.seconds);
    waits.push_back((step.communicate_s + step.wait_s) / step.seconds);
    seconds.push_back(step.seconds);
  }
  const double least = *std::min_element(seconds.begin(), seconds.end());
  fmt::print("{}_step_min = {:.4g} ms\n", name, 1e3 * least);
  fmt::print("{}_step_median = {:.4g} ms\n", name, 1e3 * MedianOf(seconds));
  fmt::print("{}_op_time_over_step = {:.4f} ratio\n", name, MedianOf(ops));
  fmt::print("{}_communication_share = {:.3g} percent\n", name, 100 * MedianOf(waits));
  fmt::print("{}_mfu = {:.3g} percent\n", name,
             100 * ir::FactsOf(plan).flops / (least * replicas * peak));
}

}  // namespace

void BenchExecutor() {
  const double peak = launch::MeasurePeak();
  fmt::print("executor_peak = {:.4g} GFLOP/s\n", 1e-9 * peak);
  BenchRanks(1, 8, "one_rank", peak);
  BenchRanks(2, 8, "two_ranks", peak);
  BenchRanks(1, 1, "one_rank_one_sample", peak);
}

}  // namespace orrery
