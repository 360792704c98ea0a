// SPDX-License-Identifier: Apache-2.0
// Builds random plans within the bounds that the parser checks.
#include "random_plan.h"

#include <algorithm>
#include <cmath>

namespace orrery::ir {
namespace {

class Maker {
 public:
  explicit Maker(uint32_t seed) : random_(seed) {}

  Plan Make() {
    plan_.title = Name();
    plan_.mesh.axes.resize(1 + Below(5));
    for (std::size_t i = 0; i < plan_.mesh.axes.size(); ++i) {
      plan_.mesh.axes[i] = {Name(), 1 + Below(4)};
    }
    plan_.mesh.program_axis = Axis();
    plan_.micro_batches = 1 + Below(40);
    plan_.alignment = int64_t{1} << Below(10);
    plan_.frame_pool = Below(2) == 0;
    for (int i = Below(5); i > 0; --i) plan_.groups.push_back(MakeGroup());
    for (int i = 1 + Below(4); i > 0; --i) plan_.streams.push_back(Name());
    for (int i = Below(6); i > 0; --i) plan_.params.push_back(MakeParam());
    for (int stage = 0; stage < plan_.mesh.axes[plan_.mesh.program_axis].size; ++stage) {
      plan_.programs.push_back(MakeProgram(stage));
    }
    return plan_;
  }

 private:
  int Below(int bound) { return int(random_() % bound); }
  int Axis() { return Below(int(plan_.mesh.axes.size())); }
  uint16_t Mask() { return uint16_t(Below(1 << plan_.mesh.axes.size())); }
  int64_t Large() { return int64_t(random_()) * (Below(3) == 0 ? 64 : 1) >> Below(30); }
  double Real() {
    switch (Below(4)) {
      case 0:
        return Below(1000);
      case 1:
        return -double(Below(100000)) / 7;
      case 2:
        return std::ldexp(double(random_()), Below(200) - 100);
      default:
        return 1e-8;
    }
  }

  // Mostly plain, sometimes with awkward characters, sometimes one that came before.
  std::string Name() {
    if (!names_.empty() && Below(8) == 0) return names_[Below(int(names_.size()))];
    const std::string plain = "abcXYZ_0129./@+-:*<>!~";
    const std::string awkward = " =,()[]{};#\"%\\\n\t\x01\xc3\xa9";
    const std::vector<std::string> words = {"for", "program", "block", "%3",
                                            "17",  "last",    "to",    ""};
    std::string name;
    if (Below(10) == 0) {
      name = words[Below(int(words.size()))];
    } else {
      for (int i = 1 + Below(6); i > 0; --i) name += plain[Below(int(plain.size()))];
      if (Below(6) == 0) name += awkward[Below(int(awkward.size()))];
    }
    names_.push_back(name);
    return name;
  }

  Group MakeGroup() {
    Group group{Name(), Mask(), -1, {}};
    const int axis = Axis();
    if ((group.axes >> axis & 1) != 0 && Below(2) == 0) {
      group.restricted_axis = axis;
      for (int i = 0; i < plan_.mesh.axes[axis].size; ++i) {
        if (i == 0 || Below(2) == 0) group.allowed.push_back(i);
      }
    }
    return group;
  }

  Param MakeParam() {
    Param param;
    param.name = Name();
    for (int i = 1 + Below(3); i > 0; --i) param.shape.push_back(Large());
    if (Below(2) == 0) param.shard_dim = int8_t(Below(int(param.shape.size())));
    if (Below(2) == 0) param.shard_axis = int8_t(Axis());
    if (Below(2) == 0) param.partial_over = Mask();
    if (Below(2) == 0) param.tie = int16_t(Below(4));
    if (Below(2) == 0) param.real_rows = Large();
    param.init = static_cast<Init>(Below(3));
    if (Below(2) == 0) param.init_std = Real();
    param.decay = Below(2) == 0;
    return param;
  }

  Program MakeProgram(int stage) {
    Program program;
    program.stage = stage;
    for (int i = Below(4); i > 0; --i) program.units.push_back(MakeUnit());
    for (int i = Below(3); i > 0; --i) program.rings.push_back({Name(), 1 + Below(5)});
    for (int i = 1 + Below(8); i > 0; --i) program.buffers.push_back(MakeBuffer(program));
    for (int i = 1 + Below(12); i > 0; --i) program.views.push_back(MakeView(program));
    for (int i = 1 + Below(4); i > 0; --i) {
      program.blocks.push_back({Name(), {}});
      for (int op = Below(10); op > 0; --op) program.blocks.back().ops.push_back(MakeOp(program));
    }
    std::vector<Call> calls;
    for (int i = Below(60); i > 0; --i) {
      calls.push_back({Below(int(program.blocks.size())), Below(plan_.micro_batches),
                       uint8_t(Below(4) == 0 ? Below(256) : 0)});
    }
    program.schedule = Below(2) == 0 ? Compress(calls) : Pattern(program);
    return program;
  }

  // Nested loops, some that run backwards or stand still.
  std::vector<Item> Pattern(const Program& program) {
    Item call{Below(int(program.blocks.size())), plan_.micro_batches / 2, 0, 0, 0, {}};
    Item inner{-1, 0, 0, 1 + Below(plan_.micro_batches / 2 + 1), Below(2) - 1, {call, call}};
    Item outer{-1, 0, 0, 1 + Below(3), 0, {inner, call}};
    if (plan_.micro_batches > 8) outer.stride = plan_.micro_batches / 8;
    return {call, outer, inner};
  }

  Unit MakeUnit() {
    Unit unit;
    unit.name = Name();
    unit.elements = Large();
    unit.replicated_from = unit.elements / 2;
    for (int i = plan_.params.empty() ? 0 : Below(4); i > 0; --i) {
      const int64_t offset = unit.elements / (1 + Below(5));
      unit.segments.push_back({Below(int(plan_.params.size())), offset, unit.elements - offset});
    }
    return unit;
  }

  Buffer MakeBuffer(const Program& program) {
    Buffer buffer;
    buffer.name = Name();
    buffer.cls = static_cast<BufferClass>(Below(8));
    buffer.dtype = static_cast<Dtype>(Below(7));
    buffer.elements = Large();
    buffer.life = static_cast<Life>(Below(3));
    buffer.extra_slots = uint8_t(Below(3) == 0 ? Below(256) : 0);
    if (!program.rings.empty() && Below(3) == 0) {
      buffer.ring = int16_t(Below(int(program.rings.size())));
      buffer.ring_index = int16_t(Below(5));
    }
    if (!program.units.empty() && Below(2) == 0) buffer.unit = Below(int(program.units.size()));
    if (Below(3) == 0) buffer.unit_shard_axis = int8_t(Axis());
    buffer.space = static_cast<Space>(Below(2));
    return buffer;
  }

  View MakeView(const Program& program) {
    const BufferId id = Below(int(program.buffers.size()));
    const Buffer& buffer = program.buffers[id];
    if (Below(2) == 0) return {buffer.name, id, 0, buffer.elements};
    const int64_t offset = buffer.elements / (1 + Below(4));
    return {Name(), id, offset, (buffer.elements - offset) / (1 + Below(2))};
  }

  Op MakeOp(const Program& program) {
    Op op;
    op.kind = static_cast<OpKind>(Below(kOpKinds));
    const OpInfo& info = Info(op.kind);
    const int views = int(program.views.size());
    for (int i = info.min_in + Below(info.max_in - info.min_in + 1); i > 0; --i) {
      op.in.push_back(Below(views));
    }
    for (int i = info.min_out + Below(info.max_out - info.min_out + 1); i > 0; --i) {
      op.out.push_back(Below(views));
    }
    if (info.op_class == OpClass::kCollective && plan_.groups.empty())
      return Op{OpKind::kZero, {0}};
    if (!plan_.groups.empty() && (info.op_class == OpClass::kCollective || Below(4) == 0)) {
      op.group = int16_t(Below(int(plan_.groups.size())));
    }
    if (info.op_class == OpClass::kPointToPoint)
      op.peer = {int8_t(Axis()), int8_t(Below(255) - 127)};
    for (int i = Below(6); i > 0; --i) op.attrs.Set(static_cast<Attr>(Below(kAttrs)), Real());
    if (Below(3) == 0) op.attrs.Set(Attr::kAxis, Axis());
    if (Below(3) == 0) op.attrs.Set(Attr::kWhat, Below(9));
    op.stream = uint8_t(Below(int(plan_.streams.size())));
    if (Below(3) == 0) op.tag = int32_t(random_());
    if (Below(3) == 0) op.yields = Mask();
    if (Below(3) == 0) op.when = uint8_t(Below(256));
    op.phase = static_cast<Phase>(Below(11));
    op.segment = static_cast<Segment>(Below(4));
    if (Below(2) == 0) op.layer = int16_t(Below(32768));
    return op;
  }

  std::mt19937 random_;
  std::vector<std::string> names_;
  Plan plan_;
};

}  // namespace

Plan RandomPlan(uint32_t seed) { return Maker(seed).Make(); }

Plan WidePlan(int ops) {
  Plan plan;
  plan.mesh = {{{"pp", 1}, {"dp", 4}}, 0};
  plan.streams = {"compute", "dp"};
  plan.micro_batches = 4;
  Program program;
  Block block{"F0", {}};
  for (int i = 0; i < ops; ++i) {
    const std::string name = "L" + std::to_string(i / 20) + ".tensor" + std::to_string(i % 20);
    program.buffers.push_back({name, BufferClass::kActivation, Dtype::kBf16, 1000 + i});
    program.views.push_back({name, i, 0, 1000 + i});
    Op op;
    op.kind = OpKind::kMatmul;
    op.out = {i};
    op.in = {i / 2, i / 3};
    op.attrs = {{Attr::kM, 2048}, {Attr::kN, 12288}, {Attr::kK, 100 + i}};
    op.layer = int16_t(i / 20);
    block.ops.push_back(op);
  }
  program.blocks = {block};
  program.schedule = {{-1, 0, 0, 4, 1, {{0, 0, 0, 0, 0, {}}}}};
  plan.programs = {program};
  return plan;
}

}  // namespace orrery::ir
