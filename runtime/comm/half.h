// SPDX-License-Identifier: Apache-2.0
// bf16 and IEEE half in memory, f32 in registers; rounding to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace orrery::comm {

inline float FromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);  // NaN
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float FromF16(uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
inline uint16_t ToF16(float value) { return std::bit_cast<uint16_t>(static_cast<_Float16>(value)); }

}  // namespace orrery::comm
