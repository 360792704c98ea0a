// SPDX-License-Identifier: Apache-2.0
// The host's memory and a device's.
#include "runtime/timing/call_memory.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <vector>

namespace orrery::bench {
namespace {

constexpr std::align_val_t kAligned{256};

class HostMemory : public CallMemory {
 public:
  ~HostMemory() override { ::operator delete(memory_, kAligned); }
  std::byte* Allocate(int64_t bytes) override {
    ::operator delete(memory_, kAligned);
    memory_ = nullptr;
    const auto n = static_cast<std::size_t>(std::max<int64_t>(bytes, 1));
    memory_ = static_cast<std::byte*>(::operator new(n, kAligned));
    std::memset(memory_, 0, n);  // sums stay in range
    return memory_;
  }
  void* stream() override { return nullptr; }
  void Write(std::byte* to, int64_t, const std::function<void(std::byte*)>& write) override {
    write(to);
  }
  void Read(const std::byte* from, int64_t,
            const std::function<void(const std::byte*)>& read) override {
    read(from);
  }
  void Copy(std::byte* to, const std::byte* from, int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void Begin() override { begin_ = Clock::now(); }
  void End() override { end_ = Clock::now(); }
  bool Finished() override { return true; }
  double Seconds() override { return std::chrono::duration<double>(end_ - begin_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  std::byte* memory_ = nullptr;
  Clock::time_point begin_, end_;
};

class DeviceMemory : public CallMemory {
 public:
  explicit DeviceMemory(const CallDevice& device)
      : accelerator_(device.accelerator), queue_(device.queue) {
    device::Needs needs;
    needs.arena_bytes = std::max<int64_t>(device.bytes, 1);
    needs.computes = {0};
    needs.marks = 2;
    arena_ = accelerator_->Start(needs);
  }
  std::byte* Allocate(int64_t) override { return arena_; }
  void* stream() override { return accelerator_->StreamHandle(0); }
  void Write(std::byte* to, int64_t bytes, const std::function<void(std::byte*)>& write) override {
    std::vector<std::byte> host(static_cast<std::size_t>(bytes));
    write(host.data());
    UploadAll(accelerator_, to, host.data(), bytes);
  }
  void Read(const std::byte* from, int64_t bytes,
            const std::function<void(const std::byte*)>& read) override {
    std::vector<std::byte> host(static_cast<std::size_t>(bytes));
    if (bytes > 0) accelerator_->Download(host.data(), from, bytes);
    read(host.data());
  }
  void Copy(std::byte* to, const std::byte* from, int64_t bytes) override {
    if (bytes > 0) queue_->Copy(to, from, bytes, stream());
  }
  void Begin() override { accelerator_->Mark(0, 0); }
  void End() override { accelerator_->Mark(1, 0); }
  bool Finished() override { return accelerator_->Finished(); }
  double Seconds() override {
    return 1e-9 * static_cast<double>(accelerator_->MarkTime(1) - accelerator_->MarkTime(0));
  }

 private:
  device::Accelerator* accelerator_;
  comm::DeviceQueue* queue_;
  std::byte* arena_ = nullptr;
};

}  // namespace

std::unique_ptr<CallMemory> MakeHostMemory() { return std::make_unique<HostMemory>(); }
std::unique_ptr<CallMemory> MakeDeviceMemory(const CallDevice& device) {
  return std::make_unique<DeviceMemory>(device);
}

}  // namespace orrery::bench
