// SPDX-License-Identifier: Apache-2.0
// Runs single ops on a GPU.
#include "tests/cuda_device/device_call.h"

#include <cuda_runtime_api.h>

#include <map>

#include "runtime/device/cuda/ops.h"
#include "runtime/device/cuda/probe.h"
#include "runtime/device/cuda/products_lt.h"
#include "runtime/device/cuda/status.h"

namespace orrery {
namespace {

using cuda::Check;

constexpr int64_t kScratch = int64_t{16} << 20, kWorkspace = int64_t{32} << 20;

// Memory of one call. Operands keep 256 bytes between them, filled with NaN.
class Memory {
 public:
  ~Memory() {
    for (const auto& [host, piece] : pieces_) cudaFree(piece.device);
  }
  void* Copy(void* host, int64_t bytes) {
    const auto [at, fresh] = pieces_.try_emplace(host);
    if (!fresh) return at->second.device;
    at->second.bytes = bytes;
    Check(cudaMalloc(&at->second.device, static_cast<size_t>(bytes + 256)), "test memory");
    Check(cudaMemset(at->second.device, 0xff, static_cast<size_t>(bytes + 256)), "test memory");
    Check(cudaMemcpy(at->second.device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice),
          "test memory");
    return at->second.device;
  }
  void CopyBack() {
    for (const auto& [host, piece] : pieces_)
      Check(
          cudaMemcpy(host, piece.device, static_cast<size_t>(piece.bytes), cudaMemcpyDeviceToHost),
          "test memory");
  }

 private:
  struct Piece {
    void* device = nullptr;
    int64_t bytes = 0;
  };
  std::map<void*, Piece> pieces_;
};

struct Shared {
  std::byte* memory = nullptr;
  std::unique_ptr<cuda::Products> products;
  Shared() {
    Check(cudaMalloc(reinterpret_cast<void**>(&memory), kScratch + kWorkspace + 256),
          "test memory");
    products = cuda::MakeProducts();
  }
};

std::vector<cpu::Operand> CopyAll(std::span<const cpu::Operand> operands, Memory* memory) {
  std::vector<cpu::Operand> copies(operands.begin(), operands.end());
  for (cpu::Operand& x : copies) x.data = memory->Copy(x.data, x.n * ir::DtypeBytes(x.dtype));
  return copies;
}

}  // namespace

std::string NoGpu() {
  static const std::string why =
      cuda::CheckDevices(cuda::Probe(false), ORRERY_CUDA_ARCHITECTURE).refusal;
  return why;
}

std::vector<Vector> RunOnGpu(const TypedCall& typed, ir::Dtype storage, bool vendor_products) {
  static Shared* const shared = new Shared;
  return RunTyped(typed, storage, [&](const cpu::KernelArgs& args) {
    Memory memory;
    const std::vector<cpu::Operand> out = CopyAll(args.out, &memory),
                                    in = CopyAll(args.in, &memory);
    cuda::Queue queue;
    queue.scratch = shared->memory;
    queue.scratch_bytes = kScratch;
    queue.workspace = shared->memory + kScratch;
    queue.workspace_bytes = kWorkspace;
    queue.fault = reinterpret_cast<int*>(shared->memory + kScratch + kWorkspace);
    queue.products = vendor_products ? shared->products.get() : nullptr;
    Check(cudaMemset(shared->memory, 0xff, kScratch), "test memory");
    Check(cudaMemset(queue.fault, 0, sizeof(int)), "test memory");
    cuda::Run({args.op, out, in, args.coords, args.step, args.unit, args.params, args.seed,
               args.first_sample},
              queue);
    Check(cudaDeviceSynchronize(), "running an op");
    memory.CopyBack();
  });
}

}  // namespace orrery
