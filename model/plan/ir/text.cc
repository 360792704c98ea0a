// SPDX-License-Identifier: Apache-2.0
// Writes a plan as text: one definition or op per line, default values left out, stable for diffs.
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "model/plan/ir/text_names.h"
#include "model/plan/ir/text_words.h"

namespace orrery::ir {
namespace {

class Writer {
 public:
  explicit Writer(const Plan& plan)
      : plan_(plan),
        axes_(Names::Of(plan.mesh.axes)),
        groups_(Names::Of(plan.groups)),
        streams_(Names::OfStrings(plan.streams)),
        params_(Names::Of(plan.params)) {}

  std::string Write(bool with_origin) {
    out_ = "orrery-plan 1\n";
    if (with_origin) Add("title ", Quoted(plan_.title), "\n");
    if (with_origin && !plan_.framework.empty()) Add("framework ", Quoted(plan_.framework), "\n");
    Header();
    for (const Param& param : plan_.params) ParamLine(param);
    for (const Program& program : plan_.programs) ProgramText(program);
    return std::move(out_);
  }

 private:
  template <class... Parts>
  void Add(const Parts&... parts) {
    (Part(parts), ...);
  }
  void Part(std::string_view text) { out_ += text; }
  void Part(char c) { out_ += c; }
  void Part(int64_t number) {
    char digits[24];
    out_.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
  }
  void Part(int number) { Part(int64_t{number}); }
  void Part(double number) {
    if (number == std::trunc(number) && std::abs(number) < 1e15) {
      return Part(static_cast<int64_t>(number));
    }
    char digits[32];
    out_.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
  }

  void Header() {
    Add("mesh");
    for (std::size_t i = 0; i < plan_.mesh.axes.size(); ++i) {
      const MeshAxis& axis = plan_.mesh.axes[i];
      Add(' ', Quoted(axis.name), '=');
      axis.of != 0 ? Add(Mask(axis.of)) : Add(axis.size);
    }
    Add("\nprogram_axis ", axes_[plan_.mesh.program_axis]);
    for (std::size_t i = 0; i < plan_.mesh.order.size(); ++i)
      Add(i == 0 ? "\norder " : " ", axes_[plan_.mesh.order[i]]);
    Add("\nmicro_batches ", plan_.micro_batches);
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i)
      Add(i == 0 ? "\nnodes " : " ", int{plan_.nodes[i]});
    Add("\nalignment ", plan_.alignment, "\nframe_pool ", plan_.frame_pool ? "on" : "off", "\n");
    for (const Group& group : plan_.groups) {
      Add("group ", Quoted(group.name), " = ", Mask(group.axes));
      if (group.restricted_axis >= 0) {
        Add(" where ", axes_[group.restricted_axis], " in");
        for (const int coord : group.allowed) Add(' ', coord);
      }
      Add('\n');
    }
    Add("streams");
    for (const std::string& stream : plan_.streams) Add(' ', Quoted(stream));
    Add('\n');
  }

  // Axis names, comma-separated; %number when names cannot tell the mask.
  std::string Mask(uint16_t mask) {
    if (mask == 0 || mask >> plan_.mesh.axes.size() != 0) return "%" + std::to_string(mask);
    std::string text;
    for (std::size_t i = 0; i < plan_.mesh.axes.size(); ++i) {
      if ((mask >> i & 1) == 0) continue;
      if (!axes_.Unique(i)) return "%" + std::to_string(mask);
      if (!text.empty()) text += ',';
      text += axes_[i];
    }
    return text;
  }

  void ParamLine(const Param& param) {
    const Param defaults;
    Add("param ", Quoted(param.name), " [");
    for (std::size_t i = 0; i < param.shape.size(); ++i) Add(i > 0 ? "," : "", param.shape[i]);
    Add(']');
    if (param.shard_dim != -1) Add(" dim=", int{param.shard_dim});
    if (param.shard_axis != -1) Add(" axis=", axes_[param.shard_axis]);
    if (param.partial_over != 0) Add(" partial=", Mask(param.partial_over));
    if (param.tie != -1) Add(" tie=", int{param.tie});
    if (param.real_rows != 0) Add(" real_rows=", param.real_rows);
    if (param.init != defaults.init) Add(" init=", kInitWords[static_cast<int>(param.init)]);
    if (param.init_std != defaults.init_std) Add(" std=", param.init_std);
    if (param.decay != defaults.decay) Add(" decay=", param.decay ? "on" : "off");
    if (param.frozen) Add(" frozen=on");
    if (param.packing != Packed::kNone)
      Add(" packing=", kPackingWords[static_cast<std::size_t>(param.packing)]);
    for (std::size_t i = 0; i < param.of.size(); ++i) Add(i == 0 ? " of=[" : ",", param.of[i]);
    if (!param.of.empty()) Add(']');
    Add('\n');
  }

  void ProgramText(const Program& program) {
    units_ = Names::Of(program.units);
    rings_ = Names::Of(program.rings);
    buffers_ = Names::Of(program.buffers);
    views_ = Names::Of(program.views);
    blocks_ = Names::Of(program.blocks);
    Add("program ", program.stage, " {\n");
    for (const Unit& unit : program.units) UnitLine(unit);
    for (const Ring& ring : program.rings) {
      Add("  ring ", Quoted(ring.name), " slots=", ring.slots, "\n");
    }
    for (const Buffer& buffer : program.buffers) BufferLine(buffer);
    for (const View& view : program.views) ViewLine(program, view);
    for (const Block& block : program.blocks) {
      Add("  block ", Quoted(block.name), " {\n");
      for (const Op& op : block.ops) OpLine(op);
      Add("  }\n");
    }
    Add("  schedule {\n");
    strides_.clear();
    Items(program.schedule);
    Add("  }\n}\n");
  }

  void UnitLine(const Unit& unit) {
    Add("  unit ", Quoted(unit.name), " n=", unit.elements,
        " replicated_from=", unit.replicated_from);
    for (const UnitSegment& segment : unit.segments) {
      Add(' ', params_[segment.param], '[', segment.offset, ',', segment.elements, ']');
    }
    Add('\n');
  }

  void BufferLine(const Buffer& buffer) {
    Add("  buf ", Quoted(buffer.name), ' ', kClassWords[static_cast<int>(buffer.cls)], ' ',
        kDtypeWords[static_cast<int>(buffer.dtype)], '[', buffer.elements, ']');
    if (buffer.life != Life::kDerived) Add(" life=", kLifeWords[static_cast<int>(buffer.life)]);
    if (buffer.extra_slots != 0) Add(" extra=", int{buffer.extra_slots});
    if (buffer.ring != -1) Add(" ring=", rings_[buffer.ring]);
    if (buffer.ring_index != 0) Add(" ring_index=", int{buffer.ring_index});
    if (buffer.unit != -1) Add(" unit=", units_[buffer.unit]);
    if (buffer.unit_shard_axis != -1) Add(" shard=", axes_[buffer.unit_shard_axis]);
    if (buffer.space != Space::kDevice) Add(" space=", kSpaceWords[static_cast<int>(buffer.space)]);
    Add('\n');
  }

  void ViewLine(const Program& program, const View& view) {
    Add("  view ", Quoted(view.name));
    const bool known = view.buffer >= 0 && view.buffer < int64_t(program.buffers.size());
    const bool whole = known && buffers_.Unique(view.buffer) && view.offset == 0 &&
                       program.buffers[view.buffer].name == view.name &&
                       program.buffers[view.buffer].elements == view.elements;
    if (!whole) Add(" = ", buffers_[view.buffer], '[', view.offset, ',', view.elements, ']');
    Add('\n');
  }

  void Refs(const std::vector<ViewId>& views, std::string_view separator) {
    for (std::size_t i = 0; i < views.size(); ++i) Add(i > 0 ? separator : "", views_[views[i]]);
  }

  void OpLine(const Op& op) {
    Add("    ", streams_[op.stream], ' ');
    Refs(op.out, ",");
    if (!op.out.empty()) Add(" = ");
    Add(Info(op.kind).name, '(');
    Refs(op.in, ", ");
    Add(')');
    if (op.group != -1) Add(" @", groups_[op.group]);
    if (op.peer != Peer{}) {
      Add(op.kind == OpKind::kRecv ? " from " : " to ", axes_[op.peer.axis],
          op.peer.delta > 0 ? " +" : " ", int{op.peer.delta});
    }
    for (const auto& [attr, value] : op.attrs.entries()) Attribute(attr, value);
    if (op.tag != 0) Add(" tag=", op.tag);
    if (op.yields != 0) Add(" yields=", Mask(op.yields));
    if (op.when != 0) Add(" when=", Flags(op.when));
    Add(" ; ", kPhaseWords[static_cast<int>(op.phase)]);
    if (op.segment != Segment::kStep || op.layer != -1) {
      Add(' ', kSegmentWords[static_cast<int>(op.segment)]);
    }
    if (op.layer != -1) Add(' ', int{op.layer});
    Add('\n');
  }

  void Attribute(Attr attr, double value) {
    Add(' ', AttrName(attr), '=');
    const bool index = value >= 0 && value == std::trunc(value);
    if (NamesAxis(attr) && index && value < double(plan_.mesh.axes.size())) {
      Add(axes_[static_cast<int>(value)]);
    } else if (attr == Attr::kWhat && index && value < double(kLoadWords.size())) {
      Add(kLoadWords[static_cast<int>(value)]);
    } else {
      Add(value);
    }
  }

  static std::string Flags(uint8_t flags) {
    return flags == kWhenLast ? std::string(kLastWord) : std::to_string(flags);
  }

  void Indent() { out_.append(4 + 2 * strides_.size(), ' '); }

  void Items(const std::vector<Item>& items) {
    for (const Item& item : items) {
      Indent();
      if (item.block >= 0) {
        CallText(item);
      } else {
        LoopText(item);
      }
      Add('\n');
    }
  }

  void LoopText(const Item& loop) {
    Add("for ", LoopVariable(strides_.size()), " in 0..", loop.count - 1, " {");
    strides_.push_back(loop.stride);
    bool calls_only = loop.body.size() <= 8;
    for (const Item& item : loop.body) calls_only = calls_only && item.block >= 0;
    if (calls_only) {
      for (const Item& item : loop.body) {
        Add(' ');
        CallText(item);
      }
      strides_.pop_back();
      Add(" }");
    } else {
      Add('\n');
      Items(loop.body);
      strides_.pop_back();
      Indent();
      Add('}');
    }
  }

  // Block[constant + stride * loop variable + ...].
  void CallText(const Item& call) {
    Add(blocks_[call.block], '[');
    const std::size_t start = out_.size();
    if (call.micro_batch != 0) Add(call.micro_batch);
    for (std::size_t depth = 0; depth < strides_.size(); ++depth) {
      const int64_t stride = strides_[depth];
      if (stride == 0) continue;
      if (stride < 0) {
        Add('-');
      } else if (out_.size() > start) {
        Add('+');
      }
      if (std::abs(stride) != 1) Add(std::abs(stride));
      Add(LoopVariable(depth));
    }
    if (out_.size() == start) Add('0');
    Add(']');
    if (call.flags != 0) Add(':', Flags(call.flags));
  }

  const Plan& plan_;
  Names axes_, groups_, streams_, params_;
  Names units_, rings_, buffers_, views_, blocks_;  // of the current program
  std::vector<int64_t> strides_;                    // of the loops around the current item
  std::string out_;
};

}  // namespace

std::string ToText(const Plan& plan) { return Writer(plan).Write(true); }
std::string TextWithoutTitle(const Plan& plan) { return Writer(plan).Write(false); }

}  // namespace orrery::ir
