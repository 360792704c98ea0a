// SPDX-License-Identifier: Apache-2.0
// What the executor asks of a device that has its own memory and executes asynchronously, in the order of streams.
//
// Streams are the plan's, by index. Everything but Synchronize, Download and Allocate returns as soon as it is enqueued.
// Errors are thrown as cpu::KernelError, a lack of memory as std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/device/cpu/kernels.h"

namespace orrery::exec {

class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual std::string Name() const = 0;  // "NVIDIA H200"

  // The arena, one allocation, all zero; it lives as long as the accelerator. Called once.
  virtual std::byte* Allocate(int64_t bytes, int64_t alignment) = 0;
  virtual void SetStreams(int streams, int events) = 0;
  virtual void* StreamHandle(int stream) = 0;

  // `from` may be reused at once.
  virtual void Upload(void* to, const void* from, int64_t bytes, int stream) = 0;
  virtual void Download(void* to, const void* from, int64_t bytes) = 0;  // after everything enqueued before

  virtual void Run(const cpu::KernelArgs& args, int stream) = 0;
  virtual void Record(int event, int stream) = 0;
  virtual void Await(int event, int stream) = 0;  // what is enqueued on `stream` later starts after the event

  // True: nothing is under way. Throws what has failed.
  virtual bool Idle() = 0;
  virtual void Synchronize() = 0;

  // Spans of ops, by task: marks around what a stream executes; read after Synchronize, in ns since the first mark.
  virtual void Mark(int mark, int stream) = 0;
  virtual int64_t MarkTime(int mark) = 0;
  virtual int64_t PeakBytes() const = 0;  // of device memory that this rank holds
};

}  // namespace orrery::exec
