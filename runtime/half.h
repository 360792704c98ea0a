// SPDX-License-Identifier: Apache-2.0
// bf16 and IEEE half in memory, f32 in registers; rounding to nearest, ties to even. Also for
// device code.
#pragma once

#include <bit>
#include <cstdint>

#ifdef __CUDACC__
#define ORRERY_ANYWHERE __host__ __device__
#else
#define ORRERY_ANYWHERE
#endif

namespace orrery {

ORRERY_ANYWHERE inline float FromBf16(uint16_t bits) {
  return __builtin_bit_cast(float, uint32_t{bits} << 16);
}

ORRERY_ANYWHERE inline uint16_t ToBf16(float value) {
#ifdef __CUDA_ARCH__
  uint16_t narrow;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow) : "f"(value));
  return narrow;
#else
  const auto bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;  // NaN, as that instruction writes it
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}

ORRERY_ANYWHERE inline float FromF16(uint16_t bits) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  return static_cast<float>(__builtin_bit_cast(_Float16, bits));
#endif
}
ORRERY_ANYWHERE inline uint16_t ToF16(float value) {
#ifdef __CUDA_ARCH__
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  return __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
#endif
}

}  // namespace orrery
