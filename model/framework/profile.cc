// SPDX-License-Identifier: Apache-2.0
// Reads the profiles of training frameworks, each file once.
#include "model/framework/profile.h"

#include <fmt/format.h>

#include <memory>
#include <mutex>

#include "model/base/node.h"

namespace orrery {
namespace {

constexpr bool kMayLack = false;
using Framework = FrameworkProfile;

const ConstantRow<Framework> kFramework[] = {
    {"kernel_gap", &Framework::kernel_gap, 0, 1e-2},
    {"host_forward_op", &Framework::host_forward_op, 0, 1e-1},
    {"host_backward_op", &Framework::host_backward_op, 0, 1e-1},
    {"host_collective", &Framework::host_collective, 0, 1e-1},
    {"host_module", &Framework::host_module, 0, 1e-1, kMayLack},
    {"host_update_traffic", &Framework::host_update_traffic, 1, 1e4, kMayLack},
    {"host_update_efficiency", &Framework::host_update_efficiency, 0.01, 1, kMayLack},
    {"host_unfused_softmax", &Framework::host_unfused_softmax, 0, 1},
    {"host_waits", &Framework::host_waits, 0, 1},
    {"timer_waits", &Framework::timer_waits, 0, 1, kMayLack},
    {"mlm_all_positions", &Framework::mlm_all_positions, 0, 1, kMayLack},
    {"site_factor", &Framework::site_factor, 0.2, 5, kMayLack},
    {"host_multi_node", &Framework::host_multi_node, 0, 10},
    {"straggling", &Framework::straggling, 0, 0.2, kMayLack},
    {"cast_traffic", &Framework::cast_traffic, 0.1, 20},
    {"elementwise_traffic", &Framework::elementwise_traffic, 0.05, 20},
    {"softmax_traffic", &Framework::softmax_traffic, 0.5, 50},
    {"softmax_backward", &Framework::softmax_backward, 0.5, 10},
    {"full_precision_traffic", &Framework::full_precision_traffic, 0.1, 2},
    {"unaligned_head_penalty", &Framework::unaligned_head_penalty, 0, 10},
    {"loss_traffic", &Framework::loss_traffic, 1, 1000},
    {"compiled_loss_traffic", &Framework::compiled_loss_traffic, 1, 1000},
    {"autocast_traffic", &Framework::autocast_traffic, 0, 100},
    {"accumulation_traffic", &Framework::accumulation_traffic, 0, 100},
    {"sgd_traffic", &Framework::sgd_traffic, 1, 1e4},
    {"adam_traffic", &Framework::adam_traffic, 1, 1e4},
    {"lamb_traffic", &Framework::lamb_traffic, 1, 1e4},
    {"head_fixed", &Framework::head_fixed, 0, 10},
    {"embedding_fixed", &Framework::embedding_fixed, 0, 10},
    {"step_fixed", &Framework::step_fixed, 0, 100},
    {"step_per_layer", &Framework::step_per_layer, 0, 1},
    {"step_per_doubling", &Framework::step_per_doubling, 0, 10},
    {"tensor_latency", &Framework::tensor_latency, 0, 1e-1},
    {"tensor_latency_per_rank", &Framework::tensor_latency_per_rank, 0, 1e-1},
    {"tensor_overlap", &Framework::tensor_overlap, 0, 1},
    {"sequence_overlap", &Framework::sequence_overlap, 0, 1},
    {"scaleup_use", &Framework::scaleup_use, 0.01, 2},
    {"data_scaleup_use", &Framework::data_scaleup_use, 0.01, 2},
    {"data_nic_use", &Framework::data_nic_use, 0.01, 2},
    {"data_nic_apart", &Framework::data_nic_apart, 0.01, 1},
    {"bucket", &Framework::bucket, 1, 1e15},
    {"bucket_parameters", &Framework::bucket_parameters, 0, 1e12, kMayLack},
    {"bucket_parameters_per_rank", &Framework::bucket_parameters_per_rank, 0, 1e12, kMayLack},
    {"data_exposed", &Framework::data_exposed, 0, 1},
    {"data_exposed_replicas", &Framework::data_exposed_replicas, 0, 1, kMayLack},
    {"gather_latency", &Framework::gather_latency, 0, 1},
    {"gather_latency_growth", &Framework::gather_latency_growth, 0, 10},
    {"gather_scaleup_use", &Framework::gather_scaleup_use, 0.01, 2},
    {"gather_nic_use", &Framework::gather_nic_use, 0.01, 2},
    {"pipeline_latency", &Framework::pipeline_latency, 0, 1},
    {"pipeline_nic_use", &Framework::pipeline_nic_use, 0.01, 2},
    {"memory_buffers", &Framework::memory_buffers, 0, 1e12},
    {"memory_handles", &Framework::memory_handles, 0, 100, kMayLack},
    {"memory_communicator", &Framework::memory_communicator, 0, 1e11},
    {"memory_fragmentation", &Framework::memory_fragmentation, 0, 10},
    {"memory_loss", &Framework::memory_loss, 0, 64},
    {"memory_mask", &Framework::memory_mask, 0, 8, kMayLack},
    {"memory_moments_late", &Framework::memory_moments_late, 0, 1, kMayLack},
    {"memory_gradient_copy", &Framework::memory_gradient_copy, 0, 16},
    {"memory_gradients_late", &Framework::memory_gradients_late, 0, 1, kMayLack},
    {"memory_cast_shards", &Framework::memory_cast_shards, 0, 1, kMayLack},
    {"memory_reducer", &Framework::memory_reducer, 0, 1, kMayLack},
    {"memory_nearly_full", &Framework::memory_nearly_full, 0.1, 1},
    {"residual_low", &Framework::residual_low, 0.01, 1},
    {"residual_high", &Framework::residual_high, 1, 100},
};

// Keys beyond the header's and the constants.
void ReadOwnKeys(const Node& root, FrameworkProfile* profile) {
  (void)root.Find("calibration");  // of `plan calibrate`: calib/fit/calibration_record.h
  auto preset = std::make_shared<FrameworkPreset>(*profile->preset);
  ReadPreset(root, profile->header.id, profile->header.path, preset.get());
  profile->preset = std::move(preset);
  profile_reader::ReadText(root, "without_flash", &profile->without_flash);
  if (profile->without_flash.find('/') != std::string::npos)
    root.ErrorAt("without_flash", "a profile names another one without its path");
  profile_reader::ReadText(root, "algorithm", &profile->algorithm);
  profile_reader::ReadText(root, "attention", &profile->attention);
  if (!root.Has("allocates")) return;
  const std::string words = root.String("allocates");
  if (words != "layout" && words != "tensors") {
    root.ErrorAt(
        "allocates",
        "a framework allocates 'layout' (the plan's, in one piece) or 'tensors' (one by one)");
  }
  profile->static_layout = words == "layout";
}

void CheckComplete(const FrameworkProfile& profile) {
  profile_reader::RequireConstants(profile, FrameworkConstants());
  if (profile.preset->description.empty()) return;
  if (const std::string missing = MissingFacts(*profile.preset); !missing.empty()) {
    throw InputError(
        fmt::format("{}: framework '{}' lacks {}", profile.header.path, profile.header.id, missing),
        "add them, or inherit a file that has them, such as common");
  }
}

}  // namespace

std::span<const ConstantRow<FrameworkProfile>> FrameworkConstants() { return kFramework; }

FrameworkProfile ReadFrameworkProfile(const std::string& id, ProfileSource load) {
  FrameworkProfile profile;
  profile_reader::Heirs heirs;
  profile_reader::ReadInto(kFrameworkFolder, id, load, FrameworkConstants(), ReadOwnKeys, &heirs,
                           &profile);
  CheckComplete(profile);
  return profile;
}

namespace {

// With facts that the user set. Kept for good: FindFramework() hands out references into it.
std::shared_ptr<const FrameworkProfile> WithOwnFacts(const FrameworkReference& reference) {
  static std::mutex mutex;
  static std::map<std::pair<std::shared_ptr<const FrameworkProfile>, std::string>,
                  std::shared_ptr<const FrameworkProfile>>
      known;
  const auto base = ShareFrameworkProfile(reference.name);
  const std::lock_guard lock(mutex);
  std::shared_ptr<const FrameworkProfile>& own = known[{base, reference.facts}];
  if (own) return own;
  auto preset = std::make_shared<FrameworkPreset>(*base->preset);
  SetFacts(reference.facts, preset.get());
  preset->name = WithFacts(preset->name, reference.facts);
  auto profile = std::make_shared<FrameworkProfile>(*base);
  profile->preset = std::move(preset);
  return own = std::move(profile);
}

}  // namespace

std::shared_ptr<const FrameworkProfile> ShareFrameworkProfile(const std::string& id) {
  static ProfileCache<FrameworkProfile> cache(kFrameworkFolder, FrameworkConstants(), ReadOwnKeys);
  if (const FrameworkReference reference = SplitReference(id); !reference.facts.empty())
    return WithOwnFacts(reference);
  std::shared_ptr<const FrameworkProfile> profile = cache.Load(id);
  CheckComplete(*profile);
  return profile;
}

FrameworkProfile LoadFrameworkProfile(const std::string& id) { return *ShareFrameworkProfile(id); }

FrameworkProfile SelectFrameworkProfile(const std::string& framework, const std::string& topology,
                                        bool flash_attention) {
  const auto [name, facts] = SplitReference(framework);
  const std::string site = name + "@" + topology;
  if (HasProfile(kFrameworkFolder, site)) return LoadFrameworkProfile(WithFacts(site, facts));
  const auto profile = ShareFrameworkProfile(framework);
  if (flash_attention || profile->without_flash.empty() || NamesRelease(name)) return *profile;
  return LoadFrameworkProfile(WithFacts(profile->without_flash, facts));
}

bool FusesAttention(const FrameworkProfile& framework, const GpuProfile& gpu) {
  return framework.attention != "standard" && framework.preset->FusedAttention(gpu).has_value();
}

void FollowFramework(const FrameworkProfile& framework, Strategy* strategy) {
  // The release's own: the strategy may come from the preset of a later one (`without_flash`).
  if (!framework.preset->defaults.overlap_grad_reduce) strategy->overlap_grad_reduce = false;
  FollowFramework(VisibleReductionOf(framework), strategy);
}

void FollowFramework(const FrameworkProfile& framework, Workload* work) {
  if (framework.mlm_all_positions > 0.5) work->masked_positions = 0;
}

}  // namespace orrery
