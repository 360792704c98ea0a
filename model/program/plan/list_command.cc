// SPDX-License-Identifier: Apache-2.0
// `plan list [WHAT]`: the catalogues, with what tells their entries apart.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/arch/catalogue.h"
#include "model/arch/enum_names.h"
#include "model/arch/parameters.h"
#include "model/base/text.h"
#include "model/framework/presets.h"
#include "model/framework/profile.h"
#include "model/hardware/catalog.h"
#include "model/program/common/job.h"
#include "model/program/common/table.h"
#include "model/program/plan/commands.h"

namespace orrery::cli {
namespace {

using Json = nlohmann::ordered_json;
using report::Table;

struct Listing {
  Table table;
  Json json = Json::array();
};

Listing ListModels() {
  Listing list{Table({{"model"},
                      {"parameters", true},
                      {"family"},
                      {"layers", true},
                      {"hidden", true},
                      {"heads", true},
                      {"default topology"}})};
  for (const std::string& name : ModelNames()) {
    const LoadedModel model = LoadModel(name);
    const ModelSpec& spec = model.spec;
    const int64_t parameters = CountParameters(spec).total;
    list.table.Row({name, report::Count(static_cast<double>(parameters)), Name(spec.family),
                    std::to_string(spec.layers + spec.decoder_layers), std::to_string(spec.hidden),
                    std::to_string(spec.heads), model.defaults.topology});
    list.json.push_back(
        {{"name", name}, {"parameters", parameters}, {"family", Name(spec.family)}});
  }
  return list;
}

Listing ListTopologies() {
  Listing list{Table({{"topology"},
                      {"nodes", true},
                      {"up to", true},
                      {"GPUs of a node"},
                      {"network of a node", true},
                      {"price of a node", true}})};
  for (const std::string& name : TopologyNames()) {
    const TopologySpec spec = LoadTopology(name);
    const BytesPerSecond network = spec.node.nic_rate * static_cast<double>(spec.node.nics.size());
    list.table.Row({name, std::to_string(spec.nodes), std::to_string(spec.max_nodes),
                    fmt::format("{} x {}", spec.node.gpus, spec.gpu),
                    network.value > 0 ? Format(network) : "-",
                    spec.node_price ? Format(*spec.node_price) : "-"});
    list.json.push_back({{"name", name},
                         {"gpu", spec.gpu},
                         {"gpus_per_node", spec.node.gpus},
                         {"nodes", spec.nodes},
                         {"max_nodes", spec.max_nodes}});
  }
  return list;
}

std::string Tensor(const GpuProfile& gpu) {
  const FlopsPerSecond peak = std::max(gpu.peak_bf16, gpu.peak_fp16);
  return peak.value > 0 ? Format(peak) : Format(gpu.peak_fp32);
}

Listing ListGpus() {
  Listing list{Table({{"GPU"},
                      {"memory", true},
                      {"memory bandwidth", true},
                      {"16-bit peak", true},
                      {"what it is"}})};
  for (const std::string& id : ProfileIds("gpu")) {
    const GpuProfile gpu = LoadGpuProfile(id);
    list.table.Row(
        {id, Format(gpu.memory), Format(gpu.memory_bandwidth), Tensor(gpu), gpu.header.title});
    list.json.push_back(
        {{"name", id}, {"memory_bytes", gpu.memory.value}, {"title", gpu.header.title}});
  }
  return list;
}

Listing ListFabrics() {
  Listing list{Table({{"fabric"}, {"what it is"}})};
  for (const std::string& id : ProfileIds("fabric")) {
    const std::string title = LoadFabricProfile(id).header.title;
    list.table.Row({id, title});
    list.json.push_back({{"name", id}, {"title", title}});
  }
  return list;
}

Listing ListStacks() {
  Listing list{Table({{"stack (software@site)"}, {"what it is"}})};
  for (const std::string& id : ProfileIds("stack")) {
    const std::string title = LoadStackProfile(id).header.title;
    list.table.Row({id, title});
    list.json.push_back({{"name", id}, {"title", title}});
  }
  return list;
}

Listing ListFrameworks() {
  Listing list{Table({{"framework"}, {"what it sets and offers"}})};
  for (const FrameworkPreset& preset : FrameworkPresets()) {
    list.table.Row({preset.name, preset.description});
    list.json.push_back({{"name", preset.name}, {"description", preset.description}});
  }
  return list;
}

struct Catalogue {
  const char* name;
  Listing (*list)();
  const char* command;  // what to do with a name
};
constexpr Catalogue kCatalogues[] = {
    {"models", ListModels, "plan --model NAME"},
    {"topologies", ListTopologies, "plan topo NAME"},
    {"gpus", ListGpus, "plan --gpu NAME"},
    {"fabrics", ListFabrics, "named by topology files"},
    {"stacks", ListStacks, "chosen by --framework and --topology"},
    {"frameworks", ListFrameworks, "plan --framework NAME"},
};

std::vector<std::string> CatalogueNames() {
  std::vector<std::string> names;
  for (const Catalogue& catalogue : kCatalogues) names.emplace_back(catalogue.name);
  return names;
}

struct ListFlags {
  Flag what, names, json;
  FlagSet set{
      "list [models|topologies|gpus|fabrics|stacks|frameworks]",
      "Lists the catalogues: what may stand behind --model, --topology, --gpu and --framework.",
      {"plan list models", "plan list topologies", "plan list gpus --json"}};

  ListFlags() {
    set.Positional(&what, "WHAT", "one catalogue (default: how many entries each has)",
                   Words::kList, CatalogueNames());
    set.Switch(&names, "--names", "names alone, one per line");
    set.Switch(&json, "--json", "as JSON, schema orrery.list/1");
  }
};

Answer CatalogueOverview() {
  std::string text;
  Table table({{"catalogue"}, {"entries", true}, {"for"}});
  for (const Catalogue& catalogue : kCatalogues) {
    table.Row({catalogue.name, std::to_string(catalogue.list().table.rows()), catalogue.command});
  }
  return {ExitCode::kOk, table.Text() + "\n  plan list models shows the models, and so on.\n"};
}

}  // namespace

Description DescribeList() { return ListFlags().set.Describe(); }

Answer RunList(const CommandLine& line, std::size_t first) {
  ListFlags flags;
  if (flags.set.Parse(line, first)) return {ExitCode::kOk, DescribeList().help};
  Diagnostics diagnostics;
  const auto index = ReadName(flags.what, CatalogueNames(), &diagnostics);
  diagnostics.ThrowIfAny();
  if (!index && !flags.json.given) return CatalogueOverview();
  Json document = {{"schema", "orrery.list/1"}};
  if (!index) {
    for (const Catalogue& catalogue : kCatalogues) document[catalogue.name] = catalogue.list().json;
    return {ExitCode::kOk, document.dump(2) + "\n"};
  }
  const Listing listing = kCatalogues[*index].list();
  if (flags.json.given) {
    document[kCatalogues[*index].name] = listing.json;
    return {ExitCode::kOk, document.dump(2) + "\n"};
  }
  if (!flags.names.given) return {ExitCode::kOk, listing.table.Text()};
  std::string names;
  for (const Json& entry : listing.json) names += entry["name"].get<std::string>() + "\n";
  return {ExitCode::kOk, names};
}

}  // namespace orrery::cli
