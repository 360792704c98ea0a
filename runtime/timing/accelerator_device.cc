// SPDX-License-Identifier: Apache-2.0
// Kernels timed on a device by its own marks.
#include <algorithm>

#include "runtime/timing/call_memory.h"
#include "runtime/timing/time_kernel.h"

namespace orrery::bench {
namespace {

class AcceleratorDevice : public KernelDevice {
 public:
  AcceleratorDevice(std::unique_ptr<device::Accelerator> accelerator, int64_t arena_bytes)
      : accelerator_(std::move(accelerator)) {
    device::Needs needs;
    needs.arena_bytes = std::max<int64_t>(arena_bytes, 1);
    needs.computes = {1};
    needs.marks = 2;
    arena_ = accelerator_->Start(needs);
  }

  std::string Name() const override { return accelerator_->Name(); }
  std::byte* Arena() override { return arena_; }
  void Upload(void* to, const void* from, int64_t bytes) override {
    UploadAll(accelerator_.get(), to, from, bytes);
  }
  void Run(const cpu::KernelArgs& args) override {
    accelerator_->Run(args, 0);
    accelerator_->Synchronize();
  }
  double Time(const cpu::KernelArgs& args, int64_t calls) override {
    accelerator_->Mark(0, 0);
    for (int64_t i = 0; i < calls; ++i) accelerator_->Run(args, 0);
    accelerator_->Mark(1, 0);
    accelerator_->Synchronize();
    return std::max(
        1e-9 * static_cast<double>(accelerator_->MarkTime(1) - accelerator_->MarkTime(0)), 1e-9);
  }

 private:
  std::unique_ptr<device::Accelerator> accelerator_;
  std::byte* arena_ = nullptr;
};

}  // namespace

void UploadAll(device::Accelerator* accelerator, void* to, const void* from, int64_t bytes) {
  constexpr int64_t kPiece = int64_t{64} << 20;  // what waits in pinned memory
  for (int64_t at = 0; at < bytes; at += kPiece) {
    accelerator->Upload(static_cast<std::byte*>(to) + at, static_cast<const std::byte*>(from) + at,
                        std::min(kPiece, bytes - at), 0);
    accelerator->Synchronize();
  }
}

std::unique_ptr<KernelDevice> MakeKernelDevice(std::unique_ptr<device::Accelerator> accelerator,
                                               int64_t arena_bytes) {
  return std::make_unique<AcceleratorDevice>(std::move(accelerator), arena_bytes);
}

}  // namespace orrery::bench
