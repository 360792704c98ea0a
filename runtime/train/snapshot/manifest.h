// SPDX-License-Identifier: Apache-2.0
// The table of contents of a snapshot, written last: a snapshot without it is none.
//
// Text: a first line with format and XXH3-128 of the rest, then JSON.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/train/snapshot/state.h"

namespace orrery::snapshot {

struct Slice {  // elements [begin, end) of a shard of a parameter
  std::string state, param;
  std::vector<int64_t> shape;  // of the whole parameter, padding included
  ir::Dtype dtype = ir::Dtype::kF32;
  int shard_dim = -1;
  int64_t shards = 1, shard = 0, begin = 0, end = 0;
  int64_t at = 0;  // byte of the shard file

  Cut cut() const { return CutOf(shape, shard_dim, shards, shard); }
};

struct ShardFile {  // one rank's
  std::string name, hash;
  int64_t bytes = 0;
  std::vector<Slice> slices;
};

// Flags of training that a run goes on with unless it is told otherwise: "--lr", "0.001".
using Conditions = std::vector<std::pair<std::string, std::string>>;

struct Manifest {
  int64_t step = 0;     // steps done; with the seed, the state of every generator
  int64_t samples = 0;  // read so far: the position in the data
  uint64_t seed = 0;
  std::string data;       // name of the source
  std::string plan;       // digest of the plan that wrote it
  Conditions conditions;  // empty: not said, by an older release
  ModelShape model;
  std::vector<double> loss_scale;  // empty: none
  std::vector<ShardFile> shards;
};

std::string ShardText(const ShardFile& shard);
ShardFile ReadShard(const std::string& text);
std::string ManifestText(const Manifest& manifest);
// Throws SnapshotError: not as it was written, of another version, or (whoever can write a manifest
// can hash it) with contents that no run writes (manifest_check.h).
Manifest ReadManifest(const std::string& text);

// What tells two models apart, as "parameter x is [2, 3], not [2, 4]"; empty: nothing.
std::string Difference(const ModelShape& snapshot, const ModelShape& plan);

}  // namespace orrery::snapshot
