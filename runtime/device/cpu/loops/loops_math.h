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

constexpr float kExpLow = -87.3f, kExpHigh = 88.3f;

// exp(x) = 2^n exp(r), |r| <= ln(2)/2, with the polynomial of Moshier's Cephes expf, for kExpLow <= x <= kExpHigh.
// Relative error below 2e-7.
inline float ExpInRange(float x) {
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23
  const float n = (x * 1.44269504f + kRounder) - kRounder;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const uint32_t exponent = static_cast<uint32_t>(static_cast<int32_t>(n)) + 127u;
  return p * BitsToFloat(exponent << 23);
}

// 0 below kExpLow, infinity above kExpHigh.
inline float Exp(float x) {
  const float t = x < kExpLow ? kExpLow : x;
  const float y = ExpInRange(t > kExpHigh ? kExpHigh : t);
  const float low = x < kExpLow ? 0.0f : y;
  return x > kExpHigh ? __builtin_inff() : low;
}

// exp(x) where x is at most about 0 (up to 88): never below 1e-38, also for minus infinity.
inline float ExpOfNegative(float x) { return ExpInRange(x < kExpLow ? kExpLow : x); }

inline float Sigmoid(float x) {
  const float limited = x > 87.0f ? 87.0f : x;
  return 1.0f / (1.0f + ExpInRange(limited < -87.0f ? 87.0f : -limited));
}

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
