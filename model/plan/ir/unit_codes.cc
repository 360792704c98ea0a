// SPDX-License-Identifier: Apache-2.0
// Segments of units that are held in 8 bits.
#include "model/plan/ir/unit_codes.h"

namespace orrery::ir {

bool HeldInCodes(const Plan& plan, const Unit& unit) {
  return std::ranges::any_of(unit.segments, [&](const UnitSegment& segment) {
    return HeldInCodes(plan.params[static_cast<std::size_t>(segment.param)]);
  });
}

std::vector<CodedSegment> CodedSegments(const Unit& unit, std::span<const Param> params,
                                        int64_t block) {
  std::vector<CodedSegment> segments;
  int64_t first = 0;
  for (const UnitSegment& at : unit.segments) {
    const Param& param = params[static_cast<std::size_t>(at.param)];
    CodedSegment segment{at.offset, at.elements};
    segment.block = block;
    segment.first = first;
    if (block > 0) {
      if (param.shape.size() != 2 || param.shape[0] <= 0) return {};
      segment.width = param.shard_dim == 1 ? at.elements / param.shape[0] : param.shape[1];
      if (segment.width <= 0 || segment.width % block != 0 || at.elements % segment.width != 0 ||
          at.elements / segment.width % block != 0)
        return {};
      segment.scales = at.elements / (block * block);
    }
    first += segment.scales;
    segments.push_back(segment);
  }
  return segments;
}

int64_t ScalesOf(const std::vector<CodedSegment>& segments) {
  return segments.empty() ? 0 : segments.back().first + segments.back().scales;
}

const Op* CastOfUnit(const Program& program, int32_t unit) {
  for (const Block& block : program.blocks) {
    for (const Op& op : block.ops) {
      if (op.kind != OpKind::kUnitCast) continue;
      const View& from = program.views[static_cast<std::size_t>(op.in.front())];
      if (program.buffers[static_cast<std::size_t>(from.buffer)].unit == unit) return &op;
    }
  }
  return nullptr;
}

}  // namespace orrery::ir
