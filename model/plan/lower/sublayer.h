// SPDX-License-Identifier: Apache-2.0
// The inside of a sublayer: from its normalised input to what its output projection reads, and back.
#pragma once

#include <string>
#include <vector>

#include "model/plan/lower/low_precision.h"

namespace orrery {

// Widths and names of one sublayer on this rank.
struct SublayerShape {
  int64_t rows, shard_rows, hidden;
  int64_t in_width;     // of the inner projection (qkv, q, fc1)
  int64_t inner_width;  // what the output projection reads (context, activation)
  int64_t heads, kv_heads, head_dim;
};

SublayerShape ShapeOf(const StageBuilder& stage, const Sublayer& sub);

// `prefix` as in transformer.h: "l3.attn.qk" with it in front, and `of_what` behind.
std::string Name(const std::string& prefix, const Layer& layer, const Sublayer& sub,
                 const char* what, const char* of_what = "");

// The group that tells a dropout which samples it works on.
int16_t DropoutGroup(const StageBuilder& stage, bool attention);
// Of a layer's gradient in CastSource; below 0, where dropout has no sites.
double GradientSite(const Layer& layer, int which);
// Attributes that make every layout drop the same elements, of attention probabilities or of a sublayer's output.
void SetDropout(const StageBuilder& stage, const Layer& layer, const Sublayer& sub, bool attention,
                ir::Attrs& attrs);

struct Saved {
  std::string prefix;  // of the activations that backward reads
  int wgrad_block;
};

// In front of a tensor's name. `again`: its module is recomputed by itself, so that it is gone after the forward pass and
// made again by the backward pass; else `prefix`.
std::string PrefixOf(const StageBuilder& stage, bool again, const std::string& prefix);
// Which casts a pass needs of what its products read: backward passes keep the cast across, a pass that is run again
// later, or a tensor that is made `again`, keeps none.
CastNeed NeedOf(const StageBuilder& stage, const Layer& layer, bool again = false);

// From the normalised input (full sequence; `own`: this rank's rows of it) to what the output projection reads.
ir::ViewId InnerForward(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                        const std::string& prefix, const Factor& normed, ir::ViewId own,
                        ir::ViewId memory);
// What the output projection reads: attention's context or the activation.
CastSource InnerSource(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                       const std::string& prefix);
// Attention or the activation again, where they are recomputed by themselves. Not the whole MLP, which reads its norm.
void RecomputeInner(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                    const std::string& prefix);
// From the gradient of what the output projection reads to those of the outputs of InnerProducts().
std::vector<ir::ViewId> InnerBackward(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                                      const Saved& saved, ir::ViewId dinner, ir::ViewId dmemory);
// Weight gradients of InnerProducts(). `normed`: their input, the full sequence.
void InnerWeightGrads(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                      const Saved& saved, const Factor& normed, const std::vector<Factor>& din,
                      ir::ViewId memory);
// Adds the column sums of dy to the gradient of a bias, if there is one.
void ColumnSums(StageBuilder& stage, ParamRef bias, ir::ViewId dy, int64_t rows, int64_t width);

}  // namespace orrery
