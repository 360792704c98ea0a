// SPDX-License-Identifier: Apache-2.0
// Streams as queues of actions, executed in a random order that keeps what CUDA promises.
#include "tests/cuda_emulation/emulated_device.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <random>

#include "runtime/device/cuda/graphs.h"
#include "runtime/device/cuda/ops.h"
#include "runtime/device/cuda/products.h"

namespace orrery {
namespace {

constexpr int64_t kScratch = int64_t{1} << 22;

int64_t Nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

float GeluOf(float x) {
  return static_cast<float>(x / (1 + std::exp(-1.5957691216057308 * (x + 0.044715 * x * x * x))));
}
float GeluSlopeOf(float x) {
  const double s = 1 / (1 + std::exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)));
  return static_cast<float>(s + x * s * (1 - s) * 1.5957691216057308 * (1 + 3 * 0.044715 * x * x));
}

// What the vendor's library does, by the plain kernel.
class EmulatedProducts : public cuda::Products {
 public:
  explicit EmulatedProducts(EmulatedCounts* counts) : counts_(counts) {}
  bool Multiply(const cuda::Queue& queue, const cuda::Product& p) override {
    cuda::MultiplyPlainly(queue, p);
    const bool fused = !p.activated.absent() || !p.gelu_input.absent();
    if (counts_ != nullptr && fused) ++counts_->fused;
    if (fused) emulation::Perform([p] { Activate(p); });
    return true;
  }

 private:
  static void Activate(const cuda::Product& p) {
    for (int64_t i = 0; i < p.m * p.n; ++i) {
      const float c = cuda::Load(p.c, i);
      if (!p.activated.absent()) cuda::Store(p.activated, i, GeluOf(c));
      if (!p.gelu_input.absent()) cuda::Store(p.c, i, c * GeluSlopeOf(cuda::Load(p.gelu_input, i)));
    }
  }

  EmulatedCounts* counts_;
};

// Graphs are launches with the arguments that they were recorded with.
class EmulatedCapture : public cuda::Capture {
 public:
  EmulatedCapture(int64_t* step, bool refuses, EmulatedCounts* counts)
      : step_(step), refuses_(refuses), counts_(counts) {}
  void SetStep(int64_t step) override { *step_ = step; }
  void Begin() override { emulation::StartRecording(); }
  int End() override {
    if (refuses_) throw cpu::KernelError("no graphs here");
    graphs_.push_back(emulation::StopRecording());
    ++counts_->captures;
    return static_cast<int>(graphs_.size()) - 1;
  }
  void Abandon() override { emulation::StopRecording(); }
  void Launch(int graph) override {
    for (const auto& action : graphs_.at(static_cast<size_t>(graph))) action();
    ++counts_->launches;
  }
  void Refused(const std::string&) override { ++counts_->refusals; }

 private:
  int64_t* step_;
  const bool refuses_;
  EmulatedCounts* counts_;
  std::vector<emulation::Recording> graphs_;
};

class EmulatedDevice : public device::Accelerator {
 public:
  EmulatedDevice(bool later, uint64_t seed, EmulatedCounts* counts, Graphs graphs)
      : later_(later), graphs_(graphs), counts_(counts), products_(counts), random_(seed) {}
  ~EmulatedDevice() override { std::free(arena_); }

  std::string Name() const override { return "emulated"; }
  std::byte* Start(const device::Needs& needs) override {
    bytes_ = (needs.arena_bytes + 4095) / 4096 * 4096 + 4096;
    arena_ = static_cast<std::byte*>(std::aligned_alloc(4096, static_cast<size_t>(bytes_)));
    std::memset(arena_, needs.fill, static_cast<size_t>(bytes_));
    streams_.resize(needs.computes.size());
    recorded_.assign(static_cast<size_t>(needs.events), false);
    for (Stream& s : streams_) {
      s.scratch.assign(kScratch / sizeof(double), std::nan(""));
      s.queue.scratch = s.scratch.data();
      s.queue.scratch_bytes = kScratch;
      s.queue.fault = &fault_;
      s.queue.products = &products_;
      if (graphs_ != Graphs::kOff) {
        s.queue.step = &s.step;
        s.capture =
            std::make_unique<EmulatedCapture>(&s.step, graphs_ == Graphs::kRefused, counts_);
      }
      s.ops = std::make_unique<cuda::OpStream>(s.queue, s.capture.get());
    }
    return arena_;
  }
  void* StreamHandle(int stream) override {
    if (!later_) streams_[At(stream)].ops->Flush();
    return &streams_[At(stream)];
  }
  int64_t Bytes() const override { return bytes_; }

  void Upload(void* to, const void* from, int64_t bytes, int stream) override {
    std::vector<std::byte> staged(static_cast<const std::byte*>(from),
                                  static_cast<const std::byte*>(from) + bytes);
    Add(stream, [this, to, stream, staged = std::move(staged)] {
      streams_[At(stream)].ops->Flush();
      std::memcpy(to, staged.data(), staged.size());
      return true;
    });
  }
  void Download(void* to, const void* from, int64_t bytes) override {
    Synchronize();
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  std::byte* HostMemory(int64_t bytes, int fill) override {
    host_.assign(static_cast<size_t>(bytes), static_cast<std::byte>(fill));
    return host_.data();
  }
  void CopyAcross(void* to, const void* from, int64_t bytes, int stream) override {
    Add(stream, [this, to, from, bytes, stream] {
      streams_[At(stream)].ops->Flush();
      std::memcpy(to, from, static_cast<size_t>(bytes));
      return true;
    });
  }
  void RunOnHost(const cpu::KernelArgs& args, cpu::Kernel kernel, int stream) override {
    Add(stream, [this, args, kernel, stream] {
      streams_[At(stream)].ops->Flush();
      kernel(args);
      return true;
    });
  }

  void Run(const cpu::KernelArgs& args, int stream) override {
    if (counts_ != nullptr) ++counts_->ops;
    Add(stream, [this, args, stream] {
      streams_[At(stream)].ops->Run(args);
      return true;
    });
  }
  void Record(int event, int stream) override {
    known_.insert(known_.end(), event);
    Add(stream, [this, event, stream] {
      streams_[At(stream)].ops->Flush();
      recorded_[At(event)] = true;
      return true;
    });
  }
  void Await(int event, int stream) override {
    if (std::find(known_.begin(), known_.end(), event) == known_.end())
      throw cpu::KernelError("an event is awaited before it is recorded");
    Add(stream, [this, event, stream] {
      if (!recorded_[At(event)]) return false;
      streams_[At(stream)].ops->Flush();
      return true;
    });
  }
  bool Finished() override {
    Synchronize();
    return true;
  }
  void Synchronize() override {
    while (Step()) {
    }
    for (Stream& s : streams_) {
      if (!s.actions.empty()) throw cpu::KernelError("streams wait for each other");
      s.ops->Flush();
    }
    recorded_.assign(recorded_.size(), false);
    known_.clear();
    if (fault_ != 0) throw cpu::KernelError(cuda::FaultText(std::exchange(fault_, 0)));
  }

  void Mark(int mark, int stream) override {
    Add(stream, [this, mark, stream] {
      streams_[At(stream)].ops->Behind([this, mark] {
        if (times_.size() <= At(mark)) times_.resize(At(mark) + 1);
        times_[At(mark)] = clock_ = std::max(clock_ + 1, Nanoseconds());
      });
      return true;
    });
  }
  int64_t MarkTime(int mark) override { return times_.at(At(mark)); }

 private:
  struct Stream {
    std::deque<std::function<bool()>> actions;  // false: not yet
    std::vector<double> scratch;
    cuda::Queue queue;
    int64_t step = 0;
    std::unique_ptr<cuda::Capture> capture;
    std::unique_ptr<cuda::OpStream> ops;
  };
  static size_t At(int i) { return static_cast<size_t>(i); }

  void Add(int stream, std::function<bool()> action) {
    if (!later_) {
      if (!action()) throw cpu::KernelError("an event is awaited before it is recorded");
      return;
    }
    streams_[At(stream)].actions.push_back(std::move(action));
  }

  // Executes something on one of the streams that can move.
  bool Step() {
    std::vector<size_t> order(streams_.size());
    for (size_t s = 0; s < order.size(); ++s) order[s] = s;
    std::shuffle(order.begin(), order.end(), random_);
    for (const size_t s : order) {
      auto& actions = streams_[s].actions;
      if (actions.empty() || !actions.front()()) continue;
      actions.pop_front();
      return true;
    }
    return false;
  }

  const bool later_;
  const Graphs graphs_;
  EmulatedCounts* counts_;
  EmulatedProducts products_;
  std::mt19937_64 random_;
  std::vector<std::byte> host_;
  std::byte* arena_ = nullptr;
  int64_t bytes_ = 0, clock_ = 0;
  int fault_ = 0;
  std::vector<Stream> streams_;
  std::vector<bool> recorded_;
  std::vector<int> known_;
  std::vector<int64_t> times_;
};

}  // namespace

std::unique_ptr<device::Accelerator> OpenEmulatedDevice(bool later, uint64_t seed,
                                                        EmulatedCounts* counts, Graphs graphs) {
  return std::make_unique<EmulatedDevice>(later, seed, counts, graphs);
}

}  // namespace orrery
