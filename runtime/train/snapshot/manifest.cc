// SPDX-License-Identifier: Apache-2.0
// Manifests as text.
#include "runtime/train/snapshot/manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/train/snapshot/files.h"
#include "runtime/train/snapshot/manifest_check.h"

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

// The library turns 4.7 and 1e300 into integers without a word: these do not.
int64_t Integer(const Json& json) {
  const bool fits = !json.is_number_unsigned() ||
                    json.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
  if (json.is_number_integer() && fits) return json.get<int64_t>();
  throw SnapshotError(fmt::format("its manifest has '{}' where a whole number belongs",
                                  PlainText(json.dump(-1, ' ', true))));
}

const std::string& Text(const Json& json) { return json.get_ref<const std::string&>(); }

std::vector<int64_t> Integers(const Json& json) {
  std::vector<int64_t> all;
  for (const Json& one : json.get_ref<const Json::array_t&>()) all.push_back(Integer(one));
  return all;
}

Slice SliceOf(const Json& json) {
  constexpr int64_t kMembers = 10, kMostDims = 64;
  if (json.get_ref<const Json::array_t&>().size() != kMembers)
    throw SnapshotError(
        fmt::format("its manifest has a slice of {} members, not {}", json.size(), kMembers));
  Slice slice;
  slice.state = Text(json[0]);
  slice.param = Text(json[1]);
  slice.shape = Integers(json[2]);
  const int64_t dtype = Integer(json[3]), dim = Integer(json[4]);
  // No run keeps its state in f64.
  if (dtype < static_cast<int64_t>(ir::Dtype::kF32) ||
      dtype > static_cast<int64_t>(ir::Dtype::kBf16) || dim < -1 || dim > kMostDims)
    throw SnapshotError(fmt::format("its manifest has a slice of {} of unknown type or dimension",
                                    PlainText(slice.param)));
  slice.dtype = static_cast<ir::Dtype>(dtype);
  slice.shard_dim = static_cast<int>(dim);
  slice.shards = Integer(json[5]);
  slice.shard = Integer(json[6]);
  slice.begin = Integer(json[7]);
  slice.end = Integer(json[8]);
  slice.at = Integer(json[9]);
  return slice;
}

ShardFile ShardOf(const Json& json) {
  ShardFile shard{Text(json.at("file")), Text(json.at("xxh3")), Integer(json.at("bytes")), {}};
  for (const Json& slice : json.at("slices").get_ref<const Json::array_t&>())
    shard.slices.push_back(SliceOf(slice));
  return shard;
}

ModelShape ModelFrom(const Json& json) {
  ModelShape model;
  for (const Json& param : json.get_ref<const Json::array_t&>())
    model.emplace_back(Text(param.at(0)), Integers(param.at(1)));
  return model;
}

// A key that this version does not know may change what the others mean.
void RefuseOtherKeys(const Json& json) {
  constexpr std::string_view kKeys[] = {"step",       "samples",    "seed",  "data",  "plan",
                                        "conditions", "loss_scale", "model", "shards"};
  for (const auto& [key, value] : json.get_ref<const Json::object_t&>()) {
    if (std::ranges::find(kKeys, key) == std::end(kKeys))
      throw SnapshotError(
          fmt::format("its manifest has '{}', which this version does not know", PlainText(key)));
  }
}

Manifest ManifestFrom(const Json& json) {
  RefuseOtherKeys(json);
  Manifest m;
  m.step = Integer(json.at("step"));
  m.samples = Integer(json.at("samples"));
  m.seed = static_cast<uint64_t>(Integer(json.at("seed")));
  m.data = Text(json.at("data"));
  m.plan = Text(json.at("plan"));
  m.model = ModelFrom(json.at("model"));
  if (const auto found = json.find("conditions"); found != json.end()) {
    for (const auto& [name, value] : found->get_ref<const Json::object_t&>())
      m.conditions.emplace_back(name, Text(value));
  }
  for (const Json& number : json.at("loss_scale").get_ref<const Json::array_t&>()) {
    if (!number.is_number()) throw SnapshotError("its manifest has a loss scale that is no number");
    m.loss_scale.push_back(number.get<double>());
  }
  for (const Json& shard : json.at("shards").get_ref<const Json::array_t&>())
    m.shards.push_back(ShardOf(shard));
  return m;
}

}  // namespace

std::string ShardText(const ShardFile& shard) { return ToJson(shard).dump(); }
ShardFile ReadShard(const std::string& text) { return ShardOf(Json::parse(text)); }

std::string ManifestText(const Manifest& m) {
  Json shards = Json::array();
  for (const ShardFile& shard : m.shards) shards.push_back(ToJson(shard));
  Json conditions = Json::object();
  for (const auto& [name, value] : m.conditions) conditions[name] = value;
  const Json json = {{"step", m.step},
                     {"samples", m.samples},
                     {"seed", m.seed},
                     {"data", m.data},
                     {"plan", m.plan},
                     {"conditions", conditions},
                     {"loss_scale", m.loss_scale},
                     {"model", m.model},
                     {"shards", shards}};
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
  try {
    Manifest m = ManifestFrom(Json::parse(rest));
    CheckManifest(m);
    return m;
  } catch (const nlohmann::json::exception&) {
    throw SnapshotError("its manifest is of another version");
  }
}

std::string Difference(const ModelShape& snapshot, const ModelShape& plan) {
  const std::map<std::string, std::vector<int64_t>> have(snapshot.begin(), snapshot.end());
  const std::map<std::string, std::vector<int64_t>> want(plan.begin(), plan.end());
  for (const auto& [name, shape] : want) {
    const auto found = have.find(name);
    if (found == have.end()) return fmt::format("there is no parameter {}", PlainText(name));
    if (found->second != shape) {
      return fmt::format("parameter {} is [{}], not [{}]", PlainText(name),
                         fmt::join(found->second, ", "), fmt::join(shape, ", "));
    }
  }
  for (const auto& [name, shape] : have) {
    if (want.count(name) == 0)
      return fmt::format("parameter {} is none of this model's", PlainText(name));
  }
  return "";
}

}  // namespace orrery::snapshot
