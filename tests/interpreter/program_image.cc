// SPDX-License-Identifier: Apache-2.0
// Prepares a program for execution: addresses, queues, and the lifetime of every byte range.
#include "tests/interpreter/program_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace orrery::interpreter {
namespace {

using Scope = ir::Layout::Scope;

// For each buffer the points at which some view of it begins or ends, in elements: between two neighbours all
// bytes are named by the same ops.
std::vector<std::vector<int64_t>> Cuts(const ir::Program& program) {
  std::vector<std::vector<int64_t>> cuts(program.buffers.size());
  for (const ir::Block& block : program.blocks) {
    for (const ir::Op& op : block.ops) {
      for (const auto* list : {&op.in, &op.out}) {
        for (const ir::ViewId id : *list) {
          const ir::View& view = program.views.at(id);
          cuts[view.buffer].push_back(view.offset);
          cuts[view.buffer].push_back(view.offset + view.elements);
        }
      }
    }
  }
  for (auto& list : cuts) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return cuts;
}

// Collects the cells of the tasks; a lifetime of a buffer is a call, a micro-batch, or (step buffers) endless.
class CellBook {
 public:
  CellBook(const ir::Layout& layout, ProgramImage* image)
      : layout_(layout), image_(image), cuts_(Cuts(*image->program)) {}

  void Add(Task* task, int32_t call) {
    const size_t begin = image_->task_cells.size();
    for (const auto* list : {&task->op->in, &task->op->out})
      for (const ir::ViewId id : *list) AddView(id, call, task->micro_batch);
    auto first = image_->task_cells.begin() + static_cast<int64_t>(begin);
    std::sort(first, image_->task_cells.end());
    image_->task_cells.erase(std::unique(first, image_->task_cells.end()),
                             image_->task_cells.end());
    task->cell_begin = static_cast<int32_t>(begin);
    task->cell_end = static_cast<int32_t>(image_->task_cells.size());
    for (int32_t i = task->cell_begin; i < task->cell_end; ++i)
      ++image_->cells[image_->task_cells[i]].tasks;
  }

 private:
  void AddView(ir::ViewId id, int32_t call, int32_t micro_batch) {
    const ir::View& view = image_->program->views[id];
    const Scope scope = layout_.scope[view.buffer];
    if (scope == Scope::kStep || scope == Scope::kUnused) return;
    const int32_t life = scope == Scope::kMicroBatch ? micro_batch : call;
    const int64_t key = int64_t{view.buffer} << 32 | life;
    const std::vector<int64_t>& cuts = cuts_[view.buffer];
    const auto [found, fresh] =
        first_cell_.try_emplace(key, static_cast<int32_t>(image_->cells.size()));
    if (fresh) Open(view, cuts, micro_batch);
    for (size_t i = 0; i + 1 < cuts.size(); ++i)
      if (cuts[i] >= view.offset && cuts[i] < view.offset + view.elements)
        image_->task_cells.push_back(found->second + static_cast<int32_t>(i));
  }

  void Open(const ir::View& view, const std::vector<int64_t>& cuts, int32_t micro_batch) {
    const int64_t bytes = ir::DtypeBytes(image_->program->buffers[view.buffer].dtype);
    const int64_t base = layout_.Address(view.buffer, micro_batch);
    for (size_t i = 0; i + 1 < cuts.size(); ++i)
      image_->cells.push_back({(base + cuts[i] * bytes) / image_->grain,
                               (cuts[i + 1] - cuts[i]) * bytes / image_->grain, 0});
  }

  const ir::Layout& layout_;
  ProgramImage* image_;
  std::vector<std::vector<int64_t>> cuts_;
  std::unordered_map<int64_t, int32_t> first_cell_;
};

// The smallest element size of the whole plan, so that all ranks agree.
int64_t Grain(const ir::Plan& plan) {
  int64_t grain = 0;
  for (const ir::Program& program : plan.programs)
    for (const ir::Buffer& buffer : program.buffers)
      grain = std::gcd(grain, ir::DtypeBytes(buffer.dtype));
  return std::max<int64_t>(grain, 1);
}

const ir::Unit* UnitOf(const ir::Program& program, const ir::Op& op) {
  for (const auto* list : {&op.out, &op.in}) {
    for (const ir::ViewId id : *list) {
      const int32_t unit = program.buffers[program.views[id].buffer].unit;
      if (unit >= 0) return &program.units.at(unit);
    }
  }
  return nullptr;
}

Task MakeTask(const ir::Layout& layout, const ir::Instance& instance, ProgramImage* image) {
  Task task;
  task.op = &image->program->blocks.at(instance.block).ops.at(instance.op);
  task.kernel = KernelFor(task.op->kind);
  task.unit = UnitOf(*image->program, *task.op);
  task.block = instance.block;
  task.index = instance.op;
  task.micro_batch = instance.micro_batch;
  task.waits = instance.waits;
  task.out_begin = static_cast<int32_t>(image->slices.size());
  for (const ir::ViewId id : task.op->out)
    image->slices.push_back(image->Resolve(layout, id, task.micro_batch));
  task.in_begin = static_cast<int32_t>(image->slices.size());
  for (const ir::ViewId id : task.op->in)
    image->slices.push_back(image->Resolve(layout, id, task.micro_batch));
  task.in_end = static_cast<int32_t>(image->slices.size());
  return task;
}

}  // namespace

Slice ProgramImage::Resolve(const ir::Layout& layout, ir::ViewId id, int32_t micro_batch) const {
  const ir::View& view = program->views.at(id);
  const ir::Buffer& buffer = program->buffers.at(view.buffer);
  const int64_t bytes = ir::DtypeBytes(buffer.dtype);
  const int64_t begin = layout.Address(view.buffer, micro_batch) + view.offset * bytes;
  if (view.offset < 0 || view.offset + view.elements > buffer.elements)
    throw PlanFault(fmt::format("view {} reaches beyond its buffer", view.name));
  if (begin < 0 || begin + view.elements * bytes > layout.end() || begin % grain != 0)
    throw PlanFault(fmt::format("view {} lies outside the arena or across its grain", view.name));
  return {begin / grain, view.elements, static_cast<int32_t>(bytes / grain)};
}

std::string ProgramImage::Describe(const Task& task) const {
  const auto& views = task.op->out.empty() ? task.op->in : task.op->out;
  return fmt::format("{}[{}] op {} {} {}", program->blocks[task.block].name, task.micro_batch,
                     task.index, ir::Info(task.op->kind).name,
                     views.empty() ? "" : program->views[views[0]].name);
}

ProgramImage MakeImage(const ir::Plan& plan, const ir::Program& program, const ir::Layout& layout) {
  ProgramImage image;
  image.program = &program;
  image.grain = Grain(plan);
  image.grains = (layout.end() + image.grain - 1) / image.grain;
  image.queues.resize(plan.streams.size());
  CellBook book(layout, &image);
  for (const ir::Instance& instance : ir::Unfold(plan, program, layout)) {
    Task task = MakeTask(layout, instance, &image);
    book.Add(&task, instance.call);
    image.queues.at(task.op->stream).push_back(static_cast<int32_t>(image.tasks.size()));
    image.tasks.push_back(std::move(task));
  }
  return image;
}

}  // namespace orrery::interpreter
