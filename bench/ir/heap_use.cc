// SPDX-License-Identifier: Apache-2.0
// Replaces operator new and delete; sizes are those that the allocator really reserves.
#include "heap_use.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> live{0}, peak{0};

void* Allocate(std::size_t bytes, std::size_t alignment) {
  void* block =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(bytes)
          : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (block == nullptr) throw std::bad_alloc();
  if (counting.load(std::memory_order_relaxed)) {
    const int64_t now = live += static_cast<int64_t>(malloc_usable_size(block));
    int64_t before = peak.load();
    while (now > before && !peak.compare_exchange_weak(before, now)) {
    }
  }
  return block;
}

void Release(void* block) noexcept {
  if (block != nullptr && counting.load(std::memory_order_relaxed)) {
    live -= static_cast<int64_t>(malloc_usable_size(block));
  }
  std::free(block);
}

}  // namespace

void* operator new(std::size_t bytes) { return Allocate(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* block) noexcept { Release(block); }
void operator delete(void* block, std::size_t) noexcept { Release(block); }
void operator delete(void* block, std::align_val_t) noexcept { Release(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { Release(block); }

namespace orrery {

void StartHeapCount() {
  live = 0;
  peak = 0;
  counting = true;
}
void StopHeapCount() { counting = false; }
int64_t HeapBytes() { return live; }
int64_t HeapPeakBytes() { return peak; }

}  // namespace orrery
