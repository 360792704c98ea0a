// SPDX-License-Identifier: Apache-2.0
// Products of layers in 8 or 4 bits: what is cast, by which scales, and what the backward pass keeps of it.
//
// y = x W' reads x and W cast along their rows, dx = dy W reads dy along and W across, dW = dy' x both across: along and
// across are where the blocks of scales run. What backward keeps of x is the cast across, 1 byte instead of 2. Weights
// are cast once per step, in the forward pass of the first micro-batch, or after each gather (ZeRO 3). Under sequence parallelism a rank casts its rows
// before they are gathered, so the messages carry casts. Sources: TransformerEngine pytorch/module/{linear,
// layernorm_linear}.py. NVFP4 casts activations and gradients across as Hadamard transforms, which weight gradients multiply,
// with a tensor scale of their own, and rounds gradients up or down at random, by draws that belong to the element's place
// in the step: any layout draws alike (casts.h). Formulas of scales in model/plan/ir/casts.h. Without a recipe everything is as in sublayer.cc:
// plain views, one gather, no casts.
#pragma once

#include <string>

#include "model/plan/lower/transformer.h"

namespace orrery {

struct CastView {
  ir::ViewId data = -1, scale = -1;  // per tensor: the tensor's scale
};

// An operand of products. `plain` alone without a recipe.
struct Factor {
  ir::ViewId plain = -1;
  CastView along, across;
  ir::ViewId tensor_scale = -1;  // nvfp4
  int rows_share = 1;            // rows (columns, if cast across) that share a block's scale
  // The cast across is of Hadamard transforms (casts.h), with the second of two tensor scales: both operands of a weight
  // gradient in nvfp4.
  bool transformed = false;
};

// Which casts of a tensor are needed. A pass that is recomputed keeps nothing.
struct CastNeed {
  bool along = true, across = true;
};

// A tensor on its way into products: `rows` x `width` on this rank.
struct CastSource {
  std::string name;  // of the buffers
  ir::ViewId x = -1;
  int64_t rows = 0, width = 0;
  ir::CastFrom from = ir::CastFrom::kElsewhere;
  bool gradient = false;
  bool part = false;   // of the rows, others on the tensor group: one scale for all of them
  bool again = false;  // made a second time in the backward pass: NeedOf() of sublayer.h
  // Of a gradient, for the draws by which nvfp4 rounds it: a number of its own, and whether tensor ranks hold other columns.
  double site = 0;
  bool columns = false;
};

// x as an operand of products.
Factor CastTensor(StageBuilder& stage, const CastSource& source, CastNeed need);
// The rows of all tensor ranks of a part, in buffers named `full`; what is no part is left as it is.
Factor GatherFactor(StageBuilder& stage, const Factor& part, const CastSource& source,
                    const std::string& full, CastNeed need);
// What an earlier GatherFactor() of the same arguments left.
Factor GatheredBefore(StageBuilder& stage, const Factor& part, const CastSource& source,
                      const std::string& full, CastNeed need);
// What an earlier CastTensor() of this name left.
Factor CastOf(StageBuilder& stage, const CastSource& source);
// A weight [out, in] on this rank.
Factor WeightFactor(StageBuilder& stage, ParamRef ref, int64_t out, int64_t in);

struct ProductShape {
  int64_t m, n, k;
  bool ta = false, tb = false, acc = false;
};
void Multiply(StageBuilder& stage, ir::ViewId c, const Factor& a, const Factor& b,
              const ProductShape& shape, ir::ViewId bias = -1);

}  // namespace orrery
