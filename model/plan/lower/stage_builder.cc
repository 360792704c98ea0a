// SPDX-License-Identifier: Apache-2.0
// Buffers, views, ops and tensor-parallel collectives of one stage.
#include "model/plan/lower/stage_builder.h"

#include <algorithm>
#include <utility>

namespace orrery {

using ir::Attr;
using ir::OpKind;
using ir::ViewId;

StageBuilder::StageBuilder(const LowerContext& context, ir::Plan* plan, int stage)
    : ctx_(context), plan_(plan) {
  constexpr std::size_t kTensors = 256;  // of a few layers
  program_.buffers.reserve(kTensors);
  program_.views.reserve(kTensors);
  program_.stage = stage;
  const BlockNumbers numbers{ctx_.strategy.vpp, ctx_.split_backward()};
  program_.blocks.resize(numbers.Count());
  blocks_.resize(numbers.Count());
  program_.blocks[numbers.Begin()].name = "P";
  program_.blocks[numbers.End()].name = "E";
  for (int chunk = 0; chunk < ctx_.strategy.vpp; ++chunk) {
    program_.blocks[numbers.Forward(chunk)].name = "F" + std::to_string(chunk);
    program_.blocks[numbers.Backward(chunk)].name = "B" + std::to_string(chunk);
    if (numbers.split_backward)
      program_.blocks[numbers.WeightGrad(chunk)].name = "W" + std::to_string(chunk);
  }
  loss_ = Make("loss", 1, ctx_.full, ir::BufferClass::kScalar, ir::Life::kStep);
  if (ctx_.clip) norm_ = Make("gnorm", 1, ctx_.full, ir::BufferClass::kScalar, ir::Life::kStep);
  if (ctx_.loss_scaling)
    loss_scale_ = Make("lscale", 1, ctx_.full, ir::BufferClass::kScalar, ir::Life::kStep);
}

int64_t StageBuilder::GroupSize(int group) const {
  return ir::GroupSize(plan_->mesh, plan_->groups[group]);
}

ViewId StageBuilder::Act(std::string name, int64_t elements) {
  return Make(std::move(name), elements, ctx_.activation);
}

ViewId StageBuilder::Make(std::string name, int64_t elements, ir::Dtype dtype, ir::BufferClass cls,
                          ir::Life life, int extra_slots) {
  const ViewId known = views_.FindOrAdd(program_.views, name);
  if (known >= 0) return known;
  const auto id = static_cast<ViewId>(program_.views.size());
  ir::Buffer& buffer = program_.buffers.emplace_back();
  buffer.name = name;
  buffer.cls = cls;
  buffer.dtype = dtype;
  buffer.elements = elements;
  buffer.life = life;
  buffer.extra_slots = static_cast<uint8_t>(extra_slots);
  program_.views.push_back(
      {std::move(name), static_cast<ir::BufferId>(program_.buffers.size() - 1), 0, elements});
  return id;
}

ViewId StageBuilder::MakeInRing(const std::string& name, int64_t elements, const std::string& ring,
                                int slots, int index) {
  const ViewId view = Act(name, elements);
  ir::Buffer& buffer = program_.buffers[program_.views[view].buffer];
  buffer.ring = static_cast<int16_t>(RingIndex(ring, slots));
  buffer.ring_index = static_cast<int16_t>(index);
  return view;
}

ViewId StageBuilder::Sub(ViewId whole, const std::string& suffix, int64_t offset,
                         int64_t elements) {
  const ir::View& base = program_.views[whole];
  std::string name = base.name + "/" + suffix;
  const ViewId known = views_.FindOrAdd(program_.views, name);
  if (known >= 0) return known;
  const auto id = static_cast<ViewId>(program_.views.size());
  ir::View view{std::move(name), base.buffer, base.offset + offset, elements};
  program_.views.push_back(std::move(view));
  return id;
}

ir::Op& StageBuilder::Emit(OpKind kind, std::vector<ViewId> out, std::vector<ViewId> in,
                           ir::Attrs attrs) {
  ir::Op op;
  op.kind = kind;
  op.out = std::move(out);
  op.in = std::move(in);
  op.attrs = std::move(attrs);
  op.phase = phase_;
  op.segment = segment_;
  op.layer = static_cast<int16_t>(layer_);
  constexpr std::size_t kFewOps = 32;  // of one layer: saves five moves of the first ones
  std::vector<ir::Op>& ops = blocks_[block_].ops;
  if (ops.empty()) ops.reserve(kFewOps);
  return ops.emplace_back(std::move(op));
}

void StageBuilder::Matmul(ViewId c, ViewId a, ViewId b, int64_t m, int64_t n, int64_t k, bool ta,
                          bool tb, bool acc, ViewId bias) {
  std::vector<ViewId> in{a, b};
  if (bias >= 0) in.push_back(bias);
  if (acc) in.push_back(c);
  Emit(OpKind::kMatmul, {c}, std::move(in),
       {{Attr::kM, double(m)},
        {Attr::kN, double(n)},
        {Attr::kK, double(k)},
        {Attr::kTransA, double(ta)},
        {Attr::kTransB, double(tb)},
        {Attr::kAcc, double(acc)},
        {Attr::kBias, double(bias >= 0)}});
}

ir::Op& StageBuilder::Communicate(OpKind kind, ViewId out, ViewId in, int group) {
  ir::Op& op = Emit(kind, {out}, {in});
  op.group = static_cast<int16_t>(group);
  op.tag = next_tag_++;
  return op;
}

void StageBuilder::Pass(ViewId x, ViewId arrived, int axis) {
  const int32_t tag = next_tag_++;
  ir::Op& send = Emit(OpKind::kSend, {}, {x});
  send.peer = {static_cast<int8_t>(axis), 1};
  send.stream = kSendKeys;
  send.tag = tag;
  ir::Op& receive = Emit(OpKind::kRecv, {arrived}, {});
  receive.peer = {static_cast<int8_t>(axis), -1};
  receive.stream = kRecvKeys;
  receive.tag = tag;
}

void StageBuilder::MarkPartial() {
  if (ctx_.strategy.tp > 1) blocks_[block_].ops.back().yields = 1u << kAxisTp;
}

void StageBuilder::AllReduce(ViewId x, int group, uint8_t stream, int reduce_op, int32_t tag) {
  if (GroupSize(group) == 1) return;
  ir::Op& op = Emit(OpKind::kAllReduce, {x}, {x}, {{Attr::kReduceOp, double(reduce_op)}});
  op.group = static_cast<int16_t>(group);
  op.stream = stream;
  op.tag = tag != 0 ? tag : next_tag_++;
}

ViewId StageBuilder::ReduceTensor(ViewId full, const std::string& shard_name, int64_t width) {
  MarkPartial();
  return ReduceGathered(full, shard_name, width);
}

ViewId StageBuilder::ReduceGathered(ViewId full, const std::string& shard_name, int64_t width) {
  const uint8_t stream = ctx_.strategy.tp_async ? kTpStream : kCompute;
  if (!ctx_.sp()) {
    AllReduce(full, kGroupTp, stream);
    return full;
  }
  const ViewId shard = Act(shard_name, ctx_.ShardRows() * width);
  ir::Op& op = Emit(OpKind::kReduceScatter, {shard}, {full});
  op.group = kGroupTp;
  op.stream = stream;
  op.tag = next_tag_++;
  return shard;
}

ViewId StageBuilder::GatherSequence(ViewId shard, const std::string& full_name, int64_t width) {
  if (!ctx_.sp()) return shard;
  const ViewId full = Act(full_name, ctx_.Rows() * width);
  GatherTensor(full, shard);
  return full;
}

ViewId StageBuilder::TakeSequence(ViewId full, const std::string& shard_name, int64_t width) {
  if (!ctx_.sp()) return full;
  const int64_t elements = ctx_.ShardRows() * width;
  const ViewId shard = Act(shard_name, elements);
  Emit(OpKind::kSlice, {shard}, {full},
       {{Attr::kElements, double(elements)}, {Attr::kAxis, kAxisTp}});
  return shard;
}

void StageBuilder::GatherTensor(ViewId full, ViewId shard) {
  ir::Op& op = Emit(OpKind::kAllGather, {full}, {shard});
  op.group = kGroupTp;
  op.stream = ctx_.strategy.tp_async ? kTpStream : kCompute;
  op.tag = next_tag_++;
}

void StageBuilder::Send(ViewId x, int delta, uint8_t stream, int32_t tag) {
  ir::Op& op = Emit(OpKind::kSend, {}, {x});
  op.peer = {static_cast<int8_t>(kAxisPp), static_cast<int8_t>(delta)};
  op.stream = stream;
  op.tag = tag;
  op.phase = ir::Phase::kPipeline;
}

void StageBuilder::Recv(ViewId x, int delta, uint8_t stream, int32_t tag) {
  ir::Op& op = Emit(OpKind::kRecv, {x}, {});
  op.peer = {static_cast<int8_t>(kAxisPp), static_cast<int8_t>(delta)};
  op.stream = stream;
  op.tag = tag;
  op.phase = ir::Phase::kPipeline;
}

ViewId StageBuilder::BoundaryPart(ViewId x, int extra_slots) {
  const ir::View& whole = program_.views[x];
  return Make(whole.name + ".part", whole.elements / ctx_.strategy.tp, ctx_.activation,
              ir::BufferClass::kActivation, ir::Life::kMicroBatch, extra_slots);
}

void StageBuilder::SendBoundary(ViewId x, int delta, uint8_t stream, int32_t tag) {
  if (!ctx_.scatter_gather()) return Send(x, delta, stream, tag);
  const ViewId part = BoundaryPart(x, ctx_.strategy.send_slots - 1);
  ir::Op& op =
      Emit(OpKind::kSlice, {part}, {x},
           {{Attr::kElements, double(program_.views[part].elements)}, {Attr::kAxis, kAxisTp}});
  op.phase = ir::Phase::kPipeline;
  Send(part, delta, stream, tag);
}

// The gather keeps the phase of its block: its constants are those of tensor-parallel collectives, and
// the pass cannot start before it ends.
void StageBuilder::RecvBoundary(ViewId x, int delta, uint8_t stream, int32_t tag) {
  if (!ctx_.scatter_gather()) return Recv(x, delta, stream, tag);
  const ViewId part = BoundaryPart(x, ctx_.strategy.recv_slots);
  Recv(part, delta, stream, tag);
  GatherTensor(x, part);
}

void StageBuilder::MarkHooked() {
  const auto is_weight = [&](ViewId view) { return BufferOf(view).cls == ir::BufferClass::kParam; };
  for (ir::Block& block : program_.blocks) {
    for (ir::Op& op : block.ops) {
      const bool in_a_pass = op.segment != ir::Segment::kStep;
      if (in_a_pass && std::ranges::any_of(op.in, is_weight)) op.attrs.Set(Attr::kHooked, 1);
    }
  }
}

ir::Program StageBuilder::Finish(std::vector<ir::Item> schedule) {
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    for (std::vector<ir::Op>& pending : blocks_[b].pending_adds)
      std::ranges::move(pending, std::back_inserter(blocks_[b].ops));
    InsertGathers(blocks_[b]);
    program_.blocks[b].ops = std::move(blocks_[b].ops);
  }
  if (ctx_.strategy.offload.activations) {
    const BlockNumbers numbers{ctx_.strategy.vpp, ctx_.split_backward()};
    for (int chunk = 0; chunk < ctx_.strategy.vpp; ++chunk)
      OffloadActivations(numbers.Forward(chunk), numbers.Backward(chunk),
                         ctx_.StreamOf(HostStream::kDown), ctx_.strategy.offload.activation_layers,
                         &program_);
  }
  if (ctx_.hooked) MarkHooked();
  program_.schedule = std::move(schedule);
  return std::move(program_);
}

}  // namespace orrery
