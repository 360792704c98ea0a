// SPDX-License-Identifier: Apache-2.0
// Names shapes of layers and finds their factors.
#include "model/cost/layer_factors.h"

#include <fmt/format.h>

#include "model/input/check.h"

namespace orrery {
namespace {

const char* NameOf(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return "fp32";
    case Precision::kTf32:
      return "tf32";
    case Precision::kFp16:
      return "fp16";
    case Precision::kBf16:
      return "bf16";
  }
  ORRERY_CHECK(false, "precision {}", static_cast<int>(precision));
}

const char* NameOf(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return "no";
    case Recompute::kSelective:
      return "selective";
    case Recompute::kFull:
      return "full";
  }
  ORRERY_CHECK(false, "recompute {}", static_cast<int>(recompute));
}

}  // namespace

std::string LayerShapeText(const std::string& gpu, const ModelSpec& model, const Workload& work,
                           const MicroBatchKey& key) {
  return fmt::format("{} {}, hidden {}, {}ffn {}, heads {}/{}, {} x {} tokens, tp {}{}, {}, {} "
                     "recomputation",
                     gpu, NameOf(work.precision), model.hidden, model.gated ? "gated " : "",
                     model.ffn, model.heads, model.kv_heads, key.micro_batch,
                     work.seq_len / key.cp, key.tp, key.sequence_parallel ? " sp" : "",
                     key.flash_attention ? "flash" : "materialised", NameOf(key.recompute));
}

double LayerFactor(const GpuProfile& gpu, const StackProfile& stack, const ModelSpec& model,
                   const Workload& work, const MicroBatchKey& key) {
  if (stack.layer_factors.empty()) return 1.0;
  const auto found = stack.layer_factors.find(LayerShapeText(gpu.header.id, model, work, key));
  return found == stack.layer_factors.end() ? 1.0 : found->second;
}

}  // namespace orrery
