// SPDX-License-Identifier: Apache-2.0
// What the executor asks of a device that has its own memory and executes asynchronously, in the order of streams.
//
// Streams are the plan's, by index. Everything but Start, Download and Synchronize returns as soon as it is enqueued.
// Errors are thrown as cpu::KernelError, a lack of memory as std::bad_alloc. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/device/cpu/kernels.h"

namespace orrery::device {

struct Needs {
  int64_t arena_bytes = 0, alignment = 256;
  int fill = 0;                   // what each byte of the arena holds at first
  std::vector<uint8_t> computes;  // by stream: whether kernels run on it
  int events = 0, marks = 0;
};

class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual std::string Name() const = 0;  // "NVIDIA H200"

  // Called once: allocates the arena, in one piece with what kernels need besides, and makes streams. Returns the arena.
  virtual std::byte* Start(const Needs& needs) = 0;
  virtual void* StreamHandle(int stream) = 0;  // cudaStream_t
  virtual int64_t Bytes() const = 0;           // of device memory that this rank holds

  // `from` may be reused at once.
  virtual void Upload(void* to, const void* from, int64_t bytes, int stream) = 0;
  virtual void Download(void* to, const void* from,
                        int64_t bytes) = 0;  // after everything enqueued before

  // Memory of the host that the device copies from and to at full rate; called once at most, lives as long as this.
  virtual std::byte* HostMemory(int64_t bytes, int fill) = 0;
  // Between the arena and that memory, in either direction.
  virtual void CopyAcross(void* to, const void* from, int64_t bytes, int stream) = 0;
  // A kernel of the CPU on operands in that memory, in the order of the stream. As of Run().
  virtual void RunOnHost(const cpu::KernelArgs& args, cpu::Kernel kernel, int stream) = 0;

  // Operands and what else `args` points to must outlive the step.
  virtual void Run(const cpu::KernelArgs& args, int stream) = 0;
  virtual void Record(int event, int stream) = 0;
  virtual void Await(int event,
                     int stream) = 0;  // what is enqueued on `stream` later starts after the event

  // False: something is under way. Throws what has failed, indices that kernels refused included.
  virtual bool Finished() = 0;
  virtual void Synchronize() = 0;

  // Marks in streams, and when they were passed: ns of any one clock, to be read when all is finished.
  virtual void Mark(int mark, int stream) = 0;
  virtual int64_t MarkTime(int mark) = 0;
};

}  // namespace orrery::device
