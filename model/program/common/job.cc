// SPDX-License-Identifier: Apache-2.0
// The head of every report.
#include "model/program/common/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "model/arch/data_root.h"
#include "model/arch/parameters.h"
#include "model/hardware/measured_collectives.h"
#include "model/program/common/names.h"
#include "model/program/common/table.h"

namespace orrery::report {
namespace {

constexpr std::size_t kJobLabel = 26;  // width of the label column

std::string Labelled(const std::string& label, const std::string& text) {
  return fmt::format("  {:<{}}{}\n", label, kJobLabel - 2, Fold(text, kJobLabel));
}

std::string Decided(const std::vector<Decision>& decisions, bool from_model) {
  std::string text;
  for (const Decision& decision : decisions) {
    if (decision.from_model != from_model) continue;
    if (!text.empty()) text += ", ";
    text += decision.what;
    if (!decision.why.empty()) text += fmt::format(", {}", decision.why);
    text += fmt::format(" ({})", decision.flag);
  }
  return text;
}

using GpuNodes = std::vector<std::pair<std::string, int64_t>>;

// How many of `nodes` have which GPU, in the order of ranks.
GpuNodes GpusOf(const Job& job, int64_t nodes) {
  GpuNodes all;
  for (int64_t node = 0; node < nodes; ++node) {
    std::string gpu = job.cluster.gpu;
    for (const OtherNodes& other : job.request.topology.other_nodes) {
      if (other.first <= node && node <= other.last && !other.gpu.empty()) gpu = other.gpu;
    }
    const auto known = std::ranges::find(all, gpu, &GpuNodes::value_type::first);
    if (known == all.end()) {
      all.emplace_back(gpu, 1);
    } else {
      ++known->second;
    }
  }
  return all;
}

std::string ClusterWords(const Job& job) {
  const ClusterSummary& cluster = job.cluster;
  const auto counted = [](int64_t number, const char* noun) {
    return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
  };
  if (job.request.nodes.size() > 1) {
    const GpuNodes gpus = GpusOf(job, *std::ranges::max_element(job.request.nodes));
    std::string kinds;
    for (const auto& [gpu, nodes] : gpus) kinds += (kinds.empty() ? "" : " or ") + gpu;
    return fmt::format("{} nodes x {} {}", fmt::join(job.request.nodes, ", "),
                       cluster.gpus_per_node, kinds);
  }
  std::string text;
  for (const auto& [gpu, nodes] : GpusOf(job, cluster.nodes)) {
    text += fmt::format("{}{} x {} {}", text.empty() ? "" : " + ", counted(nodes, "node"),
                        cluster.gpus_per_node, gpu);
  }
  text += fmt::format(" = {}", counted(cluster.ranks(), "GPU"));
  if (cluster.domain_nodes > 1) {
    text += fmt::format(" in {} of {} nodes", counted(cluster.domains(), "scale-up domain"),
                        cluster.domain_nodes);
  }
  return text;
}

// "attention fa2, tp_overlap off"
std::string Facts(const std::vector<ReleaseFact>& facts, bool stated) {
  std::string text;
  for (const ReleaseFact& fact : facts) {
    if (fact.stated == stated) text += (text.empty() ? "" : ", ") + fact.what;
  }
  return text;
}

int64_t LoraParameters(const Job& job) {
  const ModelSpec& spec = job.model.spec;
  return spec.layers * AdapterParameters(spec, job.request.work.lora);
}

}  // namespace

std::vector<std::string> UserFilesOf(const Job& job) {
  std::set<std::string> paths = {job.model.origin, job.request.topology.file};
  const Profiles& profiles = job.profiles;
  for (const ProfileHeader* header :
       {&profiles.gpu.header, &profiles.fabric.header, &profiles.framework.header}) {
    paths.insert(header->path);
    for (const auto& [key, constant] : header->constants) paths.insert(constant.file);
  }
  if (profiles.fabric.measured) paths.insert(profiles.fabric.measured->path);
  std::vector<std::string> shown;
  for (const std::string& path : paths) {
    if (IsUserFile(path)) shown.push_back(ShownPath(path));
  }
  return shown;
}

std::string ReleaseOf(const Job& job) {
  const FrameworkPreset& preset = *job.profiles.framework.preset;  // of a site: not described
  return SplitReference(preset.description.empty() ? job.request.framework : preset.name).name;
}

std::string JobHeader(const Job& job) {
  const ModelSpec& spec = job.model.spec;
  std::string text = fmt::format("{} ({} parameters) on {}: {}\n", spec.name,
                                 Count(static_cast<double>(job.parameters)),
                                 job.request.topology.name, ClusterWords(job));
  if (const Lora& lora = job.request.work.lora; lora.on())
    text += Labelled("trained", fmt::format("{} parameters in adapters (rank {}, alpha {:g}) on {}",
                                            Count(static_cast<double>(LoraParameters(job))),
                                            lora.rank, lora.alpha, LoraTargetWords(lora.targets)) +
                                    (lora.packed() ? fmt::format("; frozen maps kept in {}",
                                                                 NameIn(kLoraBaseNames, lora.base))
                                                   : std::string()));
  if (const std::string model = Decided(job.decisions, true); !model.empty()) {
    text += Labelled("set by the model file", model);
  }
  if (const std::string own = Decided(job.decisions, false); !own.empty()) {
    text += Labelled("set by default", own);
  }
  if (const std::string facts = Facts(job.facts, false); !facts.empty())
    text += Labelled("assumed",
                     fmt::format("{}; facts of {} (--fact KEY=VALUE)", facts, ReleaseOf(job)));
  const TopologySpec& topology = job.request.topology;
  if (topology.fabric.kind == FabricKind::kDragonfly && job.cluster.nodes > LeafNodes(topology))
    text +=
        Labelled("assumed",
                 "messages take the shortest routes of the dragonfly alone, where machines also "
                 "route around full links");
  if (const std::string facts = Facts(job.facts, true); !facts.empty())
    text += Labelled("stated", facts + " (--fact)");
  if (const auto files = UserFilesOf(job); !files.empty())
    text += Labelled("user files", fmt::format("{}", fmt::join(files, ", ")));
  for (const auto* notes : {&job.notes, &job.model.notes}) {
    for (const std::string& note : *notes) text += Labelled("note", note);
  }
  return text;
}

nlohmann::ordered_json JobJson(const Job& job) {
  const ModelSpec& spec = job.model.spec;
  const Workload& work = job.request.work;
  nlohmann::ordered_json json;
  json["model"] = {
      {"name", spec.name}, {"parameters", job.parameters}, {"file", ShownPath(job.model.origin)}};
  json["topology"] = {{"name", job.request.topology.name},
                      {"gpu", job.cluster.gpu},
                      {"nodes", job.request.nodes},
                      {"gpus_per_node", job.cluster.gpus_per_node}};
  const GpuNodes gpus = GpusOf(job, *std::ranges::max_element(job.request.nodes));
  if (gpus.size() > 1) {
    for (const auto& [gpu, nodes] : gpus)
      json["topology"]["mixed"].push_back({{"gpu", gpu}, {"nodes", nodes}});
  }
  json["workload"] = {{"seq_len", work.seq_len},
                      {"global_batch", job.request.global_batches},
                      {"masked_positions", work.masked_positions},
                      {"precision", Name(work.precision)},
                      {"optimizer", Name(work.optimizer)},
                      {"dropout", work.dropout},
                      {"attention", job.request.flash_attention ? "flash" : "standard"},
                      {"framework", FrameworkWords(job.request.framework)},
                      {"release", ReleaseOf(job)}};
  if (work.attention_dropout) json["workload"]["attention_dropout"] = *work.attention_dropout;
  if (work.fp8 != Fp8::kOff) json["workload"]["fp8"] = NameIn(kFp8Names, work.fp8);
  if (work.fp8_skip.any())
    json["workload"]["fp8_skip"] = fmt::format("{},{}", work.fp8_skip.first, work.fp8_skip.last);
  if (work.lora.on())
    json["workload"]["lora"] = {{"rank", work.lora.rank},
                                {"alpha", work.lora.alpha},
                                {"targets", LoraTargetWords(work.lora.targets)},
                                {"parameters", LoraParameters(job)}};
  if (work.lora.packed()) json["workload"]["lora"]["base"] = NameIn(kLoraBaseNames, work.lora.base);
  if (!job.plan.empty()) {  // what a plan text does not say
    for (const char* key : {"masked_positions", "optimizer", "dropout", "attention_dropout"})
      json["workload"][key] = nullptr;
  }
  json["profiles"] = {{"gpu", job.profiles.gpu.header.id},
                      {"fabric", job.profiles.fabric.header.id},
                      {"framework", job.profiles.framework.header.id}};
  json["defaults"] = nlohmann::ordered_json::array();
  for (const Decision& decision : job.decisions) {
    json["defaults"].push_back({{"what", decision.what},
                                {"flag", decision.flag},
                                {"why", decision.why},
                                {"from", decision.from_model ? "model file" : "plan"}});
  }
  json["facts"] = nlohmann::ordered_json::array();
  for (const ReleaseFact& fact : job.facts)
    json["facts"].push_back({{"key", fact.key}, {"what", fact.what}, {"stated", fact.stated}});
  if (const auto files = UserFilesOf(job); !files.empty()) json["user_files"] = files;
  json["notes"] = job.notes;
  for (const std::string& note : job.model.notes) json["notes"].push_back(note);
  return json;
}

}  // namespace orrery::report
