// SPDX-License-Identifier: Apache-2.0
// Lowers the row's plan with few micro-batches and asks every stage.
#include "calib/validate/predict_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "model/plan/lower/lower.h"
#include "model/plan/lower/names.h"

namespace orrery {
namespace {

constexpr double kGib = 1073741824.0;

// With GPipe all micro-batches are.
int64_t InFlight(const CaseRow& row) {
  const Strategy& s = row.strategy;
  const int64_t samples = s.data_parallel() * s.micro_batch;
  const int64_t needed = std::max<int64_t>(1, (row.work.global_batch + samples - 1) / samples);
  if (s.schedule == PipelineSchedule::kGpipe) return needed;
  const int64_t in_flight = std::min<int64_t>(needed, int64_t{4} * s.pp * s.vpp);
  return s.vpp > 1 ? (in_flight + s.pp - 1) / s.pp * s.pp : in_flight;  // whole rounds
}

std::string PlanKey(const CaseRow& row) {
  const ModelSpec& m = row.model;
  const Strategy& s = row.strategy;
  return fmt::format(
             "{} {} {} {} {} {} {} {} {}|{} {} {}|{} {} {} {} {} {} {} {} {} {} {}|{} {} {} {} {} "
             "{} {}",
             static_cast<int>(m.family), m.layers, m.hidden, m.ffn, m.gated, m.heads, m.kv_heads,
             m.vocab, static_cast<int>(m.norm), row.work.seq_len,
             static_cast<int>(row.work.precision) * 16 + static_cast<int>(row.work.fp8) +
                 row.work.fp8_skip.key() * 65536,
             static_cast<int>(row.work.optimizer), s.tp, s.pp, s.vpp, s.dp, s.dp_outer,
             s.micro_batch, s.zero, s.sequence_parallel, RecomputeText(s.recompute),
             s.flash_attention,
             InFlight(row) * 32 + s.fp8_weights * 16 + row.work.master_weights * 8 +
                 s.whole_logits * 4 + s.fp32_grads * 2 + s.reduce_in_backward +
                 s.whole_embedding * (1 << 30) + s.whole_head * (1 << 29) + s.free_head * (1 << 28),
             row.gpus_per_node, m.tied_embeddings, row.work.dropout, row.work.AttentionDropout(),
             m.head_dim, m.token_types, s.cp * 4 + static_cast<int>(s.context.method),
             row.work.lora.key() * 32 + s.reduces_apart * 16 + s.gathers_kept * 8 +
                 static_cast<int>(s.adapter_split) * 2 + s.adapter_gathers) +
         OffloadText(s.offload);
}

// A schedule repeats itself after a few rounds: further micro-batches take no further memory.
Workload FewMicroBatches(const CaseRow& row) {
  Workload work = row.work;
  work.global_batch = InFlight(row) * row.strategy.micro_batch * row.strategy.data_parallel();
  return work;
}

RunDemand DemandOf(const CaseRow& row, const ir::Plan& plan, const Holding& holding) {
  const Strategy& s = row.strategy;
  const int64_t ranks_per_stage = std::max<int64_t>(1, s.ranks() / s.pp);
  RunDemand demand;
  demand.stages = DemandsOf(plan, holding);
  demand.first_node_stages = static_cast<int>(
      std::clamp<int64_t>((row.gpus_per_node + ranks_per_stage - 1) / ranks_per_stage, 1, s.pp));
  demand.communicators = Communicators(s);
  return demand;
}

}  // namespace

PredictedMemory MemoryOf(const RunDemand& demand, const GpuProfile& gpu,
                         const FrameworkProfile& framework) {
  const MemoryLimits limits = LimitsOf(gpu, framework);
  Bytes fullest, on_first_node;
  for (std::size_t stage = 0; stage < demand.stages.size(); ++stage) {
    const Bytes peak = PeakOf(demand.stages[stage], limits.allocation).allocated();
    fullest = std::max(fullest, peak);
    if (stage < static_cast<std::size_t>(demand.first_node_stages))
      on_first_node = std::max(on_first_node, peak);
  }
  return {(fullest + limits.workspaces).value / kGib,
          limits.Total(on_first_node, demand.communicators).value / kGib};
}

const RunDemand* MemoryPredictor::Demand(const CaseRow& row, const Holding& holding) {
  const std::pair key(PlanKey(row), holding);
  auto found = demands_.find(key);
  if (found == demands_.end()) {
    LowerResult lowered = Lower(row.model, FewMicroBatches(row), row.strategy);
    std::optional<RunDemand> demand;
    if (auto* plan = std::get_if<ir::Plan>(&lowered)) {
      demand = DemandOf(row, *plan, holding);
      lowered_for_ = row.place + key.first;
      lowered_ = std::move(*plan);
    }
    found = demands_.emplace(key, std::move(demand)).first;
  }
  return found->second ? &*found->second : nullptr;
}

std::optional<ir::Plan> MemoryPredictor::TakePlan(const CaseRow& row) {
  if (!lowered_ || lowered_for_ != row.place + PlanKey(row)) return std::nullopt;
  return std::exchange(lowered_, std::nullopt);
}

std::optional<PredictedMemory> MemoryPredictor::Predict(const CaseRow& row, const GpuProfile& gpu,
                                                        const FrameworkProfile& framework) {
  const RunDemand* demand = Demand(row, HoldingOf(framework));
  if (demand == nullptr) return std::nullopt;
  return MemoryOf(*demand, gpu, framework);
}

}  // namespace orrery
