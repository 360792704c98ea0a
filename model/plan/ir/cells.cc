// SPDX-License-Identifier: Apache-2.0
// Cells of an arena: cuts per region, then the cells of every view by binary search.
#include "model/plan/ir/cells.h"

#include <algorithm>

#include "model/plan/ir/usage.h"

namespace orrery::ir {
namespace {

std::vector<char> NamedViews(const Program& program) {
  std::vector<char> named(program.views.size(), 0);
  for (const Block& block : program.blocks) {
    for (const Op& op : block.ops) {
      for (ViewId view : op.in) named[view] = 1;
      for (ViewId view : op.out) named[view] = 1;
    }
  }
  return named;
}

struct Bytes {
  int64_t start, end;
};

// The slots of a frame or pool, or everything outside them (one slot of unlimited size from address
// 0).
struct Region {
  int64_t base = 0, slot_bytes = 0;
  size_t slots = 1;
  std::vector<int64_t> cuts;  // within a slot
  size_t first_cell = 0;

  int64_t end() const { return base + slot_bytes * static_cast<int64_t>(slots); }
  size_t per_slot() const { return cuts.empty() ? 0 : cuts.size() - 1; }
  size_t cells() const { return per_slot() * slots; }

  void Finish(size_t* count) {
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    first_cell = *count;
    *count += cells();
  }
  // From the cell that holds the start to the one that holds the last byte, cells outside the cuts
  // left out.
  size_t CellFrom(int64_t start) const {
    const auto it = std::upper_bound(cuts.begin(), cuts.end(), start);
    return std::min<size_t>(it == cuts.begin() ? 0 : it - cuts.begin() - 1, per_slot());
  }
  size_t CellUpTo(int64_t stop) const {
    return std::min<size_t>(std::lower_bound(cuts.begin(), cuts.end(), stop) - cuts.begin(),
                            per_slot());
  }
};

}  // namespace

Cells::Cells(const Program& program, const Layout& layout)
    : Cells(program, layout, NamedViews(program)) {}

Cells::Cells(const Program& program, const Layout& layout, const std::vector<char>& cutting)
    : layout_(layout) {
  std::vector<Region> regions(1);  // 0: outside the frames
  std::vector<size_t> region_of_frame;
  for (const Frame& frame : layout.frames) {
    size_t r = 1;
    while (r < regions.size() && (frame.pool < 0 || regions[r].base != frame.base)) ++r;
    if (r == regions.size())
      regions.push_back({frame.base, frame.bytes, static_cast<size_t>(frame.slots), {}, 0});
    region_of_frame.push_back(r);
  }
  auto bytes_of = [&](size_t v) -> Bytes {
    const View& view = program.views[v];
    const int64_t size = DtypeBytes(program.buffers[view.buffer].dtype);
    const int64_t start = layout.offset[view.buffer] + view.offset * size;
    return {start, start + view.elements * size};
  };
  auto frame_of = [&](size_t v) { return layout.frame_of[program.views[v].buffer]; };
  // Calls visit(region, part of the view in it) for the frames below scratch.
  auto each_below = [&](const Bytes& bytes, auto visit) {
    for (size_t r = 1; r < regions.size(); ++r) {
      const Bytes part{std::max(bytes.start, regions[r].base),
                       std::min(bytes.end, regions[r].end())};
      if (part.start < part.end)
        visit(regions[r], Bytes{part.start - regions[r].base, part.end - regions[r].base});
    }
  };
  for (size_t v = 0; v < program.views.size(); ++v) {
    const Bytes bytes = bytes_of(v);
    if (!cutting[v] || bytes.start == bytes.end) continue;
    Region& region = regions[frame_of(v) < 0 ? 0 : region_of_frame[frame_of(v)]];
    region.cuts.push_back(bytes.start);
    region.cuts.push_back(bytes.end);
    if (frame_of(v) >= 0) continue;
    each_below(bytes, [](Region& below, const Bytes& part) {
      below.cuts.push_back(part.start % below.slot_bytes);
      below.cuts.push_back((part.end - 1) % below.slot_bytes + 1);
      below.cuts.push_back(0);  // the part may span slots
      below.cuts.push_back(below.slot_bytes);
    });
  }
  for (Region& region : regions) region.Finish(&count_);
  first_run_.reserve(program.views.size() + 1);
  for (size_t v = 0; v < program.views.size(); ++v) {
    first_run_.push_back(runs_.size());
    const Bytes bytes = bytes_of(v);
    const int32_t frame = frame_of(v);
    const Region& region = regions[frame < 0 ? 0 : region_of_frame[frame]];
    const size_t begin = region.CellFrom(bytes.start), end = region.CellUpTo(bytes.end);
    if (begin < end)
      runs_.push_back(
          {region.first_cell + begin, region.first_cell + end, frame, region.per_slot()});
    if (frame >= 0) continue;
    each_below(bytes, [&](const Region& below, const Bytes& part) {
      const int64_t last = part.end - 1;
      const size_t from = static_cast<size_t>(part.start / below.slot_bytes) * below.per_slot() +
                          below.CellFrom(part.start % below.slot_bytes);
      const size_t to = static_cast<size_t>(last / below.slot_bytes) * below.per_slot() +
                        below.CellUpTo(last % below.slot_bytes + 1);
      if (from < to) runs_.push_back({below.first_cell + from, below.first_cell + to, -1, 0});
    });
  }
  first_run_.push_back(runs_.size());
}

}  // namespace orrery::ir
