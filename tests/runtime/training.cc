// SPDX-License-Identifier: Apache-2.0
// Runs a plan on threads and keeps what rank 0 saw.
#include "tests/runtime/training.h"

#include <algorithm>
#include <cmath>

#include "runtime/data/synthetic.h"
#include "runtime/launch/local_ranks.h"

namespace orrery::runtime_test {
namespace {

class Keep : public launch::StepHook {
 public:
  explicit Keep(Trained* run) : run_(run) {}
  void BeforeTraining(exec::Executor* executor) override {
    run_->arenas[static_cast<std::size_t>(executor->image().rank)] = executor->arena_bytes();
  }
  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override {
    if (executor->image().rank == 0) run_->steps.push_back(record);
  }

 private:
  Trained* run_;
};

double Relative(double a, double b) {
  if (a == b) return 0;
  const double deviation = std::abs(a - b) / std::max(std::abs(a), std::abs(b));
  return std::isnan(deviation) ? HUGE_VAL : deviation;
}

}  // namespace

ir::Plan LowerFor(const parity::Job& job, const Strategy& strategy) {
  LowerOptions options;
  options.optimizer = job.optimizer;
  LowerResult lowered = Lower(job.model, job.work, strategy, options);
  if (const auto* refusal = std::get_if<Refusal>(&lowered))
    throw std::invalid_argument(refusal->reason);
  return std::get<ir::Plan>(std::move(lowered));
}

Strategy OneRank(const parity::Job& job) {
  Strategy strategy;
  strategy.micro_batch = static_cast<int>(job.work.global_batch);
  strategy.split_products = job.split_products;
  return strategy;
}

Trained Train(const ir::Plan& plan, const parity::Job& job, int64_t steps, bool poison,
              const std::vector<launch::StepHook*>& hooks, double deadline_s) {
  Trained run;
  run.arenas.resize(static_cast<std::size_t>(plan.mesh.ranks()));
  Keep keep(&run);
  std::vector<launch::StepHook*> all = hooks;
  all.push_back(&keep);
  launch::TrainOptions options;
  options.steps = steps;
  options.execute.poison = poison;
  options.execute.deadline_s = deadline_s;
  options.execute.initial_loss_scale = job.initial_loss_scale;
  run.failure = launch::RunLocalRanks(plan.mesh.ranks(), [&](comm::Endpoint* endpoint) {
    train::DataSpec spec;
    spec.vocab = job.model.vocab;
    spec.token_types = std::max<int64_t>(job.model.token_types, 1);
    train::SyntheticSource data(spec);
    launch::TrainRank(plan, endpoint, &data, options, all);
  });
  return run;
}

Deviation Compare(const Trained& a, const Trained& b) {
  Deviation worst;
  if (a.steps.size() != b.steps.size()) return {HUGE_VAL, HUGE_VAL};
  for (std::size_t s = 0; s < a.steps.size(); ++s) {
    const exec::StepResult &x = a.steps[s].result, &y = b.steps[s].result;
    worst.loss = std::max(worst.loss, Relative(x.loss, y.loss));
    worst.norm = std::max(worst.norm, Relative(x.gradient_norm, y.gradient_norm));
  }
  return worst;
}

}  // namespace orrery::runtime_test
