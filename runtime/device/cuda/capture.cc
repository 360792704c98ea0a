// SPDX-License-Identifier: Apache-2.0
// Captures what is started on a stream, and launches it as a graph.
#include "runtime/device/cuda/capture.h"

#include <fmt/format.h>

#include <cstdio>

#include "runtime/device/cuda/status.h"

namespace orrery::cuda {
namespace {

class StreamCapture : public Capture {
 public:
  StreamCapture(const Queue& queue, Staging* staging, bool* refused)
      : queue_(queue), staging_(staging), refused_(refused) {}
  ~StreamCapture() override {
    for (const cudaGraphExec_t graph : graphs_) cudaGraphExecDestroy(graph);
  }

  void SetStep(int64_t step) override {
    auto* const to = reinterpret_cast<std::byte*>(queue_.step);
    staging_->Copy(&step, sizeof step, [&](const void* staged, int64_t offset, int64_t n) {
      Check(cudaMemcpyAsync(to + offset, staged, static_cast<size_t>(n), cudaMemcpyHostToDevice,
                            Stream()),
            "copying to the GPU");
    });
  }

  // Of this thread alone: other ranks of the process go on with what they do.
  void Begin() override {
    Check(cudaStreamBeginCapture(Stream(), cudaStreamCaptureModeThreadLocal),
          "beginning a capture");
  }

  int End() override {
    cudaGraph_t recorded = nullptr;
    Check(cudaStreamEndCapture(Stream(), &recorded), "ending a capture");
    cudaGraphExec_t graph = nullptr;
    const cudaError_t status = cudaGraphInstantiateWithFlags(&graph, recorded, 0);
    cudaGraphDestroy(recorded);
    Check(status, "making a graph");
    graphs_.push_back(graph);
    return static_cast<int>(graphs_.size()) - 1;
  }

  void Abandon() override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(Stream(), &status) == cudaSuccess &&
        status != cudaStreamCaptureStatusNone) {
      cudaGraph_t recorded = nullptr;
      cudaStreamEndCapture(Stream(), &recorded);
      if (recorded != nullptr) cudaGraphDestroy(recorded);
    }
    cudaGetLastError();  // said by Refused
  }

  void Launch(int graph) override {
    Check(cudaGraphLaunch(graphs_.at(static_cast<size_t>(graph)), Stream()), "launching a graph");
  }

  void Refused(const std::string& why) override {
    if (*refused_) return;
    *refused_ = true;
    fmt::print(stderr, "--cuda-graphs: no more graphs, ops are started one by one: {}\n", why);
  }

 private:
  cudaStream_t Stream() const { return static_cast<cudaStream_t>(queue_.stream); }

  const Queue& queue_;
  Staging* staging_;
  bool* refused_;
  std::vector<cudaGraphExec_t> graphs_;
};

}  // namespace

std::unique_ptr<Capture> MakeCapture(const Queue& queue, Staging* staging, bool* refused) {
  return std::make_unique<StreamCapture>(queue, staging, refused);
}

}  // namespace orrery::cuda
