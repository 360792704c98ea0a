// SPDX-License-Identifier: Apache-2.0
// Threads with a snapshot hook each.
#include "tests/runtime_snapshot/training.h"

#include <algorithm>
#include <cmath>

#include "runtime/data/synthetic.h"
#include "runtime/launch/local_ranks.h"

namespace orrery::snapshot {
namespace {

class Keep : public launch::StepHook {
 public:
  explicit Keep(Trained* run) : run_(run) {}
  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override {
    if (executor->image().rank == 0) run_->losses[record.step] = record.result.loss;
  }

 private:
  Trained* run_;
};

}  // namespace

HookOptions Saving(const std::string& folder, int64_t every) {
  HookOptions options;
  options.save = folder;
  options.every = every;
  return options;
}

HookOptions Resuming(const std::string& folder) {
  HookOptions options;
  options.resume = folder;
  return options;
}

Trained Train(const parity::Job& job, const Strategy& strategy, int64_t steps,
              HookOptions options) {
  const ir::Plan plan = runtime_test::LowerFor(job, strategy);
  Trained run;
  Keep keep(&run);
  options.data = "synthetic";
  options.samples_per_step = job.work.global_batch;
  options.deadline_s = 30;
  options.note = [&](const std::string& text) { run.notes.push_back(text); };
  launch::TrainOptions training;
  training.steps = steps;
  training.execute.deadline_s = 30;
  training.execute.poison = true;
  training.execute.initial_loss_scale = job.initial_loss_scale;
  run.failure = launch::RunLocalRanks(plan.mesh.ranks(), [&](comm::Endpoint* endpoint) {
    train::DataSpec spec;
    spec.vocab = job.model.vocab;
    spec.token_types = std::max<int64_t>(job.model.token_types, 1);
    train::SyntheticSource data(spec);
    SnapshotHook hook(options, endpoint, &data);
    launch::TrainRank(plan, endpoint, &data, training, {&keep, &hook});
  });
  return run;
}

double Deviation(const Trained& a, const Trained& b) {
  double worst = 0;
  int64_t shared = 0;
  for (const auto& [step, loss] : a.losses) {
    const auto other = b.losses.find(step);
    if (other == b.losses.end()) continue;
    ++shared;
    worst = std::max(worst, std::abs(loss - other->second) / std::abs(loss));
  }
  return shared == 0 ? HUGE_VAL : worst;
}

}  // namespace orrery::snapshot
