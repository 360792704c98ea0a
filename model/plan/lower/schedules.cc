// SPDX-License-Identifier: Apache-2.0
// GPipe, 1F1B, interleaved 1F1B and zero-bubble H1 call lists.
#include "model/plan/lower/schedules.h"

#include <algorithm>
#include <map>

namespace orrery {
namespace {

using ir::Call;

struct ListBuilder {
  BlockNumbers blocks;
  std::vector<Call> calls;
  void Add(int block, int micro_batch) { calls.push_back({block, micro_batch, 0}); }
};

void Gpipe(ListBuilder& list, int micro_batches) {
  for (int m = 0; m < micro_batches; ++m) list.Add(list.blocks.Forward(0), m);
  for (int m = 0; m < micro_batches; ++m) list.Add(list.blocks.Backward(0), m);
}

// 1F1B; with split backward (zero-bubble H1) the weight gradient of m follows the backward of m + stage.
void OneForwardOneBackward(ListBuilder& list, int stages, int stage, int micro_batches) {
  const int warm_up = std::min(stages - stage - 1, micro_batches);
  const auto backward = [&](int m) {
    list.Add(list.blocks.Backward(0), m);
    if (list.blocks.split_backward && m >= stage) list.Add(list.blocks.WeightGrad(0), m - stage);
  };
  for (int m = 0; m < warm_up; ++m) list.Add(list.blocks.Forward(0), m);
  for (int m = warm_up; m < micro_batches; ++m) {
    list.Add(list.blocks.Forward(0), m);
    backward(m - warm_up);
  }
  for (int m = micro_batches - warm_up; m < micro_batches; ++m) backward(m);
  if (!list.blocks.split_backward) return;
  for (int m = std::max(0, micro_batches - stage); m < micro_batches; ++m) {
    list.Add(list.blocks.WeightGrad(0), m);
  }
}

void Interleaved(ListBuilder& list, int stages, int stage, int micro_batches) {
  const int chunks = list.blocks.chunks;
  const int total = micro_batches * chunks, round = stages * chunks;
  const auto micro_batch = [&](int k) { return k / round * stages + k % stages; };
  const auto chunk = [&](int k) { return k % round / stages; };
  const auto forward = [&](int k) { list.Add(list.blocks.Forward(chunk(k)), micro_batch(k)); };
  const auto backward = [&](int k) {
    list.Add(list.blocks.Backward(chunks - 1 - chunk(k)), micro_batch(k));
  };
  const int warm_up = std::min(2 * (stages - stage - 1) + (chunks - 1) * stages, total);
  for (int k = 0; k < warm_up; ++k) forward(k);
  for (int k = warm_up; k < total; ++k) {
    forward(k);
    backward(k - warm_up);
  }
  for (int k = total - warm_up; k < total; ++k) backward(k);
}

// The reductions that are predicated on `last` run in the final call of each chunk's last backward block.
void FlagLastCalls(ListBuilder& list) {
  for (int chunk = 0; chunk < list.blocks.chunks; ++chunk) {
    const std::vector<int> last_blocks =
        list.blocks.split_backward
            ? std::vector<int>{list.blocks.Backward(chunk), list.blocks.WeightGrad(chunk)}
            : std::vector<int>{list.blocks.Backward(chunk)};
    for (int block : last_blocks) {
      const auto call = std::find_if(list.calls.rbegin(), list.calls.rend(),
                                     [&](const Call& c) { return c.block == block; });
      if (call != list.calls.rend()) call->flags = ir::kWhenLast;
    }
  }
}

}  // namespace

std::vector<Call> StageCalls(const Strategy& strategy, int stage, int micro_batches) {
  ListBuilder list{{strategy.vpp, strategy.schedule == PipelineSchedule::kZeroBubble}, {}};
  list.Add(list.blocks.Begin(), 0);
  switch (strategy.schedule) {
    case PipelineSchedule::kGpipe:
      Gpipe(list, micro_batches);
      break;
    case PipelineSchedule::k1F1B:
    case PipelineSchedule::kZeroBubble:
      OneForwardOneBackward(list, strategy.pp, stage, micro_batches);
      break;
    case PipelineSchedule::kInterleaved:
      Interleaved(list, strategy.pp, stage, micro_batches);
      break;
  }
  FlagLastCalls(list);
  list.Add(list.blocks.End(), 0);
  return list.calls;
}

}  // namespace orrery
