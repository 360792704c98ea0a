// SPDX-License-Identifier: Apache-2.0
// Starting kernels, and what they share: reductions within warps and blocks, dynamic shared memory. Other sources see
// the queue alone.
#pragma once

#ifndef ORRERY_CUDA_EMULATION
#include <cuda_runtime.h>

#include "runtime/device/cuda/status.h"
#endif

#include <cmath>
#include <cstdint>
#include <utility>

// Dynamic shared memory of the running block, of which a kernel has one.
#ifdef ORRERY_CUDA_EMULATION
#define ORRERY_SHARED(T, name) T* name = static_cast<T*>(::orrery::emulation::DynamicShared())
#else
#define ORRERY_SHARED(T, name)                            \
  extern __shared__ __align__(16) unsigned char memory[]; \
  T* name = reinterpret_cast<T*>(memory)
#endif

namespace orrery::cuda {

class Products;

// Where an op's kernels go.
struct Queue {
  void* stream = nullptr;   // cudaStream_t
  void* scratch = nullptr;  // of this stream alone, aligned to 256 bytes
  int64_t scratch_bytes = 0;
  void* workspace = nullptr;  // likewise, for the vendor's products
  int64_t workspace_bytes = 0;
  int64_t* step = nullptr;       // where kernels find the step's number; null: they are given it
  int* fault = nullptr;          // a word in which kernels report what cannot be (Fault)
  Products* products = nullptr;  // the vendor's matrix products; null: own kernels
};

enum Fault : int { kNoFault = 0, kBadToken, kBadRow, kBadLabel };

inline unsigned Blocks(int64_t n, int64_t per_block) {
  return static_cast<unsigned>((n + per_block - 1) / per_block);
}

#if defined(__CUDACC__) || defined(ORRERY_CUDA_EMULATION)

// Raises the limit of dynamic shared memory where a kernel needs more than 48 KiB.
template <typename... P>
void AllowShared(void (*kernel)(P...), size_t bytes) {
#ifndef ORRERY_CUDA_EMULATION
  if (bytes > (size_t{48} << 10)) {
    Check(
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "asking for shared memory");
  }
#else
  (void)kernel, (void)bytes;
#endif
}

template <typename... P, typename... A>
void Launch(const Queue& queue, void (*kernel)(P...), dim3 grid, int threads, size_t shared,
            A... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  // The compiler reads the end of an array in pieces of 16 bytes, of which it uses what there is.
  shared = (shared + 15) / 16 * 16;
  AllowShared(kernel, shared);
#ifdef ORRERY_CUDA_EMULATION
  (void)queue;
  emulation::Perform([=] {
    emulation::RunGrid(grid, dim3(static_cast<unsigned>(threads)), shared,
                       [&] { kernel(static_cast<P>(args)...); });
  });
#else
  // Version 14 of clang-format breaks the closing chevrons.
  // clang-format off
  kernel<<<grid, static_cast<unsigned>(threads), shared, static_cast<cudaStream_t>(queue.stream)>>>(
      static_cast<P>(args)...);
  // clang-format on
  Check(cudaGetLastError(), "starting a kernel");
#endif
}

constexpr int kWarpSize = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline int LaneIndex() { return static_cast<int>(threadIdx.x) % kWarpSize; }
__device__ inline int WarpIndex() { return static_cast<int>(threadIdx.x) / kWarpSize; }

template <typename T>
__device__ inline T WarpSum(T x) {
#pragma unroll
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(kAllLanes, x, mask);
  return x;
}
__device__ inline float WarpMax(float x) {
#pragma unroll
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2)
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, mask));
  return x;
}

// The sum over a block, the same for all of its threads, always added in the same order. `slots`: shared, one per warp.
template <typename T>
__device__ inline T BlockSum(T x, T* slots) {
  x = WarpSum(x);
  __syncthreads();
  if (LaneIndex() == 0) slots[WarpIndex()] = x;
  __syncthreads();
  T sum = 0;
  for (int w = 0; w < static_cast<int>(blockDim.x) / kWarpSize; ++w) sum += slots[w];
  return sum;
}
__device__ inline float BlockMax(float x, float* slots) {
  x = WarpMax(x);
  __syncthreads();
  if (LaneIndex() == 0) slots[WarpIndex()] = x;
  __syncthreads();
  float top = slots[0];
  for (int w = 1; w < static_cast<int>(blockDim.x) / kWarpSize; ++w) top = fmaxf(top, slots[w]);
  return top;
}

#endif  // code of kernels

}  // namespace orrery::cuda
