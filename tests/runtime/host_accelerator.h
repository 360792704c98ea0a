// SPDX-License-Identifier: Apache-2.0
// Test support: a device whose memory is the host's; what is enqueued on its streams belongs to
// somebody else, who is asked whether a stream is empty. It runs no kernels.
#pragma once

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "runtime/device/accelerator.h"

namespace orrery::runtime_test {

class HostAccelerator : public device::Accelerator {
 public:
  explicit HostAccelerator(std::function<bool(void*)> empty) : empty_(std::move(empty)) {}

  std::string Name() const override { return "host"; }
  std::byte* Start(const device::Needs& needs) override {
    arena_.resize(static_cast<std::size_t>(needs.arena_bytes));
    streams_.resize(needs.computes.size());
    return arena_.data();
  }
  void* StreamHandle(int stream) override { return &streams_.at(static_cast<std::size_t>(stream)); }
  int64_t Bytes() const override { return static_cast<int64_t>(arena_.size()); }
  void Upload(void* to, const void* from, int64_t bytes, int) override {
    Synchronize();
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void Download(void* to, const void* from, int64_t bytes) override {
    Synchronize();
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  std::byte* HostMemory(int64_t bytes, int fill) override {
    host_.assign(static_cast<std::size_t>(bytes), static_cast<std::byte>(fill));
    return host_.data();
  }
  void CopyAcross(void* to, const void* from, int64_t bytes, int) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void RunOnHost(const cpu::KernelArgs& args, cpu::Kernel kernel, int) override { kernel(args); }
  void Run(const cpu::KernelArgs&, int) override { throw cpu::KernelError("no kernels"); }
  void Record(int, int) override {}
  void Await(int, int) override {}
  bool Finished() override {
    for (char& stream : streams_) {
      if (!empty_(&stream)) return false;
    }
    return true;
  }
  void Synchronize() override {
    if (!Finished()) throw cpu::KernelError("something is under way");
  }
  void Mark(int mark, int) override { marks_[mark] = Now(); }
  int64_t MarkTime(int mark) override { return marks_.at(mark); }

 private:
  static int64_t Now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  std::function<bool(void*)> empty_;
  std::vector<std::byte> arena_, host_;
  std::vector<char> streams_;
  std::map<int, int64_t> marks_;
};

}  // namespace orrery::runtime_test
