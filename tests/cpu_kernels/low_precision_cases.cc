// SPDX-License-Identifier: Apache-2.0
// Casts to 8 and 4 bits, their scales, and products of cast tensors. Not among AllCases(): GPUs have no such kernels here.
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "model/plan/ir/casts.h"
#include "model/plan/ir/packed.h"
#include "tests/cpu_kernels/typed_call.h"

namespace orrery {
namespace {

using interpreter::Vector;
using ir::Attr;
using ir::Attrs;
using ir::CastFormat;
using ir::OpKind;

double D(auto x) { return static_cast<double>(x); }

struct Recipe {
  const char* name;
  ProductType product;
  CastFormat format;
  int64_t block, share;
};
constexpr Recipe kRecipes[] = {
    {"tensor_e4m3", ProductType::kFp8, CastFormat::kE4m3, 0, 1},
    {"tensor_e5m2", ProductType::kFp8, CastFormat::kE5m2, 0, 1},
    {"block_rows", ProductType::kFp8Block, CastFormat::kE4m3, 128, 1},
    {"block_square", ProductType::kFp8Block, CastFormat::kE4m3, 128, 128},
    {"mx", ProductType::kMxfp8, CastFormat::kE4m3, 32, 1},
    {"nv", ProductType::kNvfp4, CastFormat::kE2m1, 16, 1},
    {"nv_square", ProductType::kNvfp4, CastFormat::kE2m1, 16, 16},
};

Attrs AttrsOf(const Recipe& r) {
  return {{Attr::kProduct, D(static_cast<int>(r.product))},
          {Attr::kFmt, D(static_cast<int>(r.format))},
          {Attr::kBlock, D(r.block)},
          {Attr::kBlock2, D(r.share)}};
}

TypedCall CastCase(const Recipe& r, bool along, bool across) {
  const int64_t rows = 256, h = 384, n = rows * h;
  Attrs attrs = AttrsOf(r);
  attrs.Set(Attr::kRows, D(rows));
  attrs.Set(Attr::kH, D(h));
  attrs.Set(Attr::kAlong, along);
  attrs.Set(Attr::kAcross, across);
  Vector x = Random(n, 11);
  for (int64_t i = 0; i < n; ++i) x[i] *= std::exp2(D(i % 23) - 11);  // blocks of other sizes
  OpCall call{OpKind::kQuantize, attrs, {x}, {}};
  std::string in = "f", out;
  if (r.block == 0 || r.product == ProductType::kNvfp4) {
    call.in.push_back({0.03125});
    in += "s";
  }
  for (const auto& [wanted, down, wide] :
       {std::tuple{along, r.share, r.block}, {across, r.block, r.share}}) {
    if (!wanted) continue;
    call.out_sizes.push_back(n);
    out += "f";
    if (r.block == 0) continue;
    call.out_sizes.push_back(rows / down * (h / wide));
    out += "s";
  }
  return {fmt::format("quantize_{}_{}{}", r.name, along ? "along" : "", across ? "across" : ""),
          call, in, out};
}

// As nvfp4 casts a gradient: transforms across, both casts rounded by draws of the rows and columns that a rank holds.
TypedCall DrawnCase() {
  TypedCall typed = CastCase(kRecipes[5], true, true);
  typed.name = "quantize_nv_drawn";
  ir::Attrs& attrs = typed.call.attrs;
  for (const auto& [key, value] : {std::pair{Attr::kHadamard, 1},
                                   {Attr::kStochastic, 1},
                                   {Attr::kSite, -11},
                                   {Attr::kBatch, 2},
                                   {Attr::kAxis, 0},
                                   {Attr::kColumns, 1}})
    attrs.Set(key, D(value));
  typed.call.in[1] = {0.03125, 0.0625};
  typed.call.coords = {1, 2};
  typed.call.step = 4;
  typed.call.first_sample = 6;
  return typed;
}

TypedCall TransformedAmaxCase() {
  const int64_t rows = 64, h = 48;
  OpCall call{OpKind::kAmax,
              {{Attr::kElements, D(rows * h)}, {Attr::kH, D(h)}, {Attr::kHadamard, 1}},
              {Random(rows * h, 13)},
              {2}};
  return {"amax_hadamard", call, "f", "s"};
}

// Cast operands: small numbers that every storage type holds, scales that are powers of two.
TypedCall ProductCase(const Recipe& r, bool ta, bool tb, bool acc) {
  const int64_t m = 64, n = 256, k = 256;
  Attrs attrs = AttrsOf(r);
  for (const auto& [key, value] : {std::pair{Attr::kM, m}, {Attr::kN, n}, {Attr::kK, k}})
    attrs.Set(key, D(value));
  attrs.Set(Attr::kTransA, ta);
  attrs.Set(Attr::kTransB, tb);
  attrs.Set(Attr::kAcc, acc);
  const auto codes = [](int64_t size, uint64_t seed) {
    Vector x = Random(size, seed);
    for (double& value : x) value = ir::CastTo(CastFormat::kE2m1, 4 * value);
    return x;
  };
  const auto scales = [](int64_t size, uint64_t seed) {
    Vector x = Random(size, seed);
    for (double& value : x) value = std::exp2(std::round(2 * value));
    return x;
  };
  OpCall call{OpKind::kMatmul, attrs, {codes(m * k, 1), codes(k * n, 2)}, {m * n}};
  std::string in = "ff";
  if (acc) {
    call.in.push_back(Random(m * n, 3));
    call.shared = {{0, 2}};
    in += "s";
  }
  call.in.push_back(scales(r.block > 0 ? m * k / r.block : 1, 4));
  call.in.push_back(scales(r.block > 0 ? k * n / r.block / r.share : 1, 5));
  in += "ss";
  if (r.product == ProductType::kNvfp4) {
    call.in.insert(call.in.end(), {{0.5}, {2.0}});
    in += "ss";
  }
  return {fmt::format("mm_{}_{}{}{}", r.name, ta, tb, acc), call, in, "s"};
}

// Codes and scales of a packed matrix as a rank holds them: the whole of it.
TypedCall UnpackCase(ir::Packed packing, const std::string& name, const std::string& codes) {
  constexpr int64_t kRows = 256, kWidth = 128;
  const ir::PackedTensor packed = ir::Pack(packing, Random(kRows * kWidth, 7), kRows, kWidth);
  const Attrs attrs{{Attr::kFmt, static_cast<double>(packing)},
                    {Attr::kRows, static_cast<double>(kRows)},
                    {Attr::kH, static_cast<double>(kWidth)},
                    {Attr::kParts, 1.0}};
  OpCall call{OpKind::kUnpack, attrs, {packed.codes, packed.scales}, {kRows * kWidth}};
  if (!packed.groups.empty()) call.in.push_back(packed.groups);
  return {"unpack_" + name, call, codes + (packed.groups.empty() ? "s" : "ss"), "f"};
}

// The second of two shards of a unit of three matrices, which begins inside of the second one.
void AddUnitCases(std::vector<TypedCall>* cases) {
  for (const int64_t block : {0, 128}) {
    const int64_t side = block > 0 ? block : 6, n = side * side;
    static std::map<int64_t, ir::Unit> units;  // calls keep a pointer
    ir::Unit& unit = units[block];
    unit = {"q", {{0, 0, n}, {1, n, 2 * n}, {2, 3 * n, n}}, 4 * n + 2, 4 * n};
    const auto packing = block > 0 ? ir::Packed::kE4m3Blocks : ir::Packed::kE4m3;
    std::vector<ir::Param> params(3);
    for (ir::Param& param : params) {
      param.shape = {side, side};
      param.packing = packing;
    }
    params[1].shape[0] = 2 * side;
    const int64_t scales = block > 0 ? 4 : 3, shard = unit.elements / 2;
    const Attrs attrs{{Attr::kElements, static_cast<double>(shard)},
                      {Attr::kZaxis, 0},
                      {Attr::kProduct,
                       static_cast<double>(block > 0 ? ProductType::kFp8Block : ProductType::kFp8)},
                      {Attr::kFmt, static_cast<double>(ir::CastFormat::kE4m3)},
                      {Attr::kBlock, static_cast<double>(block)}};
    OpCall amax{OpKind::kUnitAmax, attrs, {Random(shard, 5)}, {scales}};
    OpCall cast{OpKind::kUnitCast, attrs, {Random(shard, 5), Vector(scales, 0.25)}, {shard}};
    for (OpCall* call : {&amax, &cast}) {
      call->coords = {1};
      call->unit = &unit;
      call->params = params;
    }
    cases->push_back({fmt::format("unit_amax_{}", block), amax, "s", "s"});
    cases->push_back({fmt::format("unit_cast_{}", block), cast, "ss", "s"});
  }
}

}  // namespace

std::vector<TypedCall> LowPrecisionCases() {
  std::vector<TypedCall> cases;
  cases.push_back(DrawnCase());
  cases.push_back(TransformedAmaxCase());
  cases.push_back(UnpackCase(ir::Packed::kInt8, "int8", "m"));
  cases.push_back(UnpackCase(ir::Packed::kNf4, "nf4", "m"));
  cases.push_back(UnpackCase(ir::Packed::kE4m3, "e4m3", "s"));
  cases.push_back(UnpackCase(ir::Packed::kE4m3Blocks, "e4m3_blocks", "s"));
  for (const Recipe& r : kRecipes) {
    for (const auto& [along, across] : {std::pair{true, true}, {true, false}, {false, true}})
      cases.push_back(CastCase(r, along, across));
    for (int flags = 0; flags < 8; ++flags)
      cases.push_back(ProductCase(r, flags & 1, flags & 2, flags & 4));
  }
  AddUnitCases(&cases);
  const Attrs count{{Attr::kElements, 300.0}};
  cases.push_back({"amax", {OpKind::kAmax, count, {Random(300, 1)}, {1}}, "f", "s"});
  Attrs more = count;
  more.Set(Attr::kAcc, 1);
  cases.push_back(
      {"amax_acc", {OpKind::kAmax, more, {Random(300, 1), {9}}, {1}, {{0, 1}}}, "fs", "s"});
  const Attrs history{{Attr::kElements, 5.0}, {Attr::kLength, 3.0}};
  cases.push_back({"amax_roll",
                   {OpKind::kAmaxRoll, history, {Random(15, 1), Random(5, 2)}, {15}, {{0, 0}}},
                   "ss",
                   "s"});
  for (const int length : {0, 3}) {
    for (const Recipe& r : {kRecipes[0], kRecipes[1], kRecipes[5]}) {
      Attrs attrs = AttrsOf(r);
      attrs.Set(Attr::kElements, 5);
      attrs.Set(Attr::kLength, length);
      attrs.Set(Attr::kMargin, 1);
      cases.push_back({fmt::format("scale_update_{}_{}", r.name, length),
                       {OpKind::kScaleUpdate, attrs, {Random(length > 0 ? 15 : 5, 3)}, {5}},
                       "s",
                       "s"});
    }
  }
  return cases;
}

}  // namespace orrery
