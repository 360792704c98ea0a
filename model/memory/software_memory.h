// SPDX-License-Identifier: Apache-2.0
// What a training software takes of a GPU for a plan: the peak of its allocator, and the figure that the driver shows.
//
//   allocator = max over stages of max(live, live at the loss + memory_loss x logits) + memory_gradient_copy x parameters
//   device    = allocator x (1 + memory_fragmentation) + context of the GPU + memory_buffers
//               + memory_communicator x communicators
//
// live: bytes of the plan's tensors alive at one moment. These programs allocate tensor by tensor, so that neither the
// slack nor the alignment of a static arena counts. The terms, each a constant of a profile:
//   memory_loss           the plan turns logits into their gradient in place; Megatron's vocab-parallel cross entropy
//                         and torch's read a copy in fp32 (4 bytes) and write the exponentials elsewhere (4 more)
//   memory_gradient_copy  gradients in half precision kept beside those that are accumulated in fp32 (DeepSpeed's
//                         BF16_Optimizer); where the weight gradient adds into the fp32 buffer there is none
//   memory_fragmentation  blocks that the caching allocator holds and cannot use
//   memory_buffers        buckets, workspaces of libraries; memory_communicator: buffers of one NCCL communicator
#pragma once

#include <vector>

#include "model/cost/profile.h"
#include "model/ir/layout.h"
#include "model/ir/plan.h"
#include "model/units/quantity.h"

namespace orrery {

// One stage's demand, before the constants of a software.
struct StageDemand {
  double live = 0;           // peak of live bytes
  double live_at_loss = 0;   // peak of live bytes over the ops of the loss; 0: the stage has no loss
  double logits = 0;         // elements of half-precision logits that the loss reads
  double half_weights = 0;   // parameters in half precision whose gradients are accumulated in fp32
};
// The weights in half precision whose gradients are in fp32.
std::vector<ir::BufferId> CopiedGradients(const ir::Program& program);
StageDemand DemandOf(const ir::Plan& plan, const ir::Program& program, const ir::Layout& layout);
std::vector<StageDemand> DemandsOf(const ir::Plan& plan);  // by stage

Bytes AllocatorPeak(const StageDemand& demand, const StackProfile& stack);

// Groups of more than one rank that a rank talks in: tensor, pipeline, data (inner and outer), context, expert.
int Communicators(const Strategy& strategy);
Bytes DeviceMemory(Bytes allocator, int communicators, const GpuProfile& gpu, const StackProfile& stack);

}  // namespace orrery
