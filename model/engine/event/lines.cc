// SPDX-License-Identifier: Apache-2.0
// What a communication op sends, and on which line.
#include "model/engine/event/lines.h"

#include <algorithm>

#include "model/engine/event/index.h"
#include "model/price/op_shape.h"
#include "model/price/op_term.h"

namespace orrery::sim {
namespace {

using ir::OpKind;

Line LineOf(const ir::Op& op) {
  if (op.kind == OpKind::kSend) return {-1, 0, op.peer.axis, op.peer.delta};
  if (op.kind == OpKind::kRecv) return {-1, 0, op.peer.axis, static_cast<int8_t>(-op.peer.delta)};
  return {op.group, op.stream, -1, 0};
}

Collective CollectiveOf(OpKind kind) {
  switch (kind) {
    case OpKind::kSend:
    case OpKind::kRecv:
      return Collective::kSendRecv;
    case OpKind::kAllGather:
      return Collective::kAllGather;
    case OpKind::kReduceScatter:
      return Collective::kReduceScatter;
    case OpKind::kAllToAll:
      return Collective::kAllToAll;
    default:
      return Collective::kAllReduce;
  }
}

// The whole buffer of a gather or a reduction.
ir::ViewId LargerSide(const ir::Op& op) {
  return op.kind == OpKind::kSend || op.kind == OpKind::kReduceScatter ? op.in.front()
                                                                       : op.out.front();
}

Message MessageOf(const ir::Plan& plan, const ir::Program& program, const ir::Op& op, double share,
                  Part part) {
  const ir::ViewId view = LargerSide(op);
  const ir::Buffer& buffer = program.buffers[At(program.views[At(view)].buffer)];
  const ir::BufferClass cls = buffer.cls;
  const bool one_use = cls == ir::BufferClass::kGradTransient || cls == ir::BufferClass::kGathered;
  const bool backward = op.phase == ir::Phase::kBackward || op.phase == ir::Phase::kWeightGrad;
  return {CollectiveOf(op.kind),
          ViewBytes(program, view),
          RoleOf(op.phase, one_use, AxisOf(plan, op) == CommAxis::kContext,
                 op.attrs.Get(ir::Attr::kWhole) != 0),
          backward,
          share,
          part,
          static_cast<double>(ir::DtypeBytes(buffer.dtype))};
}

}  // namespace

void Lines::Number(const ir::Program& program, const ir::Op& op, double share, Part part,
                   Task* task) {
  const Line line = LineOf(op);
  const auto [at, added] = line_numbers_.try_emplace(line, static_cast<int32_t>(lines_.size()));
  if (added) lines_.push_back({line, {}});
  task->line = at->second;
  task->receives = op.kind == OpKind::kRecv;
  std::vector<Message>& messages = lines_[At(task->line)].messages;
  const Message message = MessageOf(plan_, program, op, share, part);
  const auto found = std::ranges::find(messages, message);
  task->message = static_cast<int32_t>(found - messages.begin());
  if (found == messages.end()) messages.push_back(message);
}

}  // namespace orrery::sim
