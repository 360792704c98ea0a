// SPDX-License-Identifier: Apache-2.0
// Trains a small GPT on threads and sets op times against step times.
#include "bench/runtime/executor_share.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "bench/recorded.h"
#include "bench/runtime/small_gpt.h"
#include "model/arch/catalogue.h"
#include "model/plan/ir/plan_facts.h"
#include "runtime/data/synthetic.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/train/peak.h"
#include "runtime/train/train_rank.h"

namespace orrery {
namespace {

constexpr int64_t kExecutorSteps = 12;
constexpr int64_t kGpt2Tokens = 64;  // of a sequence, one per rank

Strategy Replicas(int replicas, int batch) {
  Strategy strategy;
  strategy.dp = replicas;
  strategy.micro_batch = batch;
  return strategy;
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

// Seconds of a step, the least.
double BenchRanks(const ir::Plan& plan, int64_t vocab, const char* name, double peak) {
  const auto replicas = static_cast<double>(plan.mesh.ranks());
  KeepSteps keep;
  launch::TrainOptions options;
  options.steps = kExecutorSteps;
  const std::string failure =
      launch::RunLocalRanks(plan.mesh.ranks(), [&](comm::Endpoint* endpoint) {
        train::SyntheticSource data({.seed = 1, .vocab = vocab});
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
  return least;
}

// At 1 x 64 tokens per rank: products with few rows, and an update of 124 million parameters.
void BenchGpt2(double peak) {
  const ModelSpec model = LoadModel("gpt2-small").spec;
  const auto rate = [&](int replicas, const char* name) {
    const ir::Plan plan = StepPlan(model, kGpt2Tokens, Precision::kFp32, Replicas(replicas, 1));
    const double tokens =
        static_cast<double>(replicas * kGpt2Tokens) / BenchRanks(plan, model.vocab, name, peak);
    fmt::print("{}_speed = {:.4g} tokens/s\n", name, tokens);
    return tokens;
  };
  const double one = rate(1, "gpt2_small_one_rank");
  PrintRecorded("pytorch_1_13_gpt2_small_one_core", 40, "tokens/s");
  PrintRecorded("llm_c_gpt2_small_one_core", 25, "tokens/s");
  const double two = rate(2, "gpt2_small_two_ranks");
  PrintRecorded("pytorch_1_13_gpt2_small_two_cores", 62, "tokens/s");
  fmt::print("gpt2_small_two_ranks_over_one = {:.3g} ratio\n", two / one);
}

}  // namespace

void BenchExecutor() {
  const double peak = launch::MeasurePeak();
  fmt::print("executor_peak = {:.4g} GFLOP/s\n", 1e-9 * peak);
  const auto small = [&](int replicas, int batch, const char* name) {
    const ir::Plan plan = SmallGptPlan(Precision::kFp32, Replicas(replicas, batch));
    return BenchRanks(plan, SmallGpt().vocab, name, peak);
  };
  const double one = small(1, 8, "one_rank"), two = small(2, 8, "two_ranks");
  fmt::print("two_ranks_over_one = {:.3g} ratio\n", 2 * one / two);
  small(1, 1, "one_rank_one_sample");
  BenchGpt2(peak);
}

}  // namespace orrery
