// SPDX-License-Identifier: Apache-2.0
#include "model/price/layer_means.h"

#include <algorithm>
#include <utility>

namespace orrery {
namespace {

void Scale(double factor, const PassTime& from, PassTime* to) {
  to->device += factor * from.device;
  to->tensor += factor * from.tensor;
  to->tensor_hidden += factor * from.tensor_hidden;
  to->context += factor * from.context;
  to->context_hidden += factor * from.context_hidden;
  to->context_early += factor * from.context_early;
  to->host += factor * from.host;
  to->behind += factor * from.behind;
}

PassTime LeastOf(const PassTime& a, const PassTime& b) {
  return {std::min(a.device, b.device),
          std::min(a.tensor, b.tensor),
          std::min(a.tensor_hidden, b.tensor_hidden),
          std::min(a.context, b.context),
          std::min(a.context_hidden, b.context_hidden),
          std::min(a.context_early, b.context_early),
          std::min(a.host, b.host),
          std::min(a.behind, b.behind)};
}

}  // namespace

void Scale(double factor, std::vector<PassPart>* parts) {
  for (PassPart& part : *parts)
    part.kernels *= factor, part.put_off *= factor, part.message *= factor;
}

void Scale(double factor, const LayerTime& from, LayerTime* to) {
  Scale(factor, from.forward, &to->forward);
  Scale(factor, from.backward, &to->backward);
  Scale(factor, from.leading, &to->leading);
  to->weight_gradient += factor * from.weight_gradient;
  to->weight_gradient_messages += factor * from.weight_gradient_messages;
  to->weight_gradient_host += factor * from.weight_gradient_host;
  to->accumulate += factor * from.accumulate;
  to->weight_casts += factor * from.weight_casts;
  Scale(factor, from.gathered_forward, &to->gathered_forward);
  Scale(factor, from.gathered_backward, &to->gathered_backward);
  to->hooks_forward += factor * from.hooks_forward;
  to->hooks_backward += factor * from.hooks_backward;
}

void SubtractMeans(double share, const LayerTime& others, LayerTime* of) {
  const LayerTime sum = std::exchange(*of, {});
  if (share <= 0 || share >= 1) return;
  Scale(1 / share, sum, of);
  Scale(-1 / (1 - share), others, of);
}

LayerTable LeastOfKinds(const LayerTable& table, const std::vector<LayerTime>& kinds) {
  LayerTable least = table;
  least.plain = least.recomputed = 0;
  least.plain_more = least.recomputing = {};
  least.layer = kinds.front();
  for (const LayerTime& kind : kinds) {
    least.layer.forward = LeastOf(least.layer.forward, kind.forward);
    least.layer.backward = LeastOf(least.layer.backward, kind.backward);
    least.layer.weight_gradient = std::max(least.layer.weight_gradient, kind.weight_gradient);
  }
  return least;
}

}  // namespace orrery
