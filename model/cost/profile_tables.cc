// SPDX-License-Identifier: Apache-2.0
// Tables of the profile constants, with the range outside which a value can only be a slip.
#include "model/cost/profile_tables.h"

namespace orrery {
namespace {

constexpr bool kOptional = false;
using Gpu = GpuProfile;
using Fabric = FabricProfile;
using Stack = StackProfile;

const ConstantRow<Gpu> kGpu[] = {
    {"peak_fp32", &Gpu::peak_fp32, 0, 1e17},
    {"peak_tf32", &Gpu::peak_tf32, 0, 1e17, kOptional},
    {"peak_fp16", &Gpu::peak_fp16, 0, 1e17, kOptional},
    {"peak_bf16", &Gpu::peak_bf16, 0, 1e17, kOptional},
    {"gemm_efficiency_fp32", &Gpu::gemm_efficiency_fp32, 0.01, 1.5},
    {"gemm_efficiency_tf32", &Gpu::gemm_efficiency_tf32, 0.01, 1.5},
    {"gemm_efficiency_fp16", &Gpu::gemm_efficiency_fp16, 0.01, 1.5},
    {"gemm_efficiency_bf16", &Gpu::gemm_efficiency_bf16, 0.01, 1.5},
    {"gemm_k_overhead", &Gpu::gemm_k_overhead, 0, 4096},
    {"wave_quantisation", &Gpu::wave_quantisation, 0, 1},
    {"multiprocessors", &Gpu::multiprocessors, 1, 1e4},
    {"memory", &Gpu::memory, 1e6, 1e13},
    {"memory_context", &Gpu::memory_context, 0, 1e11, kOptional},
    {"memory_bandwidth", &Gpu::memory_bandwidth, 1e9, 1e14},
    {"memory_efficiency", &Gpu::memory_efficiency, 0.05, 1},
    {"l2_cache", &Gpu::l2_cache, 1e4, 1e10},
    {"cache_gain", &Gpu::cache_gain, 0, 10},
    {"cache_reach", &Gpu::cache_reach, 0.01, 10},
    {"flash_efficiency", &Gpu::flash_efficiency, 0.01, 1},
    {"flash_backward", &Gpu::flash_backward, 0.05, 1.5},
    {"overlap_slowdown", &Gpu::overlap_slowdown, 0, 1},
    {"ring_efficiency", &Gpu::ring_efficiency, 0.01, 1},
    {"nvls_efficiency", &Gpu::nvls_efficiency, 0, 2},
    {"scaleup_hop", &Gpu::scaleup_hop, 0, 1e-3},
    {"nvls_round_trip", &Gpu::nvls_round_trip, 0, 1e-2},
    {"collective_launch", &Gpu::collective_launch, 0, 1e-2},
    {"low_latency_bandwidth", &Gpu::low_latency_bandwidth, 0.001, 1},
    {"low_latency_hop", &Gpu::low_latency_hop, 0.01, 1},
    {"pipelining", &Gpu::pipelining, 0, 10},
    {"chain_pipelining", &Gpu::chain_pipelining, 0, 10, kOptional},
    {"local_copy", &Gpu::local_copy, 0, 1e14, kOptional},
};

const ConstantRow<Fabric> kFabric[] = {
    {"nic_ring_efficiency", &Fabric::nic_ring_efficiency, 0.01, 1},
    {"nic_tree_efficiency", &Fabric::nic_tree_efficiency, 0.01, 1},
    {"nic_nvls_tree_efficiency", &Fabric::nic_nvls_tree_efficiency, 0.01, 1},
    {"point_to_point_efficiency", &Fabric::point_to_point_efficiency, 0.01, 1},
    {"large_ring_loss", &Fabric::large_ring_loss, 0, 10},
    {"hop", &Fabric::hop, 0, 1},
    {"launch", &Fabric::launch, 0, 1},
    {"low_latency_bandwidth", &Fabric::low_latency_bandwidth, 0.001, 1},
    {"low_latency_hop", &Fabric::low_latency_hop, 0.01, 1},
    {"pipelining", &Fabric::pipelining, 0, 10},
    {"chain_pipelining", &Fabric::chain_pipelining, 0, 10, kOptional},
    {"pcie_efficiency", &Fabric::pcie_efficiency, 0.01, 1},
};

const ConstantRow<Stack> kStack[] = {
    {"kernel_gap", &Stack::kernel_gap, 0, 1e-2},
    {"host_forward_op", &Stack::host_forward_op, 0, 1e-1},
    {"host_backward_op", &Stack::host_backward_op, 0, 1e-1},
    {"host_collective", &Stack::host_collective, 0, 1e-1},
    {"host_unfused_softmax", &Stack::host_unfused_softmax, 0, 1},
    {"host_waits", &Stack::host_waits, 0, 1},
    {"timer_waits", &Stack::timer_waits, 0, 1, kOptional},
    {"mlm_all_positions", &Stack::mlm_all_positions, 0, 1, kOptional},
    {"host_multi_node", &Stack::host_multi_node, 0, 10},
    {"straggling", &Stack::straggling, 0, 0.2, kOptional},
    {"elementwise_traffic", &Stack::elementwise_traffic, 0.05, 20},
    {"softmax_traffic", &Stack::softmax_traffic, 0.5, 50},
    {"softmax_backward", &Stack::softmax_backward, 0.5, 10},
    {"full_precision_traffic", &Stack::full_precision_traffic, 0.1, 2},
    {"flash_use", &Stack::flash_use, 0.1, 5},
    {"unaligned_head_penalty", &Stack::unaligned_head_penalty, 0, 10},
    {"loss_traffic", &Stack::loss_traffic, 1, 1000},
    {"accumulation_traffic", &Stack::accumulation_traffic, 0, 100},
    {"sgd_traffic", &Stack::sgd_traffic, 1, 1e4},
    {"adam_traffic", &Stack::adam_traffic, 1, 1e4},
    {"lamb_traffic", &Stack::lamb_traffic, 1, 1e4},
    {"head_fixed", &Stack::head_fixed, 0, 10},
    {"embedding_fixed", &Stack::embedding_fixed, 0, 10},
    {"step_fixed", &Stack::step_fixed, 0, 100},
    {"step_per_layer", &Stack::step_per_layer, 0, 1},
    {"step_per_doubling", &Stack::step_per_doubling, 0, 10},
    {"tensor_latency", &Stack::tensor_latency, 0, 1e-1},
    {"tensor_latency_per_rank", &Stack::tensor_latency_per_rank, 0, 1e-1},
    {"tensor_overlap", &Stack::tensor_overlap, 0, 1},
    {"sequence_overlap", &Stack::sequence_overlap, 0, 1},
    {"scaleup_use", &Stack::scaleup_use, 0.01, 2},
    {"data_scaleup_use", &Stack::data_scaleup_use, 0.01, 2},
    {"data_nic_use", &Stack::data_nic_use, 0.01, 2},
    {"data_nic_apart", &Stack::data_nic_apart, 0.01, 1},
    {"bucket", &Stack::bucket, 1, 1e15},
    {"data_exposed", &Stack::data_exposed, 0, 1},
    {"data_exposed_replicas", &Stack::data_exposed_replicas, 0, 1, kOptional},
    {"gather_latency", &Stack::gather_latency, 0, 1},
    {"gather_latency_growth", &Stack::gather_latency_growth, 0, 10},
    {"gather_scaleup_use", &Stack::gather_scaleup_use, 0.01, 2},
    {"gather_nic_use", &Stack::gather_nic_use, 0.01, 2},
    {"pipeline_latency", &Stack::pipeline_latency, 0, 1},
    {"pipeline_nic_use", &Stack::pipeline_nic_use, 0.01, 2},
    {"pipeline_exposed", &Stack::pipeline_exposed, 0, 1},
    {"memory_buffers", &Stack::memory_buffers, 0, 1e12},
    {"memory_communicator", &Stack::memory_communicator, 0, 1e11},
    {"memory_fragmentation", &Stack::memory_fragmentation, 0, 10},
    {"memory_loss", &Stack::memory_loss, 0, 64},
    {"memory_gradient_copy", &Stack::memory_gradient_copy, 0, 16},
    {"memory_nearly_full", &Stack::memory_nearly_full, 0.1, 1},
    {"residual_low", &Stack::residual_low, 0.01, 1},
    {"residual_high", &Stack::residual_high, 1, 100},
};

}  // namespace

std::span<const ConstantRow<GpuProfile>> GpuConstants() { return kGpu; }
std::span<const ConstantRow<FabricProfile>> FabricConstants() { return kFabric; }
std::span<const ConstantRow<StackProfile>> StackConstants() { return kStack; }

}  // namespace orrery
