// SPDX-License-Identifier: Apache-2.0
// Numbers of 8 and 4 bits: rounding, codes, and the scales of cast tensors. Every executor of plans uses these.
//
// Formats: OCP 8-bit floating point specification (e4m3 without infinities, e5m2), OCP microscaling formats (e2m1, e8m0).
// A value x of a block with the decode scale s is stored as the nearest number to x / s, ties to even, beyond the largest
// number the largest one, and read as that number times s.
#pragma once

#include <cstdint>
#include <span>

#include "model/arch/low_precision.h"
#include "model/plan/ir/draws.h"
#include "model/plan/ir/positions.h"

namespace orrery::ir {

// kExact rounds nothing and scales by 1: what a plan computes without casts.
enum class CastFormat : int { kE4m3, kE5m2, kE2m1, kExact };

double LargestOf(CastFormat format);  // 448, 57344, 6; 1 of kExact
// NaN stays NaN; infinities become the largest number, as TransformerEngine's casts do.
double CastTo(CastFormat format, double x);
// Stochastic rounding: of the two numbers around x the upper one where `draw`, uniform in (0, 1), is below x's place between
// them, so that the mean over draws is x (within the format's range).
double CastTo(CastFormat format, double x, double draw);

// The random Hadamard transform of NVFP4's weight gradients, in place: 16 values `stride` apart, times signs and Sylvester's
// matrix / 4. It is orthonormal: a product of two transformed operands is that of the plain ones, and an outlier spreads
// over its 16 neighbours. Source: TransformerEngine pytorch/tensor/nvfp4_tensor.py, get_rht_matrix (the same signs).
inline constexpr int kHadamardRows = 16;
template <class Number>
void HadamardOf(Number* x, int64_t stride) {
  constexpr uint32_t kNegative = 0xd7e8;  // bit i: value i changes its sign first
  for (int i = 0; i < kHadamardRows; ++i)
    if ((kNegative >> i & 1) != 0) x[i * stride] = -x[i * stride];
  for (int half = 1; half < kHadamardRows; half *= 2) {
    for (int i = 0; i < kHadamardRows; ++i) {
      if ((i & half) != 0) continue;
      const Number a = x[i * stride], b = x[(i + half) * stride];
      x[i * stride] = a + b;
      x[(i + half) * stride] = a - b;
    }
  }
  for (int i = 0; i < kHadamardRows; ++i) x[i * stride] /= 4;
}
// Of every 16 rows of x[rows, h], column by column.
template <class Number>
void HadamardRows(Number* x, int64_t rows, int64_t h) {
  for (int64_t r = 0; r + kHadamardRows <= rows; r += kHadamardRows)
    for (int64_t c = 0; c < h; ++c) HadamardOf(x + r * h + c, h);
}

// Draws of a quantize op with attr stochastic, for the rank with these coordinates: the same for an element of the step's
// gradients whichever rank holds it.
class CastDraws {
 public:
  CastDraws(const Attrs& attrs, std::span<const int> coords, uint64_t seed, int64_t step,
            int64_t first_sample);
  // Of a row of this rank in one of the two casts; then of its columns.
  uint64_t Row(int64_t row, bool across) const;
  double Draw(uint64_t row, int64_t column) const {
    return UniformOf(HashMore(row, static_cast<uint64_t>(first_column_ + column)));
  }

 private:
  uint64_t site_;
  int64_t first_sample_, first_row_ = 0, first_column_ = 0, batch_;
  Positions positions_;
};

// Codes of numbers that CastTo() returned, and back. e2m1 codes have 4 bits.
uint8_t EncodeCast(CastFormat format, double x);
double DecodeCast(CastFormat format, uint8_t code);
uint8_t EncodePowerOfTwo(double x);  // e8m0: the exponent + 127
double DecodePowerOfTwo(uint8_t code);

// Decode scale of a tensor with the largest magnitude `amax`, 1 where it is 0: amax / largest x 2^margin, in single
// precision; of nvfp4 amax / (largest x 448), so that the scales of blocks use e4m3's range; of fp8_block, where a block
// takes the place of the tensor, BlockScale().
double TensorScale(ProductType product, CastFormat format, double amax, double margin);
// Decode scale of a block: the power of two at or above amax / largest (fp8_block, mxfp8); of nvfp4
// amax / largest / tensor_scale in e4m3. 1 where it is 0.
double BlockScale(ProductType product, CastFormat format, double amax, double tensor_scale);

}  // namespace orrery::ir
