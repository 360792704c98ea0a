// SPDX-License-Identifier: Apache-2.0
// Counter-based initial parameters.
#include "runtime/exec/initial.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "model/plan/ir/draws.h"
#include "model/plan/ir/packed.h"
#include "runtime/data/normal.h"
namespace orrery::train {
namespace {

using ir::HashOf;

uint64_t NameHash(const std::string& name) {
  uint64_t h = 0;
  for (const char c : name) h = ir::MixBits(h ^ static_cast<unsigned char>(c));
  return h;
}

// Of the draws of a parameter.
uint64_t KeyOf(const InitialFrom& from, const ir::Param& param) {
  return HashOf({from.seed, NameHash(param.name)});
}

double DrawNormal(uint64_t key, int64_t index) {
  return NormalOf(HashOf({key, static_cast<uint64_t>(index)}));
}

// Tests ask for the small parameters of one model by thousands of plans: each thread keeps what it
// has drawn.
double NormalElement(uint64_t key, int64_t index) {
  constexpr int64_t kKept = 2048;  // elements of a parameter
  constexpr std::size_t kParams = 256;
  if (index >= kKept) return DrawNormal(key, index);
  struct Drawn {
    uint64_t key = 0;
    std::vector<double> values;
  };
  static thread_local std::vector<Drawn> cache(kParams);
  Drawn& drawn = cache[key % cache.size()];
  if (drawn.key != key) drawn = {key, {}};
  while (static_cast<int64_t>(drawn.values.size()) <= index)
    drawn.values.push_back(DrawNormal(key, static_cast<int64_t>(drawn.values.size())));
  return drawn.values[static_cast<std::size_t>(index)];
}

// Tied parameters take the values of the first of them.
const ir::Param& Source(const ir::Plan& plan, const ir::Param& param) {
  if (param.tie < 0) return param;
  return *std::find_if(plan.params.begin(), plan.params.end(),
                       [&](const ir::Param& p) { return p.tie == param.tie; });
}

// How a rank's piece of a parameter lies in the whole: [outer, extent, inner], shard `shard` of
// `shards` along the middle.
struct Piece {
  int64_t shards = 1, shard = 0, extent = 1, inner = 1, total = 1;

  Piece(const ir::Plan& plan, const ir::Param& param, const std::vector<int>& coords) {
    if (param.shard_dim >= 0 && param.shard_axis >= 0) {
      shards = plan.mesh.axes.at(static_cast<std::size_t>(param.shard_axis)).size;
      shard = coords.at(static_cast<std::size_t>(param.shard_axis));
    }
    for (std::size_t d = 0; d < param.shape.size(); ++d) {
      total *= param.shape[d];
      if (static_cast<int>(d) == param.shard_dim) extent = param.shape[d] / shards;
      if (static_cast<int>(d) > param.shard_dim) inner *= param.shape[d];
    }
    if (param.shard_dim < 0) extent = 1, inner = total;
  }

  int64_t Global(int64_t local) const {
    const int64_t outer = local / (extent * inner);
    const int64_t along = local / inner % extent + shard * extent;
    return (outer * extent * shards + along) * inner + local % inner;
  }
};

const GivenTensor* GivenFor(const InitialFrom& from, const std::string& param) {
  return from.given == nullptr ? nullptr : from.given->Find(param);
}

// Of the tensor that a packed parameter is a part of. Ranks and steps of one process ask again: the last ones are kept.
const std::vector<double>& PackedNumbers(const InitialFrom& from, const ir::Param& param) {
  struct Kept {
    uint64_t key = 0;
    ir::PackedTensor tensor;
  };
  if (param.of.size() != 2)
    throw std::invalid_argument("packed parameter " + param.name + " says not what it packs");
  constexpr std::size_t kTensors = 64;
  static thread_local std::vector<Kept> cache(kTensors);
  const std::string name = ir::PackedName(param);
  const int64_t rows = param.of[0], width = param.of[1];
  uint64_t std_bits = 0;
  std::memcpy(&std_bits, &param.init_std, sizeof std_bits);
  const uint64_t values_key = HashOf({from.seed, NameHash(name)});
  const uint64_t key = HashOf({values_key, static_cast<uint64_t>(param.packing), std_bits,
                               static_cast<uint64_t>(rows), static_cast<uint64_t>(width),
                               from.given == nullptr ? 0 : from.given->id()});
  Kept& kept = cache[key % cache.size()];
  if (kept.key != key) {
    std::vector<double> values(static_cast<std::size_t>(rows * width));
    const GivenTensor* given = GivenFor(from, name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      values[i] = given != nullptr ? given->At(at) : param.init_std * DrawNormal(values_key, at);
    }
    kept = {key, ir::Pack(param.packing, values, rows, width)};
  }
  switch (param.init) {
    case ir::Init::kCodes:
      return kept.tensor.codes;
    case ir::Init::kScales:
      return kept.tensor.scales;
    default:
      return kept.tensor.groups;
  }
}

// Of a whole tensor. Ranks of one process ask again.
double LargestOf(const InitialFrom& from, const ir::Plan& plan, const ir::Param& param) {
  static thread_local std::map<std::pair<uint64_t, std::vector<int64_t>>, double> known;
  const ir::Param& source = Source(plan, param);
  uint64_t std_bits = 0;
  std::memcpy(&std_bits, &source.init_std, sizeof std_bits);
  const std::pair key{HashOf({from.seed, NameHash(source.name), std_bits,
                              from.given == nullptr ? 0 : from.given->id()}),
                      source.shape};
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  double largest = 0;
  int64_t elements = 1;
  for (const int64_t extent : source.shape) elements *= extent;
  for (int64_t i = 0; i < elements; ++i)
    largest = std::max(largest, std::abs(InitialValue(from, source, i)));
  constexpr std::size_t kMost = 4096;
  if (known.size() >= kMost) known.clear();
  return known[key] = largest;
}

// `given`: of this very parameter, or null.
double ValueOf(const InitialFrom& from, const ir::Param& param, const GivenTensor* given,
               int64_t global_index) {
  int64_t row_width = 1;
  for (std::size_t d = 1; d < param.shape.size(); ++d) row_width *= param.shape[d];
  if (param.real_rows > 0 && global_index / row_width >= param.real_rows) return 0;
  // Codes have the name of the tensor that they pack.
  if (given != nullptr && param.of.empty()) return given->At(global_index);
  switch (param.init) {
    case ir::Init::kZeros:
      return 0;
    case ir::Init::kOnes:
      return 1;
    case ir::Init::kCodes:
    case ir::Init::kScales:
    case ir::Init::kGroups:
      return PackedNumbers(from, param).at(static_cast<std::size_t>(global_index));
    case ir::Init::kNormal:
      break;
  }
  return param.init_std * NormalElement(KeyOf(from, param), global_index);
}

}  // namespace

double InitialValue(const InitialFrom& from, const ir::Param& param, int64_t global_index) {
  return ValueOf(from, param, GivenFor(from, param.name), global_index);
}

void InitialUnit(const InitialFrom& from, const ir::Plan& plan, const ir::Unit& unit,
                 const std::vector<int>& coords, int64_t first, std::span<double> out) {
  std::fill(out.begin(), out.end(), 0.0);
  for (const ir::UnitSegment& segment : unit.segments) {
    const ir::Param& param = plan.params.at(static_cast<std::size_t>(segment.param));
    const ir::Param& source = Source(plan, param);
    const Piece piece(plan, param, coords);
    if (segment.elements * piece.shards != piece.total)
      throw std::invalid_argument("unit segment of " + param.name + " has the wrong size");
    const GivenTensor* given = GivenFor(from, source.name);
    const int64_t begin = std::max(segment.offset, first);
    const int64_t end =
        std::min(segment.offset + segment.elements, first + static_cast<int64_t>(out.size()));
    // Rows that pad a table are zeros, see ValueOf().
    const bool drawn =
        source.init == ir::Init::kNormal && given == nullptr && source.real_rows == 0;
    const uint64_t key = drawn ? KeyOf(from, source) : 0;
    for (int64_t at = begin; at < end; ++at) {
      const int64_t global = piece.Global(at - segment.offset);
      out[static_cast<std::size_t>(at - first)] = drawn
                                                      ? source.init_std * NormalElement(key, global)
                                                      : ValueOf(from, source, given, global);
    }
  }
}

InitialCodes::InitialCodes(const InitialFrom& from, const ir::Plan& plan, const ir::Unit& unit,
                           const std::vector<int>& coords, const ir::Op& cast)
    : segments_(ir::CodedSegments(unit, plan.params, cast.attrs.Int(ir::Attr::kBlock))),
      format_(static_cast<ir::CastFormat>(cast.attrs.Int(ir::Attr::kFmt))),
      scales_(static_cast<std::size_t>(ir::ScalesOf(segments_))) {
  if (cast.attrs.Int(ir::Attr::kBlock) > 0) {
    std::vector<double> values(static_cast<std::size_t>(unit.elements));
    InitialUnit(from, plan, unit, coords, 0, values);
    ir::LargestOfUnit(segments_, 0, unit.elements, values.data(), scales_.data());
  } else {
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      const ir::Param& param = plan.params.at(static_cast<std::size_t>(unit.segments[s].param));
      scales_.at(static_cast<std::size_t>(segments_[s].first)) = LargestOf(from, plan, param);
    }
  }
  for (double& scale : scales_)
    scale = ir::TensorScale(static_cast<ProductType>(cast.attrs.Int(ir::Attr::kProduct)), format_,
                            scale, 0);
}

void InitialCodes::Cast(int64_t first, std::span<double> values) const {
  const std::vector<double> numbers(values.begin(), values.end());
  ir::CastUnit(segments_, format_, first, static_cast<int64_t>(values.size()), numbers.data(),
               scales_.data(), values.data());
}

}  // namespace orrery::train
