// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules as explicit call lists, one per stage; ir::Compress turns them into loops.
#pragma once

#include <memory>
#include <vector>

#include "model/plan/ir/plan.h"
#include "model/plan/lower/strategy.h"

namespace orrery {

// Block numbers of a program with `chunks` model chunks; W blocks exist for zero-bubble only.
struct BlockNumbers {
  int chunks = 1;
  bool split_backward = false;
  int Begin() const { return 0; }
  int Forward(int chunk) const { return 1 + chunk; }
  int Backward(int chunk) const { return 1 + chunks + chunk; }
  int WeightGrad(int chunk) const { return 1 + 2 * chunks + chunk; }
  int End() const { return 1 + (split_backward ? 3 : 2) * chunks; }
  int Count() const { return End() + 1; }
};

// One pass of a chunk; `index`: how many of its kind went before it on the stage.
struct PassCall {
  enum Kind : unsigned char { kForward, kBackward, kWeightGrad };
  Kind kind = kForward;
  int chunk = 0, micro_batch = 0, index = 0;
};

// What a schedule asks of the order of a stage's passes.
struct PassRules {
  bool forward_first = false;  // all forward passes before the first backward pass
  bool interleaved = false;    // the chunks of a stage take turns
  bool fills_bubble = false;   // weight gradients are put off into the bubble
  bool in_a_v = false;         // the second chunks of the stages follow each other backwards

  bool operator==(const PassRules&) const = default;
};

PassRules RulesOf(PipelineSchedule schedule);
// Gradients of weights are a pass of their own.
inline bool SplitsBackward(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::kZeroBubble || schedule == PipelineSchedule::kZeroBubbleV;
}
// Of one stage alone there is none such.
inline bool NeedsStages(PipelineSchedule schedule) {
  return schedule != PipelineSchedule::k1F1B && schedule != PipelineSchedule::kGpipe;
}
// The place of a stage's chunk in the order of the layers.
inline int VirtualStage(bool in_a_v, int stages, int stage, int chunk) {
  return in_a_v && chunk == 1 ? 2 * stages - 1 - stage : chunk * stages + stage;
}
// The stage that has the virtual stage of this number, and which of its chunks that is.
struct StageChunk {
  int stage = 0, chunk = 0;
};
inline StageChunk ChunkAt(bool in_a_v, int stages, int virtual_stage) {
  const int chunk = virtual_stage / stages, place = virtual_stage % stages;
  return {in_a_v && chunk == 1 ? stages - 1 - place : place, chunk};
}

// The passes of one stage in order, without a list:
//   GPipe: all forward, all backward (Huang et al. 2019). 1F1B: PipeDream-flush (Narayanan et al. 2021).
//   Interleaved: Narayanan et al. 2021, section 2.2; needs micro_batches to be a multiple of the stages. Forward calls
//   run ahead by 2 (stages - stage - 1) + (chunks - 1) stages, also where there are as many micro-batches as stages
//   (Megatron Core since 2024; before, such steps ran all forward passes first).
//   Zero-bubble H1: Qi et al. 2024; 1F1B order with the weight gradient of m after the backward of m + stage.
//   Zero-bubble V (Qi et al. 2024, "Pipeline parallelism with controllable memory"): the order in which stages would run
//   whatever is ready if passes took the usual time (v_order.cc): first what is nearest to the loss of forward passes, as
//   long as a stage keeps no more than 2 p passes (of half a stage), then backward passes, then gradients of weights. A
//   stage idles little then between its first and its last pass.
class PassOrder {
 public:
  PassOrder() = default;
  PassOrder(const PassRules& rules, int stages, int stage, int chunks, int micro_batches);

  bool done() const {
    if (list_) return at_ == list_->size();
    return backward_ == total_ && (!splits_ || weight_ == total_);
  }
  PassCall Next();  // unless done()
  int ahead() const { return ahead_; }

 private:
  PassCall At(PassCall::Kind kind, int index) const;

  int stages_ = 1, stage_ = 0, chunks_ = 1, total_ = 0;
  int ahead_ = 0;  // forward passes before the first backward pass, one less
  bool splits_ = false;
  int forward_ = 0, backward_ = 0, weight_ = 0;        // already called
  std::shared_ptr<const std::vector<PassCall>> list_;  // of a V
  std::size_t at_ = 0;
};

// The calls of one stage, from P to E; the last call of each chunk's final backward block carries kWhenLast.
std::vector<ir::Call> StageCalls(const Strategy& strategy, int stage, int micro_batches);

// The same as a schedule, in time that does not grow with the micro-batches. `flag_first`: see FlagFirstCalls; where gradients
// go to the host see FlagLaterCalls.
std::vector<ir::Item> StageSchedule(const Strategy& strategy, int stage, int micro_batches,
                                    bool flag_first);

// Gives the first call of each chunk's forward block kWhenFirst: what it casts serves all micro-batches.
void FlagFirstCalls(const Strategy& strategy, std::vector<ir::Call>* calls);

// Gives all calls of blocks that leave gradients kWhenLater but the first one of each: they add to a sum.
void FlagLaterCalls(const Strategy& strategy, std::vector<ir::Call>* calls);

}  // namespace orrery
