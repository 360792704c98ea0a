// SPDX-License-Identifier: Apache-2.0
// Random optimizer calls on a unit of three parameters, one of them exempt from decay, and on its shards.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/cpu_kernels/typed_call.h"

namespace orrery {
namespace {

using ir::Attr;
using ir::Attrs;
using ir::OpKind;

// 35 + 20 + 45 elements, padded to 102; calls keep pointers to it.
struct SampleUnit {
  ir::Unit unit;
  std::vector<ir::Param> params{3};
  SampleUnit() {
    unit.name = "u";
    unit.segments = {{0, 0, 35}, {1, 35, 20}, {2, 55, 45}};
    unit.elements = 102;
    unit.replicated_from = 55;
    params[1].decay = false;
  }
};
const SampleUnit& Sample() {
  static const SampleUnit sample;
  return sample;
}

Vector Squares(int64_t n, uint64_t seed) {
  Vector x = Random(n, seed);
  for (double& value : x) value *= value;
  return x;
}

OpCall OnUnit(OpKind kind, const Attrs& attrs, std::vector<Vector> in, std::vector<int64_t> out,
              std::vector<std::pair<size_t, size_t>> shared, int shard) {
  return {kind,    attrs, std::move(in),  std::move(out), std::move(shared),
          {shard}, 3,     &Sample().unit, Sample().params};
}

struct Variant {
  bool decoupled, master;
  int corrections;  // 0: none, 1: norm, 2: norm and loss scale, 3: both, and the norm is not finite
  std::string Name() const {
    return fmt::format("_d{}_m{}_c{}", int(decoupled), int(master), corrections);
  }
};

void AddCorrections(const Variant& v, OpCall& call, std::string& in) {
  if (v.corrections > 0)
    call.in.push_back({v.corrections == 3 ? std::numeric_limits<double>::infinity() : 900.0});
  if (v.corrections > 1) call.in.push_back({4});
  in += std::string(std::min(v.corrections, 2), 's');
}

void AddVariant(const Variant& v, int64_t n, int shard, std::vector<TypedCall>& cases) {
  const Attrs attrs{{Attr::kElements, double(n)},
                    {Attr::kLr, 0.1},
                    {Attr::kWd, 0.3},
                    {Attr::kBeta1, 0.9},
                    {Attr::kBeta2, 0.99},
                    {Attr::kEps, 1e-6},
                    {Attr::kClip, 2},
                    {Attr::kMaster, v.master},
                    {Attr::kZaxis, n < 102 ? 0.0 : -1.0},
                    {Attr::kDecoupled, v.decoupled},
                    {Attr::kRep, 55},
                    {Attr::kWt, 1},
                    {Attr::kWrep, 0.5}};
  const Vector g = Random(n, 1, 4), w = Random(n, 2), m = Random(n, 3), second = Squares(n, 4),
               u = Random(n, 5);
  const size_t weights = v.master ? 2 : 1, updated = v.master ? 1 : 0;
  const std::string w_in = v.master ? "fs" : "ff", w_out = v.master ? "fs" : "f";
  const std::string suffix = v.Name() + (n < 102 ? "_shard" : "");

  std::vector<int64_t> sizes(weights, n);
  OpCall sgd = OnUnit(OpKind::kSgd, attrs, {g, w}, sizes, {{updated, 1}}, shard);
  std::string in = w_in;
  AddCorrections(v, sgd, in);
  cases.push_back({"sgd" + suffix, sgd, in, w_out});

  sizes.insert(sizes.end(), 2, n);
  OpCall adam = OnUnit(OpKind::kAdam, attrs, {g, w, m, second}, sizes,
                       {{updated, 1}, {weights, 2}, {weights + 1, 3}}, shard);
  in = w_in + "ss";
  AddCorrections(v, adam, in);
  cases.push_back({"adam" + suffix, adam, in, w_out + "ss"});

  OpCall direction =
      OnUnit(OpKind::kLambDir, attrs, {g, w, m, second}, {n, n, n, 6}, {{0, 2}, {1, 3}}, shard);
  in = w_in + "ss";
  AddCorrections(v, direction, in);
  cases.push_back({"lamb_dir" + suffix, direction, in, "ssss"});

  OpCall apply = OnUnit(OpKind::kLambApply, attrs, {u, w, {4, 1, 0, 2, 9, 3}},
                        std::vector<int64_t>(weights, n), {{updated, 1}}, shard);
  if (v.corrections > 0) apply.in.push_back({v.corrections == 3 ? std::nan("") : 1.0});
  cases.push_back({"lamb_apply" + suffix, apply,
                   (v.master ? "sss" : "sfs") + std::string(v.corrections > 0, 's'), w_out});
}

}  // namespace

std::vector<TypedCall> OptimizerCases() {
  std::vector<TypedCall> cases;
  for (int bits = 0; bits < 4; ++bits) {
    for (int corrections = 0; corrections < 4; ++corrections) {
      const Variant v{(bits & 1) != 0, (bits & 2) != 0, corrections};
      AddVariant(v, 102, 0, cases);
      for (int shard = 0; shard < 3; ++shard) AddVariant(v, 34, shard, cases);
    }
  }
  const double inf = std::numeric_limits<double>::infinity();
  const Attrs sums{{Attr::kElements, 34},
                   {Attr::kZaxis, 0},
                   {Attr::kRep, 55},
                   {Attr::kWt, 1},
                   {Attr::kWrep, 0.25}};
  cases.push_back(
      {"sumsq", OnUnit(OpKind::kSumSq, sums, {{3}, Random(34, 7)}, {1}, {{0, 0}}, 1), "sf", "s"});
  for (const double norm : {1.0, inf}) {
    for (const double good : {5.0, 1999.0})
      cases.push_back(
          {"loss_scale", {OpKind::kLossScale, {}, {{8, good}, {norm}}, {2}, {{0, 0}}}, "ss", "s"});
    cases.push_back({"loss_scale_one",
                     {OpKind::kLossScale, {}, {{8}, {norm}}, {1}, {{0, 0}}, {0}, 2000},
                     "ss",
                     "s"});
  }
  return cases;
}

}  // namespace orrery
