// SPDX-License-Identifier: Apache-2.0
// Where the buffers of timed collectives lie, and whose clock times them.
#pragma once

#include <functional>
#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/comm/device_queue.h"
#include "runtime/device/accelerator.h"

namespace orrery::bench {

inline int64_t PaddedBytes(int64_t bytes) { return (bytes + 255) / 256 * 256; }

class CallMemory {
 public:
  virtual ~CallMemory() = default;
  // Aligned to 256 bytes; what was given before is gone.
  virtual std::byte* Allocate(int64_t bytes) = 0;
  // Null: calls are over when they are done; else they are enqueued there.
  virtual void* stream() = 0;
  // `write` fills, `read` sees a copy on the host or the memory itself. Nothing is under way.
  virtual void Write(std::byte* to, int64_t bytes,
                     const std::function<void(std::byte*)>& write) = 0;
  virtual void Read(const std::byte* from, int64_t bytes,
                    const std::function<void(const std::byte*)>& read) = 0;
  virtual void Copy(std::byte* to, const std::byte* from,
                    int64_t bytes) = 0;  // in order with calls
  virtual void Begin() = 0;
  virtual void End() = 0;
  virtual bool Finished() = 0;   // nothing is under way
  virtual double Seconds() = 0;  // from Begin() to End(), once finished
};

std::unique_ptr<CallMemory> MakeHostMemory();

struct CallDevice {  // of one rank; null: host memory
  device::Accelerator* accelerator = nullptr;
  comm::DeviceQueue* queue = nullptr;
  int64_t bytes = 0;  // the largest Allocate()
};
std::unique_ptr<CallMemory> MakeDeviceMemory(const CallDevice& device);

// Returns when it is there.
void UploadAll(device::Accelerator* accelerator, void* to, const void* from, int64_t bytes);

}  // namespace orrery::bench
