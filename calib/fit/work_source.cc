// SPDX-License-Identifier: Apache-2.0
// Device time by kind of work, from the shapes of a micro-batch.
#include "calib/fit/work_source.h"

#include <fmt/format.h>

#include <optional>

#include "calib/fit/log_measure.h"
#include "model/base/check.h"
#include "model/hardware/catalog.h"
#include "model/plan/lower/lower.h"
#include "model/twin/step_predictor.h"

namespace orrery {
namespace {

using measured::Work;

template <class... F>
struct Cases : F... {
  using F::operator()...;
};
template <class... F>
Cases(F...) -> Cases<F...>;

using Sums = std::map<Work, double>;

std::optional<Work> WorkOf(const ShapedOp& op) {
  return std::visit(Cases{[](const GemmShape&) { return std::optional(Work::kProduct); },
                          [](const AttentionShape&) { return std::optional(Work::kAttention); },
                          [](const TrafficShape&) { return std::optional(Work::kElementwise); },
                          [](const LossShape&) { return std::optional(Work::kElementwise); },
                          [](const UpdateShape&) { return std::optional(Work::kOptimizer); },
                          [](const HopShape&) { return std::optional<Work>(); },
                          [](const HostCopyShape&) { return std::optional<Work>(); },
                          [](const CollectiveShape&) { return std::optional<Work>(); }},
                    op.shape);
}

void AddOps(const std::vector<ShapedOp>& ops, double factor, bool accumulates,
            const OpPrices& prices, Sums* sums) {
  for (const ShapedOp& op : ops) {
    if (const auto work = WorkOf(op)) (*sums)[*work] += factor * prices.Price(op, false).device;
    if (accumulates && op.accumulated > 0)
      (*sums)[Work::kElementwise] += factor * prices.Accumulate(op.accumulated);
  }
}

void AddSegment(const SegmentOps& ops, double factor, bool accumulates, const OpPrices& prices,
                Sums* sums) {
  AddOps(ops.forward, factor, false, prices, sums);
  AddOps(ops.recompute, factor, false, prices, sums);
  AddOps(ops.backward, factor, accumulates, prices, sums);
}

// Of a whole step.
Sums StepWork(const MicroBatchOps& ops, double micro_batches, const OpPrices& prices) {
  const bool accumulates = micro_batches > 1;
  Sums sums;
  AddSegment(ops.embedding, 1, accumulates, prices, &sums);
  AddSegment(ops.head, 1, accumulates, prices, &sums);
  for (const LayerKind& kind : ops.layers)
    AddSegment(kind.ops, kind.scale * kind.count, accumulates, prices, &sums);
  for (auto& [work, seconds] : sums) seconds *= micro_batches;
  return sums;
}

}  // namespace

WorkSource::WorkSource(const std::vector<const LoggedRun*>& runs, const RowFilter& filter,
                       ProfileStore* store) {
  for (const LoggedRun* run : runs) Add(*run, filter, store);
}

void WorkSource::Add(const LoggedRun& logged, const RowFilter& filter, ProfileStore* store) {
  const CaseRow& row = logged.row;
  if (logged.read.spans.empty() || row.strategy.pp > 1 || row.window != Window::kStep) return;
  const auto shaped = ShapeMicroBatch(row.model, row.work, KeyOf(row.model, row.strategy));
  const auto* ops = std::get_if<MicroBatchOps>(&shaped);
  if (ops == nullptr) return;
  Run run{row.model, row.work, row.strategy, *ops,
          Summarise(LoadTopology(row.topology), row.nodes, row.gpus_per_node)};
  Observation seen;
  seen.gpu = store->Gpu(run.cluster.gpu);
  seen.framework =
      store->SelectFramework(row.framework, run.cluster.name, row.strategy.flash_attention);
  seen.fabric = store->Fabric(run.cluster.fabric_profile);
  if (!filter.Takes(row.source, run.cluster.gpu, run.cluster.fabric_profile,
                    store->framework(seen.framework).header.id))
    return;
  seen.source = row.source;
  seen.group = row.source + " kernels";
  seen.model = seen.group + ", " + row.name;
  seen.topology = row.topology;
  seen.step_time = false;
  const bool flash = row.strategy.flash_attention;
  Sums sums = WorkOf(logged.read);
  if (!flash) {
    for (const Work work : {Work::kAttention, Work::kElementwise}) {
      sums[Work::kProduct] += sums[work];
      sums.erase(work);
    }
  }
  for (const Work work : {Work::kProduct, Work::kAttention, Work::kElementwise, Work::kOptimizer}) {
    if (sums[work] <= 0) continue;
    const bool merged = !flash && work == Work::kProduct;
    seen.name = fmt::format("{}, {}", row.name, merged ? "kernels" : measured::Name(work));
    seen.measured = sums[work];
    parts_.push_back({static_cast<int>(runs_.size()), work, merged});
    observations_.push_back(seen);
  }
  runs_.push_back(std::move(run));
}

void WorkSource::Predict(const ProfileStore& store, const std::vector<int>& which,
                         std::vector<double>* values) const {
  values->clear();
  int last = -1;
  Sums sums;
  for (const int index : which) {
    const Part& part = parts_[index];
    const Observation& seen = observations_[index];
    const Run& run = runs_[part.run];
    if (part.run != last) {
      FrameworkProfile framework = store.framework(seen.framework);
      framework.kernel_gap = framework.head_fixed = framework.embedding_fixed = Seconds(0);
      const OpPrices prices(
          {&store.gpu(seen.gpu), &store.fabric(seen.fabric), &framework, &run.cluster},
          run.work.precision);
      sums = StepWork(run.ops, static_cast<double>(MicroBatches(run.work, run.strategy)), prices);
      StepPredictor predictor({run.model,
                               run.work,
                               {&store.gpu(seen.gpu), &store.fabric(seen.fabric),
                                &store.framework(seen.framework), &run.cluster}});
      const auto step = predictor.Predict(run.strategy);
      const auto* time = std::get_if<StepTime>(&step);
      ORRERY_CHECK(time != nullptr, "{} was shaped before", seen.name);
      sums[Work::kOptimizer] = time->optimizer;
      last = part.run;
    }
    values->push_back(part.merged
                          ? sums[Work::kProduct] + sums[Work::kAttention] + sums[Work::kElementwise]
                          : sums.at(part.work));
  }
}

}  // namespace orrery
