// SPDX-License-Identifier: Apache-2.0
// Tables of the profile constants, with the range outside which a value can only be a slip.
#include "model/hardware/profile_tables.h"

namespace orrery {
namespace {

constexpr bool kOptional = false;
using Gpu = GpuProfile;
using Fabric = FabricProfile;

const ConstantRow<Gpu> kGpu[] = {
    {"peak_fp32", &Gpu::peak_fp32, 0, 1e17},
    {"peak_tf32", &Gpu::peak_tf32, 0, 1e17, kOptional},
    {"peak_fp16", &Gpu::peak_fp16, 0, 1e17, kOptional},
    {"peak_bf16", &Gpu::peak_bf16, 0, 1e17, kOptional},
    {"gemm_efficiency_fp32", &Gpu::gemm_efficiency_fp32, 0.01, 1.5},
    {"gemm_efficiency_tf32", &Gpu::gemm_efficiency_tf32, 0.01, 1.5},
    {"gemm_efficiency_fp16", &Gpu::gemm_efficiency_fp16, 0.01, 1.5},
    {"gemm_efficiency_bf16", &Gpu::gemm_efficiency_bf16, 0.01, 1.5},
    {"peak_fp8", &Gpu::peak_fp8, 0, 1e17, kOptional},
    {"peak_mxfp8", &Gpu::peak_mxfp8, 0, 1e17, kOptional},
    {"peak_nvfp4", &Gpu::peak_nvfp4, 0, 1e17, kOptional},
    {"gemm_efficiency_fp8", &Gpu::gemm_efficiency_fp8, 0.01, 1.5, kOptional},
    {"gemm_efficiency_fp8_block", &Gpu::gemm_efficiency_fp8_block, 0.01, 1.5, kOptional},
    {"gemm_efficiency_mxfp8", &Gpu::gemm_efficiency_mxfp8, 0.01, 1.5, kOptional},
    {"gemm_efficiency_nvfp4", &Gpu::gemm_efficiency_nvfp4, 0.01, 1.5, kOptional},
    {"clock_share", &Gpu::clock_share, 0.2, 1.2, kOptional},
    {"gemm_aligned_4", &Gpu::gemm_aligned_4, 0.01, 1, kOptional},
    {"gemm_aligned_2", &Gpu::gemm_aligned_2, 0.01, 1, kOptional},
    {"gemm_k_overhead", &Gpu::gemm_k_overhead, 0, 4096},
    {"wave_quantisation", &Gpu::wave_quantisation, 0, 1},
    {"multiprocessors", &Gpu::multiprocessors, 1, 1e4},
    {"memory", &Gpu::memory, 1e6, 1e13},
    {"memory_usable", &Gpu::memory_usable, 1e6, 1e13, kOptional},
    {"memory_growth", &Gpu::memory_growth, 0, 1e11, kOptional},
    {"memory_context", &Gpu::memory_context, 0, 1e11, kOptional},
    {"memory_workspace", &Gpu::memory_workspace, 0, 1e10, kOptional},
    {"memory_bandwidth", &Gpu::memory_bandwidth, 1e9, 1e14},
    {"memory_efficiency", &Gpu::memory_efficiency, 0.05, 1},
    {"l2_cache", &Gpu::l2_cache, 1e4, 1e10},
    {"cache_gain", &Gpu::cache_gain, 0, 10},
    {"cache_reach", &Gpu::cache_reach, 0.01, 10},
    {"attention_triton", &Gpu::attention_triton, 0, 1, kOptional},
    {"attention_fa2", &Gpu::attention_fa2, 0, 1, kOptional},
    {"attention_fa3", &Gpu::attention_fa3, 0, 1, kOptional},
    {"attention_fa4", &Gpu::attention_fa4, 0, 1, kOptional},
    {"attention_cudnn", &Gpu::attention_cudnn, 0, 1, kOptional},
    {"attention_ramp", &Gpu::attention_ramp, 0, 1e4, kOptional},
    {"attention_ramp_backward_fa2", &Gpu::attention_ramp_backward_fa2, 0, 1e4, kOptional},
    {"attention_narrow", &Gpu::attention_narrow, 0.2, 1, kOptional},
    {"attention_backward", &Gpu::attention_backward, 0.05, 1.5},
    {"attention_backward_fa2", &Gpu::attention_backward_fa2, 0.05, 1.5, kOptional},
    {"attention_backward_fa3", &Gpu::attention_backward_fa3, 0.05, 1.5, kOptional},
    {"attention_backward_fa4", &Gpu::attention_backward_fa4, 0.05, 1.5, kOptional},
    {"attention_backward_cudnn", &Gpu::attention_backward_cudnn, 0.05, 1.5, kOptional},
    {"attention_deterministic_fa2", &Gpu::attention_deterministic_fa2, 0.05, 1, kOptional},
    {"attention_deterministic_cudnn", &Gpu::attention_deterministic_cudnn, 0.05, 1, kOptional},
    {"overlap_slowdown", &Gpu::overlap_slowdown, 0, 1},
    {"compute_capability", &Gpu::compute_capability, 0, 100, kOptional},
    {"ring_efficiency", &Gpu::ring_efficiency, 0.01, 1},
    {"nvls_efficiency", &Gpu::nvls_efficiency, 0, 2},
    {"scaleup_hop", &Gpu::scaleup_hop, 0, 1e-3},
    {"nvls_round_trip", &Gpu::nvls_round_trip, 0, 1e-2},
    {"collective_launch", &Gpu::collective_launch, 0, 1e-2},
    {"bandwidth_launch", &Gpu::bandwidth_launch, 0, 1e-2, kOptional},
    {"low_latency_bandwidth", &Gpu::low_latency_bandwidth, 0.001, 1},
    {"low_latency_hop", &Gpu::low_latency_hop, 0.01, 1},
    {"pipelining", &Gpu::pipelining, 0, 10},
    {"chain_pipelining", &Gpu::chain_pipelining, 0, 10, kOptional},
    {"local_copy", &Gpu::local_copy, 0, 1e14, kOptional},
    {"host_link_efficiency", &Gpu::host_link_efficiency, 0.05, 1, kOptional},
    {"host_bandwidth", &Gpu::host_bandwidth, 0, 1e13, kOptional},
};

const ConstantRow<Fabric> kFabric[] = {
    {"gpu_direct", &Fabric::gpu_direct, 0, 1, kOptional},
    {"nic_ring_efficiency", &Fabric::nic_ring_efficiency, 0.01, 1},
    {"nic_tree_efficiency", &Fabric::nic_tree_efficiency, 0.01, 1},
    {"nic_nvls_tree_efficiency", &Fabric::nic_nvls_tree_efficiency, 0.01, 1},
    {"point_to_point_efficiency", &Fabric::point_to_point_efficiency, 0.01, 1},
    {"socket_stream", &Fabric::socket_stream, 0, 1e11, kOptional},
    {"socket_channels", &Fabric::socket_channels, 1, 64, kOptional},
    {"driver_rate", &Fabric::driver_rate, 0, 1e12, kOptional},
    {"rails", &Fabric::rails, 0, 1, kOptional},
    {"large_ring_loss", &Fabric::large_ring_loss, 0, 10},
    {"hop", &Fabric::hop, 0, 1},
    {"launch", &Fabric::launch, 0, 1},
    {"bandwidth_launch", &Fabric::bandwidth_launch, 0, 1, kOptional},
    {"low_latency_bandwidth", &Fabric::low_latency_bandwidth, 0.001, 1},
    {"low_latency_hop", &Fabric::low_latency_hop, 0.01, 1},
    {"low_latency_channel", &Fabric::low_latency_channel, 0, 1, kOptional},
    {"ll128_bandwidth", &Fabric::ll128_bandwidth, 0, 1, kOptional},
    {"pipelining", &Fabric::pipelining, 0, 10},
    {"chain_pipelining", &Fabric::chain_pipelining, 0, 10, kOptional},
    {"pcie_efficiency", &Fabric::pcie_efficiency, 0.01, 1},
};

}  // namespace

std::span<const ConstantRow<GpuProfile>> GpuConstants() { return kGpu; }
std::span<const ConstantRow<FabricProfile>> FabricConstants() { return kFabric; }

}  // namespace orrery
