// SPDX-License-Identifier: Apache-2.0
// Branch-free exp, sigmoid and tanh in single precision that compilers vectorise. NaN passes through.
//
// Nothing here may call a function of the standard library: this code is compiled for several instruction sets, and the
// linker keeps only one copy of a shared inline function.
#pragma once

#include <cstdint>

#define ORRERY_SIMD _Pragma("GCC ivdep")

namespace orrery::cpu {
namespace {

inline float BitsToFloat(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint32_t FloatToBits(float x) { return __builtin_bit_cast(uint32_t, x); }
inline float Min(float a, float b) { return a < b ? a : b; }
inline float Max(float a, float b) { return a > b ? a : b; }

// exp(x) = 2^n exp(r), |r| <= ln(2)/2, with the polynomial of Moshier's Cephes expf. Relative error below 2e-7 where the
// result is a normal number; 0 below -87.3, infinity above 88.3.
inline float Exp(float x) {
  constexpr float kLow = -87.3f, kHigh = 88.3f, kRounder = 12582912.0f;  // 1.5 * 2^23
  float t = x < kLow ? kLow : x;
  t = t > kHigh ? kHigh : t;
  const float n = (t * 1.44269504f + kRounder) - kRounder;
  const float r = (t - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const uint32_t exponent = static_cast<uint32_t>(static_cast<int32_t>(n)) + 127u;
  const float y = p * BitsToFloat(exponent << 23);
  const float low = x < kLow ? 0.0f : y;
  return x > kHigh ? __builtin_inff() : low;
}

inline float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }

// Cephes tanhf: odd polynomial near zero, 1 - 2 / (exp(2|x|) + 1) beyond. Relative error below 3e-7.
inline float Tanh(float x) {
  const float magnitude = x < 0.0f ? -x : x, z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float near = p * z * x + x;
  const float far = 1.0f - 2.0f / (Exp(2.0f * magnitude) + 1.0f);
  const float signed_far = x < 0.0f ? -far : far;
  return magnitude < 0.625f ? near : signed_far;
}

}  // namespace
}  // namespace orrery::cpu
