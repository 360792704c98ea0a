// SPDX-License-Identifier: Apache-2.0
// The arena cut into cells: byte ranges that the operands that cut it cover whole or not at all.
#pragma once

#include <vector>

#include "model/plan/ir/layout.h"

namespace orrery::ir {

// The part of the arena outside the frames is cut once. Frames repeat per slot, so one slot is cut
// and its cells are numbered slot after slot. Scratch that lies over frames (see layout.cc) has
// cells in both parts.
class Cells {
 public:
  // Cut at both ends of every view that ops name.
  Cells(const Program& program, const Layout& layout);
  // Cut only by the marked views; the other views then cover every cell that they touch.
  Cells(const Program& program, const Layout& layout, const std::vector<char>& cutting);

  size_t count() const { return count_; }
  bool Touches(ViewId view) const { return first_run_[view] < first_run_[view + 1]; }

  // Calls visit(cell) for the cells of a view in a call bound to a micro-batch.
  template <typename Visit>
  void Each(ViewId view, int32_t micro_batch, Visit visit) const {
    for (size_t r = first_run_[view]; r < first_run_[view + 1]; ++r) {
      const Run& run = runs_[r];
      const size_t shift =
          run.frame < 0 ? 0 : layout_.frames[run.frame].slot_of[micro_batch] * run.per_slot;
      for (size_t cell = run.begin; cell < run.end; ++cell) visit(cell + shift);
    }
  }

 private:
  struct Run {  // consecutive cells; of slot 0 if the view lies in a frame
    size_t begin, end;
    int32_t frame;
    size_t per_slot;
  };
  const Layout& layout_;
  std::vector<size_t> first_run_;  // by view, and one more
  std::vector<Run> runs_;
  size_t count_ = 0;
};

}  // namespace orrery::ir
