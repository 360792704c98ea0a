// SPDX-License-Identifier: Apache-2.0
// Ranks that share a real GPU; skipped where there is none.
#include "runtime/comm/cuda_queue.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "runtime/comm/device_local.h"
#include "runtime/comm/local_collectives.h"
#include "runtime/half.h"
#include "runtime/launch/local_ranks.h"

namespace orrery::comm {
namespace {

constexpr int64_t kRanks = 4;

// Why there is nothing to test with; "": a device answers.
std::string NoDevice() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) return cudaGetErrorString(status);
  return count == 0 ? "no CUDA device" : "";
}

struct DeviceMemory {
  explicit DeviceMemory(std::size_t bytes) : size(bytes) {
    EXPECT_EQ(cudaMalloc(&data, bytes), cudaSuccess);
  }
  ~DeviceMemory() { cudaFree(data); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* data = nullptr;
  std::size_t size;
};

std::vector<std::byte> RandomOf(std::mt19937_64* random, ir::Dtype dtype, int64_t n) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(n * ir::DtypeBytes(dtype)));
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < n; ++i) {
    const float x = normal(*random);
    const uint16_t half = dtype == ir::Dtype::kBf16 ? ToBf16(x) : ToF16(x);
    const void* from = ir::DtypeBytes(dtype) == 2 ? static_cast<const void*>(&half) : &x;
    std::memcpy(bytes.data() + i * ir::DtypeBytes(dtype), from,
                static_cast<std::size_t>(ir::DtypeBytes(dtype)));
  }
  return bytes;
}

struct Sizes {
  int64_t in, out;  // elements
};
Sizes SizesOf(CollectiveKind kind, int64_t n) {
  const bool many_in = kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllToAll;
  const bool many_out = kind == CollectiveKind::kAllGather || kind == CollectiveKind::kAllToAll;
  return {many_in ? kRanks * n : n, many_out ? kRanks * n : n};
}

// What one rank gets when all do the collective on the device.
std::vector<std::byte> RunRank(Endpoint* endpoint, Collective c,
                               const std::vector<std::byte>& input, std::size_t out_bytes) {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  const DeviceMemory in(input.size()), out(out_bytes);
  std::vector<std::byte> result(out_bytes);
  const auto line = endpoint->Join(0, {0, 1, 2, 3});
  for (int repeat = 0; repeat < 20; ++repeat) {
    cudaMemcpyAsync(in.data, input.data(), input.size(), cudaMemcpyHostToDevice, stream);
    cudaMemsetAsync(out.data, 0xff, out_bytes, stream);
    c.in = in.data;
    c.out = out.data;
    c.stream = stream;
    Wait(endpoint, line->Start(c).get(), 30, "the ranks on the device");
    cudaMemcpyAsync(result.data(), out.data, out_bytes, cudaMemcpyDeviceToHost, stream);
    cudaMemsetAsync(in.data, 0xff, input.size(), stream);
  }
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess) << cudaGetErrorString(cudaGetLastError());
  Wait(endpoint, endpoint->Barrier().get(), 30, "the ranks");
  cudaStreamDestroy(stream);
  return result;
}

TEST(CudaQueue, CollectivesAreThoseOfTheCpuToTheLastBit) {
  if (const std::string why = NoDevice(); !why.empty()) GTEST_SKIP() << "no CUDA device: " << why;
  std::mt19937_64 random(11);
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather,
        CollectiveKind::kAllToAll, CollectiveKind::kBroadcast}) {
    for (const ir::Dtype dtype : {ir::Dtype::kF32, ir::Dtype::kBf16, ir::Dtype::kF16}) {
      const int64_t n = 100003;
      const Sizes sizes = SizesOf(kind, n);
      const auto out_bytes = static_cast<std::size_t>(sizes.out * ir::DtypeBytes(dtype));
      std::vector<std::vector<std::byte>> inputs, expected(kRanks);
      std::vector<Collective> parts;
      for (int64_t r = 0; r < kRanks; ++r) inputs.push_back(RandomOf(&random, dtype, sizes.in));
      for (std::size_t r = 0; r < kRanks; ++r) {
        expected[r].resize(out_bytes);
        parts.push_back({kind, inputs[r].data(), expected[r].data(), n, dtype});
      }
      Perform(parts);
      DeviceWorld world(MakeCudaQueue(0));
      const std::string failure = launch::RunLocalRanks(kRanks, [&](Endpoint* control) {
        EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
        const auto r = static_cast<std::size_t>(control->rank());
        const auto endpoint = world.Connect(control);
        const auto result = RunRank(endpoint.get(), parts[r], inputs[r], out_bytes);
        EXPECT_TRUE(result == expected[r]) << "kind " << static_cast<int>(kind) << ", type "
                                           << static_cast<int>(dtype) << ", rank " << r;
      });
      EXPECT_EQ(failure, "");
    }
  }
}

}  // namespace
}  // namespace orrery::comm
