// SPDX-License-Identifier: Apache-2.0
// Memory, streams, events and staging of one GPU.
#include "runtime/device/cuda/device.h"

#include <fmt/format.h>

#include <cstring>
#include <mutex>
#include <utility>

#include "runtime/device/cuda/capture.h"
#include "runtime/device/cuda/ops.h"
#include "runtime/device/cuda/probe.h"
#include "runtime/device/cuda/products_lt.h"
#include "runtime/device/cuda/staging.h"
#include "runtime/device/cuda/status.h"

namespace orrery::cuda {
namespace {

// Of each stream that computes: kernels' scratch memory, and the workspace that the vendor advises for Hopper.
constexpr int64_t kScratchBytes = int64_t{32} << 20, kWorkspaceBytes = int64_t{32} << 20;
constexpr int64_t kStepBytes = 512;  // the step's number, in memory of its own
constexpr int64_t kBehindStream = kScratchBytes + kWorkspaceBytes + kStepBytes;

class CudaDevice : public device::Accelerator {
 public:
  CudaDevice(int index, bool graphs) : index_(index), graphs_(graphs) {
    Check(cudaSetDevice(index), "choosing a GPU");
    cudaDeviceProp properties{};
    Check(cudaGetDeviceProperties(&properties, index), "asking a GPU for its properties");
    name_ = properties.name;
  }

  ~CudaDevice() override {
    cudaSetDevice(index_);
    cudaDeviceSynchronize();
    streams_.clear();
    captures_.clear();
    products_.reset();
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
    for (const cudaEvent_t mark : marks_) cudaEventDestroy(mark);
    for (const Queue& queue : queues_) cudaStreamDestroy(static_cast<cudaStream_t>(queue.stream));
    cudaFree(memory_);
    cudaFreeHost(host_memory_);
  }

  std::string Name() const override { return name_; }

  std::byte* Start(const device::Needs& needs) override {
    const auto round = [](int64_t n) { return (n + 511) / 512 * 512; };
    int64_t behind = 0;
    for (const uint8_t computes : needs.computes) behind += computes != 0 ? kBehindStream : 0;
    const int64_t arena = round(needs.arena_bytes);
    bytes_ = arena + behind + 512;
    Allocate(arena);
    Check(cudaMemset(memory_, needs.fill, static_cast<size_t>(arena)), "filling the arena");
    std::byte* next = memory_ + arena;
    fault_ = reinterpret_cast<int*>(next);
    Check(cudaMemset(fault_, 0, 512), "filling the arena");
    MakeStreams(needs, next + 512);
    MakeEvents(needs);
    products_ = MakeProducts();
    for (Queue& queue : queues_) queue.products = products_.get();
    Check(cudaDeviceSynchronize(), "filling the arena");
    return memory_;
  }

  void* StreamHandle(int stream) override {
    streams_[At(stream)].Flush();
    return queues_[At(stream)].stream;
  }
  int64_t Bytes() const override { return bytes_; }

  void Upload(void* to, const void* from, int64_t bytes, int stream) override {
    streams_[At(stream)].Flush();
    staging_.Copy(from, bytes, [&](const void* staged, int64_t offset, int64_t n) {
      Check(cudaMemcpyAsync(static_cast<std::byte*>(to) + offset, staged, static_cast<size_t>(n),
                            cudaMemcpyHostToDevice, Stream(stream)),
            "copying to the GPU");
    });
  }

  void Download(void* to, const void* from, int64_t bytes) override {
    Synchronize();
    Check(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost),
          "copying from the GPU");
  }

  std::byte* HostMemory(int64_t bytes, int fill) override {
    const auto size = static_cast<size_t>(bytes);
    Check(cudaHostAlloc(reinterpret_cast<void**>(&host_memory_), size, cudaHostAllocDefault),
          "allocating memory of the host");
    std::memset(host_memory_, fill, size);
    return host_memory_;
  }
  void CopyAcross(void* to, const void* from, int64_t bytes, int stream) override {
    streams_[At(stream)].Flush();
    Check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, Stream(stream)),
          "copying between GPU and host");
  }
  void RunOnHost(const cpu::KernelArgs& args, cpu::Kernel kernel, int stream) override {
    streams_[At(stream)].Flush();
    auto call = std::make_unique<HostCall>(HostCall{args, kernel, this});
    Check(cudaLaunchHostFunc(Stream(stream), &CudaDevice::CallHost, call.get()),
          "enqueueing an op of the CPU");
    (void)call.release();  // CallHost deletes it
  }

  void Run(const cpu::KernelArgs& args, int stream) override { streams_[At(stream)].Run(args); }

  void Record(int event, int stream) override {
    streams_[At(stream)].Flush();
    Check(cudaEventRecord(events_[At(event)], Stream(stream)), "recording an event");
  }
  void Await(int event, int stream) override {
    streams_[At(stream)].Flush();
    Check(cudaStreamWaitEvent(Stream(stream), events_[At(event)], 0), "waiting for an event");
  }

  bool Finished() override {
    for (OpStream& stream : streams_) stream.Flush();
    for (const Queue& queue : queues_) {
      const cudaError_t status = cudaStreamQuery(static_cast<cudaStream_t>(queue.stream));
      if (status == cudaErrorNotReady) return false;
      Check(status, "a step on the GPU");
    }
    Settle();
    return true;
  }

  void Synchronize() override {
    for (size_t s = 0; s < queues_.size(); ++s) {
      streams_[s].Flush();
      Check(cudaStreamSynchronize(static_cast<cudaStream_t>(queues_[s].stream)),
            "waiting for the GPU");
    }
    Settle();
  }

  void Mark(int mark, int stream) override {
    streams_[At(stream)].Behind([this, mark, stream] {
      Check(cudaEventRecord(marks_[At(mark)], Stream(stream)), "recording a mark");
    });
    if (first_mark_ < 0) first_mark_ = mark;
  }

  int64_t MarkTime(int mark) override {
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, marks_[At(first_mark_)], marks_[At(mark)]),
          "reading a mark");
    return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
  }

 private:
  struct HostCall {
    cpu::KernelArgs args;
    cpu::Kernel kernel;
    CudaDevice* device;
  };
  // On a thread of the driver, which no exception may leave: Settle() throws what it says.
  static void CUDART_CB CallHost(void* data) {
    const std::unique_ptr<HostCall> call(static_cast<HostCall*>(data));
    try {
      call->kernel(call->args);
    } catch (const std::exception& error) {
      const std::lock_guard lock(call->device->host_mutex_);
      if (call->device->host_error_.empty()) call->device->host_error_ = error.what();
    }
  }

  static size_t At(int i) { return static_cast<size_t>(i); }
  cudaStream_t Stream(int i) const { return static_cast<cudaStream_t>(queues_[At(i)].stream); }

  void MakeStreams(const device::Needs& needs, std::byte* next) {
    for (const uint8_t computes : needs.computes) {
      cudaStream_t stream = nullptr;
      Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
      Queue queue;
      queue.stream = stream;
      queue.fault = fault_;
      if (computes != 0) {
        queue.scratch = next;
        queue.scratch_bytes = kScratchBytes;
        queue.workspace = next + kScratchBytes;
        queue.workspace_bytes = kWorkspaceBytes;
        if (graphs_)
          queue.step = reinterpret_cast<int64_t*>(next + kScratchBytes + kWorkspaceBytes);
        next += kBehindStream;
      }
      queues_.push_back(queue);
    }
    for (const Queue& queue : queues_) {
      if (queue.step != nullptr) captures_.push_back(MakeCapture(queue, &staging_, &refused_));
      streams_.emplace_back(queue, queue.step != nullptr ? captures_.back().get() : nullptr);
    }
  }

  void MakeEvents(const device::Needs& needs) {
    const auto make = [](int n, unsigned flags, std::vector<cudaEvent_t>* list) {
      list->resize(static_cast<size_t>(n));
      for (cudaEvent_t& event : *list)
        Check(cudaEventCreateWithFlags(&event, flags), "making an event");
    };
    make(needs.events, cudaEventDisableTiming, &events_);
    make(needs.marks, cudaEventDefault, &marks_);
  }

  void Allocate(int64_t arena) {
    const cudaError_t status =
        cudaMalloc(reinterpret_cast<void**>(&memory_), static_cast<size_t>(bytes_));
    if (status != cudaErrorMemoryAllocation) return Check(status, "allocating the arena");
    cudaGetLastError();  // said below
    size_t free = 0, total = 0;
    Check(cudaMemGetInfo(&free, &total), "asking a GPU for its memory");
    Gpu gpu{name_};
    gpu.free_bytes = static_cast<int64_t>(free);
    gpu.total_bytes = static_cast<int64_t>(total);
    throw cpu::KernelError(NoRoom(gpu, arena, bytes_ - arena));
  }

  // Nothing is under way: staging memory is free again, and what kernels could not throw is.
  void Settle() {
    staging_.Reuse();
    {
      const std::lock_guard lock(host_mutex_);
      if (!host_error_.empty()) throw cpu::KernelError(std::exchange(host_error_, {}));
    }
    int fault = 0;
    Check(cudaMemcpy(&fault, fault_, sizeof fault, cudaMemcpyDeviceToHost), "copying from the GPU");
    if (fault == kNoFault) return;
    Check(cudaMemset(fault_, 0, sizeof fault), "clearing a fault");
    throw cpu::KernelError(FaultText(fault));
  }

  int index_;
  bool graphs_, refused_ = false;
  std::string name_;
  std::byte* memory_ = nullptr;
  std::byte* host_memory_ = nullptr;
  std::mutex host_mutex_;
  std::string host_error_;  // of ops of the CPU
  int64_t bytes_ = 0;
  int* fault_ = nullptr;
  std::vector<Queue> queues_;  // as large as it gets before the first stream refers to it
  std::vector<std::unique_ptr<Capture>> captures_;
  std::vector<OpStream> streams_;
  std::vector<cudaEvent_t> events_, marks_;
  std::unique_ptr<Products> products_;
  Staging staging_;
  int first_mark_ = -1;
};

}  // namespace

std::unique_ptr<device::Accelerator> OpenDevice(int index, bool graphs) {
  return std::make_unique<CudaDevice>(index, graphs);
}

}  // namespace orrery::cuda
