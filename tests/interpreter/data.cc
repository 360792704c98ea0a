// SPDX-License-Identifier: Apache-2.0
// Counter-based samples and initial parameters.
#include "tests/interpreter/data.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/interpreter/kernels.h"

namespace orrery::interpreter {
namespace {

using ir::Attr;
using ir::LoadWhat;

// Finaliser of splitmix64 (Steele, Lea, Flood 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t HashOf(std::initializer_list<uint64_t> key) {
  uint64_t h = 0;
  for (const uint64_t part : key) h = Mix(h ^ part);
  return h;
}

double UniformOf(uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; }

namespace {

// Box and Muller 1958.
double Normal(uint64_t bits) {
  return std::sqrt(-2 * std::log(UniformOf(bits))) * std::cos(2 * M_PI * UniformOf(Mix(bits)));
}

// One sample of one step; `what` tells the streams of values apart.
struct Sample {
  const DataSpec& spec;
  uint64_t step, index;

  uint64_t Bits(LoadWhat what, int64_t position) const {
    return HashOf({spec.seed, step, static_cast<uint64_t>(what), index, static_cast<uint64_t>(position)});
  }
  double Below(int64_t bound, LoadWhat what, int64_t position) const {
    return std::floor(UniformOf(Bits(what, position)) * static_cast<double>(bound));
  }
};

// The `count` smallest hashes of the positions of a sequence: distinct positions, in rising order.
std::vector<int64_t> MaskedPositions(const Sample& sample, int64_t count, int64_t seq_len) {
  std::vector<int64_t> order(seq_len);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return sample.Bits(LoadWhat::kMaskedPositions, a) < sample.Bits(LoadWhat::kMaskedPositions, b);
  });
  if (count > seq_len) throw PlanFault("load: more masked positions than tokens");
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

double Value(const Sample& sample, const ir::Op& op, LoadWhat what, int64_t position) {
  const int64_t bound = op.attrs.Int(Attr::kV) > 0 ? op.attrs.Int(Attr::kV) : sample.spec.vocab;
  switch (what) {
    case LoadWhat::kTokens:
    case LoadWhat::kDecoderTokens:
    case LoadWhat::kMaskedLabels: return sample.Below(bound, what, position);
    case LoadWhat::kLabels: return sample.Below(bound, LoadWhat::kTokens, position + 1);
    case LoadWhat::kDecoderLabels: return sample.Below(bound, LoadWhat::kDecoderTokens, position + 1);
    case LoadWhat::kTokenTypes: return sample.Below(sample.spec.token_types, what, position);
    case LoadWhat::kFeatures:
    case LoadWhat::kTargets: return Normal(sample.Bits(what, position));
    case LoadWhat::kMaskedPositions: break;  // not element by element
  }
  return 0;
}

uint64_t NameHash(const std::string& name) {
  uint64_t h = 0;
  for (const char c : name) h = Mix(h ^ static_cast<unsigned char>(c));
  return h;
}

// Values of one parameter are asked for by every rank of every plan: each thread keeps what it has drawn.
double NormalElement(uint64_t key, int64_t index) {
  struct Drawn {
    uint64_t key = 0;
    std::vector<double> values;
  };
  static thread_local std::vector<Drawn> cache(1024);
  Drawn& drawn = cache[key % cache.size()];
  if (drawn.key != key) drawn = {key, {}};
  while (static_cast<int64_t>(drawn.values.size()) <= index) 
    drawn.values.push_back(Normal(HashOf({key, drawn.values.size()})));
  return drawn.values[index];
}

// Tied parameters take the values of the first of them.
const ir::Param& Source(const ir::Plan& plan, const ir::Param& param) {
  if (param.tie < 0) return param;
  return *std::find_if(plan.params.begin(), plan.params.end(), [&](const ir::Param& p) { return p.tie == param.tie; });
}

}  // namespace

void Load(const DataSpec& spec, const ir::Op& op, const LoadPlace& place, std::span<double> out) {
  const auto what = static_cast<LoadWhat>(op.attrs.Int(Attr::kWhat));
  const int64_t batch = op.attrs.Int(Attr::kBatch), h = op.attrs.Int(Attr::kH);
  const int64_t width = h > 0 ? h : op.attrs.Int(Attr::kSeq);  // values per sample
  if (static_cast<int64_t>(out.size()) != width * batch) throw PlanFault("load: element count against attributes");
  for (int64_t i = 0; i < batch; ++i) {
    const Sample sample{spec, static_cast<uint64_t>(place.step), static_cast<uint64_t>(place.first_sample + i)};
    if (what == LoadWhat::kMaskedPositions) {
      const auto positions = MaskedPositions(sample, width, op.attrs.Int(Attr::kV));
      for (int64_t p = 0; p < width; ++p) out[p * batch + i] = static_cast<double>(positions[p]);
      continue;
    }
    for (int64_t p = 0; p < width; ++p)
      out[h > 0 ? i * h + p : p * batch + i] = Value(sample, op, what, place.first_position + p);
  }
}

double InitialValue(uint64_t seed, const ir::Param& param, int64_t global_index) {
  int64_t row_width = 1;
  for (size_t d = 1; d < param.shape.size(); ++d) row_width *= param.shape[d];
  if (param.real_rows > 0 && global_index / row_width >= param.real_rows) return 0;
  switch (param.init) {
    case ir::Init::kZeros: return 0;
    case ir::Init::kOnes: return 1;
    case ir::Init::kNormal: break;
  }
  return param.init_std * NormalElement(HashOf({seed, NameHash(param.name)}), global_index);
}

void InitialUnit(uint64_t seed, const ir::Plan& plan, const ir::Unit& unit, const std::vector<int>& coords,
                 int64_t first, std::span<double> out) {
  std::fill(out.begin(), out.end(), 0.0);
  for (const ir::UnitSegment& segment : unit.segments) {
    const ir::Param& param = plan.params.at(segment.param);
    int64_t shards = 1, shard = 0;
    if (param.shard_dim >= 0 && param.shard_axis >= 0) {
      shards = plan.mesh.axes.at(param.shard_axis).size;
      shard = coords.at(param.shard_axis);
    }
    int64_t inner = 1, extent = 1, total = 1;  // elements behind the sharded dimension, its local extent, all
    for (size_t d = 0; d < param.shape.size(); ++d) {
      total *= param.shape[d];
      if (static_cast<int>(d) == param.shard_dim) extent = param.shape[d] / shards;
      if (static_cast<int>(d) > param.shard_dim) inner *= param.shape[d];
    }
    if (param.shard_dim < 0) extent = 1, inner = total;
    if (segment.elements * shards != total) throw PlanFault("unit segment of " + param.name + " has the wrong size");
    const int64_t begin = std::max(segment.offset, first);
    const int64_t end = std::min(segment.offset + segment.elements, first + static_cast<int64_t>(out.size()));
    for (int64_t at = begin; at < end; ++at) {
      const int64_t local = at - segment.offset, outer = local / (extent * inner);
      const int64_t along = local / inner % extent + shard * extent;
      const int64_t global = (outer * extent * shards + along) * inner + local % inner;
      out[at - first] = InitialValue(seed, Source(plan, param), global);
    }
  }
}

}  // namespace orrery::interpreter
