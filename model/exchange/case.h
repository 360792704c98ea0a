// SPDX-License-Identifier: Apache-2.0
// One layout of one job, as it is exported.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/arch/model_spec.h"
#include "model/arch/workload.h"
#include "model/hardware/profile.h"
#include "model/plan/lower/strategy.h"

namespace orrery::exchange {

struct Case {
  ModelSpec model;
  Workload work;
  Strategy strategy;
  int64_t nodes = 1;
  int gpus_per_node = 1;
  std::string framework =
      "orrery";             // whose behaviour was predicted, facts included: "megatron+compile=off"
  bool tp_overlap = false;  // collectives of sequence parallelism behind pieces of products
  std::vector<AttentionKernel> chip_attention;  // fused kernels that run on the GPU
  double bucket_bytes = 0;         // in which the prediction sends gradients; 0: not said
  std::vector<std::string> hosts;  // by node; empty: the topology does not name them

  int64_t gpus() const { return nodes * gpus_per_node; }
  // Micro-batches per step; 0: they do not divide the batch.
  int64_t micro_batches() const;
};

// Whether adapters are of parts of one product: queries, keys, values, gate or up projection.
inline bool AdaptsParts(const Lora& lora) {
  return lora.on() && (lora.targets & (kLoraPartsOfQkv | kLoraPartsOfFc1)) != 0;
}

}  // namespace orrery::exchange
