// SPDX-License-Identifier: Apache-2.0
// Elements of any stored type as single precision in registers: one at a time, or eight by accesses of 16 bytes.
//
// The type is a value, not a template parameter: the branch is the same for all threads and shared by eight elements,
// and each kernel is compiled once. bf16 and f16 round to nearest, ties to even; u8 holds masks.
#pragma once

#ifndef ORRERY_CUDA_EMULATION
#include <cuda_runtime.h>
#endif

#include <cstdint>
#include <cstring>

#include "runtime/half.h"

namespace orrery::cuda {

enum class Type : int32_t { kF32, kBf16, kF16, kU8 };

struct Ref {
  void* data = nullptr;
  Type type = Type::kF32;
  __host__ __device__ bool absent() const { return data == nullptr; }
};

__host__ __device__ inline int TypeBytes(Type type) {
  return type == Type::kF32 ? 4 : type == Type::kU8 ? 1 : 2;
}

__device__ inline float BitsToFloat(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
#endif
}
__device__ inline uint32_t FloatToBits(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(x));
  return bits;
#endif
}

__device__ inline bool IsFinite(float x) { return (FloatToBits(x) & 0x7f800000u) != 0x7f800000u; }

// Two at once, the first in the lower half.
__device__ inline uint32_t PackBf16(float low, float high) {
#ifdef __CUDA_ARCH__
  uint32_t y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
#else
  return static_cast<uint32_t>(ToBf16(low)) | static_cast<uint32_t>(ToBf16(high)) << 16;
#endif
}

__device__ inline float Load(Ref x, int64_t i) {
  switch (x.type) {
    case Type::kF32:
      return static_cast<const float*>(x.data)[i];
    case Type::kBf16:
      return FromBf16(static_cast<const uint16_t*>(x.data)[i]);
    case Type::kF16:
      return FromF16(static_cast<const uint16_t*>(x.data)[i]);
    default:
      return static_cast<const uint8_t*>(x.data)[i];
  }
}

__device__ inline void Store(Ref x, int64_t i, float value) {
  switch (x.type) {
    case Type::kF32:
      static_cast<float*>(x.data)[i] = value;
      break;
    case Type::kBf16:
      static_cast<uint16_t*>(x.data)[i] = ToBf16(value);
      break;
    case Type::kF16:
      static_cast<uint16_t*>(x.data)[i] = ToF16(value);
      break;
    default:
      static_cast<uint8_t*>(x.data)[i] = value != 0.0f ? 1 : 0;
  }
}

struct alignas(16) Quad {
  uint32_t word[4];
};
struct alignas(8) Pair {
  uint32_t word[2];
};

constexpr int kWide = 8;  // elements of a wide access

// Elements [i, i + 8): i a multiple of 8, data aligned to 16 bytes.
__device__ inline void LoadWide(Ref x, int64_t i, float* v) {
  if (x.type == Type::kF32) {
    const Quad* from = reinterpret_cast<const Quad*>(static_cast<const float*>(x.data) + i);
    const Quad a = from[0], b = from[1];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      v[k] = BitsToFloat(a.word[k]);
      v[k + 4] = BitsToFloat(b.word[k]);
    }
  } else if (x.type == Type::kU8) {
    const Pair a = *reinterpret_cast<const Pair*>(static_cast<const uint8_t*>(x.data) + i);
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = static_cast<float>(a.word[k / 4] >> (8 * (k % 4)) & 0xffu);
  } else {
    const Quad a = *reinterpret_cast<const Quad*>(static_cast<const uint16_t*>(x.data) + i);
    if (x.type == Type::kBf16) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        v[2 * k] = BitsToFloat(a.word[k] << 16);
        v[2 * k + 1] = BitsToFloat(a.word[k] & 0xffff0000u);
      }
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        v[2 * k] = FromF16(static_cast<uint16_t>(a.word[k]));
        v[2 * k + 1] = FromF16(static_cast<uint16_t>(a.word[k] >> 16));
      }
    }
  }
}

__device__ inline void StoreWide(Ref x, int64_t i, const float* v) {
  if (x.type == Type::kF32) {
    Quad a, b;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      a.word[k] = FloatToBits(v[k]);
      b.word[k] = FloatToBits(v[k + 4]);
    }
    Quad* to = reinterpret_cast<Quad*>(static_cast<float*>(x.data) + i);
    to[0] = a;
    to[1] = b;
  } else if (x.type == Type::kU8) {
    Pair a{{0, 0}};
#pragma unroll
    for (int k = 0; k < 8; ++k) a.word[k / 4] |= (v[k] != 0.0f ? 1u : 0u) << (8 * (k % 4));
    *reinterpret_cast<Pair*>(static_cast<uint8_t*>(x.data) + i) = a;
  } else {
    Quad a;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      a.word[k] = x.type == Type::kBf16 ? PackBf16(v[2 * k], v[2 * k + 1])
                                        : static_cast<uint32_t>(ToF16(v[2 * k])) |
                                              static_cast<uint32_t>(ToF16(v[2 * k + 1])) << 16;
    }
    *reinterpret_cast<Quad*>(static_cast<uint16_t*>(x.data) + i) = a;
  }
}

// Elements [i, i + count), count <= 8; the others become 0. `wide`: the conditions of LoadWide hold where count is 8.
__device__ inline void LoadSome(Ref x, int64_t i, int count, bool wide, float* v) {
  if (wide && count == kWide) return LoadWide(x, i, v);
#pragma unroll
  for (int k = 0; k < kWide; ++k) v[k] = k < count ? Load(x, i + k) : 0.0f;
}
__device__ inline void StoreSome(Ref x, int64_t i, int count, bool wide, const float* v) {
  if (wide && count == kWide) return StoreWide(x, i, v);
#pragma unroll
  for (int k = 0; k < kWide; ++k)
    if (k < count) Store(x, i + k, v[k]);
}

__host__ __device__ inline int Least(int64_t a, int64_t b) {
  return static_cast<int>(a < b ? a : b);
}

}  // namespace orrery::cuda
