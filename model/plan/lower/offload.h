// SPDX-License-Identifier: Apache-2.0
// States and activations in memory of the host: what is legal, which units move, the copies around their use.
//
// Gradients stay on the device until their norm is known; then they go to the host, the CPU updates, and weights come back. Or
// (StreamsGradients) each backward pass sends them, and what it adds to comes back for that.
// Activations move in a pass over finished blocks, so that no emitter knows of it.
#pragma once

#include <optional>
#include <vector>

#include "model/plan/ir/plan.h"
#include "model/plan/lower/lower.h"

namespace orrery {

std::optional<Refusal> CheckOffload(const ModelSpec& model, const Workload& work,
                                    const Strategy& strategy);

// By unit, in order: whether its states are on the host. From the first on, as long as all of them together hold no more
// than `share` of the elements (as Megatron-Core's HybridDeviceOptimizer goes through parameters).
std::vector<char> UnitsOnHost(const std::vector<double>& elements, double share);

// Streams of copies to the host and back, and of the CPU, behind the other streams of a plan.
enum class HostStream : uint8_t { kDown, kUp, kCpu };
inline constexpr const char* kHostStreamNames[] = {"d2h", "h2d", "host"};

// Of a stage's program: activations that one forward block writes and its backward block alone reads, for each layer of
// the chunk but the last, travel: behind the forward pass of the layer after their own to a buffer of the host, in front
// of that layer's backward pass to a second buffer of the device. `first`: index of HostStream::kDown. `layers`: of the
// first so many layers of the chunk alone; 0: of all but the last.
void OffloadActivations(int forward_block, int backward_block, uint8_t first, int layers,
                        ir::Program* program);

// Bytes that OffloadActivations would move, by layer, of layers with one of their chunk behind them.
std::vector<double> KeptBytes(const ir::Program& program, int forward_block, int backward_block);

}  // namespace orrery
