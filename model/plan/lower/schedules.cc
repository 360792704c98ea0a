// SPDX-License-Identifier: Apache-2.0
// GPipe, 1F1B, interleaved 1F1B and zero-bubble call lists.
#include "model/plan/lower/schedules.h"

#include <algorithm>
#include <utility>

#include "model/plan/lower/v_order.h"

namespace orrery {
namespace {

struct ListBuilder {
  BlockNumbers blocks;
  std::vector<ir::Call> calls;
  void Add(int block, int micro_batch) { calls.push_back({block, micro_batch, 0}); }
};

// The reductions that are predicated on `last` run in the final call of each chunk's last backward block.
void FlagLastCalls(ListBuilder& list) {
  for (int chunk = 0; chunk < list.blocks.chunks; ++chunk) {
    const std::vector<int> last_blocks =
        list.blocks.split_backward
            ? std::vector<int>{list.blocks.Backward(chunk), list.blocks.WeightGrad(chunk)}
            : std::vector<int>{list.blocks.Backward(chunk)};
    for (int block : last_blocks) {
      const auto call = std::find_if(list.calls.rbegin(), list.calls.rend(),
                                     [&](const ir::Call& c) { return c.block == block; });
      if (call != list.calls.rend()) call->flags = ir::kWhenLast;
    }
  }
}

}  // namespace

PassRules RulesOf(PipelineSchedule schedule) {
  return {.forward_first = schedule == PipelineSchedule::kGpipe,
          .interleaved = schedule == PipelineSchedule::kInterleaved,
          .fills_bubble = SplitsBackward(schedule),
          .in_a_v = schedule == PipelineSchedule::kZeroBubbleV};
}

PassOrder::PassOrder(const PassRules& rules, int stages, int stage, int chunks, int micro_batches)
    // So many micro-batches take turns in a chunk: fewer where there are no more (a micro-batch alone).
    : stages_(rules.interleaved ? std::min(stages, micro_batches) : stages),
      stage_(stage),
      chunks_(chunks),
      total_(micro_batches * chunks),
      ahead_(stages - stage - 1),
      splits_(rules.fills_bubble) {
  if (rules.forward_first) ahead_ = total_;
  if (rules.interleaved) ahead_ = 2 * ahead_ + (chunks - 1) * stages;
  if (!rules.in_a_v) return;
  list_ = PassesInV(stages, stage, micro_batches);
  ahead_ =
      3 * stages -
      1;  // the last backward passes of three rounds of half a stage have no forward passes beside them
}

PassCall PassOrder::At(PassCall::Kind kind, int index) const {
  if (chunks_ == 1) return {kind, 0, index, index};
  const int round = stages_ * chunks_;
  const int chunk = index % round / stages_;
  return {kind, kind == PassCall::kForward ? chunk : chunks_ - 1 - chunk,
          index / round * stages_ + index % stages_, index};
}

PassCall PassOrder::Next() {
  if (list_) return (*list_)[at_++];
  if (splits_ && weight_ < backward_ - stage_) return At(PassCall::kWeightGrad, weight_++);
  if (forward_ < total_ && forward_ - backward_ <= ahead_)
    return At(PassCall::kForward, forward_++);
  if (backward_ < total_) return At(PassCall::kBackward, backward_++);
  return At(PassCall::kWeightGrad, weight_++);
}

std::vector<ir::Call> StageCalls(const Strategy& strategy, int stage, int micro_batches) {
  ListBuilder list{{strategy.vpp, SplitsBackward(strategy.schedule)}, {}};
  const BlockNumbers& blocks = list.blocks;
  list.Add(blocks.Begin(), 0);
  PassOrder order(RulesOf(strategy.schedule), strategy.pp, stage, strategy.vpp, micro_batches);
  while (!order.done()) {
    const PassCall pass = order.Next();
    const int block = pass.kind == PassCall::kForward    ? blocks.Forward(pass.chunk)
                      : pass.kind == PassCall::kBackward ? blocks.Backward(pass.chunk)
                                                         : blocks.WeightGrad(pass.chunk);
    list.Add(block, pass.micro_batch);
  }
  FlagLastCalls(list);
  list.Add(blocks.End(), 0);
  return list.calls;
}

void FlagFirstCalls(const Strategy& strategy, std::vector<ir::Call>* calls) {
  const BlockNumbers blocks{strategy.vpp, SplitsBackward(strategy.schedule)};
  for (int chunk = 0; chunk < strategy.vpp; ++chunk) {
    const auto first = std::ranges::find(*calls, blocks.Forward(chunk), &ir::Call::block);
    if (first != calls->end()) first->flags |= ir::kWhenFirst;
  }
}

void FlagLaterCalls(const Strategy& strategy, std::vector<ir::Call>* calls) {
  const BlockNumbers blocks{strategy.vpp, SplitsBackward(strategy.schedule)};
  std::vector<char> called(blocks.Count(), 0), leaves(blocks.Count(), 0);
  for (int chunk = 0; chunk < strategy.vpp; ++chunk) {
    leaves[static_cast<std::size_t>(blocks.Backward(chunk))] = 1;
    if (blocks.split_backward) leaves[static_cast<std::size_t>(blocks.WeightGrad(chunk))] = 1;
  }
  for (ir::Call& call : *calls) {
    const auto block = static_cast<std::size_t>(call.block);
    if (leaves[block] != 0 && std::exchange(called[block], 1) != 0) call.flags |= ir::kWhenLater;
  }
}

std::vector<ir::Item> StageSchedule(const Strategy& strategy, int stage, int micro_batches,
                                    bool flag_first) {
  const auto listed = [&](int count) {
    std::vector<ir::Call> calls = StageCalls(strategy, stage, count);
    if (flag_first) FlagFirstCalls(strategy, &calls);
    if (StreamsGradients(strategy)) FlagLaterCalls(strategy, &calls);
    return ir::Compress(calls);
  };
  // Interleaved schedules turn through their chunks with pp micro-batches at a time.
  const int cycle = strategy.schedule == PipelineSchedule::kInterleaved ? strategy.pp : 1;
  constexpr int kPerStage = 8, kFewest = 32;  // that fill a pipeline, drain it and show cycles
  const int fewer =
      std::max(kFewest, kPerStage * strategy.pp) / cycle * cycle + cycle + micro_batches % cycle;
  if (micro_batches / 4 < fewer) return listed(micro_batches);
  const int64_t cycles = (micro_batches - fewer - cycle) / cycle;
  auto schedule = ir::Lengthened(listed(fewer), listed(fewer + cycle), cycles);
  return schedule ? std::move(*schedule) : listed(micro_batches);
}

}  // namespace orrery
