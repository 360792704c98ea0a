// SPDX-License-Identifier: Apache-2.0
// Random legal strategies for the tiny model.
#include "tests/ir_verify/strategies.h"

#include "tests/ir_verify/planting.h"

namespace orrery::ir {
namespace {

Strategy Draw(std::mt19937& random) {
  auto pick = [&](std::initializer_list<int> values) {
    return values.begin()[random() % values.size()];
  };
  Strategy s;
  s.tp = pick({1, 1, 2});
  s.pp = pick({1, 2, 4});
  s.dp = pick({1, 2, 4});
  s.dp_outer = pick({1, 1, 2});
  s.cp = pick({1, 1, 2, 4});
  s.context = ContextOf(static_cast<CpMethod>(pick({0, 1, 2, 3})));
  if (s.context.method == CpMethod::kA2aRing && s.cp == 4) s.context.inner = pick({1, 2, 4});
  s.zero = s.shards() > 1 ? pick({0, 1, 2, 3}) : 0;
  s.sequence_parallel = s.tp > 1 && pick({0, 1});
  s.schedule = static_cast<PipelineSchedule>(pick({0, 1, 2, 3, 4}));
  s.vpp = s.schedule == PipelineSchedule::kInterleaved   ? 4 / s.pp
          : s.schedule == PipelineSchedule::kZeroBubbleV ? 2
                                                         : 1;
  const int modules = pick({0, 1, 2, 3, 4, 7, 8, 9, 11, 16, 16, 32, 64, 66, 128, 230});
  s.split_products = (modules & (kRecomputeKeys | kRecomputeUp)) != 0 || pick({0, 1});
  s.recompute = {static_cast<unsigned char>(modules), pick({0, 0, 1, 2}), pick({1, 1, 2})};
  s.flash_attention = pick({0, 1});
  s.overlap_grad_reduce = pick({0, 1});
  s.overlap_param_gather = pick({0, 1});
  s.reduce_in_backward = pick({0, 1});
  s.tp_async = pick({0, 1});
  s.scatter_gather = pick({0, 1});
  s.bucket_layers = pick({1, 2});
  s.prefetch = pick({0, 1, 2});
  s.rings = pick({0, 1});
  s.recv_slots = pick({0, 1, 2});
  s.send_slots = pick({1, 2});
  s.frame_pool = pick({0, 1});
  s.fp32_grads = pick({0, 1});
  s.reduce_once = s.zero >= 2 && pick({0, 1});
  s.gathers_kept = pick({0, 1});
  s.reduces_apart = pick({0, 1});
  return s;
}

}  // namespace

std::vector<Strategy> DrawStrategies(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Strategy> list;
  while (static_cast<int>(list.size()) < count) {
    const Strategy s = Draw(random);
    if (!CheckStrategy(TinyGpt(), TinyWork(4 * s.data_parallel()), s)) list.push_back(s);
  }
  return list;
}

}  // namespace orrery::ir
