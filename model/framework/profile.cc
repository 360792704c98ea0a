// SPDX-License-Identifier: Apache-2.0
// Reads the profiles of training frameworks and their measured layers, each file once.
#include "model/framework/profile.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <mutex>

#include "model/base/node.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;
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

// Keys beyond the header's and the constants.
void ReadOwnKeys(const Node& root, StackProfile* profile) {
  auto preset = std::make_shared<FrameworkPreset>(*profile->preset);
  ReadPreset(root, profile->header.id, profile->header.path, preset.get());
  profile->preset = std::move(preset);
  profile_reader::ReadText(root, "without_flash", &profile->without_flash);
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

void CheckComplete(const StackProfile& profile) {
  profile_reader::RequireConstants(profile, StackConstants());
  if (profile.preset->description.empty()) return;
  if (const std::string missing = MissingFacts(*profile.preset); !missing.empty()) {
    throw InputError(
        fmt::format("{}: framework '{}' lacks {}", profile.header.path, profile.header.id, missing),
        "add them, or inherit a file that has them, such as common");
  }
}

// Profiles of the catalogue as they were read. A source is the same object as long as its file has
// not changed (LoadProfileFile), and so is what was read from it and from all that it inherits.
class Cache {
 public:
  struct Entry {
    SourcePtr source, layers;  // layers: null, no layer of it was measured
    std::shared_ptr<const Entry> parent;
    std::shared_ptr<const StackProfile> profile;  // complete or not
  };

  // Parsed at most once per state of the file, whoever asks.
  std::shared_ptr<const Entry> Load(const std::string& id) {
    const std::lock_guard lock(mutex_);
    return Load(id, 0);
  }

 private:
  std::shared_ptr<const Entry> Load(const std::string& id, int depth) {
    profile_reader::CheckDepth(id, depth);
    auto entry = std::make_shared<Entry>();
    entry->source = LoadProfileFile(kFrameworkFolder, id);
    entry->layers = LayersOf(id);
    const std::shared_ptr<const Entry> known = entries_[entry->source->name];
    if (known && known->source == entry->source && known->layers == entry->layers &&
        (!known->parent || known->parent == Load(known->parent->profile->header.id, depth + 1)))
      return known;
    auto profile = std::make_shared<StackProfile>();
    profile_reader::ReadFile<StackProfile>(
        id, entry->source, StackConstants(), ReadOwnKeys,
        [&](const std::string& parent, StackProfile* base) {
          entry->parent = Load(parent, depth + 1);
          *base = *entry->parent->profile;
        },
        profile.get());
    profile->layer_factors.clear();
    if (entry->layers) profile->layer_factors = ReadLayerFactors(entry->layers);
    entry->profile = std::move(profile);
    return entries_[entry->source->name] = entry;
  }

  static SourcePtr LayersOf(const std::string& id) {
    const fs::path path = fs::path(ProfileFolder("layer")) / (id + ".yaml");
    std::error_code error;
    return fs::exists(path, error) ? ReadUnchanged(path.string()) : nullptr;
  }

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Entry>> entries_;  // by path
};

}  // namespace

std::span<const ConstantRow<StackProfile>> StackConstants() { return kStack; }

StackProfile ReadStackProfile(const std::string& id, ProfileSource load) {
  StackProfile profile;
  profile_reader::ReadInto(kFrameworkFolder, id, load, StackConstants(), ReadOwnKeys, 0, &profile);
  CheckComplete(profile);
  return profile;
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

std::shared_ptr<const StackProfile> ShareStackProfile(const std::string& id) {
  static Cache cache;
  std::shared_ptr<const StackProfile> profile = cache.Load(id)->profile;
  CheckComplete(*profile);
  return profile;
}

StackProfile LoadStackProfile(const std::string& id) { return *ShareStackProfile(id); }

StackProfile SelectStackProfile(const std::string& framework, const std::string& topology,
                                bool flash_attention) {
  const std::string site = framework + "@" + topology;
  if (HasProfile(kFrameworkFolder, site)) return LoadStackProfile(site);
  const auto profile = ShareStackProfile(framework);
  if (flash_attention || profile->without_flash.empty()) return *profile;
  return LoadStackProfile(profile->without_flash);
}

void FollowStack(const StackProfile& stack, Strategy* strategy) {
  FollowSoftware(VisibleReductionOf(stack), strategy);
}

void FollowStack(const StackProfile& stack, Workload* work) {
  if (stack.mlm_all_positions > 0.5) work->masked_positions = 0;
}

}  // namespace orrery
