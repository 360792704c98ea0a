// SPDX-License-Identifier: Apache-2.0
// Frozen matrices in 4 and 8 bits: codes and the scales that they are multiplied with. Every executor of plans uses these.
//
// A matrix [rows, width] is packed whole and cut over ranks afterwards, as a checkpoint is, so every layout has the same
// numbers. Stored are u8 (nf4: two codes, the first one low), e4m3 and f32:
//   int8         q = round(x / s) + 128, s = largest / 127 of a row (Dettmers et al. 2022, arXiv:2208.07339)
//   nf4          the nearest of 16 quantiles of a normal distribution to x / s, s = largest of 64 values of a row; these s in
//                e4m3 in groups of 256 (first to last row) with an f32 scale each, less the mean of all s, which stands behind the
//                scales of the groups (Dettmers et al. 2023, arXiv:2305.14314, sections 3 and E)
//   e4m3         TransformerEngine's weights in 8 bits: one scale of the tensor, largest / 448 (casts.h)
//   e4m3_blocks  a power of two for each 128 x 128 values
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/plan/ir/plan.h"

namespace orrery::ir {

inline constexpr int64_t kNf4Block = 64, kNf4Group = 256, kPackedSquare = 128;

double Nf4Level(int code);  // 0 to 15: -1 to 1
int Nf4Code(double x);      // of the nearest level

struct PackedTensor {
  std::vector<double> codes, scales, groups;
};
// `values`: rows x width numbers. Blocks must divide it.
PackedTensor Pack(Packed packing, std::span<const double> values, int64_t rows, int64_t width);

// Of the codes, scales or groups of a packed matrix; empty: it has none, or blocks do not divide it.
std::vector<int64_t> PackedShape(Packed packing, Init part, const std::vector<int64_t>& of);
// "l3.fc1.w" of "l3.fc1.w.scales".
std::string PackedName(const Param& param);

// Where a rank's piece of a matrix lies in the whole.
struct PackedPiece {
  int64_t rows, width;          // of the piece
  int64_t part = 0, parts = 1;  // of the rows or (across) of the columns
  bool across = false;
};
// The decode scale of element (row, column) of a piece: `scales` and `groups` as this rank has them.
template <class Number>
double PackedScale(Packed packing, const PackedPiece& piece, const Number* scales,
                   const Number* groups, int64_t n_groups, int64_t row, int64_t column) {
  switch (packing) {
    case Packed::kNone:
      return 1;
    case Packed::kInt8:
      return scales[row];
    case Packed::kE4m3:
      return scales[0];
    case Packed::kE4m3Blocks:
      return scales[row / kPackedSquare * (piece.width / kPackedSquare) + column / kPackedSquare];
    case Packed::kNf4:
      break;
  }
  const int64_t blocks = piece.width / kNf4Block, block = column / kNf4Block;
  const int64_t first_row = piece.across ? 0 : piece.part * piece.rows;
  const int64_t in_row = piece.across ? blocks * piece.parts : blocks;
  const int64_t whole =
      (first_row + row) * in_row + (piece.across ? piece.part * blocks : 0) + block;
  return double{scales[row * blocks + block]} * groups[whole / kNf4Group] + groups[n_groups - 1];
}
// The value of element (row, column) of a piece, without its scale.
template <class Number>
double PackedNumber(Packed packing, const Number* codes, int64_t at) {
  switch (packing) {
    case Packed::kInt8:
      return codes[at] - 128;
    case Packed::kNf4:
      return Nf4Level(static_cast<int>(codes[at / 2]) >> (at % 2 == 0 ? 0 : 4) & 15);
    default:
      return codes[at];
  }
}

}  // namespace orrery::ir
