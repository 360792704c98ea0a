// SPDX-License-Identifier: Apache-2.0
// Names shapes of layers and finds their factors.
#include "model/price/layer_factors.h"

#include <fmt/format.h>

#include "model/plan/lower/names.h"

namespace orrery {
std::string LayerShapeText(const std::string& gpu, const ModelSpec& model, const Workload& work,
                           const MicroBatchKey& key) {
  return fmt::format(
      "{} {}, hidden {}, {}ffn {}, heads {}/{}, {} x {} tokens, tp {}{}, {}, "
      "recompute {}",
      gpu, NameIn(kPrecisionNames, work.precision), model.hidden, model.gated ? "gated " : "",
      model.ffn, model.heads, model.kv_heads, key.micro_batch, work.seq_len / key.cp, key.tp,
      key.sequence_parallel ? " sp" : "", key.flash_attention ? "flash" : "materialised",
      NameIn(kRecomputeNames, key.recompute));
}

double LayerFactor(const GpuProfile& gpu, const FrameworkProfile& framework, const ModelSpec& model,
                   const Workload& work, const MicroBatchKey& key) {
  if (framework.layer_factors.empty()) return 1.0;
  const auto found = framework.layer_factors.find(LayerShapeText(gpu.header.id, model, work, key));
  return found == framework.layer_factors.end() ? 1.0 : found->second;
}

}  // namespace orrery
