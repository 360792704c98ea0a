// SPDX-License-Identifier: Apache-2.0
// Calibrated constants of a chip, a network and a training software, read from calib/profiles.
//
// Every constant carries its value with unit, the spread of its estimate, the number of points it
// rests on and its source; the tables in profile_tables.cc name them all. A file may inherit
// another one of the same folder and override some constants. Symbols in [] are those of the
// formulas in op_cost.h and closed_form.h.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/cost/kernel_factors.h"
#include "model/cost/kernel_table.h"
#include "model/input/diagnostics.h"
#include "model/lower/overlap.h"
#include "model/units/quantity.h"

namespace orrery {

struct MeasuredCollectives;  // measured_collectives.h

// Where one constant comes from.
struct Provenance {
  std::string value;             // as written, with its unit
  std::string unit;              // of a plain number: "of peak", "bytes per logit"
  std::optional<double> spread;  // relative standard error or range; absent: not estimated
  int points = 0;                // measurements behind it; 0: not fitted
  std::string source;
  std::string file;  // the profile file that sets it
};

struct ProfileHeader {
  std::string id;
  std::string title;
  std::string path;
  std::map<std::string, Provenance> constants;  // by key
};

inline constexpr int kPrecisions = 4;  // in the order of enum Precision

// A chip. Peaks are dense; 0: the chip has no such arithmetic.
struct GpuProfile {
  ProfileHeader header;
  FlopsPerSecond peak_fp32, peak_tf32, peak_fp16, peak_bf16;
  double gemm_efficiency_fp32 = 0, gemm_efficiency_tf32 = 0, gemm_efficiency_fp16 = 0,
         gemm_efficiency_bf16 = 0;  // largest fraction of the peak that a matrix product reaches
  double gemm_k_overhead = 0;       // prologue of a tile, in elements of K [K0]
  double wave_quantisation = 0;     // 0: tiles are divisible, 1: whole waves only [q]
  double multiprocessors = 1;       // that hold one tile each [U]
  Bytes memory;
  Bytes memory_context;  // taken by the driver and its kernels as soon as a program uses the chip
  BytesPerSecond memory_bandwidth;  // [W]
  double memory_efficiency = 0;     // of the bandwidth, for streaming kernels
  Bytes l2_cache;
  double cache_gain = 0;        // extra bandwidth, in units of W, of operands that fit the cache
  double cache_reach = 1;       // operand size that loses 1/e of the gain, over l2_cache
  double flash_efficiency = 0;  // of the peak, fused attention forward
  double flash_backward = 0;    // backward efficiency over forward efficiency
  double overlap_slowdown = 0;  // compute time lost per second of collective beside it
  double ring_efficiency = 0;   // bus bandwidth of a ring over the scale-up rate
  double nvls_efficiency = 0;   // same for in-switch reduction; 0: the chip has none
  Seconds scaleup_hop;          // latency of one ring step inside a node
  Seconds nvls_round_trip;      // latency of one reduction in the switch
  Seconds collective_launch;    // floor of a collective inside a node
  double low_latency_bandwidth = 0;  // inside a node: latency protocol over the other one
  double low_latency_hop = 0;
  double pipelining = 0;        // inside a node: loss = pipelining x sqrt(hop x S / B)
  double chain_pipelining = 1;  // of chains (broadcast, reduce), over that of an all-reduce
  BytesPerSecond local_copy;    // one rank's own pass over the data in a ring; 0: not visible
  // Measured kernels, by precision: where there is one, it counts, and not the formulas above.
  std::array<KernelTable, kPrecisions> kernels;
  // What measured products and attentions take over the formulas above, by precision.
  std::array<KernelFactors, kPrecisions> factors;
  // Measured collectives inside a node, by ranks; likewise.
  std::map<int, KernelTable> collectives;

  FlopsPerSecond Peak(Precision precision) const;
  double GemmEfficiency(Precision precision) const;
  // Seconds of a collective inside a node, between two measured numbers of ranks interpolated in
  // log(time) over log(ranks), beyond them as at the nearest. nullopt: not measured.
  std::optional<double> MeasuredCollective(std::string_view collective, int ranks,
                                           double bytes) const;
};

// A network between nodes, and the way into it.
struct FabricProfile {
  ProfileHeader header;
  double nic_ring_efficiency = 0;  // wire bandwidth of ring algorithms over the NIC rate
  double nic_tree_efficiency = 0;  // same, trees
  double nic_nvls_tree_efficiency =
      0;  // same, trees over in-switch reduction on three nodes or more
  double point_to_point_efficiency = 0;
  double large_ring_loss = 0;  // further loss of rings over many nodes (collisions): 1/(1+x(1-2/N))
  Seconds hop;                 // latency of one hop between nodes, bandwidth protocol
  Seconds launch;              // floor of a collective between nodes
  double low_latency_bandwidth = 0;  // between nodes: latency protocol over the other one
  double low_latency_hop = 0;
  double pipelining = 0;        // between nodes: loss = pipelining x sqrt(hop x S / B)
  double chain_pipelining = 1;  // of chains (broadcast, reduce), over that of an all-reduce
  double pcie_efficiency = 0;   // bus bandwidth over the PCIe rate when no scale-up link exists
  // Sweeps of the machine itself, where there are some: they replace the constants above and those
  // of the chip for the groups that they know. Null: none. Not part of the file.
  std::shared_ptr<const MeasuredCollectives> measured;
};

// A training software and its generation.
struct StackProfile {
  ProfileHeader header;
  std::string without_flash;  // profile to take when attention is materialised; "" = this one
  std::string algorithm;      // of its collectives inside a step: "ring"; "" = the fastest (NCCL)
  std::string attention;  // "standard": it has no fused attention, so that jobs do not assume one
  bool static_layout =
      false;           // `allocates: layout`: the plan's layout in one piece; else tensor by tensor
  Seconds kernel_gap;  // idle time of the device between two kernels
  Seconds host_forward_op;  // time of the issuing thread per op
  Seconds host_backward_op;
  Seconds host_collective;       // more of it, per collective inside a layer
  Seconds host_unfused_softmax;  // per attention whose shape the fused softmax kernel refuses
  double host_waits =
      0;  // 1: the issuing thread waits for the device where a micro-batch is loaded
          // (pageable copy) and where a received tensor is used; 0: never
  double timer_waits =
      1;  // 0: the timer of a micro-step does not wait for the device, so that it prints
          // what the issuing thread takes as long as that runs ahead
  double mlm_all_positions =
      0;  // 1: encoders compute the vocabulary layer at every position, not only at
          // the masked ones
  double host_multi_node = 0;  // relative growth of host time on more than one node (stragglers)
  double straggling =
      0;  // relative growth of kernel times per doubling of the number of nodes: what
          // all of them finish together lasts as long as on the slowest one
  double elementwise_traffic = 0;     // bytes that element-wise kernels move over their operands
  double softmax_traffic = 0;         // passes over a materialised score matrix, forward
  double softmax_backward = 1;        // of the backward pass over the forward one
  double full_precision_traffic = 1;  // both of these with 4-byte elements, relative: below 1 where
                                      // half precision promotes to fp32 between kernels
  double flash_use = 1;  // fused attention of this software over the chip's flash_efficiency
  double unaligned_head_penalty = 0;  // relative growth of softmax time when head_dim % 8 != 0
  double loss_traffic = 0;            // bytes per logit of the loss, forward and backward
  double accumulation_traffic = 0;    // bytes per parameter and micro-batch to add up gradients
  double sgd_traffic = 0, adam_traffic = 0, lamb_traffic = 0;  // bytes per parameter of one update
  Seconds head_fixed;                                          // per micro-batch around the loss
  Seconds embedding_fixed;          // per micro-batch around the embedding
  Seconds step_fixed;               // per step: data loading, logging, tail
  Seconds step_per_layer;           // per step and layer
  Seconds step_per_doubling;        // per step and doubling of the number of nodes
  Seconds tensor_latency;           // per tensor-parallel collective
  Seconds tensor_latency_per_rank;  // and per further rank
  double tensor_overlap = 0;        // part of a backward tensor-parallel all-reduce that is hidden
  double sequence_overlap = 0;  // part of the gathers and scatters of sequence parallelism that is
                                // hidden beside pieces of the products that need them
  double scaleup_use = 1;       // scale-up bandwidth in training over the benchmark's
  double data_scaleup_use = 1;  // same, data-parallel reduction
  double data_nic_use = 1;      // NIC bandwidth of the data-parallel reduction over the benchmark's
  double data_nic_apart = 1;    // same, over data_nic_use, where EndsApart() (network.h)
  Bytes bucket;                 // gradients and weights are sent together up to so many bytes
  double data_exposed = 1;      // part of the data-parallel reduction that is not hidden
  double data_exposed_replicas =
      1;                   // same, of whole replicas (model/lower/overlap.h), where software that
                           // else reduces at the end offers a reduction beside the backward pass
  Seconds gather_latency;  // per ZeRO-3 gather of one layer
  double gather_latency_growth = 0;  // relative, per doubling of the number of nodes
  double gather_scaleup_use = 1;     // scale-up bandwidth of layer gathers over the benchmark's
  double gather_nic_use = 1;         // NIC bandwidth of layer gathers over the benchmark's
  Seconds pipeline_latency;          // per send or receive between stages
  double pipeline_nic_use = 1;       // NIC bandwidth of those over the benchmark's
  double pipeline_exposed = 0;       // part of the transfers between stages that is not hidden
  Bytes memory_buffers;              // device memory of buckets and of the workspaces of libraries
  Bytes memory_communicator;         // device memory of one communicator's buffers
  double memory_fragmentation =
      0;  // held by the caching allocator on top of the peak that it handed out
  double memory_loss =
      0;  // bytes per logit of the loss beyond half-precision logits turned in place
  double memory_gradient_copy =
      0;  // bytes per parameter of half-precision gradients beside those in fp32
  double memory_nearly_full =
      1;                    // share of the capacity above which allocators retry and runs slow down
  double residual_low = 1;  // 10 % quantile of measured over predicted step time
  double residual_high = 1;                     // 90 % quantile
  std::map<std::string, double> layer_factors;  // by LayerShapeText(): see layer_factors.h
};

// NIC bandwidth of the data-parallel reduction over the benchmark's.
inline double ReductionNicUse(const StackProfile& stack, bool ends_apart) {
  return stack.data_nic_use * (ends_apart ? stack.data_nic_apart : 1.0);
}
inline VisibleReduction VisibleReductionOf(const StackProfile& stack) {
  return {stack.data_exposed, stack.data_exposed_replicas};
}

// FollowSoftware() of model/lower/overlap.h with this software's constants.
void FollowStack(const StackProfile& stack, Strategy* strategy);
// Positions of the vocabulary layer: see mlm_all_positions.
void FollowStack(const StackProfile& stack, Workload* work);

// Reads one profile by id from DataRoot()/calib/profiles/{gpu,fabric,stack}, or the file that is named
// by its path (with a '/'). Throws InputError: an unknown id with the nearest ones; unknown, missing or
// malformed constants with their places.
GpuProfile LoadGpuProfile(const std::string& id);
FabricProfile LoadFabricProfile(const std::string& id);
StackProfile LoadStackProfile(const std::string& id);

// Ids in one of the folders "gpu", "fabric", "stack", sorted; family files that only serve as a
// base for others (abstract: true) are left out.
std::vector<std::string> ProfileIds(const std::string& folder);

// The stack profile of a framework at a site: `<framework>@<topology>` when that site has been
// calibrated, else `<framework>`; without flash attention the profile that it names for that case.
StackProfile SelectStackProfile(const std::string& framework, const std::string& topology,
                                bool flash_attention);

// Measured layers of one stack profile (calib/profiles/layer, see layer_factors.h): factor by shape.
std::map<std::string, double> ReadLayerFactors(const SourcePtr& source);  // throws InputError

// Readers on given text, for tests: `load` returns the source of an inherited id.
using ProfileSource = SourcePtr (*)(const std::string& folder, const std::string& id);
GpuProfile ReadGpuProfile(const std::string& id, ProfileSource load);
FabricProfile ReadFabricProfile(const std::string& id, ProfileSource load);
StackProfile ReadStackProfile(const std::string& id, ProfileSource load);

}  // namespace orrery
