// SPDX-License-Identifier: Apache-2.0
// Byte hazards of one program: the arena is cut into cells at every operand's ends; each cell
// remembers its last writer and its readers since; vector clocks per stream drop the waits that
// others imply.
#include "model/plan/ir/hazards.h"

#include <algorithm>

#include "model/plan/ir/cells.h"
#include "model/plan/ir/usage.h"

namespace orrery::ir {
namespace {

// Numbers of instances by stream, in groups that the compiler computes at once.
constexpr size_t kGroup = 8;

void RaiseTo(int32_t* row, const int32_t* least, size_t width) {
  for (size_t at = 0; at < width; at += kGroup) {
    for (size_t s = at; s < at + kGroup; ++s) row[s] = std::max(row[s], least[s]);
  }
}

class Unfolder {
 public:
  Unfolder(const Plan& plan, const Program& program, const Layout& layout)
      : program_(program),
        layout_(layout),
        cells_(program, layout),
        width_((StreamCount(plan, program) + kGroup - 1) / kGroup * kGroup),
        writer_(cells_.count(), -1),
        reader_(cells_.count() * width_, -1),
        latest_(width_, -1),
        needed_(width_, -1) {}

  std::vector<Instance> Run() {
    size_t total = 0;
    for (const Call& call : layout_.calls) total += program_.blocks[call.block].ops.size();
    instances_.reserve(total);
    stream_.reserve(total);
    known_.reserve(total * width_);
    for (size_t c = 0; c < layout_.calls.size(); ++c) {
      const Call& call = layout_.calls[c];
      const auto& ops = program_.blocks[call.block].ops;
      for (size_t i = 0; i < ops.size(); ++i) {
        if ((ops[i].when & call.flags) != ops[i].when) continue;
        instances_.push_back(
            {static_cast<int32_t>(c), call.block, static_cast<int32_t>(i), call.micro_batch, {}});
        stream_.push_back(ops[i].stream);
        Issue(ops[i], call.micro_batch);
      }
    }
    return std::move(instances_);
  }

 private:
  static size_t StreamCount(const Plan& plan, const Program& program) {
    size_t count = plan.streams.size();
    for (const Block& block : program.blocks) {
      for (const Op& op : block.ops) count = std::max<size_t>(count, op.stream + size_t{1});
    }
    return count;
  }

  void Issue(const Op& op, int32_t micro_batch) {
    const auto id = static_cast<int32_t>(instances_.size() - 1);
    for (ViewId view : op.in) {
      cells_.Each(view, micro_batch, [&](size_t cell) { Need(writer_[cell]); });
    }
    for (ViewId view : op.out) {
      cells_.Each(view, micro_batch, [&](size_t cell) {
        Need(writer_[cell]);
        RaiseTo(needed_.data(), &reader_[cell * width_], width_);
      });
    }
    for (ViewId view : op.in) {
      cells_.Each(view, micro_batch, [&](size_t cell) { reader_[cell * width_ + op.stream] = id; });
    }
    for (ViewId view : op.out) {
      cells_.Each(view, micro_batch, [&](size_t cell) {
        writer_[cell] = id;
        std::fill_n(&reader_[cell * width_], width_, -1);
      });
    }
    needed_[op.stream] = -1;  // the order of the stream says as much
    Settle(op.stream, id);
  }

  void Need(int32_t instance) {
    if (instance < 0) return;
    int32_t& needed = needed_[stream_[instance]];
    needed = std::max(needed, instance);
  }

  // Keeps a wait only if nothing kept so far, nor the predecessor on the stream, implies it. Latest
  // first: a later instance is never implied by an earlier one.
  void Settle(uint8_t stream, int32_t id) {
    const size_t row = known_.size();
    known_.resize(row + width_, -1);
    if (latest_[stream] >= 0)
      std::copy_n(known_.begin() + latest_[stream] * width_, width_, known_.begin() + row);
    for (;;) {
      const auto most = std::max_element(needed_.begin(), needed_.end());
      const int32_t wait = *most;
      if (wait < 0) break;
      *most = -1;
      if (known_[row + (most - needed_.begin())] >= wait) continue;
      instances_[id].waits.push_back(wait);
      RaiseTo(&known_[row], &known_[wait * width_], width_);
    }
    known_[row + stream] = id;
    latest_[stream] = id;
  }

  const Program& program_;
  const Layout& layout_;
  const Cells cells_;
  const size_t width_;  // streams, in whole groups
  std::vector<Instance> instances_;
  std::vector<uint8_t> stream_;  // by instance
  std::vector<int32_t> writer_;  // by cell
  std::vector<int32_t> reader_;  // by cell and stream: last reader since the last write
  std::vector<int32_t> known_;  // by instance and stream: latest instance complete when this one is
  std::vector<int32_t> latest_;  // by stream
  std::vector<int32_t> needed_;  // by stream, for the instance being issued
};

}  // namespace

std::vector<Instance> Unfold(const Plan& plan, const Program& program, const Layout& layout) {
  return Unfolder(plan, program, layout).Run();
}

namespace {

double OpsOfItems(const Program& program, const std::vector<Item>& items) {
  double ops = 0;
  for (const Item& item : items) {
    ops +=
        item.block >= 0
            ? static_cast<double>(program.blocks[static_cast<std::size_t>(item.block)].ops.size())
            : item.count * OpsOfItems(program, item.body);
  }
  return ops;
}

}  // namespace

double ScheduledOps(const Program& program) { return OpsOfItems(program, program.schedule); }

}  // namespace orrery::ir
