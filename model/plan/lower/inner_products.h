// SPDX-License-Identifier: Apache-2.0
// Products of a sublayer's normalised input: one, or several with weights of their own (Strategy::split_products), and what
// stands between them and attention.
#pragma once

#include <string>
#include <vector>

#include "model/plan/lower/sublayer.h"

namespace orrery {

// A product of the normalised input with weights of its own: one of a sublayer, or those of Strategy::split_products.
struct InnerProduct {
  const char* name;  // of its output
  ParamRef weight, bias;
  int64_t width;
  bool gone;     // its output does not outlive the forward pass
  int gradient;  // second argument of GradientSite()
};
std::vector<InnerProduct> InnerProducts(const StageBuilder& stage, const Layer& layer,
                                        const Sublayer& sub);
// Whether the backward pass makes one of several such products again, and the inner projection's output with it.
bool MakesProductsAgain(const StageBuilder& stage, const Layer& layer, const Sublayer& sub);
void RecomputeProducts(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                       const Factor& normed);

// What attention or the activation of one tensor reads: attention keeps it unless products run again, an MLP that is
// recomputed does not.
ir::ViewId InnerIn(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                   const std::string& prefix);
// Outputs of InnerProducts(), and their gradients.
std::vector<ir::ViewId> OutputsOf(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                                  const std::string& prefix);
std::vector<ir::ViewId> GradientsOf(StageBuilder& stage, const Layer& layer, const Sublayer& sub);
void EmitProduct(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                 const InnerProduct& product, const std::string& prefix, const Factor& normed);
ir::ViewId OptionalWeight(StageBuilder& stage, ParamRef ref);  // -1: there is none

// Rotary positions, in place, or between one tensor and those of products of their own.
void EmitRope(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
              const std::vector<ir::ViewId>& out, const std::vector<ir::ViewId>& in, bool inverse);
// Norms of queries and keys, in place; backward: from the gradient behind the norms to the one in front of them.
void EmitQkNorm(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                const std::string& prefix, ir::ViewId qkv);
ir::ViewId EmitQkNormBackward(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                              const Saved& saved, ir::ViewId dqkv);

}  // namespace orrery
