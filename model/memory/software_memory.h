// SPDX-License-Identifier: Apache-2.0
// What a training software takes of a GPU for a plan: the peak of its allocator, and the figure that the driver shows.
// The one place that decides it: `plan` (search, summary, tables, JSON) and `plan validate` ask PeakOf and MemoryLimits.
//
//   allocator = max over stages of base + memory_gradient_copy x parameters + memory_reducer x reduced gradients + dummies
//   base      = max(live, live at the loss + memory_loss x logits + memory_mask x pairs), or, of software with a static layout, the arena
//   device    = allocator x (1 + memory_fragmentation) + workspaces + context of the GPU + memory_buffers
//               + memory_communicator x communicators
//   workspaces = memory_handles x memory_workspace of the GPU: torch allocates one for each thread and stream that multiplies matrices,
//               so that what its allocator prints counts them
//
// live: bytes of the plan's tensors alive at one moment, as this software holds them (model/price/held.h). Most programs allocate tensor by tensor, so that neither the
// slack nor the alignment of a static arena counts; this project's own runtime allocates the arena, to the byte
// (`allocates: layout` in its profile). The terms, each a constant of a profile:
//   memory_loss           the plan turns logits into their gradient in place; Megatron's vocab-parallel cross entropy
//                         and torch's read a copy in fp32 (4 bytes) and write the exponentials elsewhere (4 more);
//                         a compiled one works in place
//   memory_mask           an attention mask that the data loader makes lies on the GPU in forward passes: a byte per pair of a
//                         query and a key
//   memory_gradient_copy  gradients in half precision kept beside those that are accumulated in fp32 (DeepSpeed's
//                         BF16_Optimizer); where the weight gradient adds into the fp32 buffer there is none
//   memory_reducer        PyTorch's DistributedDataParallel keeps its buckets, as many bytes as the gradients that ranks
//                         reduce (gradient_as_bucket_view is off)
//   dummy_weight_gradients (a fact)  where a product adds the gradient of its weights into a buffer of the framework,
//                         TransformerEngine hands autograd a gradient of that shape which nobody reads: one for each
//                         shape, for all of the run
//   scores_buffer (a fact)  the product of queries and keys adds to a buffer that is there for all of the run
//   memory_moments_late   torch and apex make Adam's moments at the first update: the first step has room for more, so
//                         that a plan that does not fit may fail later in it than the steady state would
//   memory_fragmentation  blocks that the caching allocator holds and cannot use
//   memory_buffers        buckets, what libraries allocate themselves; memory_communicator: buffers of one NCCL communicator
#pragma once

#include <compare>
#include <vector>

#include "model/base/quantity.h"
#include "model/framework/profile.h"
#include "model/memory/live_walk.h"
#include "model/plan/ir/layout.h"
#include "model/plan/ir/plan.h"

namespace orrery {

// How a software allocates a plan's tensors and what it keeps beside them.
struct Allocation {
  Holding holding;
  double loss = 0;            // bytes per logit
  double gradient_copy = 0;   // bytes per parameter in half precision whose gradients are in fp32
  double reducer = 0;         // bytes per byte of the gradients that ranks reduce
  bool moments_late = false;  // the optimizer makes its moments at its first update
  double mask = 0;            // bytes per query and key
  bool dummies = false;       // gradients that nobody reads, one of each shape
  bool scores = false;        // a buffer of scores
  auto operator<=>(const Allocation&) const = default;
};
Allocation AllocationOf(const FrameworkProfile& framework);

// One stage's demand, before the constants of a software.
struct StageDemand {
  double live = 0;          // peak of live bytes, without `shared`
  double live_at_loss = 0;  // same over the ops of the loss; 0: the stage has no loss
  double logits = 0;        // elements of half-precision logits that the loss reads
  double pairs = 0;         // queries x keys of the samples of a micro-batch
  double half_weights = 0;  // parameters in half precision whose gradients are accumulated in fp32
  double reduced = 0;       // bytes of gradients that all-reduces read, whole ones
  double shapes = 0;        // bytes of one gradient of each shape of weights, in their type
  double scores = 0;        // bytes of the scores of a layer, where they are tensors
  double arena = 0;         // of the static layout
  StepPlace fullest, loss;  // where `live` and `live_at_loss` are reached
};
// The bytes of each buffer in the first step, before the optimizer has made its moments; empty: as in all others.
std::vector<int64_t> FirstStepBytes(const ir::Program& program, const Allocation& allocation);
// The trained weights in half precision whose gradients are in fp32.
std::vector<ir::BufferId> CopiedGradients(const ir::Program& program);
// Bytes of one gradient of each shape that products with trained weights have, in 16 bits or the weights' type.
double ShapesOfGradients(const ir::Program& program);
// True for the ops that read the logits while copies of them exist.
bool ReadsLogits(ir::OpKind kind);
StageDemand DemandOf(const ir::Plan& plan, const ir::Program& program, const ir::Layout& layout,
                     const Holding& holding);
std::vector<StageDemand> DemandsOf(const ir::Plan& plan, const Holding& holding);  // by stage

// What the framework has allocated at the peak.
struct StagePeak {
  Bytes live;             // the plan's tensors at that moment
  Bytes gaps;             // of the static layout
  Bytes loss_copies;      // copies of the logits
  Bytes mask;             // for attention, of the data loader
  Bytes gradient_copies;  // gradients in half precision beside those in fp32
  Bytes buckets;          // of reductions
  Bytes dummies;          // gradients that nobody reads
  Bytes scores;           // a buffer of those of standard attention
  StepPlace at;

  // What is there all through a step next to the plan's tensors.
  Bytes kept() const { return gradient_copies + buckets + dummies + scores; }
  Bytes allocated() const { return live + gaps + loss_copies + mask + kept(); }
};
StagePeak PeakOf(const StageDemand& demand, const Allocation& allocation);

// Groups of more than one rank that a rank talks in: tensor, pipeline, data (inner and outer), context, expert.
int Communicators(const Strategy& strategy);

}  // namespace orrery
