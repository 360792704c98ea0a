// SPDX-License-Identifier: Apache-2.0
// Reads a topology file: names, counts, profiles, price; node and fabric are read elsewhere.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "model/arch/data_root.h"
#include "model/base/node.h"
#include "model/base/plain_text.h"
#include "model/base/record_named.h"
#include "model/base/text.h"
#include "model/hardware/catalog.h"
#include "model/hardware/host_order.h"
#include "model/hardware/node_price.h"
#include "model/hardware/read_parts.h"

namespace orrery {
namespace {

constexpr int64_t kMostNodes = 65'536, kMostCores = 65'536;
constexpr double kLeastSlower = 0.01, kMostSlower = 100;
namespace fs = std::filesystem;

constexpr std::array<std::pair<const char*, char>, 3> kEvidence = {
    {{"A", 'A'}, {"B", 'B'}, {"C", 'C'}}};

// Ids become file names of profiles.
std::string ReadId(const Node& node, const std::string& key) {
  const std::string id = node.String(key);
  if (id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_.") != std::string::npos ||
      id.empty() || id.front() == '.') {
    node.ErrorAt(key, "'" + id + "' is not an id",
                 "ids are lower-case letters, digits, '-', '_' and '.', such as a100-sxm4-80gb");
  }
  return id;
}

// The file at `text`, relative to the topology file.
std::string ReadPath(const Node& node, const std::string& key, const std::string& text) {
  try {
    const fs::path path = ReferencedFile(node.where().source->name, text);
    std::error_code error;
    if (!fs::is_regular_file(path, error))
      node.ErrorAt(key, "no profile '" + path.string() + "'",
                   "paths start from the topology's folder");
    else
      RecordNamed(path.string());
    return fs::absolute(path, error).lexically_normal().string();
  } catch (const InputError& outside) {
    const Diagnostic& why = outside.diagnostics().front();
    node.ErrorAt(key, why.message, why.hint);
    return text;
  }
}

// An id that must be a file of calib/profiles/<folder>, or a path.
std::string ReadProfileId(const Node& node, const std::string& key, const char* folder) {
  if (const std::string text = node.String(key); LooksLikePath(text))
    return ReadPath(node, key, text);
  const std::string id = ReadId(node, key);
  if (!node.diagnostics()->ok() || id == kUnknownGpu) return id;
  const std::string kind = std::string("calib/profiles/") + folder;
  if (const std::string file = FileOfName(kind, id); file.empty())
    node.ErrorAt(key, "no profile '" + id + "' in " + kind, SuggestName(id, NamesOfKind(kind)));
  else
    RecordNamed(file);  // --gpu may put another one in its place
  return id;
}

void ReadCounts(const Node& root, TopologySpec* spec) {
  spec->max_nodes = root.Integer("max_nodes", 1, kMostNodes);
  spec->nodes = root.Integer("nodes", 1, kMostNodes);
  if (spec->nodes > spec->max_nodes && spec->max_nodes > 0) {
    root.ErrorAt("nodes", "more nodes than max_nodes, which is " + std::to_string(spec->max_nodes),
                 "raise max_nodes or lower nodes");
  }
}

void ReadFrameworks(const Node& root, TopologySpec* spec) {
  // `software` is what this key was called until the last release.
  for (const char* key : {"software", "frameworks"}) {
    const auto profiles = root.Find(key);
    if (!profiles) continue;
    for (const std::string& framework : profiles->Keys())
      spec->framework_profiles[framework] = ReadProfileId(*profiles, framework, "framework");
  }
}

// "3", "4..7" or a list of both, with names of hosts where they have some.
bool ReadNodeList(std::string_view text, int64_t max_nodes, NamedNodes* reader,
                  std::vector<std::pair<int64_t, int64_t>>* ranges) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    begin = end + 1;
    int64_t first = 0, last = 0;
    if (!reader->Read(item, &first, &last) || last < first || last >= max_nodes) return false;
    ranges->emplace_back(first, last);
  }
  return true;
}

// With another chip the factor is on top of that chip's: below 1 its nodes are faster than its profile says.
void CheckFactor(const Node& row, const OtherNodes& other) {
  if (other.slower < 1 && other.gpu.empty())
    row.ErrorAt("slower", "the node is faster than the others, which have the same GPU",
                "a factor from 1 on; where a node is faster, name the others as slower");
}

void ReadOtherNodes(const Node& root, TopologySpec* spec) {
  if (!root.Has("other_nodes")) return;
  std::vector<bool> named(static_cast<std::size_t>(std::max<int64_t>(spec->max_nodes, 0)), false);
  NamedNodes reader(spec->fabric);
  for (const Node& row : root.Items("other_nodes")) {
    OtherNodes other;
    const std::string text = row.String("nodes");
    if (!row.Has("nodes")) continue;  // said already
    std::vector<std::pair<int64_t, int64_t>> ranges;
    if (!ReadNodeList(text, spec->max_nodes, &reader, &ranges)) {
      if (reader.why.empty()) {
        row.ErrorAt("nodes", "'" + text + "' names no nodes",
                    "a number, a range or a list of both in quotes, \"0,4..7\", below max_nodes");
      } else {
        row.ErrorAt("nodes", reader.why, reader.hint);
      }
      continue;
    }
    if (row.Has("gpu")) other.gpu = ReadProfileId(row, "gpu", "gpu");
    other.slower = row.Number("slower", kLeastSlower, kMostSlower, 1.0);
    CheckFactor(row, other);
    for (const auto& [first, last] : ranges) {
      for (int64_t node = first; node <= last; ++node) {
        const auto at = static_cast<std::size_t>(node);
        if (named[at])
          row.ErrorAt("nodes", "node " + std::to_string(node) +
                                   HostsText(spec->fabric, node, node) + " is there twice");
        named[at] = true;
      }
      other.first = first, other.last = last;
      spec->other_nodes.push_back(other);
    }
    row.RejectUnknownKeys();
  }
}

void ReadPrice(const Node& root, TopologySpec* spec) {
  const auto price = root.Find("price");
  if (!price) return;
  spec->node_price = price->ReadDollarsPerHour("per_node_hour");
  if (spec->node_price->value > kMostNodePrice)
    price->ErrorAt("per_node_hour",
                   fmt::format("{:.4g} USD/h is no price of a node", spec->node_price->value),
                   fmt::format("from 0 to {:.0f}USD/h", kMostNodePrice));
  spec->price_source = price->String("source");
  price->RejectUnknownKeys();
}

}  // namespace

TopologySpec ReadTopology(SourcePtr source, Diagnostics* diagnostics) {
  const Node root = Node::Parse(std::move(source), diagnostics);
  TopologySpec spec;
  if (!diagnostics->ok()) return spec;
  spec.name = ReadId(root, "name");
  spec.description = root.String("description");
  spec.source = root.String("source");
  spec.evidence = root.Choice("evidence", std::span<const std::pair<const char*, char>>(kEvidence));
  spec.gpu = ReadProfileId(root, "gpu", "gpu");
  spec.fabric_profile = ReadProfileId(root, "fabric_profile", "fabric");
  spec.collectives = root.String("collectives", "");
  if (LooksLikePath(spec.collectives))
    spec.collectives = ReadPath(root, "collectives", spec.collectives);
  spec.cores = root.Integer("cores", 1, kMostCores, 0);
  ReadFrameworks(root, &spec);
  ReadCounts(root, &spec);
  ReadPrice(root, &spec);
  spec.node = ReadNodeSpec(root.Child("node"));
  if (diagnostics->ok())
    ReadFabric(root, &spec);
  else
    root.Find("fabric");  // its limits depend on the node: report the node's errors first
  if (diagnostics->ok())
    ReadOtherNodes(root, &spec);
  else
    root.Find("other_nodes");  // they may be named by hosts of the fabric
  root.RejectUnknownKeys();
  return spec;
}

}  // namespace orrery
