// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters beside the maps of a sublayer (model/arch/lora.h): forward, backward, and where the backward pass ends.
//
// The map into a sublayer is split by columns over the tensor group: B as well, A is whole on each rank. The map out of it is
// split by rows: A as well, B is whole. What passes between A and B is `rank` wide. Without sequence parallelism it stays a
// rank's own term of the sum that the map's reduction makes anyway; with it A and B that are whole work on this rank's rows,
// and the narrow tensor is gathered or scattered. Either way the gradient of the whole one is a part on each tensor rank. As
// in the frameworks, the adapter's output is a tensor of its own that is added to the map's.
// Parts of a map into a sublayer (queries; gates) may have adapters of their own: what each makes is added to its columns.
// AdapterSplit::kColumns (strategy.h): A and B are both cut, and every rank works on all rows. A of the map in is split by
// outputs, which are gathered; B of the map out by outputs, which are gathered whole, or exchanged for rows.
#pragma once

#include <string>
#include <vector>

#include "model/plan/lower/sublayer.h"

namespace orrery {

std::vector<ParamDecl> AdapterDecls(const LowerContext& ctx, const std::string& base, int64_t out,
                                    int64_t in, int shard_dim);

// What the maps into a block read, `source` being this rank's rows of it. Adapters cut by columns read all rows: where they do
// not gather them, the map's gather leaves them, in 16 bits (TransformerEngine's return_layernorm_output_gathered), and each
// rank casts all of them. Adapters read the result's x.
CastSource AdapterInput(StageBuilder& stage, const Layer& layer, const Branches& block,
                        const Sublayer& owner, const std::string& prefix, CastSource source);

// y += adapter(x): into the sublayer. `x`: of AdapterInput(); y: all rows.
void InAdapterForward(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                      const std::string& prefix, ir::ViewId x, ir::ViewId y);
// Out of it, in two halves: to what B reads, and `out` += that B'. To be called with the map's output as a part of the sum
// over the tensor group, and with this rank's rows of that sum (`summed`): does nothing at one of the two.
void OutAdapterDown(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                    const std::string& prefix);
void OutAdapterUp(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                  const std::string& prefix, ir::ViewId out, bool summed);

// One adapter into a sublayer: it adds to `width` columns from `first` on of every `of` in the map's output.
struct InAdapter {
  Adapter adapter;
  const char* tag;  // behind the names of its tensors
  int64_t groups;   // rows of `of` columns in the output of all rows
  int64_t first, width, of;

  bool whole() const { return width == of; }
};

// Backward through the adapters into the branches of a block.
class InAdapters {
 public:
  InAdapters(StageBuilder& stage, const Layer& layer, const Saved& saved)
      : stage_(stage), layer_(layer), saved_(saved) {}
  // Gradients of a branch's A and B from `din`, that of its map's output; own: this rank's rows of the branch's input, which
  // sublayer `owner` has normed.
  void Backward(const Sublayer& sub, const Sublayer& owner, ir::ViewId own, ir::ViewId din);
  // Adds the gradients of what the branches since the last addition have read. To be called with the part of the sum over
  // the tensor group, and with this rank's rows of it (`summed`), as OutAdapterUp().
  void AddTo(ir::ViewId dx, bool summed);

 private:
  struct Between {  // the gradient between A and B
    const Sublayer* sub;
    InAdapter in;
    ir::ViewId view;
  };
  // What A read.
  ir::ViewId Input(const Sublayer& sub, const InAdapter& in, const Sublayer& owner, ir::ViewId own);
  void BackwardOf(const InAdapter& in, const Sublayer& sub, const Sublayer& owner, ir::ViewId own,
                  ir::ViewId din);

  StageBuilder& stage_;
  const Layer& layer_;
  const Saved& saved_;
  std::vector<Between> between_;
};
bool TakesInAdapters(const Branches& block);
// `d`: of this rank's rows of the map's output; dinner: of what the map reads, -1 if no one reads it.
void OutAdapterBackward(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                        const Saved& saved, ir::ViewId d, ir::ViewId dinner);

// Whether anything is trained in front of a block of a layer.
bool TrainsBefore(const StageBuilder& stage, const Layer& layer, std::size_t block);

}  // namespace orrery
