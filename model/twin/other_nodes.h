// SPDX-License-Identifier: Apache-2.0
// Nodes of a topology that compute faster or slower than the others: how much.
#pragma once

#include "model/arch/model_spec.h"
#include "model/arch/workload.h"
#include "model/hardware/profile.h"
#include "model/hardware/spec.h"

namespace orrery {

// Fills topology->slowdown from its other_nodes: kernels of one layer, forward and backward, of a micro-batch of one sequence
// by the other GPU's profile over those by the topology's, times `slower`. One factor stands for all kernels of a node.
// And topology->gpu_memory and gpu_peak, where GPUs differ; a peak of 0: the node's GPUs do not compute in this precision.
void PriceOtherNodes(const ModelSpec& model, const Workload& work, bool flash_attention,
                     const std::string& framework, TopologySpec* topology);

// How many nodes, from node 0 on, compute in the precision that PriceOtherNodes() was told.
int64_t NodesThatCompute(const TopologySpec& topology);
// Throws InputError: the first `nodes` nodes hold a GPU that does not.
void CheckNodesCompute(const TopologySpec& topology, int64_t nodes);

}  // namespace orrery
