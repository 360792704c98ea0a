// SPDX-License-Identifier: Apache-2.0
// Reads and looks up measured collective times.
#include "model/hardware/measured_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/arch/data_root.h"
#include "model/base/node.h"
#include "model/hardware/measured_keys.h"
#include "model/hardware/profile_reader.h"

namespace orrery {
namespace {

constexpr std::size_t kMostSectionBytes = 16 << 20;
constexpr int kMostRanks = 1 << 24, kMostPoints = 1 << 24;
constexpr double kLargestRatio = 5;  // of a logarithm: a factor of 150
constexpr double kMostBytes = 1e16;

constexpr std::pair<const char*, int> kCollectiveNames[] = {
    {"all_reduce", 0}, {"all_gather", 0}, {"reduce_scatter", 0}, {"broadcast", 0},
    {"reduce", 0},     {"sendrecv", 0},   {"all_to_all", 0}};

Provenance ReadProvenance(const Node& entry, const std::string& file) {
  Provenance provenance;
  provenance.value = entry.String("value");
  provenance.unit = entry.String("unit", "");
  if (entry.Has("spread")) provenance.spread = entry.Number("spread", 0, 1e6);
  provenance.points = static_cast<int>(entry.Integer("points", 0, kMostPoints, 0));
  provenance.source = entry.String("source");
  provenance.file = file;
  entry.RejectUnknownKeys();
  return provenance;
}

double ReadTime(const Node& entry) { return entry.ReadSeconds("value").value; }
double ReadRate(const Node& entry) { return entry.ReadBytesPerSecond("value").value; }
double ReadLoss(const Node& entry) { return 1e-6 * entry.Number("value", 0, 1e9); }

// One constant of `constants`; its provenance goes to `known`.
template <class Read>
auto ReadOne(const Node& constants, const std::string& key, const std::string& file, Read read,
             std::map<std::string, Provenance>* known) {
  const Node entry = constants.Child(key);
  const auto value = read(entry);
  (*known)[key] = ReadProvenance(entry, file);
  return value;
}

std::vector<SweepCurve::Residual> ReadResiduals(const Node& node) {
  std::vector<SweepCurve::Residual> residuals;
  const auto map = node.Find("residuals");
  if (!map) return residuals;
  for (const std::string& key : map->Keys()) {
    const double ratio = map->Number(key, -kLargestRatio, kLargestRatio);
    char* end = nullptr;
    const double bytes = std::strtod(key.c_str(), &end);
    if (end != key.c_str() + key.size() || !(bytes > 0) || bytes > kMostBytes) {
      map->ErrorAt(key, fmt::format("'{}' is no size in bytes", key));
      continue;
    }
    residuals.push_back({std::log(bytes), ratio});
  }
  std::ranges::sort(residuals, {}, &SweepCurve::Residual::log_bytes);
  const auto same = std::ranges::adjacent_find(residuals, {}, &SweepCurve::Residual::log_bytes);
  if (same != residuals.end()) map->Error("the same size stands here twice");
  return residuals;
}

SweepCurve ReadCurve(const Node& node, const std::string& file,
                     std::map<std::string, Provenance>* known) {
  SweepCurve curve;
  const Node constants = node.Child("constants");
  for (int p = 1; p == 1 || constants.Has(LatencyKey(p)); ++p) {
    SweepCurve::Protocol protocol;
    protocol.latency = ReadOne(constants, LatencyKey(p), file, ReadTime, known);
    protocol.per_byte = 1 / ReadOne(constants, BandwidthKey(p), file, ReadRate, known);
    curve.protocols.push_back(protocol);
  }
  curve.per_root_byte = ReadOne(constants, kPipeliningKey, file, ReadLoss, known);
  constants.RejectUnknownKeys();
  curve.residuals = ReadResiduals(node);
  return curve;
}

GroupCurve ReadGroup(const Node& node, const std::string& file) {
  GroupCurve group;
  (void)node.Choice("collective", std::span<const std::pair<const char*, int>>(kCollectiveNames));
  group.collective = node.String("collective");
  group.algorithm = node.String("algorithm", "");
  group.ranks = static_cast<int>(node.Integer("ranks", 2, kMostRanks));
  group.nodes = static_cast<int>(node.Integer("nodes", 1, group.ranks));
  group.least_bytes = node.ReadBytes("from").value;
  group.most_bytes = node.ReadBytes("to").value;
  group.points = static_cast<int>(node.Integer("points", 1, kMostPoints));
  group.source = node.String("source");
  group.curve = ReadCurve(node, file, &group.constants);
  if (const auto errors = node.Find("left_out_error")) {
    for (int band = 0; band < kSizeBands; ++band) {
      if (errors->Has(kBandKeys[band]))
        group.left_out_error[static_cast<std::size_t>(band)] =
            errors->Number(kBandKeys[band], 0, 1e6);
    }
    errors->RejectUnknownKeys();
  }
  node.RejectUnknownKeys();
  return group;
}

NodeFormCurve ReadNodeForm(const Node& node, const std::string& file) {
  NodeFormCurve form;
  for (const Node& rank : node.Items("ranks"))
    form.ranks.push_back(static_cast<int>(rank.AsInteger(2, kMostRanks)));
  std::ranges::sort(form.ranks);
  const Node constants = node.Child("constants");
  form.form.offset = ReadOne(constants, kNodeKeys[0], file, ReadTime, &form.constants);
  form.form.per_step = ReadOne(constants, kNodeKeys[1], file, ReadTime, &form.constants);
  form.form.bandwidth = ReadOne(constants, kNodeKeys[2], file, ReadRate, &form.constants);
  form.form.copy = ReadOne(constants, kNodeKeys[3], file, ReadRate, &form.constants);
  form.form.per_root_byte = ReadOne(constants, kNodeKeys[4], file, ReadLoss, &form.constants);
  constants.RejectUnknownKeys();
  node.RejectUnknownKeys();
  return form;
}

std::string PathOf(const std::string& id) {
  if (IsYamlPath(id)) return id;
  std::string file = ProfileFile("collectives", id);
  if (file.empty())
    throw InputError(fmt::format("no measured collectives named '{}'", id),
                     SuggestName(id, AllProfileIds("collectives")) +
                         "; or a file of `plan calibrate`, with its path");
  return file;
}

}  // namespace

int SizeBand(double bytes) { return bytes < 65536 ? 0 : bytes <= 16777216 ? 1 : 2; }

const char* SizeBandName(int band) {
  constexpr const char* kNames[] = {"below 64 KiB", "to 16 MiB", "above"};
  return kNames[band];
}

const GroupCurve* MeasuredCollectives::Find(const std::string& collective,
                                            const std::string& algorithm, int ranks,
                                            int nodes) const {
  for (const GroupCurve& group : groups) {
    if (group.collective == collective && group.ranks == ranks && group.nodes == nodes &&
        (algorithm.empty() || algorithm == group.algorithm))
      return &group;
  }
  return nullptr;
}

MeasuredCollectives ReadMeasuredCollectives(const SourcePtr& source) {
  Diagnostics diagnostics;
  const Node root = Node::Parse(source, &diagnostics);
  diagnostics.ThrowIfAny();
  MeasuredCollectives section;
  section.path = source->name;
  section.title = root.String("title", "");
  section.machine = root.String("machine");
  section.gpu = root.String("gpu", "");
  for (const Node& sweep : root.Items("sweeps"))
    section.groups.push_back(ReadGroup(sweep, source->name));
  if (const auto form = root.Find("node_form"))
    section.node_form = ReadNodeForm(*form, source->name);
  root.RejectUnknownKeys();
  diagnostics.ThrowIfAny();
  return section;
}

std::shared_ptr<const MeasuredCollectives> LoadMeasuredCollectives(const std::string& id_or_path,
                                                                   const std::string& gpu) {
  auto section = std::make_shared<MeasuredCollectives>(
      ReadMeasuredCollectives(ReadSource(PathOf(id_or_path), kMostSectionBytes)));
  if (!section->gpu.empty() && !gpu.empty() && section->gpu != gpu) {
    throw InputError(fmt::format("{} was measured on {}, and this cluster has {}", section->path,
                                 section->gpu, gpu),
                     "measured times hold on their own machine only");
  }
  return section;
}

FabricProfile LoadFabricProfile(const std::string& id, const std::string& collectives,
                                const std::string& gpu) {
  FabricProfile fabric = LoadFabricProfile(id);
  if (!collectives.empty()) fabric.measured = LoadMeasuredCollectives(collectives, gpu);
  return fabric;
}

}  // namespace orrery
