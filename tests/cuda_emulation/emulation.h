// SPDX-License-Identifier: Apache-2.0
// Test support: CUDA's device language for a C++ compiler. Included in front of each .cu file, it makes kernels plain
// functions; every thread of a block runs as a fiber, and barriers and exchanges within a warp behave as on a GPU.
//
// Blocks run one after the other. A barrier that some thread of the block or warp never reaches ends the program with a
// message. Dynamic shared memory holds NaN at first. The order in which threads run can be changed: results that depend
// on it miss a barrier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)
#define __shared__ static thread_local
#define threadIdx (::orrery::emulation::current->thread)
#define blockIdx (::orrery::emulation::current->block)
#define blockDim (::orrery::emulation::current->block_size)
#define gridDim (::orrery::emulation::current->grid_size)

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

namespace orrery::emulation {

struct Place {
  dim3 thread, block, block_size, grid_size;
};
extern constinit thread_local const Place*
    current;  // needs no wrapper, which sanitizers take for null

enum class Order { kForward, kBackward, kShuffled };
void SetOrder(Order order);  // of the threads of a block, for this host thread

// What a stream does, in order. While the host thread records, it is kept instead: kernels with the arguments of now.
using Recording = std::vector<std::function<void()>>;
void Perform(std::function<void()> action);
void StartRecording();
Recording StopRecording();

// Runs `body` once per thread of the grid.
void RunGrid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& body);

void SyncBlock();
void SyncWarp();
unsigned Lane();
void* DynamicShared();
// The value that lane `from` brings to the same call; all 32 lanes must call it.
uint64_t Exchange(uint64_t value, unsigned from);
const uint64_t* ExchangeAll(uint64_t value, uint64_t* all);  // into all[32]

template <typename T>
T Shuffle(T value, unsigned from) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = Exchange(bits, from & 31u);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace orrery::emulation

inline void __syncthreads() { orrery::emulation::SyncBlock(); }
inline void __syncwarp(unsigned = ~0u) { orrery::emulation::SyncWarp(); }
template <typename T>
T __shfl_sync(unsigned, T value, int from) {
  return orrery::emulation::Shuffle(value, static_cast<unsigned>(from));
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return orrery::emulation::Shuffle(value, orrery::emulation::Lane() ^ static_cast<unsigned>(mask));
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  uint64_t all[32];
  orrery::emulation::ExchangeAll(predicate != 0, all);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) bits |= static_cast<unsigned>(all[lane]) << lane;
  return bits;
}
inline int __syncthreads_or(int predicate) {
  static thread_local int any;
  any = 0;
  __syncthreads();
  if (predicate != 0) any = 1;
  __syncthreads();
  const int found = any;
  __syncthreads();
  return found;
}
template <typename T>
T atomicExch(T* place, T value) {
  const T old = *place;
  *place = value;
  return old;
}
