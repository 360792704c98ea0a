// SPDX-License-Identifier: Apache-2.0
// The arena cut into cells: the smallest byte ranges that every operand of a program covers whole
// or not at all.
#pragma once

#include <ranges>
#include <vector>

#include "model/ir/layout.h"

namespace orrery::ir {

class Cells {
 public:
  // Only the views that `wanted` marks (all views that ops name, if empty) cut the arena and may be
  // asked for.
  Cells(const Program& program, const Layout& layout, const std::vector<char>& wanted = {});

  size_t count() const { return count_; }
  // The cells of a view in a call bound to a micro-batch: a run of consecutive numbers.
  auto Of(ViewId view, int32_t micro_batch) const {
    const Range& range = ranges_[view];
    const size_t shift =
        range.frame < 0 ? 0 : layout_.frames[range.frame].slot_of[micro_batch] * range.per_slot;
    return std::views::iota(range.begin + shift, range.end + shift);
  }

 private:
  struct Range {
    size_t begin = 0, end = 0;  // in slot 0
    int32_t frame = -1;
    size_t per_slot = 0;
  };
  const Layout& layout_;
  std::vector<Range> ranges_;  // by view
  size_t count_ = 0;
};

}  // namespace orrery::ir
