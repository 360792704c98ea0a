// SPDX-License-Identifier: Apache-2.0
// Prices runs of fuller chunks and takes the fastest that fits.
#include "model/twin/default_shares.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "model/memory/software_memory.h"
#include "model/plan/lower/balance.h"
#include "model/twin/share_climb.h"
#include "model/twin/stage_gpus.h"
#include "model/twin/step_predictor.h"

namespace orrery {
namespace {

struct Priced {
  double seconds = 0;
  std::shared_ptr<const std::vector<int>> layout;
};

}  // namespace

bool ChoosesShares(const ModelSpec& model, const FrameworkPreset& preset, const Strategy& s) {
  const int64_t chunks = int64_t{1} * s.pp * s.vpp;
  const int64_t counted = model.layers + (s.count_embedding ? 1 : 0) + (s.count_head ? 1 : 0);
  return preset.uneven_chunks && !s.layout && s.vpp > 1 && model.decoder_layers == 0 &&
         s.schedule == PipelineSchedule::kInterleaved && counted % chunks != 0;
}

std::shared_ptr<const std::vector<int>> DefaultShares(const Job& job, const Strategy& s) {
  if (!ChoosesShares(job.model, *job.framework->preset, s) || CheckStrategy(job.model, job.work, s))
    return nullptr;
  StepPredictor predictor(job);
  std::vector<Priced> all;
  Strategy trial = s;
  const auto add = [&](std::shared_ptr<const std::vector<int>> layout) {
    trial.layout = std::move(layout);
    if (CheckStrategy(job.model, job.work, trial)) return;
    const auto step = predictor.Predict(trial);
    if (const auto* time = std::get_if<StepTime>(&step)) all.push_back({time->total, trial.layout});
  };
  auto by_rule = std::make_shared<std::vector<int>>();
  for (const LayerRange& range : BalanceLayers(job.model.layers, s))
    by_rule->push_back(static_cast<int>(range.count));
  add(std::move(by_rule));
  for (const auto& layout : RunsOfFullerChunks(job.model.layers, s)) add(layout);
  std::ranges::stable_sort(all, {}, &Priced::seconds);
  MemoryModel memory(job.model, job.work, AllocationOf(*job.framework));
  const double margin = LimitsOf(job, s).nearly_full;
  std::shared_ptr<const std::vector<int>> fits;
  for (const Priced& one : all) {
    trial.layout = one.layout;
    const BoundOfGpu bound = MemoryBoundOf(job, trial, &memory);
    if (bound.total <= bound.capacity * margin) return one.layout;
    if (!fits && bound.total <= bound.capacity) fits = one.layout;
  }
  if (fits) return fits;
  return all.empty() ? nullptr : all.front().layout;
}

}  // namespace orrery
