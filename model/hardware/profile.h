// SPDX-License-Identifier: Apache-2.0
// Calibrated constants of a chip and a network, read from calib/profiles.
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

#include "model/arch/workload.h"
#include "model/base/diagnostics.h"
#include "model/base/quantity.h"
#include "model/hardware/kernel_factors.h"
#include "model/hardware/kernel_table.h"

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

// Constants of this name are shares of a rate. Chips and networks may have others than their tables list:
// an algorithm of collectives asks for its own by key, 1 where no file has it.
inline bool IsEfficiencyKey(std::string_view key) { return key.ends_with("_efficiency"); }

inline constexpr int kPrecisions = 4;  // in the order of enum Precision

// Implementations of fused attention: an order of magnitude in age and up to a factor of 2.5 in speed.
// Deterministic ones add gradients of queries in a fixed order: the same forward pass, a slower backward pass.
enum class AttentionKernel {
  kTriton,
  kFa2,
  kFa3,
  kFa4,
  kCudnn,
  kFa2Deterministic,
  kCudnnDeterministic
};

// A chip. Peaks are dense; 0: the chip has no such arithmetic.
struct GpuProfile {
  ProfileHeader header;
  FlopsPerSecond peak_fp32, peak_tf32, peak_fp16, peak_bf16;
  double gemm_efficiency_fp32 = 0, gemm_efficiency_tf32 = 0, gemm_efficiency_fp16 = 0,
         gemm_efficiency_bf16 = 0;  // largest fraction of the peak that a matrix product reaches
  // Products in 8 and 4 bits: with a scale per tensor, per block of 128 in fp32, per 32 or 16 elements (mxfp8, nvfp4). 0: the
  // chip has none. Blocks of 128 run at the rate of fp8.
  FlopsPerSecond peak_fp8, peak_mxfp8, peak_nvfp4;
  double gemm_efficiency_fp8 = 0, gemm_efficiency_fp8_block = 0, gemm_efficiency_mxfp8 = 0,
         gemm_efficiency_nvfp4 = 0;
  // Of the rate of products at the label's clock: what power and heat of a site leave of it. Only products draw the
  // whole power; attention and streams do not. [c]
  double clock_share = 1;
  // Rate of products with a row that starts at multiples of 4 or 2 bytes only, over that with 16 (of 16-bit operands: rows
  // of an even or odd number of elements). 1: not measured.
  double gemm_aligned_4 = 1, gemm_aligned_2 = 1;
  double gemm_k_overhead = 0;    // prologue of a tile, in elements of K [K0]
  double wave_quantisation = 0;  // 0: tiles are divisible, 1: whole waves only [q]
  double multiprocessors = 1;    // that hold one tile each [U]
  Bytes memory;                  // as it is sold
  Bytes memory_growth;           // by which what a step needs is known to grow in a run
  Bytes memory_usable;           // what a program can reach of it; 0: nobody printed it
  Bytes memory_context;  // taken by the driver and its kernels as soon as a program uses the chip
  Bytes
      memory_workspace;  // of a handle of the library of products, where the framework allocates it
  BytesPerSecond memory_bandwidth;  // [W]
  double memory_efficiency = 0;     // of the bandwidth, for streaming kernels
  Bytes l2_cache;
  double cache_gain = 0;   // extra bandwidth, in units of W, of operands that fit the cache
  double cache_reach = 1;  // operand size that loses 1/e of the gain, over l2_cache
  // Fused attention forward over the peak, long sequences, by kernel; 0: the kernel does not run here.
  double attention_triton = 0, attention_fa2 = 0, attention_fa3 = 0, attention_fa4 = 0,
         attention_cudnn = 0;
  double attention_ramp = 0;               // keys after which a row has half of that rate, causal
  double attention_ramp_backward_fa2 = 0;  // of its backward pass; 0: attention_ramp
  double attention_narrow =
      0;  // rate with heads of 64 over that with heads of 128; 0: not known, taken as 1
  double attention_backward = 0;  // backward efficiency over forward efficiency
  // The same of one kernel; 0: attention_backward.
  double attention_backward_fa2 = 0, attention_backward_fa3 = 0, attention_backward_fa4 = 0,
         attention_backward_cudnn = 0;
  // Backward rate of a deterministic kernel over that of the same one without; 0: not known, taken as 1.
  double attention_deterministic_fa2 = 0, attention_deterministic_cudnn = 0;
  double overlap_slowdown = 0;       // compute time lost per second of collective beside it
  std::string memory_note;           // what is known of its memory and not modelled; may be empty
  double compute_capability = 0;     // CUDA's, such as 8.6; 0: not a chip of that kind
  double ring_efficiency = 0;        // bus bandwidth of a ring over the scale-up rate
  double nvls_efficiency = 0;        // same for in-switch reduction; 0: the chip has none
  Seconds scaleup_hop;               // latency of one ring step inside a node
  Seconds nvls_round_trip;           // latency of one reduction in the switch
  Seconds collective_launch;         // floor of a collective inside a node
  Seconds bandwidth_launch;          // more of it, before the bandwidth protocol moves data
  double low_latency_bandwidth = 0;  // inside a node: latency protocol over the other one
  double low_latency_hop = 0;
  double pipelining = 0;            // inside a node: loss = pipelining x sqrt(hop x S / B)
  double chain_pipelining = 1;      // of chains (broadcast, reduce), over that of an all-reduce
  BytesPerSecond local_copy;        // one rank's own pass over the data in a ring; 0: not visible
  double host_link_efficiency = 1;  // of the rate of the link between chip and CPU: pinned copies
  // Of the CPUs' memory of the nodes that this chip is sold in, all of a node together; 0: not known. A topology that
  // states its own (NodeSpec::host_bandwidth) comes first.
  BytesPerSecond host_bandwidth;
  // Further shares of line rates that algorithms of collectives name (IsEfficiencyKey), by key.
  std::map<std::string, double> more_efficiencies;
  // Measured kernels, by precision: where there is one, it counts, and not the formulas above.
  std::array<KernelTable, kPrecisions> kernels;
  // What measured products and attentions take over the formulas above, by precision.
  std::array<KernelFactors, kPrecisions> factors;
  // Measured collectives inside a node, by ranks; likewise.
  std::map<int, KernelTable> collectives;

  // What allocations and the context share: the usable bytes, the label where these are not known.
  Bytes Capacity() const { return memory_usable.value > 0 ? memory_usable : memory; }
  FlopsPerSecond Peak(Precision precision) const;
  double GemmEfficiency(Precision precision) const;
  // The same of a product type; kPlain: of `precision`. 0: the chip has no such product.
  FlopsPerSecond Peak(ProductType product, Precision precision) const;
  double GemmEfficiency(ProductType product, Precision precision) const;
  // Why the chip has no products of the recipe, and what it has; empty: it has them.
  std::string WhyNo(Fp8 recipe, std::string* hint) const;
  // Of kernels that only move memory.
  BytesPerSecond StreamRate() const { return memory_bandwidth * memory_efficiency; }
  // Rate over the peak of one kernel of fused attention; 0: it does not run here.
  double AttentionRate(AttentionKernel kernel) const;
  // Backward efficiency of that kernel over its forward efficiency.
  double AttentionBackward(AttentionKernel kernel) const;
  double AttentionRamp(AttentionKernel kernel, bool backward) const;  // keys
  // Seconds of a collective inside a node, between two measured numbers of ranks interpolated in
  // log(time) over log(ranks), beyond them as at the nearest. nullopt: not measured.
  std::optional<double> MeasuredCollective(std::string_view collective, int ranks,
                                           double bytes) const;
};

// A network between nodes, and the way into it.
struct FabricProfile {
  ProfileHeader header;
  double gpu_direct = 1;           // 0: data pass through memory of the CPU (sockets)
  double nic_ring_efficiency = 0;  // wire bandwidth of ring algorithms over the NIC rate
  double nic_tree_efficiency = 0;  // same, trees
  double nic_nvls_tree_efficiency =
      0;  // same, trees over in-switch reduction on three nodes or more
  double point_to_point_efficiency = 0;
  // Sockets: rate per direction of one TCP stream, which one core feeds, and the streams that NCCL opens per NIC.
  // What all streams carry does not grow with the NIC; the efficiencies above cap it. 0: no sockets.
  BytesPerSecond socket_stream;
  double socket_channels = 2;
  BytesPerSecond driver_rate;  // of a NIC, as its driver tells NCCL; 0: the NIC's own
  double rails = 0;  // 1: the library's plugin makes one device of the NICs next to each GPU
  double large_ring_loss = 0;  // further loss of rings over many nodes (collisions): 1/(1+x(1-2/N))
  Seconds hop;                 // latency of one hop between nodes, bandwidth protocol
  Seconds launch;              // floor of a collective between nodes
  Seconds bandwidth_launch;    // more of it, before the bandwidth protocol moves data
  double low_latency_bandwidth = 0;  // between nodes: latency protocol over the other one
  double low_latency_hop = 0;
  Seconds low_latency_channel;  // latency of a hop for each channel that the latency protocol opens
  double ll128_bandwidth = 0;  // NCCL's LL128 over the bandwidth protocol; 0: it does not run there
  double pipelining = 0;       // between nodes: loss = pipelining x sqrt(hop x S / B)
  double chain_pipelining = 1;  // of chains (broadcast, reduce), over that of an all-reduce
  double pcie_efficiency = 0;   // bus bandwidth over the PCIe rate when no scale-up link exists
  std::map<std::string, double> more_efficiencies;  // as in GpuProfile
  // Sweeps of the machine itself, where there are some: they replace the constants above and those
  // of the chip for the groups that they know. Null: none. Not part of the file.
  std::shared_ptr<const MeasuredCollectives> measured;
};

// Reads one profile by id from DataRoot()/calib/profiles/{gpu,fabric}, or the file that is named by
// its path (with a '/'). Throws InputError: an unknown id with the nearest ones; unknown, missing or
// malformed constants with their places.
GpuProfile LoadGpuProfile(const std::string& id);
FabricProfile LoadFabricProfile(const std::string& id);

// Readers on given text, for tests: `load` returns the source of an inherited id.
using ProfileSource = SourcePtr (*)(const std::string& folder, const std::string& id);
GpuProfile ReadGpuProfile(const std::string& id, ProfileSource load);
FabricProfile ReadFabricProfile(const std::string& id, ProfileSource load);

// Ids in one of the folders "gpu", "fabric", "framework", sorted; family files that only serve as a
// base for others (abstract: true) are left out.
std::vector<std::string> ProfileIds(const std::string& folder);

}  // namespace orrery
