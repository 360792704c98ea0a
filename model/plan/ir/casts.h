// SPDX-License-Identifier: Apache-2.0
// Numbers of 8 and 4 bits: rounding, codes, and the scales of cast tensors. Every executor of plans uses these.
//
// Formats: OCP 8-bit floating point specification (e4m3 without infinities, e5m2), OCP microscaling formats (e2m1, e8m0).
// A value x of a block with the decode scale s is stored as the nearest number to x / s, ties to even, beyond the largest
// number the largest one, and read as that number times s.
#pragma once

#include <cstdint>

#include "model/arch/low_precision.h"

namespace orrery::ir {

// kExact rounds nothing and scales by 1: what a plan computes without casts.
enum class CastFormat : int { kE4m3, kE5m2, kE2m1, kExact };

double LargestOf(CastFormat format);  // 448, 57344, 6; 1 of kExact
// NaN stays NaN; infinities become the largest number, as TransformerEngine's casts do.
double CastTo(CastFormat format, double x);

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
