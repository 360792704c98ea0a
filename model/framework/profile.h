// SPDX-License-Identifier: Apache-2.0
// Calibrated constants of a training framework, read from calib/profiles/framework.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "model/framework/presets.h"
#include "model/hardware/profile.h"
#include "model/hardware/profile_reader.h"
#include "model/plan/lower/overlap.h"

namespace orrery {

// A training framework and its generation.
struct FrameworkProfile {
  ProfileHeader header;
  // What the framework offers and sets; of a site and of an older generation: their framework's.
  std::shared_ptr<const FrameworkPreset> preset = std::make_shared<FrameworkPreset>();
  std::string without_flash;  // profile to take when attention is materialised and nobody states a
                              // release; "" = this one
  std::string algorithm;      // of its collectives inside a step: "ring"; "" = the fastest (NCCL)
  std::string attention;  // "standard": it has no fused attention, so that jobs do not assume one
  bool static_layout =
      false;           // `allocates: layout`: the plan's layout in one piece; else tensor by tensor
  Seconds kernel_gap;  // idle time of the device between two kernels
  Seconds host_forward_op;  // time of the issuing thread per op
  Seconds host_backward_op;
  Seconds host_collective;  // more of it, per collective inside a layer
  Seconds host_module;      // more of it, per pass of a module whose weights hooks gather (ZeRO 3)
  double host_update_traffic =
      30;  // bytes per parameter that an update by the CPU reads and writes
  double host_update_efficiency = 1;  // of the bandwidth of the host's memory meanwhile
  Seconds host_unfused_softmax;       // per attention whose shape the fused softmax kernel refuses
  double host_waits =
      0;  // 1: the issuing thread waits for the device where a micro-batch is loaded
          // (pageable copy) and where a received tensor is used; 0: never
  double timer_waits =
      1;  // 0: the timer of a micro-step does not wait for the device, so that it prints
          // what the issuing thread takes as long as that runs ahead
  double mlm_all_positions =
      0;  // 1: encoders compute the vocabulary layer at every position, not only at
          // the masked ones
  double site_factor =
      1;  // kernel and host times at this site over those of the framework elsewhere
  double host_multi_node = 0;  // relative growth of host time on more than one node (stragglers)
  double straggling =
      0;  // relative growth of kernel times per doubling of the number of nodes: what
          // all of them finish together lasts as long as on the slowest one
  double cast_traffic = 1;            // bytes that casts to 8 and 4 bits move over their operands
  double elementwise_traffic = 0;     // bytes that element-wise kernels move over their operands
  double softmax_traffic = 0;         // passes over a materialised score matrix, forward
  double softmax_backward = 1;        // of the backward pass over the forward one
  double full_precision_traffic = 1;  // both of these with 4-byte elements, relative: below 1 where
                                      // half precision promotes to fp32 between kernels
  double unaligned_head_penalty = 0;  // relative growth of softmax time when head_dim % 8 != 0
  double loss_traffic = 0;            // bytes per logit of the loss, forward and backward
  double compiled_loss_traffic = 0;   // the same of a loss that is compiled
  double autocast_traffic = 0;  // bytes per weight and micro-batch: casts of it and its gradient
  double accumulation_traffic = 0;  // bytes per parameter and micro-batch to add up gradients
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
  // Where a framework counts parameters instead: up to so many, or so many per rank of the group, whichever is more.
  double bucket_parameters = 0, bucket_parameters_per_rank = 0;
  double data_exposed = 1;  // part of the data-parallel reduction that is not hidden
  double data_exposed_replicas =
      1;                   // same, of whole replicas (model/lower/overlap.h), where software that
                           // else reduces at the end offers a reduction beside the backward pass
  Seconds gather_latency;  // per ZeRO-3 gather of one layer
  double gather_latency_growth = 0;  // relative, per doubling of the number of nodes
  double gather_scaleup_use = 1;     // scale-up bandwidth of layer gathers over the benchmark's
  double gather_nic_use = 1;         // NIC bandwidth of layer gathers over the benchmark's
  Seconds pipeline_latency;          // per send or receive between stages
  double pipeline_nic_use = 1;       // NIC bandwidth of those over the benchmark's
  Bytes memory_buffers;              // device memory of buckets and of what libraries allocate
  double memory_handles = 0;  // of the library of products, whose workspaces its allocator holds
  Bytes memory_communicator;  // device memory of one communicator's buffers
  double memory_fragmentation =
      0;  // held by the caching allocator on top of the peak that it handed out
  double memory_loss =
      0;  // bytes per logit of the loss beyond half-precision logits turned in place
  double memory_mask = 0;  // bytes of the loader's attention mask per query and key
  double memory_moments_late =
      0;  // 1: the optimizer makes its moments at its first update, 0: before the first step
  double memory_gradient_copy =
      0;  // bytes per parameter of half-precision gradients beside those in fp32
  double memory_gradients_late = 0;  // 1: made by the backward pass, gone after the update
  double memory_cast_shards = 0;     // 1: sharded weights are in fp32 alone, cast to be gathered
  double memory_reducer = 0;         // bytes that reductions keep for each byte of a gradient
  double memory_nearly_full =
      1;                    // share of the capacity above which allocators retry and runs slow down
  double residual_low = 1;  // 10 % quantile of measured over predicted step time
  double residual_high = 1;  // 90 % quantile
};

// Of how many parameters a bucket of a group is; 0: Framework::bucket says how many bytes.
inline double BucketParameters(const FrameworkProfile& framework, int64_t ranks) {
  if (framework.preset->bucket > 0) return framework.preset->bucket;
  return std::max(framework.bucket_parameters,
                  framework.bucket_parameters_per_rank * static_cast<double>(ranks));
}
// NIC bandwidth of the data-parallel reduction over the benchmark's.
inline double ReductionNicUse(const FrameworkProfile& framework, bool ends_apart) {
  return framework.data_nic_use * (ends_apart ? framework.data_nic_apart : 1.0);
}
inline VisibleReduction VisibleReductionOf(const FrameworkProfile& framework) {
  return {framework.data_exposed, framework.data_exposed_replicas};
}

// Whether attention is fused where nobody says (InHalf() has to hold, too): the framework has a kernel for the chip.
bool FusesAttention(const FrameworkProfile& framework, const GpuProfile& gpu);

// FollowFramework() of model/lower/overlap.h with this framework's constants and release.
void FollowFramework(const FrameworkProfile& framework, Strategy* strategy);
// Positions of the vocabulary layer: see mlm_all_positions.
void FollowFramework(const FrameworkProfile& framework, Workload* work);

std::span<const ConstantRow<FrameworkProfile>> FrameworkConstants();

inline constexpr const char* kFrameworkFolder = "framework";  // below calib/profiles

// Reads one profile by id, as LoadGpuProfile(). A file is read again only when it has changed.
FrameworkProfile LoadFrameworkProfile(const std::string& id);
// The same without a copy.
std::shared_ptr<const FrameworkProfile> ShareFrameworkProfile(const std::string& id);
FrameworkProfile ReadFrameworkProfile(const std::string& id, ProfileSource load);

// The profile of a framework at a site: `<framework>@<topology>` when that site has been
// calibrated, else `<framework>`; without flash attention the profile that it names for that case, unless `framework`
// states its release: NamesRelease().
FrameworkProfile SelectFrameworkProfile(const std::string& framework, const std::string& topology,
                                        bool flash_attention);

}  // namespace orrery
