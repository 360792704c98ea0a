// SPDX-License-Identifier: Apache-2.0
// Conversions between stored bf16, f16 and u8 elements and single precision.
#pragma once

#include "runtime/device/cpu/loops/loops_math.h"

namespace orrery::cpu {
namespace {

void FromBf16(const uint16_t* x, float* y, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) y[i] = BitsToFloat(static_cast<uint32_t>(x[i]) << 16);
}

void ToBf16(const float* x, uint16_t* y, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = FloatToBits(x[i]);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    y[i] = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
  }
}

// Scaling by 2^112 moves the exponent from f16's bias to f32's, subnormal numbers included.
void FromF16(const uint16_t* x, float* y, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) {
    const uint32_t h = x[i], sign = (h & 0x8000u) << 16;
    const uint32_t magnitude = (h & 0x7fffu) << 13;
    const uint32_t scaled = FloatToBits(BitsToFloat(magnitude) * 0x1p112f);
    const uint32_t special = magnitude | 0x7f800000u;  // infinity and NaN
    y[i] = BitsToFloat(sign | ((h & 0x7c00u) == 0x7c00u ? special : scaled));
  }
}

void ToF16(const float* x, uint16_t* y, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = FloatToBits(x[i]), sign = (bits >> 16) & 0x8000u,
                   magnitude = bits & 0x7fffffffu;
    const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // Below 2^-14: adding 0.5 aligns the mantissa so that its last bit is worth 2^-24, correctly rounded.
    const uint32_t tiny = FloatToBits(BitsToFloat(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t finite = magnitude < 0x38800000u ? tiny : normal;
    const uint32_t limited = magnitude >= 0x477ff000u ? 0x7c00u : finite;  // 65520 and beyond
    y[i] = static_cast<uint16_t>(sign | (magnitude > 0x7f800000u ? 0x7e00u : limited));
  }
}

void FromU8(const uint8_t* x, float* y, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i]);
}

void ToU8(const float* x, uint8_t* y, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) y[i] = x[i] != 0.0f ? 1 : 0;
}

}  // namespace
}  // namespace orrery::cpu
