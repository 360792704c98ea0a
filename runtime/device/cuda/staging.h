// SPDX-License-Identifier: Apache-2.0
// Pinned host memory that copies to the device start from, so that they neither wait for the device nor for the caller.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/device/cuda/status.h"

namespace orrery::cuda {

class Staging {
 public:
  ~Staging() {
    for (const Block& block : blocks_) cudaFreeHost(block.memory);
  }

  // Calls send(staged, offset, n) for pieces of `from`; what is staged holds until Reuse().
  template <typename Send>
  void Copy(const void* from, int64_t bytes, Send send) {
    for (int64_t offset = 0; offset < bytes;) {
      Block& block = Room();
      const int64_t n = std::min(bytes - offset, kBlock - block.used);
      void* staged = static_cast<char*>(block.memory) + block.used;
      std::memcpy(staged, static_cast<const char*>(from) + offset, static_cast<size_t>(n));
      send(static_cast<const void*>(staged), offset, n);
      block.used += (n + 63) / 64 * 64;
      offset += n;
    }
  }

  // Nothing reads what was staged any more. Keeps a block: what steps upload is small.
  void Reuse() {
    while (blocks_.size() > 1) {
      cudaFreeHost(blocks_.back().memory);
      blocks_.pop_back();
    }
    if (!blocks_.empty()) blocks_[0].used = 0;
  }

 private:
  static constexpr int64_t kBlock = int64_t{16} << 20;
  struct Block {
    void* memory = nullptr;
    int64_t used = 0;
  };

  Block& Room() {
    if (blocks_.empty() || blocks_.back().used >= kBlock) {
      Block block;
      Check(cudaMallocHost(&block.memory, kBlock), "allocating pinned memory");
      blocks_.push_back(block);
    }
    return blocks_.back();
  }

  std::vector<Block> blocks_;
};

}  // namespace orrery::cuda
