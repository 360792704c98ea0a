// SPDX-License-Identifier: Apache-2.0
// `plan list [WHAT]`: the catalogues, with what tells their entries apart.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "model/arch/catalogue.h"
#include "model/arch/data_root.h"
#include "model/arch/enum_names.h"
#include "model/arch/parameters.h"
#include "model/base/text.h"
#include "model/framework/presets.h"
#include "model/framework/profile.h"
#include "model/hardware/catalog.h"
#include "model/program/common/job.h"
#include "model/program/common/table.h"
#include "model/program/plan/commands.h"
#include "model/provision/offers.h"

namespace orrery::cli {
namespace {

using Json = nlohmann::ordered_json;
using report::Table;

struct Listing {
  Table table;
  Json json = Json::array();
  std::string more = "";        // further tables
  Json broken = Json::array();  // files that cannot be read, and why
};

// What one file holds must not hide the others.
void ForEachEntry(const std::vector<std::string>& names, Listing* list,
                  const std::function<void(const std::string&)>& add) {
  for (const std::string& name : names) {
    try {
      add(name);
    } catch (const InputError& error) {
      const Diagnostic& why = error.diagnostics().front();
      std::string place;
      if (why.where.source) place = ShownPath(why.where.source->name);
      if (why.where.source && why.where.line > 0) place += fmt::format(":{}", why.where.line);
      list->broken.push_back({{"name", name}, {"place", place}, {"reason", why.message}});
    }
  }
}

// "": all were read.
std::string NotReadText(const Json& broken) {
  std::string text;
  for (const Json& one : broken) {
    const std::string place = one["place"];
    text += fmt::format("not read: {}{}: {}\n", one["name"].get<std::string>(),
                        place.empty() ? "" : " (" + place + ")", one["reason"].get<std::string>());
  }
  return text.empty() ? "" : "\n" + text;
}

Listing ListModels() {
  Listing list{Table({{"model"},
                      {"parameters", true},
                      {"family"},
                      {"layers", true},
                      {"hidden", true},
                      {"heads", true},
                      {"default topology"}})};
  ForEachEntry(ModelNames(), &list, [&](const std::string& name) {
    const LoadedModel model = LoadModel(name);
    const ModelSpec& spec = model.spec;
    const int64_t parameters = CountParameters(spec).total;
    list.table.Row({name, report::Count(static_cast<double>(parameters)), Name(spec.family),
                    std::to_string(spec.layers + spec.decoder_layers), std::to_string(spec.hidden),
                    std::to_string(spec.heads), model.defaults.topology});
    list.json.push_back(
        {{"name", name}, {"parameters", parameters}, {"family", Name(spec.family)}});
  });
  return list;
}

Listing ListTopologies() {
  Listing list{Table({{"topology"},
                      {"nodes", true},
                      {"up to", true},
                      {"GPUs of a node"},
                      {"network of a node", true},
                      {"price of a node", true}})};
  ForEachEntry(TopologyNames(), &list, [&](const std::string& name) {
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
  });
  return list;
}

std::string Tensor(const GpuProfile& gpu) {
  const FlopsPerSecond peak = std::max(gpu.peak_bf16, gpu.peak_fp16);
  return peak.value > 0 ? Format(peak) : Format(gpu.peak_fp32);
}

Listing ListGpus() {
  Listing list{Table({{"GPU"},
                      {"usable memory", true},
                      {"memory bandwidth", true},
                      {"16-bit peak", true},
                      {"what it is"}})};
  ForEachEntry(ProfileIds("gpu"), &list, [&](const std::string& id) {
    const GpuProfile gpu = LoadGpuProfile(id);
    list.table.Row(
        {id, Format(gpu.Capacity()), Format(gpu.memory_bandwidth), Tensor(gpu), gpu.header.title});
    list.json.push_back({{"name", id},
                         {"memory_bytes", gpu.memory.value},
                         {"usable_memory_bytes", gpu.Capacity().value},
                         {"title", gpu.header.title}});
  });
  return list;
}

Listing ListFabrics() {
  Listing list{Table({{"fabric"}, {"what it is"}})};
  ForEachEntry(ProfileIds("fabric"), &list, [&](const std::string& id) {
    const std::string title = LoadFabricProfile(id).header.title;
    list.table.Row({id, title});
    list.json.push_back({{"name", id}, {"title", title}});
  });
  return list;
}

Listing ListFrameworkProfiles() {
  Listing list{Table({{"profile (framework@site)"}, {"what it is"}})};
  ForEachEntry(ProfileIds(kFrameworkFolder), &list, [&](const std::string& id) {
    const std::string title = ShareFrameworkProfile(id)->header.title;
    list.table.Row({id, title});
    list.json.push_back({{"name", id}, {"title", title}});
  });
  return list;
}

// {"offers": {"zero": {"value": "0, 1", "source": ...}}, "defaults": ...}
void AddFacts(const FrameworkPreset& preset, Json* entry) {
  for (const auto& [name, fact] : preset.facts) {
    const std::size_t dot = name.find('.');
    (*entry)[name.substr(0, dot)][name.substr(dot + 1)] = {
        {"value", fact.value}, {"source", fact.source}, {"file", ShownPath(fact.file)}};
  }
}

// One table of what there is, one of what each offers, one of the other names that people use.
Listing ListFrameworks() {
  Listing list{Table({{"framework"}, {"what it sets and offers"}})};
  Table offers({{"offers"},
                {"tensor"},
                {"sequence"},
                {"hybrid"},
                {"shared sequences"},
                {"ZeRO"},
                {"with pipelines"},
                {"pipeline schedules"},
                {"recompute"},
                {"dropout"},
                {"fp32 gradients"},
                {"attention by"},
                {"TP overlap"}});
  Table aliases({{"alias"}, {"read as"}, {"because"}});
  for (const FrameworkPreset& preset : FrameworkPresets()) {
    list.table.Row({preset.name, preset.description});
    const auto text = [&](const char* fact) { return preset.facts.at(fact).value; };
    const auto has = [](bool offered) { return offered ? "yes" : "-"; };
    offers.Row({preset.name, has(preset.tensor), has(preset.sequence), has(preset.hybrid),
                preset.context.empty() ? "-" : text("offers.context"), text("offers.zero"),
                preset.pipeline() ? fmt::format("up to {}", preset.zero_with_pipeline) : "-",
                preset.pipeline() ? text("offers.schedules") : "-", text("offers.recompute"),
                text("defaults.dropout"), text("defaults.fp32_grads"), text("facts.attention"),
                has(preset.tp_overlap)});
    Json entry = {{"name", preset.name}, {"description", preset.description}};
    AddFacts(preset, &entry);
    entry["aliases"] = Json::array();
    for (const FrameworkAlias& alias : preset.aliases) {
      aliases.Row({alias.name, preset.name, alias.why});
      entry["aliases"].push_back({{"name", alias.name}, {"why", alias.why}});
    }
    list.json.push_back(std::move(entry));
  }
  list.more = "\n" + offers.Text() + "\n" + aliases.Text();
  return list;
}

// Of each fact the value of most frameworks, and that of the others.
Listing ListFacts() {
  Listing list{Table({{"fact"}, {"values"}, {"most frameworks"}, {"others"}})};
  for (const FactForm& form : FactForms()) {
    std::map<std::string, std::vector<std::string>> by_value;
    Json values = Json::object();
    for (const FrameworkPreset& preset : FrameworkPresets()) {
      const std::string value = FactValueText(preset.facts.at(form.name).value);
      by_value[value].push_back(preset.name);
      values[preset.name] = value;
    }
    const auto most = std::ranges::max_element(
        by_value, {}, [](const auto& entry) { return entry.second.size(); });
    std::string others;
    for (const auto& [value, names] : by_value) {
      if (value == most->first) continue;
      others += fmt::format("{}{}: {}", others.empty() ? "" : "; ", value, fmt::join(names, ", "));
    }
    list.json.push_back({{"name", form.key}, {"takes", form.takes}, {"values", std::move(values)}});
    list.table.Row({form.key, form.takes, most->first, others.empty() ? "-" : others});
  }
  return list;
}

Listing ListOffers() {
  Listing list{Table({{"offer"},
                      {"vendor"},
                      {"topology"},
                      {"on demand", true},
                      {"other kinds"},
                      {"newest price"}})};
  ForEachEntry(OfferNames(), &list, [&](const std::string& name) {
    const orrery::Offer offer = LoadOfferOf(name);
    std::set<std::string> kinds;
    const OfferPrice* newest = nullptr;
    std::string on_demand = "-";
    for (const Quote& quote : QuotesOf({offer}, {PriceKind::kOnDemand}, ""))
      on_demand = Format(quote.price.price);
    for (const OfferPrice& price : offer.prices) {
      if (price.kind != PriceKind::kOnDemand) kinds.insert(NameOf(price.kind));
      if (newest == nullptr || newest->date.DayNumber() < price.date.DayNumber()) newest = &price;
    }
    list.table.Row({offer.name, offer.provider, offer.topology.empty() ? "-" : offer.topology,
                    on_demand, fmt::format("{}", fmt::join(kinds, ", ")), newest->date.Text()});
    Json entry = {{"name", offer.name},
                  {"provider", offer.provider},
                  {"instance", offer.instance},
                  {"topology", offer.topology},
                  {"prices", Json::array()}};
    for (const OfferPrice& price : offer.prices) {
      entry["prices"].push_back({{"kind", NameOf(price.kind)},
                                 {"region", price.region},
                                 {"usd_per_hour", price.price.value},
                                 {"date", price.date.Text()},
                                 {"source", price.source}});
    }
    list.json.push_back(std::move(entry));
  });
  return list;
}

struct Catalogue {
  const char* name;
  Listing (*list)();
  std::vector<std::string> (*names)();  // without reading their files, where that is possible
  const char* command;                  // what to do with a name
};
constexpr Catalogue kCatalogues[] = {
    {"models", ListModels, ModelNames, "plan --model NAME"},
    {"topologies", ListTopologies, TopologyNames, "plan topo NAME"},
    {"gpus", ListGpus, [] { return ProfileIds("gpu"); }, "plan --gpu NAME"},
    {"fabrics", ListFabrics, [] { return ProfileIds("fabric"); }, "named by topology files"},
    {"frameworks", ListFrameworks, FrameworkNames, "plan --framework NAME"},
    {"facts", ListFacts, FactNames, "plan --fact NAME=VALUE"},
    {"framework-profiles", ListFrameworkProfiles, [] { return ProfileIds(kFrameworkFolder); },
     "chosen by --framework and --topology"},
    {"offers", ListOffers, OfferNames, "plan provision --offers NAME"},
};

std::vector<std::string> CatalogueNames() {
  std::vector<std::string> names;
  for (const Catalogue& catalogue : kCatalogues) names.emplace_back(catalogue.name);
  return names;
}

struct ListFlags {
  Flag what, names, json, as_template;
  FlagSet set{
      "list [models|topologies|gpus|fabrics|frameworks|facts|framework-profiles|offers]",
      "Lists the catalogues: the values of --model, --topology, --gpu, --framework, --fact and "
      "--offers.",
      {"plan list models", "plan list models --template > mine.yaml", "plan list topologies",
       "plan list gpus --json"}};

  ListFlags() {
    set.Positional(&what, "WHAT", "one catalogue (default: how many entries each has)",
                   Words::kList, CatalogueNames());
    set.Switch(&names, "--names", "names alone, one per line");
    set.Switch(&as_template, "--template", "a commented model file to start from (with models)");
    set.Switch(&json, "--json", "as JSON, schema orrery.list/1");
  }
};

Answer CatalogueOverview() {
  std::string text;
  Table table({{"catalogue"}, {"entries", true}, {"for"}});
  std::vector<std::string> counts;
  for (const Catalogue& catalogue : kCatalogues) {
    counts.push_back(fmt::format("{} {}", catalogue.names().size(), catalogue.name));
    table.Row({catalogue.name, std::to_string(catalogue.names().size()), catalogue.command});
  }
  return {ExitCode::kOk, table.Text() + "\n  plan list models shows the models, and so on.\n",
          fmt::format("{}", fmt::join(counts, ", "))};
}

}  // namespace

Description DescribeList() { return ListFlags().set.Describe(); }

Answer RunList(const CommandLine& line, std::size_t first) {
  ListFlags flags;
  if (flags.set.Parse(line, first)) return {ExitCode::kOk, DescribeList().help};
  if (flags.what.text == "stacks")
    flags.what.text = "framework-profiles";  // until the next release
  Diagnostics diagnostics;
  const auto index = ReadName(flags.what, CatalogueNames(), &diagnostics);
  diagnostics.ThrowIfAny();
  if (flags.as_template.given) {
    if (!index || kCatalogues[*index].list != ListModels)
      throw InputError("--template prints a model file", "plan list models --template");
    return DeliverTemplate(ReadSource(DataRoot() + "/scenarios/models/template.txt")->text,
                           flags.json);
  }
  if (!index && !flags.json.given) return CatalogueOverview();
  Json document = {{"schema", "orrery.list/1"}};
  if (!index) {
    Json broken = Json::array();
    for (const Catalogue& catalogue : kCatalogues) {
      Listing listing = catalogue.list();
      document[catalogue.name] = std::move(listing.json);
      for (Json& one : listing.broken) broken.push_back(std::move(one));
    }
    if (!broken.empty()) document["not_read"] = std::move(broken);
    return {ExitCode::kOk, document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n", "",
            true};
  }
  if (flags.names.given && !flags.json.given)
    return {ExitCode::kOk, fmt::format("{}\n", fmt::join(kCatalogues[*index].names(), "\n")), "",
            true};
  const Listing listing = kCatalogues[*index].list();
  if (flags.json.given) {
    document[kCatalogues[*index].name] = listing.json;
    if (!listing.broken.empty()) document["not_read"] = listing.broken;
    return {ExitCode::kOk, document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n", "",
            true};
  }
  return {ExitCode::kOk, listing.table.Text() + listing.more + NotReadText(listing.broken),
          fmt::format("{}", fmt::join(kCatalogues[*index].names(), ", "))};
}

}  // namespace orrery::cli
