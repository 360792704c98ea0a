// SPDX-License-Identifier: Apache-2.0
// The table from kinds of work and phases to constants; formulas in model/price/op_cost.h and
// closed_form.h.
#include "calib/compare/governing.h"

#include <algorithm>
#include <set>

namespace orrery::compare {
namespace {

struct Rule {
  const char* work;
  const char* phase;  // "": any
  std::vector<std::string> constants;
};

// The first row that fits decides.
const std::vector<Rule>& Rules() {
  static const std::vector<Rule> kRules = {
      {"product",
       "",
       {"gemm_efficiency_bf16", "gemm_efficiency_fp16", "gemm_efficiency_tf32",
        "gemm_efficiency_fp32", "gemm_k_overhead", "wave_quantisation", "cache_gain",
        "kernel_gap"}},
      {"attention",
       "backward",
       {"attention_backward", "attention_cudnn", "attention_fa2", "softmax_backward",
        "softmax_traffic"}},
      {"attention",
       "",
       {"attention_cudnn", "attention_fa2", "softmax_traffic", "full_precision_traffic"}},
      {"element-wise",
       "",
       {"memory_efficiency", "elementwise_traffic", "loss_traffic", "accumulation_traffic",
        "cache_gain", "kernel_gap"}},
      {"optimizer", "", {"adam_traffic", "lamb_traffic", "sgd_traffic", "memory_efficiency"}},
      {"collective",
       "grad_reduce",
       {"data_nic_use", "data_nic_apart", "data_scaleup_use", "data_exposed", "nic_ring_efficiency",
        "ring_efficiency", "overlap_slowdown", "hop", "launch"}},
      {"collective",
       "param_gather",
       {"gather_nic_use", "gather_scaleup_use", "gather_latency", "gather_latency_growth",
        "nic_ring_efficiency", "ring_efficiency"}},
      {"collective", "grad_norm", {"collective_launch", "launch", "hop", "scaleup_hop"}},
      {"collective", "optimizer", {"data_nic_use", "data_scaleup_use", "nic_ring_efficiency"}},
      {"collective",
       "",
       {"scaleup_use", "tensor_latency", "tensor_latency_per_rank", "ring_efficiency",
        "nic_ring_efficiency", "collective_launch", "low_latency_bandwidth", "hop", "launch"}},
      {"send and receive",
       "",
       {"pipeline_nic_use", "pipeline_latency", "point_to_point_efficiency"}},
      {"copy", "", {"step_fixed"}},
      // Terms of the breakdown.
      {"compute",
       "",
       {"gemm_efficiency_bf16", "gemm_efficiency_fp16", "gemm_efficiency_tf32",
        "gemm_efficiency_fp32", "gemm_k_overhead", "memory_efficiency", "kernel_gap"}},
      {"tensor-parallel communication",
       "",
       {"scaleup_use", "tensor_latency", "tensor_latency_per_rank", "ring_efficiency"}},
      {"data-parallel communication",
       "",
       {"data_nic_use", "data_scaleup_use", "data_exposed", "gather_nic_use", "gather_scaleup_use",
        "overlap_slowdown"}},
      {"transfers between stages",
       "",
       {"pipeline_nic_use", "pipeline_latency", "point_to_point_efficiency"}},
      {"waiting for the host",
       "",
       {"host_forward_op", "host_backward_op", "host_collective", "host_module"}},
      {"fixed costs", "", {"step_fixed"}},
      {"idle",
       "",
       {"host_forward_op", "host_backward_op", "host_collective", "host_waits", "kernel_gap",
        "step_fixed"}},
  };
  return kRules;
}

// Constants of which one applies to a job: their names differ by this.
struct Alternatives {
  std::string before;
  std::vector<std::string> names;
  std::string behind;
};

// `job`: "adamw" takes what is of "adam". One that is none of the names, such as fp8, leaves all.
void KeepOne(const Alternatives& of, const std::string& job, std::vector<std::string>* constants) {
  const auto own = std::ranges::find_if(
      of.names, [&](const std::string& name) { return job.starts_with(name); });
  if (own == of.names.end()) return;
  for (const std::string& name : of.names) {
    if (name != *own) std::erase(*constants, of.before + name + of.behind);
  }
}

}  // namespace

std::vector<std::string> GoverningConstants(const std::string& work, const std::string& phase,
                                            const std::string& precision,
                                            const std::string& optimizer) {
  for (const Rule& rule : Rules()) {
    if (work != rule.work || (*rule.phase != '\0' && phase != rule.phase)) continue;
    std::vector<std::string> constants = rule.constants;
    KeepOne({"gemm_efficiency_", {"bf16", "fp16", "tf32", "fp32"}, ""}, precision, &constants);
    // With Muon, Adam updates all that is no matrix.
    KeepOne({"", {"adam", "lamb", "sgd"}, "_traffic"}, optimizer == "muon" ? "adam" : optimizer,
            &constants);
    return constants;
  }
  return {};
}

std::vector<std::string> AllGoverning() {
  std::set<std::string> names;
  for (const Rule& rule : Rules()) names.insert(rule.constants.begin(), rule.constants.end());
  return {names.begin(), names.end()};
}

}  // namespace orrery::compare
