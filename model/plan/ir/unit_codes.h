// SPDX-License-Identifier: Apache-2.0
// Flat units whose weights are trained and held in 8 bits: which scale each element has.
//
// The parameters of such a unit name a packing (kE4m3, kE4m3Blocks) and are not frozen. Its master copy holds numbers, what
// products read holds codes: x / s in e4m3 with a scale s of the tensor, or of each 128 x 128 of its piece on this rank. A shard
// of a unit begins and ends anywhere, so its elements are cast one by one, each with the scale of its place (TransformerEngine
// pytorch/tensor/utils.py, quantize_master_weights). Scales of a unit follow one another in the order of its segments.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "model/plan/ir/casts.h"
#include "model/plan/ir/plan.h"

namespace orrery::ir {

// One parameter of the unit.
struct CodedSegment {
  int64_t offset = 0, elements = 0;
  int64_t width = 1;  // columns of this rank's piece
  int64_t block = 0;  // rows and columns that share a scale; 0: all of them
  int64_t first = 0;  // of its scales
  int64_t scales = 1;

  int64_t ScaleAt(int64_t element) const {  // of this segment
    if (block == 0) return first;
    return first + element / width / block * (width / block) + element % width / block;
  }
};

// Whether a parameter's weights are held in codes that each step makes again from its master copy.
inline bool HeldInCodes(const Param& param) {
  return param.packing != Packed::kNone && param.init == Init::kNormal;
}
bool HeldInCodes(const Plan& plan, const Unit& unit);  // any of its parameters

// Empty: a parameter is no matrix that blocks divide.
std::vector<CodedSegment> CodedSegments(const Unit& unit, std::span<const Param> params,
                                        int64_t block);
int64_t ScalesOf(const std::vector<CodedSegment>& segments);

// The op that casts the master copy of a unit; null: none does.
const Op* CastOfUnit(const Program& program, int32_t unit);

// Calls visit(element of the shard, its scale) for all elements of a shard of n elements from `first` on that belong to a
// parameter.
template <class Visit>
void VisitCoded(const std::vector<CodedSegment>& segments, int64_t first, int64_t n,
                const Visit& visit) {
  for (const CodedSegment& segment : segments) {
    const int64_t begin = std::max(segment.offset, first);
    const int64_t end = std::min(segment.offset + segment.elements, first + n);
    for (int64_t at = begin; at < end; ++at)
      visit(at - first, segment.ScaleAt(at - segment.offset));
  }
}

// The largest magnitude behind each scale in this shard, 0 where it has no part; NaN stays.
template <class Number>
void LargestOfUnit(const std::vector<CodedSegment>& segments, int64_t first, int64_t n,
                   const Number* w, Number* largest) {
  std::fill(largest, largest + ScalesOf(segments), Number{0});
  VisitCoded(segments, first, n, [&](int64_t at, int64_t scale) {
    const Number size = std::abs(w[at]);
    if (!(size <= largest[scale])) largest[scale] = size;
  });
}

// Codes as numbers; 0 in the padding.
template <class Number>
void CastUnit(const std::vector<CodedSegment>& segments, CastFormat format, int64_t first,
              int64_t n, const Number* w, const Number* scales, Number* codes) {
  std::fill(codes, codes + n, Number{0});
  VisitCoded(segments, first, n, [&](int64_t at, int64_t scale) {
    codes[at] = static_cast<Number>(CastTo(format, double{w[at]} / double{scales[scale]}));
  });
}

}  // namespace orrery::ir
