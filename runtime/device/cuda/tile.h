// SPDX-License-Identifier: Apache-2.0
// Matrix units on tiles of bf16 in shared memory: fragments, products with sums in single precision, copies that overlap.
//
// Layouts follow PTX mma.sync.m16n8k16 with g = lane / 4 and t = lane % 4: a sum holds (row g, columns 2t and 2t + 1) in
// its first two and row g + 8 in its last two elements. Rows in shared memory are 8 elements longer than they need to
// be, so that the 8 rows of a fragment lie in different banks.
#pragma once

#include "runtime/device/cuda/launch.h"
#include "runtime/device/cuda/ref.h"

namespace orrery::cuda {

constexpr int kRowPad = 8;

#ifdef ORRERY_CUDA_EMULATION

inline void MultiplyTile(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  uint64_t low[32], high[32], right[32];
  emulation::ExchangeAll(a[0] | static_cast<uint64_t>(a[1]) << 32, low);
  emulation::ExchangeAll(a[2] | static_cast<uint64_t>(a[3]) << 32, high);
  emulation::ExchangeAll(b[0] | static_cast<uint64_t>(b[1]) << 32, right);
  const auto half = [](uint64_t word, int i) {
    return FromBf16(static_cast<uint16_t>(word >> (16 * i)));
  };
  const int lane = LaneIndex();
  for (int e = 0; e < 4; ++e) {
    const int row = lane / 4, below = e / 2, column = 2 * (lane % 4) + e % 2;
    for (int k = 0; k < 16; ++k) {
      // GCC 12 evaluates an index behind a conditional array in one branch only when sanitizers save its operands.
      const uint64_t* const words = k < 8 ? low : high;
      const uint64_t left = words[row * 4 + k % 8 / 2];
      d[e] +=
          half(left, 2 * below + k % 2) * half(right[column * 4 + k % 8 / 2], 2 * (k / 8) + k % 2);
    }
  }
}

inline void LoadMatrices(uint32_t (&r)[4], const uint16_t* row, bool transposed) {
  uint64_t rows[32];
  emulation::ExchangeAll(reinterpret_cast<uintptr_t>(row), rows);
  const int g = LaneIndex() / 4, t = LaneIndex() % 4;
  for (int m = 0; m < 4; ++m) {
    const auto at = [&](int i, int j) {
      return reinterpret_cast<const uint16_t*>(rows[8 * m + i])[j];
    };
    const uint32_t first = transposed ? at(2 * t, g) : at(g, 2 * t);
    const uint32_t second = transposed ? at(2 * t + 1, g) : at(g, 2 * t + 1);
    r[m] = first | second << 16;
  }
}
inline void LoadFour(uint32_t (&r)[4], const uint16_t* row) { LoadMatrices(r, row, false); }
inline void LoadFourTransposed(uint32_t (&r)[4], const uint16_t* row) {
  LoadMatrices(r, row, true);
}

inline void CopyAsync(uint16_t* to, const uint16_t* from, bool valid) {
  if (valid)
    std::memcpy(to, from, 16);
  else
    std::memset(to, 0, 16);
}
inline void CopyAsync(float* to, const float* from, bool valid) { *to = valid ? *from : 0.0f; }
inline float Exp2(float x) { return std::exp2(x); }
inline void CommitCopies() {}
template <int pending>
inline void AwaitCopies() {}

#else

__device__ inline void MultiplyTile(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ inline void LoadFour(uint32_t (&r)[4], const uint16_t* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
__device__ inline void LoadFourTransposed(uint32_t (&r)[4], const uint16_t* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// 16 bytes, zeros where there is nothing valid.
__device__ inline void CopyAsync(uint16_t* to, const uint16_t* from, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(to)), "l"(from),
               "r"(bytes)
               : "memory");
}
// 4 bytes, zero where there is nothing valid.
__device__ inline void CopyAsync(float* to, const float* from, bool valid) {
  const int bytes = valid ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(SharedAddress(to)), "l"(from),
               "r"(bytes)
               : "memory");
}
// 2^x by the unit for it: within 2 units in the last place, results below 2^-126 as zero.
__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>
__device__ inline void AwaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

#endif

// For a walk over `count` tiles in two buffers: begins to copy the next one, if there is one, and waits for tile `at`.
template <class Start>
__device__ inline void StartNextAndAwait(int64_t at, int64_t count, const Start& start) {
  if (at + 1 < count) {
    start(at + 1);
    AwaitCopies<1>();
  } else {
    AwaitCopies<0>();
  }
  __syncthreads();
}

// Matrices 0..3: upper left, lower left, upper right, lower right of 16 x 16: the left operand of a product.
__device__ inline void LoadLeft(uint32_t (&a)[4], const uint16_t* tile, int stride, int row,
                                int column) {
  const int lane = LaneIndex();
  LoadFour(a, tile + (row + lane % 16) * stride + column + lane / 16 * 8);
}

// Right operands of two neighbouring products whose columns are the rows [row, row + 16) of the tile, summed over its
// columns [column, column + 16): x y^T.
__device__ inline void LoadRightByRows(uint32_t (&b)[4], const uint16_t* tile, int stride, int row,
                                       int column) {
  const int lane = LaneIndex();
  LoadFour(b, tile + (row + lane / 16 * 8 + lane % 8) * stride + column + lane / 8 % 2 * 8);
}
// Likewise, columns [column, column + 16) of the tile, summed over its rows [row, row + 16): x y.
__device__ inline void LoadRight(uint32_t (&b)[4], const uint16_t* tile, int stride, int row,
                                 int column) {
  const int lane = LaneIndex();
  LoadFourTransposed(b,
                     tile + (row + lane / 8 % 2 * 8 + lane % 8) * stride + column + lane / 16 * 8);
}

// d[0], d[1]: neighbouring tiles of 8 columns; b as loaded above.
__device__ inline void MultiplyPair(float (&d0)[4], float (&d1)[4], const uint32_t (&a)[4],
                                    const uint32_t (&b)[4]) {
  MultiplyTile(d0, a, {b[0], b[1]});
  MultiplyTile(d1, a, {b[2], b[3]});
}

// Two tiles of 8 columns of sums as a left operand of 16 columns.
__device__ inline void PackLeft(uint32_t (&a)[4], const float (&d0)[4], const float (&d1)[4]) {
  a[0] = PackBf16(d0[0], d0[1]);
  a[1] = PackBf16(d0[2], d0[3]);
  a[2] = PackBf16(d1[0], d1[1]);
  a[3] = PackBf16(d1[2], d1[3]);
}

// Starts copying `rows` rows of `width` elements, those from `valid` on as zeros.
template <int width, int rows, int threads>
__device__ inline void StartTile(uint16_t* to, const uint16_t* from, int64_t stride,
                                 int64_t valid) {
  constexpr int pieces = width / 8;
#pragma unroll
  for (int p = static_cast<int>(threadIdx.x); p < rows * pieces; p += threads) {
    const int r = p / pieces, c = p % pieces * 8;
    CopyAsync(to + r * (width + kRowPad) + c, r < valid ? from + r * stride + c : from, r < valid);
  }
}

}  // namespace orrery::cuda
