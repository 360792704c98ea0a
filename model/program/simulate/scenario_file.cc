// SPDX-License-Identifier: Apache-2.0
// Reads scenario files; what they say of job and layout goes the way of the flags.
#include "model/program/simulate/scenario_file.h"

#include <filesystem>

#include "model/arch/data_root.h"
#include "model/hardware/catalog.h"
#include "model/hardware/read_parts.h"
#include "model/program/common/flags.h"

namespace orrery::cli {
namespace {

namespace fs = std::filesystem;

std::string PathOf(const std::string& name_or_path) {
  if (LooksLikePath(name_or_path)) return name_or_path;
  std::string file = FileOfName("scenarios", name_or_path);
  if (file.empty())
    throw InputError("no scenario '" + name_or_path + "'",
                     SuggestName(name_or_path, NamesOfKind("scenarios")));
  return file;
}

Perturbations ReadSection(const Node& node) {
  Diagnostics* diagnostics = node.diagnostics();
  Perturbations read;
  if (node.Has("jitter"))
    read.jitter = ReadJitter(node.String("jitter"), "'jitter'", node.where("jitter"), diagnostics);
  read.seed = static_cast<uint64_t>(node.Integer("seed", 0, int64_t{1} << 62, 1));
  if (node.Has("slow_gpus")) {
    for (const Node& item : node.Items("slow_gpus")) {
      SlowGpu gpu{.factor = item.Number("factor", kLeastFactor, kMostFactor),
                  .where = item.where("rank")};
      const std::string rank = item.String("rank");
      if (!rank.empty() && !ParseRanks(rank, &gpu))
        item.ErrorAt("rank", "'rank': '" + rank + "' is no rank", "write 3, or 8..15 for several");
      read.slow_gpus.push_back(gpu);
      item.RejectUnknownKeys();
    }
  }
  if (node.Has("degraded_links")) {
    for (const Node& item : node.Items("degraded_links")) {
      SlowLink link{.name = item.String("link"), .where = item.where("link")};
      const std::string share = item.String("share");
      if (!share.empty()) {
        link.share = ReadLinkShare(share, link.name, "'share'", item.where("share"), diagnostics);
      }
      item.RejectUnknownKeys();
      read.slow_links.push_back(std::move(link));
    }
  }
  if (node.Has("failed_nics")) {
    for (const Node& item : node.Items("failed_nics"))
      read.dead_nics.push_back(
          ReadNic(item.AsString(), "'failed_nics'", item.where(), diagnostics));
  }
  node.RejectUnknownKeys();
  return read;
}

}  // namespace

Scenario ReadScenario(SimulateFlags* flags) {
  Scenario scenario;
  if (!flags->scenario.given) return scenario;
  SourcePtr source;
  AtFlag(flags->scenario, [&] { source = ReadSource(PathOf(flags->scenario.text)); });
  scenario.name = fs::path(source->name).stem().string();
  Diagnostics diagnostics;
  const Node root = Node::Parse(std::move(source), &diagnostics);
  diagnostics.ThrowIfAny();
  scenario.description = root.String("description");
  if (flags->plan.given) {  // it says what is trained and how: what is left are perturbations
    (void)root.Has("job");
    (void)root.Has("layout");
  } else {
    FillFlags(root, "job", flags->job.All());
    FillFlags(root, "layout", flags->layout.All());
  }
  (void)root.Has("run");  // of `plan run --from`
  if (const auto section = root.Find("perturbations"))
    scenario.perturbations = ReadSection(*section);
  root.RejectUnknownKeys();
  diagnostics.ThrowIfAny();
  return scenario;
}

}  // namespace orrery::cli
