// SPDX-License-Identifier: Apache-2.0
// Resolves a program's instances for one rank.
#include "runtime/exec/rank_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <new>
#include <set>
#include <stdexcept>
#include <tuple>

#include "model/plan/ir/usage.h"
#include "runtime/exec/index.h"
#include "runtime/exec/share.h"

namespace orrery::exec {
namespace {

using ir::OpKind;

bool IsCollective(OpKind kind) { return ir::Info(kind).op_class == ir::OpClass::kCollective; }
bool IsTransfer(OpKind kind) { return kind == OpKind::kSend || kind == OpKind::kRecv; }

template <class Visit>
void ForEachOp(const ir::Plan& plan, Visit visit) {
  for (const ir::Program& program : plan.programs) {
    for (const ir::Block& block : program.blocks) {
      for (const ir::Op& op : block.ops) visit(op);
    }
  }
}

// Numbers that all ranks agree on, since all of them hold the whole plan.
class Numbering {
 public:
  explicit Numbering(const ir::Plan& plan) {
    std::set<std::pair<int16_t, uint8_t>> lines;
    std::set<std::tuple<int, int, int32_t>> channels;
    ForEachOp(plan, [&](const ir::Op& op) {
      if (IsCollective(op.kind)) lines.emplace(op.group, op.stream);
      if (IsTransfer(op.kind)) channels.insert(Channel(op));
    });
    for (const auto& line : lines) line_.emplace(line, static_cast<int32_t>(line_.size()));
    for (const auto& channel : channels)
      channel_.emplace(channel, static_cast<int32_t>(channel_.size()));
  }

  int32_t KeyOf(const ir::Op& op) const { return line_.at({op.group, op.stream}); }
  int32_t ChannelOf(const ir::Op& op) const { return channel_.at(Channel(op)); }

 private:
  // Axis, direction of travel, call site.
  static std::tuple<int, int, int32_t> Channel(const ir::Op& op) {
    return {op.peer.axis, op.kind == OpKind::kSend ? op.peer.delta : -op.peer.delta, op.tag};
  }

  std::map<std::pair<int16_t, uint8_t>, int32_t> line_;
  std::map<std::tuple<int, int, int32_t>, int32_t> channel_;
};

class ImageMaker {
 public:
  ImageMaker(const ir::Plan& plan, int64_t rank, device::Accelerator* accelerator, int fill,
             bool (*stops)())
      : plan_(plan), numbering_(plan), accelerator_(accelerator), fill_(fill), stops_(stops) {
    image_.plan = &plan;
    image_.rank = rank;
    image_.coords = plan.mesh.Coords(rank);
    const auto at = image_.coords.empty() ? 0 : At(image_.coords.at(At(plan.mesh.program_axis)));
    image_.program = &plan.programs.at(at);
    image_.layout = ir::ComputeLayout(plan, *image_.program);
    image_.queues.resize(plan.streams.size());
  }

  RankImage Make() {
    const std::vector<ir::Instance> instances = ir::Unfold(plan_, *image_.program, image_.layout);
    Allocate(instances);
    for (const ir::Instance& instance : instances) Add(instance);
    FindLines();
    NumberEvents();
    return std::move(image_);
  }

 private:
  void Allocate(const std::vector<ir::Instance>& instances) {
    const auto alignment = At(std::max<int64_t>(plan_.alignment, 4096));
    const int64_t held = accelerator_ == nullptr ? image_.layout.end() : image_.layout.step_bytes;
    const auto bytes = At(std::max<int64_t>(held, 1));
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment, bytes) != 0) throw std::bad_alloc();
    image_.arena.reset(static_cast<std::byte*>(memory));
    Fill(image_.arena.get(), fill_, static_cast<int64_t>(bytes), stops_);
    image_.base = image_.arena.get();
    image_.host = image_.base + image_.layout.arena_bytes;
    if (accelerator_ == nullptr) return;
    image_.base = accelerator_->Start(NeedsOf(instances));
    image_.host = image_.layout.host_bytes > 0
                      ? accelerator_->HostMemory(image_.layout.host_bytes, fill_)
                      : nullptr;
  }

  device::Needs NeedsOf(const std::vector<ir::Instance>& instances) const {
    device::Needs needs;
    needs.arena_bytes = image_.layout.arena_bytes;
    needs.alignment = std::max<int64_t>(plan_.alignment, 256);
    needs.fill = fill_;
    needs.computes.resize(plan_.streams.size());
    for (const ir::Instance& instance : instances) {
      const ir::Op& op = image_.program->blocks.at(At(instance.block)).ops.at(At(instance.op));
      const bool kernel = !IsTransfer(op.kind) && !IsCollective(op.kind) &&
                          op.kind != OpKind::kCopy && !ir::OnHost(*image_.program, op);
      if (kernel) needs.computes.at(op.stream) = 1;
      needs.events += static_cast<int>(instance.waits.size());
    }
    needs.events = std::min(needs.events, static_cast<int>(instances.size()));
    needs.marks = 2 * static_cast<int>(instances.size()) + 1;
    return needs;
  }

  void NumberEvents() {
    std::vector<uint8_t> awaited(image_.tasks.size());
    for (const int32_t task : image_.waits) awaited[At(task)] = 1;
    int32_t events = 0;
    for (std::size_t t = 0; t < awaited.size(); ++t)
      if (awaited[t] != 0) image_.tasks[t].event = events++;
  }

  void Add(const ir::Instance& instance) {
    Task task;
    task.op = &image_.program->blocks.at(At(instance.block)).ops.at(At(instance.op));
    task.block = instance.block;
    task.index = instance.op;
    task.micro_batch = instance.micro_batch;
    AddOperands(&task);
    task.wait_begin = static_cast<int32_t>(image_.waits.size());
    image_.waits.insert(image_.waits.end(), instance.waits.begin(), instance.waits.end());
    task.wait_end = static_cast<int32_t>(image_.waits.size());
    if (IsTransfer(task.op->kind)) {
      SetPeer(&task);
    } else if (!IsCollective(task.op->kind)) {
      SetCompute(&task);
    }
    image_.queues.at(task.op->stream).push_back(static_cast<int32_t>(image_.tasks.size()));
    image_.tasks.push_back(task);
  }

  void AddOperands(Task* task) {
    task->out_begin = static_cast<int32_t>(image_.operands.size());
    for (const ir::ViewId id : task->op->out)
      image_.operands.push_back(image_.Resolve(id, task->micro_batch));
    task->in_begin = static_cast<int32_t>(image_.operands.size());
    for (const ir::ViewId id : task->op->in)
      image_.operands.push_back(image_.Resolve(id, task->micro_batch));
    task->in_end = static_cast<int32_t>(image_.operands.size());
    for (const auto* list : {&task->op->out, &task->op->in}) {
      for (const ir::ViewId id : *list) {
        const int32_t unit = image_.program->buffers[At(image_.program->views[At(id)].buffer)].unit;
        if (unit >= 0 && task->unit == nullptr) task->unit = &image_.program->units.at(At(unit));
      }
    }
  }

  void SetCompute(Task* task) {
    const ir::Op& op = *task->op;
    task->on_host = ir::OnHost(*image_.program, op);
    task->across = op.kind == OpKind::kCopy && IsOnHost(op.out[0]) != IsOnHost(op.in[0]);
    if (op.kind != OpKind::kLoad) {
      task->kernel = cpu::KernelFor(op.kind);
      if (task->kernel == nullptr)
        throw std::runtime_error(fmt::format("no kernel for op {}", ir::Info(op.kind).name));
    }
    if (op.kind != OpKind::kLoad && !ir::Draws(op.attrs)) return;
    int64_t parts = 1, part = 0;
    if (op.group >= 0) {
      const auto members = Members(op.group);
      parts = static_cast<int64_t>(members.size());
      part = std::find(members.begin(), members.end(), image_.rank) - members.begin();
    }
    task->first_sample = (task->micro_batch * parts + part) * op.attrs.Int(ir::Attr::kBatch);
  }

  bool IsOnHost(ir::ViewId view) const {
    return ir::OnHost(image_.program->buffers[At(image_.program->views[At(view)].buffer)]);
  }

  void SetPeer(Task* task) {
    const ir::Peer& peer = task->op->peer;
    if (peer.axis < 0) throw std::runtime_error("point-to-point op without a peer");
    std::vector<int> coords = image_.coords;
    const int size = plan_.mesh.axes.at(At(peer.axis)).size;
    int& coord = coords[At(peer.axis)];
    coord = ((coord + peer.delta) % size + size) % size;
    task->peer = plan_.mesh.Rank(coords);
    task->channel = numbering_.ChannelOf(*task->op);
  }

  std::vector<int64_t> Members(int16_t group) const {
    std::vector<int64_t> members =
        ir::GroupMembers(plan_.mesh, plan_.groups.at(At(group)), image_.rank);
    if (std::find(members.begin(), members.end(), image_.rank) == members.end()) {
      throw std::runtime_error(fmt::format("rank {} is no member of its op's group {}", image_.rank,
                                           plan_.groups[At(group)].name));
    }
    return members;
  }

  // Only now is the rising order of keys known.
  void FindLines() {
    std::map<int32_t, int32_t> position;
    for (const Task& task : image_.tasks) {
      if (IsCollective(task.op->kind)) position.emplace(numbering_.KeyOf(*task.op), 0);
    }
    for (auto& [key, at] : position) {
      at = static_cast<int32_t>(image_.lines.size());
      image_.lines.push_back({key, -1, 0, {}});
    }
    for (Task& task : image_.tasks) {
      if (!IsCollective(task.op->kind)) continue;
      task.line = position.at(numbering_.KeyOf(*task.op));
      Line& line = image_.lines[At(task.line)];
      if (line.group >= 0) continue;
      line.group = task.op->group;
      line.stream = task.op->stream;
      line.members = Members(line.group);
    }
  }

  const ir::Plan& plan_;
  const Numbering numbering_;
  device::Accelerator* accelerator_;
  int fill_;
  bool (*stops_)();
  RankImage image_;
};

}  // namespace

void FreeMemory::operator()(std::byte* memory) const { std::free(memory); }

cpu::Operand RankImage::Resolve(ir::ViewId id, int32_t micro_batch) const {
  const ir::View& view = program->views.at(At(id));
  const ir::Buffer& buffer = program->buffers.at(At(view.buffer));
  const int64_t width = ir::DtypeBytes(buffer.dtype);
  const int64_t begin = layout.Address(view.buffer, micro_batch) + view.offset * width;
  if (view.offset < 0 || view.offset + view.elements > buffer.elements || begin < 0 ||
      begin + view.elements * width > layout.end())
    throw std::runtime_error(fmt::format("view {} reaches beyond its buffer", view.name));
  std::byte* data = ir::OnHost(buffer) ? host + (begin - layout.arena_bytes) : base + begin;
  return {data, view.elements, buffer.dtype};
}

std::byte* RankImage::Place(int64_t address) const {
  return address < layout.arena_bytes ? arena.get() + address
                                      : host + (address - layout.arena_bytes);
}

cpu::Operand RankImage::OnHost(cpu::Operand operand) const {
  auto* data = static_cast<std::byte*>(operand.data);
  if (data != nullptr && !(host != nullptr && data >= host && data < host + layout.host_bytes))
    operand.data = arena.get() + (data - base);
  return operand;
}

cpu::Operand RankImage::StepView(const std::string& name) const {
  for (std::size_t v = 0; v < program->views.size(); ++v) {
    if (program->views[v].name == name &&
        layout.scope[At(program->views[v].buffer)] == ir::Layout::Scope::kStep)
      return Resolve(static_cast<ir::ViewId>(v), 0);
  }
  return {};
}

std::string RankImage::Describe(const Task& task) const {
  const auto& views = task.op->out.empty() ? task.op->in : task.op->out;
  return fmt::format("{}[{}] op {} {} {}", program->blocks[At(task.block)].name, task.micro_batch,
                     task.index, ir::Info(task.op->kind).name,
                     views.empty() ? "" : program->views[At(views[0])].name);
}

RankImage MakeRankImage(const ir::Plan& plan, int64_t rank, device::Accelerator* accelerator,
                        int fill, bool (*stops)()) {
  return ImageMaker(plan, rank, accelerator, fill, stops).Make();
}

}  // namespace orrery::exec
