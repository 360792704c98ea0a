// SPDX-License-Identifier: Apache-2.0
// Operands, calls and medians.
#include "runtime/timing/time_kernel.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <new>

#include "runtime/half.h"

namespace orrery::bench {
namespace {

constexpr int64_t kAlignment = 256;
constexpr double kLeastSample = 1e-4;  // seconds that one reading covers
constexpr int kLeastSamples = 5, kMostSamples = 200;

using Clock = std::chrono::steady_clock;

int64_t Padded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
int64_t BytesOf(const KernelOperand& operand) {
  return Padded(operand.n * ir::DtypeBytes(operand.dtype));
}

class CpuDevice : public KernelDevice {
 public:
  explicit CpuDevice(int64_t bytes)
      : arena_(static_cast<std::byte*>(
            ::operator new (static_cast<std::size_t>(bytes), std::align_val_t{kAlignment}))) {}
  ~CpuDevice() override { ::operator delete (arena_, std::align_val_t{kAlignment}); }
  CpuDevice(const CpuDevice&) = delete;
  CpuDevice& operator=(const CpuDevice&) = delete;

  std::string Name() const override { return "CPU"; }
  std::byte* Arena() override { return arena_; }
  void Upload(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void Run(const cpu::KernelArgs& args) override { cpu::KernelFor(args.op.kind)(args); }
  double Time(const cpu::KernelArgs& args, int64_t calls) override {
    const auto begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i) Run(args);
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

 private:
  std::byte* arena_;
};

// Numbers of about unit size, the same in every run.
std::vector<std::byte> RandomNumbers(int64_t n, ir::Dtype dtype, uint64_t seed) {
  const int64_t width = ir::DtypeBytes(dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(n * width));
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const float x = static_cast<float>(state >> 40) * 0x1p-23f - 1.0f;
    const uint16_t half = dtype == ir::Dtype::kBf16 ? ToBf16(x) : ToF16(x);
    const void* from = width == 2 ? static_cast<const void*>(&half) : &x;
    if (width == 2 || width == 4)
      std::memcpy(bytes.data() + i * width, from, static_cast<std::size_t>(width));
  }
  return bytes;
}

// The operands of a case in the device's arena.
class Operands {
 public:
  Operands(const KernelCase& one, KernelDevice* device) : device_(device), next_(device->Arena()) {
    uint64_t seed = 1;
    for (const KernelOperand& operand : one.in) {
      in_.push_back(Place(operand));
      const auto numbers = RandomNumbers(operand.n, operand.dtype, seed++);
      device->Upload(in_.back().data, numbers.data(), static_cast<int64_t>(numbers.size()));
    }
    for (const KernelOperand& operand : one.out) {
      out_.push_back(operand.same_as < 0 ? Place(operand)
                                         : in_[static_cast<std::size_t>(operand.same_as)]);
    }
  }

  cpu::KernelArgs Args(const KernelCase& one) const {
    return {one.op, out_, in_, coords_, 1, nullptr, {}, 1, 0};
  }

  // Runs `one.before` on the inputs of `one`.
  void Prepare(const KernelCase& one) {
    std::vector<cpu::Operand> in, out;
    for (const int i : one.before_in) in.push_back(in_[static_cast<std::size_t>(i)]);
    for (const int i : one.before_out) out.push_back(in_[static_cast<std::size_t>(i)]);
    device_->Run({one.before->op, out, in, coords_, 1, nullptr, {}, 1, 0});
  }

 private:
  cpu::Operand Place(const KernelOperand& operand) {
    const cpu::Operand placed{next_, operand.n, operand.dtype};
    next_ += BytesOf(operand);
    return placed;
  }

  KernelDevice* device_;
  std::byte* next_;
  std::vector<cpu::Operand> in_, out_;
  std::vector<int> coords_ = std::vector<int>(8, 0);
};

double Percentile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

}  // namespace

int64_t ArenaBytes(const KernelCase& one) {
  int64_t bytes = 0;
  for (const KernelOperand& operand : one.in) bytes += BytesOf(operand);
  for (const KernelOperand& operand : one.out) {
    if (operand.same_as < 0) bytes += BytesOf(operand);
  }
  return bytes;
}

std::unique_ptr<KernelDevice> MakeCpuDevice(int64_t arena_bytes) {
  return std::make_unique<CpuDevice>(arena_bytes);
}

KernelTime TimeKernel(const KernelCase& one, KernelDevice* device, double seconds) {
  Operands operands(one, device);
  if (one.before) operands.Prepare(one);
  const cpu::KernelArgs args = operands.Args(one);
  const double first = device->Time(args, 1);
  const double once = std::min(first, device->Time(args, 1));
  const auto per = static_cast<int64_t>(std::max(1.0, std::ceil(kLeastSample / once)));
  const double wanted = seconds / (once * static_cast<double>(per));
  const auto samples = static_cast<int>(std::clamp<double>(wanted, kLeastSamples, kMostSamples));
  std::vector<double> times;
  for (int i = 0; i < samples; ++i)
    times.push_back(device->Time(args, per) / static_cast<double>(per));
  std::sort(times.begin(), times.end());
  return {Percentile(times, 0.5), Percentile(times, 0.1), Percentile(times, 0.9), per * samples};
}

}  // namespace orrery::bench
