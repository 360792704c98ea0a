// SPDX-License-Identifier: Apache-2.0
// What a software holds of a plan's buffers: how many bytes of each, and from which op on.
//
// The plan's runtime holds each buffer as it is written, gradients all through a step. Others do not; each difference is
// a fact of a release (facts and constants of its profile, with the source):
//   memory_gradients_late  zero_grad(set_to_none=True): a gradient exists from the first op of a micro-batch that names it
//   memory_cast_shards     trained weights are kept in fp32 and cast where they are gathered: no shard of them in 16 bits
//   reduce_once_in_pipelines  stages of torch.distributed.pipelining: weights that a backward pass gathers are
//                          freed in the forward pass behind it at the earliest (set_reshard_after_backward(False))
//   autocast               the residual stream is kept in fp32: 4 bytes where the plan has 2. With compile the sum between
//                          two sublayers is kept as the output that was added, in 16 bits
//   compile off            autograd keeps what lies between the operations of a chain: silu(x) of a gated layer, and with
//                          fused_norm off what an RMS norm multiplies by its gain (in fp32 under autocast; else also its
//                          input in fp32)
//   fused_gate off         likewise silu(x) of a gated layer, whatever a compiler does elsewhere
//   repeats_keys           standard attention reads copies of keys and values, one for each head (repeat_interleave)
//   split_products off     values are a part of the product that also made queries and keys: it stays whole beside the
//                          queries and keys that rotary positions write anew
// calib/DERIVATIONS.md, section 6, counts these bytes over PyTorch's operations.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "model/framework/profile.h"
#include "model/plan/ir/layout.h"
#include "model/plan/ir/usage.h"

namespace orrery {

struct Holding {
  bool static_layout = false;  // the plan's arena, as it is
  bool gradients_late = false;
  bool cast_shards = false;
  bool fp32_residual = false;
  bool eager = false;
  bool eager_norm = false;
  bool gathers_stay = false;
  bool rotated_apart = false;
  bool gate_apart = false;
  bool keys_repeated = false;
  auto operator<=>(const Holding&) const = default;
};
Holding HoldingOf(const FrameworkProfile& framework);

// By buffer of the program; 0: it has none of its own on the device (it lies on the host, shares those of another).
std::vector<int64_t> HeldBytes(const ir::Program& program, const Holding& holding);

// Which ops of each block use a buffer: up to the last one that finds it held.
ir::Usage HeldUsage(const ir::Program& program, const Holding& holding);

// An op of a step: index into the expanded schedule, and into the call's block.
struct StepPlace {
  int32_t call = 0, op = 0;
  auto operator<=>(const StepPlace&) const = default;
};

// By buffer: the op with which it comes, of those that live through the step. {-1, -1}: it is there when the step begins.
std::vector<StepPlace> HeldFrom(const ir::Program& program, const ir::Layout& layout,
                                const ir::Usage& usage, const Holding& holding);
// The buffers that come late in a step of at least one micro-batch.
bool ComesLate(const ir::Buffer& buffer, const Holding& holding);

}  // namespace orrery
