// SPDX-License-Identifier: Apache-2.0
// From buffers of an arena to elements of parameters.
#include "runtime/train/snapshot/state.h"

#include <algorithm>
#include <map>

#include "model/plan/ir/unit_codes.h"
#include "runtime/exec/index.h"

namespace orrery::snapshot {
namespace {

using exec::At;
using ir::BufferClass;

// Number and count of the ranks that hold the same elements: those that differ on other axes than
// the ones that select them.
void CountReplicas(const exec::RankImage& image, const ir::Buffer& buffer, Held* held) {
  const ir::Mesh& mesh = image.plan->mesh;
  const ir::Param& param = image.plan->params[At(held->param)];
  const uint16_t shards =
      buffer.unit_shard_axis < 0
          ? uint16_t{0}
          : mesh.Plain(static_cast<uint16_t>(1u << static_cast<unsigned>(buffer.unit_shard_axis)));
  for (std::size_t a = 0; a < mesh.plain(); ++a) {
    const int axis = static_cast<int>(a);
    const bool selects = axis == mesh.program_axis || (shards >> a & 1) != 0 ||
                         (param.shard_dim >= 0 && axis == param.shard_axis);
    if (selects) continue;
    held->replica = held->replica * mesh.axes[a].size + image.coords.at(a);
    held->replicas *= mesh.axes[a].size;
  }
}

class StateReader {
 public:
  explicit StateReader(const exec::RankImage& image) : image_(image) {
    const ir::Program& program = *image.program;
    has_master_.resize(program.units.size());
    for (const ir::Buffer& buffer : program.buffers) {
      if (buffer.cls == BufferClass::kMaster && buffer.unit >= 0)
        has_master_[At(buffer.unit)] = true;
    }
    for (std::size_t p = 0; p < image.plan->params.size(); ++p)
      first_.emplace(image.plan->params[p].name, static_cast<int32_t>(p));
  }

  std::vector<Held> Read() {
    for (std::size_t b = 0; b < image_.program->buffers.size(); ++b) {
      const ir::Buffer& buffer = image_.program->buffers[b];
      const bool state = buffer.cls == BufferClass::kParam || buffer.cls == BufferClass::kMaster ||
                         buffer.cls == BufferClass::kOptimizer;
      if (state && buffer.unit >= 0 && image_.layout.scope[b] == ir::Layout::Scope::kStep)
        ReadBuffer(static_cast<ir::BufferId>(b));
    }
    return std::move(all_);
  }

 private:
  void ReadBuffer(ir::BufferId id) {
    const ir::Buffer& buffer = image_.program->buffers[At(id)];
    const ir::Unit& unit = image_.program->units[At(buffer.unit)];
    const int64_t first = buffer.unit_shard_axis < 0
                              ? 0
                              : image_.coords.at(At(buffer.unit_shard_axis)) * buffer.elements;
    for (const ir::UnitSegment& segment : unit.segments) {
      const int64_t begin = std::max(segment.offset, first);
      const int64_t end = std::min(segment.offset + segment.elements, first + buffer.elements);
      if (begin >= end) continue;
      Held held = Describe(buffer, segment);
      held.unit = buffer.unit;
      held.segment = static_cast<std::size_t>(&segment - unit.segments.data());
      held.begin = begin - segment.offset;
      held.end = end - segment.offset;
      held.data = {image_.arena.get() + image_.layout.Address(id, 0) +
                       (begin - first) * ir::DtypeBytes(buffer.dtype),
                   end - begin, buffer.dtype};
      all_.push_back(std::move(held));
    }
  }

  Held Describe(const ir::Buffer& buffer, const ir::UnitSegment& segment) {
    const ir::Param& param = image_.plan->params.at(At(segment.param));
    Held held;
    held.param = segment.param;
    // A moment's buffer is named "m." and the unit's name.
    held.state = buffer.cls == BufferClass::kOptimizer
                     ? buffer.name.substr(0, buffer.name.find('.'))
                     : "weights";
    if (param.shard_dim >= 0 && param.shard_axis >= 0) {
      held.shard_dim = param.shard_dim;
      held.shards = image_.plan->mesh.axes.at(At(param.shard_axis)).size;
      held.shard = image_.coords.at(At(param.shard_axis));
    }
    const bool copy = buffer.cls == BufferClass::kParam && has_master_[At(buffer.unit)];
    held.saved = !copy && first_.at(param.name) == segment.param;
    if (buffer.cls == BufferClass::kParam) held.cast = ir::CastOfUnit(*image_.program, buffer.unit);
    CountReplicas(image_, buffer, &held);
    return held;
  }

  const exec::RankImage& image_;
  std::vector<bool> has_master_;          // by unit
  std::map<std::string, int32_t> first_;  // parameter of a name
  std::vector<Held> all_;
};

}  // namespace

Cut CutOf(const std::vector<int64_t>& shape, int dimension, int64_t shards, int64_t shard) {
  Cut cut{shards, shard, 1};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (static_cast<int>(d) == dimension) cut.row *= shape[d] / shards;
    if (static_cast<int>(d) > dimension) cut.row *= shape[d];
  }
  return cut;
}

std::vector<Run> RunsOf(const Cut& cut, int64_t begin, int64_t end) {
  std::vector<Run> runs;
  while (begin < end) {
    const int64_t within = begin % cut.row, n = std::min(cut.row - within, end - begin);
    const int64_t global = (begin / cut.row * cut.shards + cut.shard) * cut.row + within;
    runs.push_back({global, begin, n});
    begin += n;
  }
  return runs;
}

std::vector<Overlap> Overlaps(const std::vector<Run>& from, const std::vector<Run>& to) {
  std::vector<Overlap> all;
  std::size_t t = 0;
  for (const Run& f : from) {
    while (t > 0 && to[t - 1].global + to[t - 1].n > f.global) --t;
    while (t < to.size() && to[t].global + to[t].n <= f.global) ++t;
    for (; t < to.size() && to[t].global < f.global + f.n; ++t) {
      const int64_t begin = std::max(f.global, to[t].global);
      const int64_t end = std::min(f.global + f.n, to[t].global + to[t].n);
      all.push_back({f.local + begin - f.global, to[t].local + begin - to[t].global, end - begin});
    }
  }
  return all;
}

std::vector<Held> StateOf(const exec::RankImage& image) { return StateReader(image).Read(); }

cpu::Operand LossScaleOf(const exec::RankImage& image) {
  for (const exec::Task& task : image.tasks) {
    if (task.op->kind == ir::OpKind::kLossScale)
      return image.OnHost(image.operands[At(task.out_begin)]);
  }
  return {};
}

ModelShape ModelOf(const ir::Plan& plan) {
  std::map<std::string, std::vector<int64_t>> by_name;
  for (const ir::Param& param : plan.params) {
    std::vector<int64_t> shape = param.shape;
    if (param.real_rows > 0) shape.at(0) = param.real_rows;
    by_name.emplace(param.name, std::move(shape));
  }
  return {by_name.begin(), by_name.end()};
}

int64_t RealElements(const ir::Param& param) {
  int64_t elements = 1;
  for (std::size_t d = 0; d < param.shape.size(); ++d)
    elements *= d == 0 && param.real_rows > 0 ? param.real_rows : param.shape[d];
  return elements;
}

}  // namespace orrery::snapshot
