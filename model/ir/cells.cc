// SPDX-License-Identifier: Apache-2.0
// Cells of an arena. Frames repeat per slot, so one slot is cut and its cells are numbered slot
// after slot.
#include "model/ir/cells.h"

#include <algorithm>
#include <map>

#include "model/ir/usage.h"

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

}  // namespace

Cells::Cells(const Program& program, const Layout& layout, const std::vector<char>& wanted)
    : layout_(layout), ranges_(program.views.size()) {
  const std::vector<char>& named = wanted.empty() ? NamedViews(program) : wanted;
  struct Region {  // the static part of the arena, a frame, or the frames of a pool
    std::vector<int64_t> cuts;
    size_t slots = 1, first = 0;
  };
  std::map<int64_t, Region> regions;  // by base address; -1: the static part
  auto region_of = [&](BufferId buffer) {
    const int32_t f = layout.frame_of[buffer];
    return f < 0 ? int64_t{-1} : layout.frames[f].base;
  };
  auto span_of = [&](size_t v) {
    const View& view = program.views[v];
    const int64_t size = DtypeBytes(program.buffers[view.buffer].dtype);
    const int64_t start = layout.offset[view.buffer] + view.offset * size;
    return std::pair(start, start + view.elements * size);
  };
  for (size_t v = 0; v < program.views.size(); ++v) {
    if (!named[v]) continue;
    Region& region = regions[region_of(program.views[v].buffer)];
    const auto [start, end] = span_of(v);
    region.cuts.push_back(start);
    region.cuts.push_back(end);
    if (const int32_t f = layout.frame_of[program.views[v].buffer]; f >= 0) {
      region.slots = std::max<size_t>(region.slots, layout.frames[f].slots);
    }
  }
  for (auto& [base, region] : regions) {
    std::sort(region.cuts.begin(), region.cuts.end());
    region.cuts.erase(std::unique(region.cuts.begin(), region.cuts.end()), region.cuts.end());
    region.first = count_;
    count_ += (region.cuts.size() - 1) * region.slots;
  }
  for (size_t v = 0; v < program.views.size(); ++v) {
    if (!named[v]) continue;
    const BufferId buffer = program.views[v].buffer;
    const Region& region = regions.at(region_of(buffer));
    const auto [start, end] = span_of(v);
    auto cell = [&](int64_t cut) {
      return region.first +
             (std::lower_bound(region.cuts.begin(), region.cuts.end(), cut) - region.cuts.begin());
    };
    ranges_[v] = {cell(start), cell(end), layout.frame_of[buffer], region.cuts.size() - 1};
  }
}

}  // namespace orrery::ir
