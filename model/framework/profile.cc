// SPDX-License-Identifier: Apache-2.0
// Reads the profiles of training frameworks and their measured layers.
#include "model/framework/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "model/base/node.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMaxLayerBytes = 1 << 20;
constexpr double kLeastFactor = 0.2, kMostFactor = 5.0;  // of a measured layer
constexpr bool kOptional = false;
using Stack = StackProfile;

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

std::map<std::string, double> LoadLayerFactors(const std::string& stack) {
  const fs::path path = fs::path(ProfileFolder("layer")) / (stack + ".yaml");
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  return ReadLayerFactors(ReadSource(path.string(), kMaxLayerBytes));
}

// Text keys beyond the header's.
void ReadTexts(const Node& root, StackProfile* profile) {
  profile_reader::ReadText(root, "without_flash", &profile->without_flash);
  profile_reader::ReadText(root, "algorithm", &profile->algorithm);
  profile_reader::ReadText(root, "attention", &profile->attention);
  if (!root.Has("allocates")) return;
  const std::string words = root.String("allocates");
  if (words != "layout" && words != "tensors") {
    root.ErrorAt(
        "allocates",
        "software allocates 'layout' (the plan's, in one piece) or 'tensors' (one by one)");
  }
  profile->static_layout = words == "layout";
}

}  // namespace

std::span<const ConstantRow<StackProfile>> StackConstants() { return kStack; }

StackProfile ReadStackProfile(const std::string& id, ProfileSource load) {
  return ReadProfile<StackProfile>("stack", id, load, StackConstants(), ReadTexts);
}

std::map<std::string, double> ReadLayerFactors(const SourcePtr& source) {
  Diagnostics diagnostics;
  const Node root = Node::Parse(source, &diagnostics);
  diagnostics.ThrowIfAny();
  (void)root.String("title", "");
  std::map<std::string, double> factors;
  for (const Node& entry : root.Items("layers")) {
    const std::string shape = entry.String("shape");
    if (!factors.emplace(shape, entry.Number("time", kLeastFactor, kMostFactor)).second)
      entry.ErrorAt("shape", "this shape is named twice");
    (void)entry.Number("spread", 0, 100);
    (void)entry.Integer("points", 1, 1000000000);
    (void)entry.String("source");
    entry.RejectUnknownKeys();
  }
  root.RejectUnknownKeys();
  diagnostics.ThrowIfAny();
  return factors;
}

StackProfile LoadStackProfile(const std::string& id) {
  StackProfile stack = ReadStackProfile(id, LoadProfileFile);
  stack.layer_factors = LoadLayerFactors(id);
  return stack;
}

StackProfile SelectStackProfile(const std::string& framework, const std::string& topology,
                                bool flash_attention) {
  const std::vector<std::string> ids = AllProfileIds("stack");
  const std::string site = framework + "@" + topology;
  if (std::find(ids.begin(), ids.end(), site) != ids.end()) return LoadStackProfile(site);
  StackProfile stack = LoadStackProfile(framework);
  if (flash_attention || stack.without_flash.empty()) return stack;
  return LoadStackProfile(stack.without_flash);
}

void FollowStack(const StackProfile& stack, Strategy* strategy) {
  FollowSoftware(VisibleReductionOf(stack), strategy);
}

void FollowStack(const StackProfile& stack, Workload* work) {
  if (stack.mlm_all_positions > 0.5) work->masked_positions = 0;
}

}  // namespace orrery
