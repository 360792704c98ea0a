// SPDX-License-Identifier: Apache-2.0
// What of a rank's arena outlives a step, in terms that do not depend on the layout: elements of
// the whole model's parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/exec/rank_image.h"

namespace orrery::snapshot {

// Shard `shard` of `shards` of a tensor along one dimension, its elements row by row: `row` of them
// lie together in the whole tensor, then come those of the other shards.
struct Cut {
  int64_t shards = 1, shard = 0, row = 1;
};
Cut CutOf(const std::vector<int64_t>& shape, int dimension, int64_t shards, int64_t shard);

// Elements that lie together, in the whole tensor and in the shard.
struct Run {
  int64_t global = 0, local = 0, n = 0;
};
// Of a shard's elements [begin, end), rising.
std::vector<Run> RunsOf(const Cut& cut, int64_t begin, int64_t end);

// Elements that two shards of one tensor both have.
struct Overlap {
  int64_t from = 0, to = 0, n = 0;  // local elements of either
};
std::vector<Overlap> Overlaps(const std::vector<Run>& from, const std::vector<Run>& to);

// A piece of a parameter, or of an optimizer's moment of it, in a rank's arena.
struct Held {
  std::string state;  // "weights", or the moment's name
  int32_t param = 0;  // of the plan
  int shard_dim = -1;
  int64_t shards = 1, shard = 0;
  int64_t begin = 0, end = 0;  // elements of the shard
  cpu::Operand data;
  // Which part of it this rank writes: part `replica` of `replicas`; none of rounded copies of
  // master weights and of the second of two tied parameters.
  int64_t replica = 0, replicas = 1;
  bool saved = true;
  // Codes of weights held in 8 bits: the op that casts their unit, and the segment; null: numbers.
  const ir::Op* cast = nullptr;
  int32_t unit = -1;
  std::size_t segment = 0;
};
std::vector<Held> StateOf(const exec::RankImage& image);

// Dynamic loss scale and what belongs to it; data null: the plan has none.
cpu::Operand LossScaleOf(const exec::RankImage& image);

// Name and shape without padding of all parameters, by name: two plans of one model have the same,
// whatever their layout.
using ModelShape = std::vector<std::pair<std::string, std::vector<int64_t>>>;
ModelShape ModelOf(const ir::Plan& plan);
int64_t RealElements(const ir::Param& param);

}  // namespace orrery::snapshot
