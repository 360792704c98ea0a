// SPDX-License-Identifier: Apache-2.0
// Trains the models of the sweep and sorts the times of their ops.
#include "runtime/machine/kernel_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "model/base/check.h"
#include "runtime/data/synthetic.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/machine/sweep_models.h"
#include "runtime/train/peak.h"
#include "runtime/train/train_rank.h"

namespace orrery::machine {
namespace {

constexpr int64_t kSteps = 6;  // the first of them warms up

// Uses of a shape, told apart by kind and phase of the op.
using Use = std::pair<ir::OpKind, ir::Phase>;
using Times = std::map<MeasuredShape, std::map<Use, std::vector<double>>>;

// The lower quartile: other programs make ops longer, nothing makes them shorter.
double Typical(std::vector<double> values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

class Watch : public launch::StepHook {
 public:
  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override {
    if (record.step == 1) return;
    const std::lock_guard lock(mutex_);
    const exec::RankImage& image = executor->image();
    for (std::size_t t = 0; t < image.tasks.size(); ++t) {
      const exec::Task& task = image.tasks[t];
      const auto shape = MeasuredShapeOf(*image.program, *task.op);
      if (!shape) continue;
      const exec::OpSpan& span = executor->spans()[t];
      times_[*shape][{task.op->kind, task.op->phase}].push_back(
          static_cast<double>(std::max<int64_t>(span.end - span.begin, 1)) * 1e-9);
    }
  }
  Times Take() { return std::move(times_); }

 private:
  std::mutex mutex_;
  Times times_;
};

Times Train(const SweepModel& model, int64_t cores) {
  Workload work = model.work;
  Strategy strategy;
  strategy.dp = static_cast<int>(cores);
  strategy.micro_batch = static_cast<int>(work.global_batch);
  strategy.flash_attention = model.flash;
  work.global_batch *= cores;
  LowerResult lowered = Lower(model.spec, work, strategy, {});
  if (const auto* refusal = std::get_if<Refusal>(&lowered))
    throw std::runtime_error(fmt::format("{}: {}", model.name, refusal->reason));
  const auto& plan = std::get<ir::Plan>(lowered);
  Watch watch;
  launch::TrainOptions options;
  options.steps = kSteps;
  const std::string failure = launch::RunLocalRanks(cores, [&](comm::Endpoint* endpoint) {
    train::DataSpec spec;
    spec.vocab = model.spec.vocab;
    train::SyntheticSource data(spec);
    launch::TrainRank(plan, endpoint, &data, options, {&watch});
  });
  if (!failure.empty()) throw std::runtime_error(fmt::format("{}: {}", model.name, failure));
  return watch.Take();
}

double MeanOverUses(const std::map<Use, std::vector<double>>& uses) {
  double sum = 0;
  for (const auto& [use, seconds] : uses) sum += Typical(seconds);
  return sum / static_cast<double>(uses.size());
}

// Of one rank's step.
LeftOut Judge(const SweepModel& model, int64_t cores, const KernelTable& table) {
  LeftOut left{model.name, 0, 0};
  for (const auto& [of, uses] : Train(model, cores)) {
    const std::optional<double> predicted = table.Seconds(of.kernel, of.shape);
    if (!predicted) continue;
    for (const auto& [use, seconds] : uses) {
      const double count =
          static_cast<double>(seconds.size()) / static_cast<double>(cores * (kSteps - 1));
      left.predicted += count * *predicted;
      left.measured += count * Typical(seconds);
    }
  }
  return left;
}

}  // namespace

KernelSweep SweepKernels(int64_t cores, Precision precision,
                         const std::function<void(const std::string&)>& note) {
  KernelSweep sweep;
  sweep.peak = launch::MeasurePeak();
  Times all;
  for (const SweepModel& model : SweepModels(precision)) {
    note(model.name);
    for (auto& [of, uses] : Train(model, cores)) {
      for (auto& [use, seconds] : uses) {
        std::vector<double>& known = all[of][use];
        known.insert(known.end(), seconds.begin(), seconds.end());
      }
    }
  }
  KernelTable table;
  for (const auto& [of, uses] : all) {
    sweep.kernels.push_back({of, MeanOverUses(uses)});
    table.Add(of.kernel, of.shape, sweep.kernels.back().seconds);
  }
  for (const SweepModel& model : LeftOutModels(precision)) {
    note("leave-one-out check: " + model.name);
    sweep.left_out.push_back(Judge(model, cores, table));
  }
  return sweep;
}

}  // namespace orrery::machine
