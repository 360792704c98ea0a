// SPDX-License-Identifier: Apache-2.0
// One op of a plan, alone, on a device: its operands filled with random numbers, its time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/plan/ir/op.h"
#include "runtime/device/accelerator.h"

namespace orrery::bench {

struct KernelOperand {
  int64_t n = 0;  // elements
  ir::Dtype dtype = ir::Dtype::kF32;
  int same_as = -1;  // an output that is input number `same_as`
};

struct KernelCase {
  ir::Op op;  // kind and attributes; operands stand in `in` and `out`
  std::vector<KernelOperand> in, out;
  // Run once before: its outputs are inputs of this one, by number (-1: dropped).
  std::shared_ptr<const KernelCase> before;
  std::vector<int> before_in, before_out;  // by operand of `before`: input of this one
};

int64_t ArenaBytes(const KernelCase& one);

struct KernelTime {
  double seconds = 0, low = 0, high = 0;  // of one call: median, 10th and 90th percentile
  int64_t calls = 0;
};

// A device as this bench sees it.
class KernelDevice {
 public:
  virtual ~KernelDevice() = default;
  virtual std::string Name() const = 0;
  virtual std::byte* Arena() = 0;  // of the bytes that it was made with
  virtual void Upload(void* to, const void* from, int64_t bytes) = 0;
  virtual void Run(const cpu::KernelArgs& args) = 0;
  // Seconds that `calls` runs take, one after the other.
  virtual double Time(const cpu::KernelArgs& args, int64_t calls) = 0;
};
std::unique_ptr<KernelDevice> MakeCpuDevice(int64_t arena_bytes);
// Times by the device's marks: calls follow one another without the host between them.
std::unique_ptr<KernelDevice> MakeKernelDevice(std::unique_ptr<device::Accelerator> accelerator,
                                               int64_t arena_bytes);

// About `seconds` of it, after a first call. Throws cpu::KernelError, std::bad_alloc.
KernelTime TimeKernel(const KernelCase& one, KernelDevice* device, double seconds);

}  // namespace orrery::bench
