// SPDX-License-Identifier: Apache-2.0
// Events, copies and sums over peers' memory on CUDA streams.
#include "runtime/comm/cuda_queue.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "runtime/comm/peer_sums.h"
#include "runtime/device/cuda/status.h"

namespace orrery::comm {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1056;  // 8 for each of 132 multiprocessors

__global__ void SumPeersKernel(PeerSum sum) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < sum.n;
       i += stride)
    SumElement(sum, i);
}

class CudaQueue : public DeviceQueue {
 public:
  explicit CudaQueue(int device) : device_(device) {}

  void* MakeEvent() override {
    Use();
    cudaEvent_t event = nullptr;
    cuda::Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    return event;
  }
  void FreeEvent(void* event) override { cudaEventDestroy(static_cast<cudaEvent_t>(event)); }
  void Record(void* event, void* stream) override {
    Use();
    cuda::Check(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)),
                "recording an event");
  }
  void Await(void* event, void* stream) override {
    Use();
    cuda::Check(
        cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event), 0),
        "waiting for an event");
  }
  void* MakeStream() override {
    Use();
    cudaStream_t stream = nullptr;
    cuda::Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    return stream;
  }
  void FreeStream(void* stream) override { cudaStreamDestroy(static_cast<cudaStream_t>(stream)); }
  void Copy(void* to, const void* from, int64_t bytes, void* stream) override {
    Use();
    cuda::Check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                                static_cast<cudaStream_t>(stream)),
                "copying between ranks");
  }
  void Sum(void* to, std::span<const void* const> from, int64_t n, ir::Dtype dtype, bool maximum,
           void* stream) override {
    Use();
    const auto blocks = static_cast<unsigned>(std::min((n + kThreads - 1) / kThreads, kMostBlocks));
    SumPeersKernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        MakePeerSum(to, from, n, dtype, maximum));
    cuda::Check(cudaGetLastError(), "starting the sum of the ranks");
  }

 private:
  void Use() const { cuda::Check(cudaSetDevice(device_), "choosing the device"); }
  int device_;
};

}  // namespace

std::unique_ptr<DeviceQueue> MakeCudaQueue(int device) {
  return std::make_unique<CudaQueue>(device);
}

}  // namespace orrery::comm
