// SPDX-License-Identifier: Apache-2.0
// Byte hazards of one program: the arena is cut into cells at every operand's ends; each cell
// remembers its last writer and its readers since; vector clocks per stream drop the waits that
// others imply.
#include "model/plan/ir/hazards.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "model/plan/ir/cells.h"
#include "model/plan/ir/usage.h"

namespace orrery::ir {
namespace {

// Instances, one of each of some streams: as many as a register of the processor holds.
struct Lanes {
  static constexpr size_t kCount = 4;
  int32_t latest[kCount] = {-1, -1, -1, -1};

  void RaiseTo(const Lanes& least) {
    using Register [[gnu::vector_size(sizeof(latest))]] = int32_t;
    Register own, other;
    std::memcpy(&own, latest, sizeof(own));
    std::memcpy(&other, least.latest, sizeof(other));
    own = own > other ? own : other;
    std::memcpy(latest, &own, sizeof(own));
  }
};

int32_t& Of(Lanes* row, size_t stream) {
  return row[stream / Lanes::kCount].latest[stream % Lanes::kCount];
}

class Unfolder {
 public:
  Unfolder(const Plan& plan, const Program& program, const Layout& layout)
      : program_(program),
        layout_(layout),
        cells_(program, layout),
        width_((StreamCount(plan, program) + Lanes::kCount - 1) / Lanes::kCount),
        writer_(cells_.count(), -1),
        reader_(cells_.count() * width_),
        latest_(width_ * Lanes::kCount, -1),
        needed_(width_) {}

  std::vector<Instance> Run() {
    size_t total = 0;
    for (const Call& call : layout_.calls) total += program_.blocks[call.block].ops.size();
    instances_.reserve(total);
    stream_.reserve(total);
    known_ = std::make_unique_for_overwrite<Lanes[]>(total * width_);
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

  // What the op itself has just read or written stands on its own stream, whose order says as much.
  void Issue(const Op& op, int32_t micro_batch) {
    const auto id = static_cast<int32_t>(instances_.size() - 1);
    int32_t last = -1;  // neighbouring cells mostly have one writer
    const auto need = [&](int32_t writer) {
      if (writer != last) Need(last = writer);
    };
    for (ViewId view : op.in) {
      cells_.Each(view, micro_batch, [&](size_t cell) {
        need(writer_[cell]);
        Of(&reader_[cell * width_], op.stream) = id;
      });
    }
    for (ViewId view : op.out) {
      cells_.Each(view, micro_batch, [&](size_t cell) { need(std::exchange(writer_[cell], id)); });
      // A loop of its own: whole rows read just after single numbers were written stall the processor.
      cells_.Each(view, micro_batch, [&](size_t cell) {
        for (size_t g = 0; g < width_; ++g)
          needed_[g].RaiseTo(std::exchange(reader_[cell * width_ + g], {}));
      });
    }
    Of(needed_.data(), op.stream) = -1;
    Settle(op.stream, id);
  }

  void Need(int32_t instance) {
    if (instance < 0) return;
    int32_t& needed = Of(needed_.data(), stream_[instance]);
    needed = std::max(needed, instance);
  }

  // Keeps a wait only if nothing kept so far, nor the predecessor on the stream, implies it. Latest
  // first: a later instance is never implied by an earlier one.
  void Settle(uint8_t stream, int32_t id) {
    Lanes* row = &known_[id * width_];
    if (latest_[stream] >= 0) {
      std::copy_n(&known_[latest_[stream] * width_], width_, row);
    } else {
      std::fill_n(row, width_, Lanes{});
    }
    for (;;) {
      const size_t most = LatestNeeded();
      const int32_t wait = std::exchange(Of(needed_.data(), most), -1);
      if (wait < 0) break;
      if (Of(row, most) >= wait) continue;
      instances_[id].waits.push_back(wait);
      for (size_t g = 0; g < width_; ++g) row[g].RaiseTo(known_[wait * width_ + g]);
    }
    Of(row, stream) = id;
    latest_[stream] = id;
  }

  // The stream whose instance it is.
  size_t LatestNeeded() {
    size_t most = 0;
    for (size_t s = 1; s < width_ * Lanes::kCount; ++s) {
      if (Of(needed_.data(), s) > Of(needed_.data(), most)) most = s;
    }
    return most;
  }

  const Program& program_;
  const Layout& layout_;
  const Cells cells_;
  const size_t width_;  // streams, in whole lanes
  std::vector<Instance> instances_;
  std::vector<uint8_t> stream_;     // by instance
  std::vector<int32_t> writer_;     // by cell
  std::vector<Lanes> reader_;       // by cell: of each stream the last reader since the last write
  std::unique_ptr<Lanes[]> known_;  // by instance: of each stream the latest complete with this one
  std::vector<int32_t> latest_;     // by stream
  std::vector<Lanes> needed_;       // by stream, for the instance being issued
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
