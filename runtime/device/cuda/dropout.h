// SPDX-License-Identifier: Apache-2.0
// Factors of dropout from the draws of model/plan/ir/draws.h: the CPU device drops the same elements.
#pragma once

#include "model/plan/ir/draws.h"
#include "runtime/device/cuda/frame.h"

namespace orrery::cuda {

struct Draw {
  uint64_t seed = 0, site = 0, first_sample = 0;  // seed: its hash
  uint64_t threshold = 0;                         // 0: nothing is dropped
  int64_t step = 0;                               // where there is no `step_at`
  const int64_t* step_at = nullptr;
  float keep = 1;  // 1 / (1 - rate)

  // Hash of the sample; HashMore adds position, or head and query.
  __device__ uint64_t Sample(int64_t sample) const {
    return ir::HashMore(site_hash(), first_sample + static_cast<uint64_t>(sample));
  }
  __device__ float Factor(uint64_t prefix, int64_t column) const {
    return ir::IsDropped(ir::HashMore(prefix, static_cast<uint64_t>(column)), threshold) ? 0.0f
                                                                                         : keep;
  }

 private:
  // HashOf({ir::DropoutSite(...), ...}) begins with an empty hash.
  __device__ uint64_t site_hash() const {
    const int64_t now = step_at == nullptr ? step : *step_at;
    return ir::HashMore(0, ir::HashMore(ir::HashMore(seed, static_cast<uint64_t>(now)), site));
  }
};

// Throws KernelError unless 0 <= rate < 1.
inline Draw DrawOf(const OpFrame& f) {
  const double rate = f.Get(ir::Attr::kRate);
  if (!(rate >= 0 && rate < 1)) f.Fail("the dropout rate must lie in [0, 1)");
  return {ir::HashOf({f.args.seed}),
          static_cast<uint64_t>(f.Int(ir::Attr::kSite)),
          static_cast<uint64_t>(f.args.first_sample),
          ir::DropThreshold(rate),
          f.args.step,
          f.queue.step,
          static_cast<float>(1 / (1 - rate))};
}

}  // namespace orrery::cuda
