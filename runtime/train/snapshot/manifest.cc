// SPDX-License-Identifier: Apache-2.0
// Manifests as text.
#include "runtime/train/snapshot/manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/train/snapshot/files.h"

namespace orrery::snapshot {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFirstLine[] = "orrery-snapshot 1 ";

Json ToJson(const ShardFile& shard) {
  Json slices = Json::array();
  for (const Slice& s : shard.slices) {
    slices.push_back({s.state, s.param, s.shape, static_cast<int>(s.dtype), s.shard_dim, s.shards,
                      s.shard, s.begin, s.end, s.at});
  }
  return {{"file", shard.name}, {"bytes", shard.bytes}, {"xxh3", shard.hash}, {"slices", slices}};
}

ShardFile ShardOf(const Json& json) {
  ShardFile shard{json.at("file"), json.at("xxh3"), json.at("bytes"), {}};
  for (const Json& s : json.at("slices")) {
    shard.slices.push_back({s.at(0), s.at(1), s.at(2), static_cast<ir::Dtype>(s.at(3).get<int>()),
                            s.at(4), s.at(5), s.at(6), s.at(7), s.at(8), s.at(9)});
  }
  return shard;
}

}  // namespace

std::string ShardText(const ShardFile& shard) { return ToJson(shard).dump(); }
ShardFile ReadShard(const std::string& text) { return ShardOf(Json::parse(text)); }

std::string ManifestText(const Manifest& m) {
  Json shards = Json::array();
  for (const ShardFile& shard : m.shards) shards.push_back(ToJson(shard));
  const Json json = {{"step", m.step},   {"samples", m.samples}, {"seed", m.seed},
                     {"data", m.data},   {"plan", m.plan},       {"loss_scale", m.loss_scale},
                     {"model", m.model}, {"shards", shards}};
  const std::string text = json.dump() + "\n";
  return kFirstLine + HashOf(text) + "\n" + text;
}

Manifest ReadManifest(const std::string& text) {
  const std::size_t line = text.find('\n');
  if (!text.starts_with(kFirstLine))
    throw SnapshotError("its manifest does not begin as one of this version");
  const std::string rest = line == std::string::npos ? "" : text.substr(line + 1);
  if (text.substr(0, line) != kFirstLine + HashOf(rest))
    throw SnapshotError("its manifest is torn: the hash differs");
  Manifest m;
  try {
    const Json json = Json::parse(rest);
    m.step = json.at("step");
    m.samples = json.at("samples");
    m.seed = json.at("seed");
    m.data = json.at("data");
    m.plan = json.at("plan");
    m.model = json.at("model").get<ModelShape>();
    m.loss_scale = json.at("loss_scale").get<std::vector<double>>();
    for (const Json& shard : json.at("shards")) m.shards.push_back(ShardOf(shard));
  } catch (const nlohmann::json::exception& error) {
    throw SnapshotError(fmt::format("its manifest is of another version: {}", error.what()));
  }
  return m;
}

std::string Difference(const ModelShape& snapshot, const ModelShape& plan) {
  const std::map<std::string, std::vector<int64_t>> have(snapshot.begin(), snapshot.end());
  const std::map<std::string, std::vector<int64_t>> want(plan.begin(), plan.end());
  for (const auto& [name, shape] : want) {
    const auto found = have.find(name);
    if (found == have.end()) return fmt::format("there is no parameter {}", name);
    if (found->second != shape) {
      return fmt::format("parameter {} is [{}], not [{}]", name, fmt::join(found->second, ", "),
                         fmt::join(shape, ", "));
    }
  }
  for (const auto& [name, shape] : have) {
    if (want.count(name) == 0) return fmt::format("parameter {} is none of this model's", name);
  }
  return "";
}

}  // namespace orrery::snapshot
