// SPDX-License-Identifier: Apache-2.0
// Lowers the row's plan and lays it out, stage by stage.
#include "calib/validate/predict_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/ir/layout.h"
#include "model/lower/lower.h"

namespace orrery {
namespace {

constexpr double kGib = 1073741824.0;

// Data parallelism without sharding changes nothing in one rank's memory but the micro-batch count.
std::string PlanKey(const CaseRow& row) {
  const ModelSpec& m = row.model;
  const Strategy& s = row.strategy;
  const int64_t in_flight = std::min<int64_t>(MicroBatches(row.work, s), int64_t{4} * s.pp * s.vpp);
  return fmt::format("{} {} {} {} {} {} {} {} {}|{} {} {}|{} {} {} {} {} {} {} {} {} {} {}",
                     static_cast<int>(m.family), m.layers, m.hidden, m.ffn, m.gated, m.heads,
                     m.kv_heads, m.vocab, static_cast<int>(m.norm), row.work.seq_len,
                     static_cast<int>(row.work.precision), static_cast<int>(row.work.optimizer),
                     s.tp, s.pp, s.vpp, s.zero > 0 ? s.dp : 1, s.zero > 0 ? s.dp_outer : 1,
                     s.micro_batch, s.zero, s.sequence_parallel, static_cast<int>(s.recompute),
                     s.flash_attention, in_flight * 2 + s.fp32_grads);
}

std::optional<double> Arena(const CaseRow& row) {
  const LowerResult lowered = Lower(row.model, row.work, row.strategy);
  if (std::holds_alternative<Refusal>(lowered)) return std::nullopt;
  const ir::Plan& plan = std::get<ir::Plan>(lowered);
  int64_t most = 0;
  for (const ir::Program& program : plan.programs) {
    most = std::max(most, ir::ComputeLayout(plan, program).arena_bytes);
  }
  return static_cast<double>(most);
}

}  // namespace

std::optional<PredictedMemory> MemoryPredictor::Predict(const CaseRow& row, const StackProfile& stack) {
  const std::string key = PlanKey(row);
  auto found = arenas_.find(key);
  if (found == arenas_.end()) found = arenas_.emplace(key, Arena(row)).first;
  if (!found->second) return std::nullopt;
  const double arena = *found->second;
  return PredictedMemory{
      arena / kGib,
      (arena * (1.0 + stack.memory_fragmentation) + stack.memory_context.value) / kGib};
}

}  // namespace orrery
