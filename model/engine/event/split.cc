// SPDX-License-Identifier: Apache-2.0
// Finds reductions and gathers of a whole step that run on streams of their own.
#include "model/engine/event/split.h"

#include <algorithm>

#include "model/engine/event/index.h"
#include "model/price/op_shape.h"

namespace orrery::sim {
namespace {

class SplitFinder {
 public:
  SplitFinder(const ir::Plan& plan, const ir::Program& program,
              const std::vector<ir::Instance>& instances)
      : plan_(plan), program_(program), instances_(instances) {}

  SplitOps Find(const AwaitedShares& awaited) {
    SplitOps found;
    for (std::size_t i = 0; i < instances_.size(); ++i) {
      const ir::Op& op = OpOf(i);
      const auto instance = static_cast<int32_t>(i);
      if (op.stream == 0 && instances_[i].call < instances_.back().call) found.last_pass = instance;
      if (op.stream == 0 || op.group < 0) continue;
      if (ReducesForTheStep(op)) found.reductions.push_back({instance, awaited.reductions});
      if (awaited.gathers < 1 && GathersForTheNextStep(op)) found.gathers.push_back({instance});
    }
    if (found.last_pass < 0) found.reductions.clear();
    AwaitTheFirst(awaited.gathers, &found.gathers);
    if (!found.gathers.empty()) FindReaders(&found.gathers);
    return found;
  }

 private:
  const ir::Op& OpOf(std::size_t i) const {
    return program_.blocks[At(instances_[i].block)].ops[At(instances_[i].op)];
  }
  ir::BufferId BufferOf(ir::ViewId view) const { return program_.views[At(view)].buffer; }
  ir::BufferClass ClassOf(ir::ViewId view) const {
    return program_.buffers[At(BufferOf(view))].cls;
  }

  // Not what several stages reduce together, when all of them have ended.
  bool ReducesForTheStep(const ir::Op& op) const {
    if (op.phase != ir::Phase::kGradReduce) return false;
    if ((plan_.groups[At(op.group)].axes >> plan_.mesh.program_axis & 1) != 0) return false;
    return ClassOf(op.in.front()) == ir::BufferClass::kGrad;
  }

  bool GathersForTheNextStep(const ir::Op& op) const {
    return op.phase == ir::Phase::kParamGather && op.kind == ir::OpKind::kAllGather &&
           ClassOf(op.out.front()) == ir::BufferClass::kParam;
  }

  double Bytes(const SplitOp& op) const {
    return ViewBytes(program_, OpOf(At(op.instance)).out.front());
  }

  void AwaitTheFirst(double share, std::vector<SplitOp>* gathers) const {
    double left = 0;
    for (const SplitOp& gather : *gathers) left += share * Bytes(gather);
    for (SplitOp& gather : *gathers) {
      gather.awaited = std::clamp(left / std::max(1.0, Bytes(gather)), 0.0, 1.0);
      left -= Bytes(gather);
    }
  }

  // Weights outlive the step: their first reader stands before the gather.
  void FindReaders(std::vector<SplitOp>* gathers) const {
    std::vector<SplitOp*> of(program_.buffers.size(), nullptr);
    for (SplitOp& gather : *gathers)
      of[At(BufferOf(OpOf(At(gather.instance)).out.front()))] = &gather;
    std::size_t open = gathers->size();
    for (std::size_t i = 0; i < instances_.size() && open > 0; ++i) {
      for (const ir::ViewId view : OpOf(i).in) {
        SplitOp*& gather = of[At(BufferOf(view))];
        if (gather == nullptr) continue;
        gather->reader = static_cast<int32_t>(i);
        gather = nullptr;
        --open;
      }
    }
  }

  const ir::Plan& plan_;
  const ir::Program& program_;
  const std::vector<ir::Instance>& instances_;
};

}  // namespace

SplitOps FindSplitOps(const ir::Plan& plan, const ir::Program& program,
                      const std::vector<ir::Instance>& instances, const AwaitedShares& awaited) {
  return SplitFinder(plan, program, instances).Find(awaited);
}

}  // namespace orrery::sim
