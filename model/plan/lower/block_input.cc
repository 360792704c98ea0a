// SPDX-License-Identifier: Apache-2.0
#include "model/plan/lower/block_input.h"

#include <algorithm>

#include "model/plan/lower/inner_products.h"

namespace orrery {

using ir::ViewId;

bool HasInputNorm(const StageBuilder& stage) {
  return stage.ctx().model.input_norm && !stage.ctx().model.post_norm;
}

std::string InputNormName(const StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                          const std::string& prefix) {
  return Name(PrefixOf(stage, layer.Recomputes(kRecomputeNorms), prefix), layer, sub, "n");
}

ViewId EmitInputNorm(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                     const std::string& prefix, ViewId x) {
  if (!HasInputNorm(stage)) return x;
  return EmitNorm(stage, InputNormName(stage, layer, sub, prefix), x, sub.norm_gamma, sub.norm_beta,
                  stage.ctx().ShardRows(), -1);
}

ViewId NormedInput(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                   const std::string& prefix, ViewId x) {
  if (!HasInputNorm(stage)) return x;
  return stage.Act(InputNormName(stage, layer, sub, prefix),
                   stage.ctx().ShardRows() * stage.ctx().model.hidden);
}

bool ReadsInputAgain(const StageBuilder& stage, const Layer& layer, const Branches& block) {
  return std::ranges::any_of(block, [&](const Sublayer& s) {
    return (s.kind == SubKind::kMlp && layer.Recomputes(kRecomputeMlp)) ||
           MakesProductsAgain(stage, layer, s);
  });
}

bool KeepsGathers(const StageBuilder& stage) {
  return stage.ctx().sp() && stage.ctx().strategy.gathers_kept && !stage.ctx().frozen();
}

CastSource InputSource(StageBuilder& stage, const Layer& layer, const Branches& block,
                       const Sublayer& sub, const std::string& prefix, ViewId x) {
  CastSource source{.x = x};
  source.again = layer.Recomputes(kRecomputeNorms) || ReadsInputAgain(stage, layer, block);
  source.name = Name(PrefixOf(stage, source.again, prefix), layer, sub, "n");
  source.rows = stage.ctx().ShardRows();
  source.width = stage.ctx().model.hidden;
  source.part = stage.ctx().sp();
  if (HasInputNorm(stage)) source.from = ir::CastFrom::kNorm;
  return source;
}

}  // namespace orrery
