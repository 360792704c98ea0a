// SPDX-License-Identifier: Apache-2.0
// Random calls of products, row-wise and element-wise ops, with sizes that are no multiple of a vector.
#include <fmt/format.h>

#include <cmath>

#include "tests/cpu_kernels/typed_call.h"

namespace orrery {
namespace {

using ir::Attr;
using ir::Attrs;
using ir::OpKind;

double D(int64_t n) { return static_cast<double>(n); }

struct Sizes {
  int64_t rows, h;
};
constexpr Sizes kSizes[] = {{1, 1}, {3, 5}, {8, 64}, {13, 67}, {6, 260}};

// Integers in [0, below).
Vector Integers(int64_t n, int64_t below, uint64_t seed) {
  Vector x = Random(n, seed);
  for (double& value : x) value = std::floor(std::fmod(std::abs(value) * 1000, D(below)));
  return x;
}

void AddNorms(Sizes s, std::vector<TypedCall>& cases) {
  const int64_t n = s.rows * s.h;
  const Attrs attrs{{Attr::kRows, D(s.rows)}, {Attr::kH, D(s.h)}};
  Attrs adding = attrs, far = attrs;
  adding.Set(Attr::kAdd, 1);
  far.Set(Attr::kEps, 0.5);  // as large as the variance
  const Vector x = Random(n, 1, 2), dy = Random(n, 2), gamma = Random(s.h, 3),
               beta = Random(s.h, 4), r = Random(n, 5);
  const Vector ln = RunOp({OpKind::kLayerNorm, attrs, {x, gamma, beta}, {n, 2 * s.rows}})[1];
  const Vector rms = RunOp({OpKind::kRmsNorm, attrs, {x, gamma}, {n, s.rows}})[1];
  cases.insert(
      cases.end(),
      {
          {"ln", {OpKind::kLayerNorm, attrs, {x, gamma, beta}, {n, 2 * s.rows}}, "fff", "fs"},
          {"ln_bwd", {OpKind::kLayerNormBwd, attrs, {dy, x, ln, gamma}, {n}}, "ffsf", "f"},
          {"ln_bwd_add", {OpKind::kLayerNormBwd, adding, {dy, x, ln, gamma, r}, {n}}, "ffsff", "f"},
          {"ln_bwd_in_place",
           {OpKind::kLayerNormBwd, adding, {dy, x, ln, gamma, r}, {n}, {{0, 4}}},
           "ffsff",
           "f"},
          {"ln_wgrad",
           {OpKind::kLayerNormWgrad, attrs, {gamma, beta, dy, x, ln}, {s.h, s.h}, {{0, 0}, {1, 1}}},
           "ffffs",
           "ff"},
          {"rms", {OpKind::kRmsNorm, attrs, {x, gamma}, {n, s.rows}}, "ff", "fs"},
          {"rms_bwd", {OpKind::kRmsNormBwd, attrs, {dy, x, rms, gamma}, {n}}, "ffsf", "f"},
          {"rms_bwd_add", {OpKind::kRmsNormBwd, adding, {dy, x, rms, gamma, r}, {n}}, "ffsff", "f"},
          {"rms_wgrad",
           {OpKind::kRmsNormWgrad, attrs, {gamma, dy, x, rms}, {s.h}, {{0, 0}}},
           "fffs",
           "f"},
          {"ln_epsilon", {OpKind::kLayerNorm, far, {x, gamma, beta}, {n, 2 * s.rows}}, "fff", "fs"},
          {"rms_epsilon", {OpKind::kRmsNorm, far, {x, gamma}, {n, s.rows}}, "ff", "fs"},
          {"colsum", {OpKind::kColSum, attrs, {beta, dy}, {s.h}, {{0, 0}}}, "ff", "f"},
      });
}

// Second of two vocabulary shards; tokens also name rows of the first.
void AddEmbeddings(Sizes s, std::vector<TypedCall>& cases) {
  const int64_t n = s.rows * s.h, vl = 7;
  const Vector tokens = Integers(s.rows, 2 * vl, 1), table = Random(vl * s.h, 2), x = Random(n, 3);
  const Attrs attrs{
      {Attr::kRows, D(s.rows)}, {Attr::kH, D(s.h)}, {Attr::kVl, D(vl)}, {Attr::kAxis, 0}};
  Attrs adding = attrs;
  adding.Set(Attr::kAcc, 1);
  Attrs scaled = attrs, scaled_adding = adding;
  scaled.Set(Attr::kScale, 5.5);
  scaled_adding.Set(Attr::kScale, 5.5);
  const Attrs place{
      {Attr::kRows, D(s.rows)}, {Attr::kH, D(s.h)}, {Attr::kBatch, 2}, {Attr::kAxis, 0}};
  const Vector positions = Random((s.rows + 1) * s.h, 4);
  cases.insert(
      cases.end(),
      {
          {"embed", {OpKind::kEmbed, attrs, {tokens, table}, {n}, {}, {1}}, "if", "f"},
          {"embed_acc", {OpKind::kEmbed, adding, {tokens, table, x}, {n}, {}, {1}}, "iff", "f"},
          {"embed_acc_in_place",
           {OpKind::kEmbed, adding, {tokens, table, x}, {n}, {{0, 2}}, {1}},
           "iff",
           "f"},
          {"embed_bwd",
           {OpKind::kEmbedBwd, attrs, {table, tokens, x}, {vl * s.h}, {{0, 0}}, {1}},
           "fif",
           "f"},
          {"embed_scaled", {OpKind::kEmbed, scaled, {tokens, table}, {n}, {}, {1}}, "if", "f"},
          {"embed_scaled_acc",
           {OpKind::kEmbed, scaled_adding, {tokens, table, x}, {n}, {}, {1}},
           "iff",
           "f"},
          {"embed_scaled_bwd",
           {OpKind::kEmbedBwd, scaled, {table, tokens, x}, {vl * s.h}, {{0, 0}}, {1}},
           "fif",
           "f"},
          {"add_pos", {OpKind::kAddPos, place, {x, positions}, {n}, {}, {1}}, "ff", "f"},
          {"pos_bwd",
           {OpKind::kPosBwd, place, {positions, x}, {(s.rows + 1) * s.h}, {{0, 0}}, {1}},
           "ff",
           "f"},
      });
}

// `rows` masked positions of one sample out of a sequence of 2 rows; scatter on the second of two shards.
void AddGathers(Sizes s, std::vector<TypedCall>& cases) {
  const int64_t n = s.rows * s.h, full = 2 * s.rows;
  const Vector pos = Integers(s.rows, full, 5), x = Random(full * s.h, 6), dy = Random(n, 7);
  const Attrs gather{{Attr::kRows, D(s.rows)}, {Attr::kH, D(s.h)}, {Attr::kBatch, 1}};
  Attrs scatter = gather;
  scatter.Set(Attr::kElements, D(s.rows));
  scatter.Set(Attr::kAxis, 0);
  cases.push_back({"gather_rows", {OpKind::kGatherRows, gather, {x, pos}, {n}}, "fi", "f"});
  cases.push_back(
      {"scatter_rows", {OpKind::kScatterRows, scatter, {dy, pos}, {n}, {}, {1}}, "fi", "f"});
}

// Second of two shards of a vocabulary whose last columns are padding.
void AddCrossEntropy(Sizes s, std::vector<TypedCall>& cases) {
  const int64_t vl = s.h, v = 2 * vl - vl / 3, n = s.rows * vl;
  const Attrs attrs{{Attr::kRows, D(s.rows)},
                    {Attr::kVl, D(vl)},
                    {Attr::kV, D(v)},
                    {Attr::kAxis, 0},
                    {Attr::kScale, 0.25}};
  const Vector x = Random(n, 1, 3), labels = Integers(s.rows, v, 2), loss{3};
  const Vector m = RunOp({OpKind::kXentMax, attrs, {x}, {s.rows}, {}, {1}})[0];
  Vector sums = RunOp({OpKind::kXentSum, attrs, {x, m, labels}, {2 * s.rows}, {}, {1}})[0];
  for (size_t i = 0; i < sums.size(); i += 2) sums[i] += 0.5;  // of the other shard
  cases.insert(cases.end(),
               {
                   {"xent_max", {OpKind::kXentMax, attrs, {x}, {s.rows}, {}, {1}}, "f", "s"},
                   {"xent_sum",
                    {OpKind::kXentSum, attrs, {x, m, labels}, {2 * s.rows}, {}, {1}},
                    "fsi",
                    "s"},
                   {"xent_grad",
                    {OpKind::kXentGrad, attrs, {x, m, sums, labels, loss}, {n, 1}, {{1, 4}}, {1}},
                    "fssis",
                    "fs"},
                   {"xent_grad_scaled",
                    {OpKind::kXentGrad,
                     attrs,
                     {x, m, sums, labels, loss, {16}},
                     {n, 1},
                     {{0, 0}, {1, 4}},
                     {1}},
                    "fssiss",
                    "fs"},
                   {"mse",
                    {OpKind::kMse,
                     {{Attr::kElements, D(n)}, {Attr::kScale, 0.5}},
                     {x, Random(n, 3), loss},
                     {n, 1},
                     {{1, 2}}},
                    "ffs",
                    "fs"},
                   {"mse_scaled",
                    {OpKind::kMse,
                     {{Attr::kElements, D(n)}, {Attr::kScale, 0.5}},
                     {x, Random(n, 3), loss, {8, 1}},
                     {n, 1},
                     {{1, 2}}},
                    "ffss",
                    "fs"},
               });
}

void AddDropout(Sizes s, std::vector<TypedCall>& cases) {
  const int64_t n = s.rows * s.h;
  const Vector x = Random(n, 1), y = Random(n, 2), bias = Random(s.h, 3);
  Attrs attrs{{Attr::kRows, D(s.rows)}, {Attr::kH, D(s.h)}, {Attr::kRate, 0.3},
              {Attr::kSite, 5},         {Attr::kBatch, 3},  {Attr::kAxis, 0}};
  OpCall forward{OpKind::kDropout, attrs, {x}, {n, n}, {}, {2}, 4};
  forward.first_sample = 9;
  const Vector mask = RunOp(forward)[1];
  attrs.Set(Attr::kBias, 1);
  OpCall residual{OpKind::kBiasResidual, attrs, {x, y, bias}, {n, n}, {}, {2}, 4};
  residual.first_sample = 9;
  const Attrs plain{{Attr::kRows, D(s.rows)}, {Attr::kH, D(s.h)}};
  OpCall twice = residual;
  twice.attrs.Set(Attr::kBias, 2);
  twice.in.push_back(Random(s.h, 4));
  const Attrs biased{{Attr::kRows, D(s.rows)}, {Attr::kH, D(s.h)}, {Attr::kBias, 1}};
  const Attrs back{{Attr::kElements, D(n)}, {Attr::kRate, 0.3}};
  cases.insert(
      cases.end(),
      {
          {"dropout", forward, "f", "fm"},
          {"dropout_bwd", {OpKind::kDropoutBwd, back, {x, mask}, {n}}, "fm", "f"},
          {"bias_res_dropout", residual, "fff", "fm"},
          {"bias_res_two", twice, "ffff", "fm"},
          {"bias_res", {OpKind::kBiasResidual, biased, {x, y, bias}, {n}, {{0, 0}}}, "fff", "f"},
          {"bias_res_plain", {OpKind::kBiasResidual, plain, {x, y}, {n}}, "ff", "f"},
      });
}

// Squared relu, gates of gelu and relu, capped logits.
void AddVariants(int64_t n, std::vector<TypedCall>& cases) {
  const Attrs attrs{{Attr::kElements, D(n)}};
  const Vector x = Random(n, 1, 3), dy = Random(n, 2), wide = Random(2 * n, 3, 3);
  Attrs squared = attrs, capped = attrs;
  squared.Set(Attr::kPower, 2);
  capped.Set(Attr::kCap, 2.5);
  const Vector y = RunOp({OpKind::kTanh, capped, {x}, {n}})[0];
  cases.push_back({"relu_squared", {OpKind::kRelu, squared, {x}, {n}}, "f", "f"});
  cases.push_back(
      {"relu_squared_bwd", {OpKind::kReluBwd, squared, {dy, x}, {n}, {{0, 0}}}, "ff", "f"});
  cases.push_back({"tanh_cap", {OpKind::kTanh, capped, {x}, {n}}, "f", "f"});
  cases.push_back({"tanh_cap_bwd", {OpKind::kTanhBwd, capped, {dy, y}, {n}}, "ff", "f"});
  for (const ir::GateKind gate : {ir::GateKind::kGelu, ir::GateKind::kRelu}) {
    Attrs gated = attrs;
    gated.Set(Attr::kGate, static_cast<double>(gate));
    const std::string name = gate == ir::GateKind::kGelu ? "geglu" : "reglu";
    cases.push_back({name, {OpKind::kSwiglu, gated, {wide}, {n}}, "f", "f"});
    cases.push_back({name + "_bwd", {OpKind::kSwigluBwd, gated, {dy, wide}, {2 * n}}, "ff", "f"});
  }
  const Vector up = Random(n, 4, 3);
  for (const ir::GateKind gate : {ir::GateKind::kSilu, ir::GateKind::kGelu, ir::GateKind::kRelu}) {
    Attrs gated = attrs;
    gated.Set(Attr::kGate, static_cast<double>(gate));
    const std::string name = fmt::format("gate{}_apart", static_cast<int>(gate));
    cases.push_back({name, {OpKind::kSwiglu, gated, {x, up}, {n}}, "ff", "f"});
    cases.push_back({name + "_bwd", {OpKind::kSwigluBwd, gated, {dy, x, up}, {n, n}}, "fff", "ff"});
  }
}

}  // namespace

std::vector<TypedCall> MatmulCases() {
  std::vector<TypedCall> cases;
  const int64_t shapes[][3] = {{1, 1, 1}, {3, 4, 5}, {17, 33, 65}, {64, 48, 32}, {130, 70, 300}};
  for (const auto& [m, n, k] : shapes) {
    for (int flags = 0; flags < 16; ++flags) {
      const bool ta = flags & 1, tb = flags & 2, bias = flags & 4, acc = flags & 8;
      const Attrs attrs{{Attr::kM, D(m)},    {Attr::kN, D(n)},    {Attr::kK, D(k)},
                        {Attr::kTransA, ta}, {Attr::kTransB, tb}, {Attr::kBias, bias},
                        {Attr::kAcc, acc}};
      std::vector<Vector> in{Random(m * k, 1), Random(k * n, 2)};
      if (bias) in.push_back(Random(n, 3));
      if (acc) in.push_back(Random(m * n, 4));
      OpCall call{OpKind::kMatmul, attrs, in, {m * n}};
      if (acc) call.shared = {{0, in.size() - 1}};
      cases.push_back(
          {fmt::format("mm_{}x{}x{}_{}", m, n, k, flags), call, std::string(in.size(), 'f'), "f"});
      if (!acc) continue;
      const std::string inputs = bias ? "fffs" : "ffs";  // gradients summed in f32
      cases.push_back({fmt::format("mm_{}x{}x{}_{}_f32_sum", m, n, k, flags), call, inputs, "s"});
    }
  }
  return cases;
}

std::vector<TypedCall> RowCases() {
  std::vector<TypedCall> cases;
  for (const Sizes s : kSizes) {
    if (s.h > 1) AddNorms(s, cases);  // of one column, the gradient is zero but for rounding
    AddEmbeddings(s, cases);
    AddGathers(s, cases);
    AddCrossEntropy(s, cases);
    AddDropout(s, cases);
  }
  return cases;
}

std::vector<TypedCall> ElementwiseCases() {
  std::vector<TypedCall> cases;
  for (const int64_t n : {1, 7, 64, 1003}) {
    const Attrs attrs{{Attr::kElements, D(n)}}, part{{Attr::kElements, D(n)}, {Attr::kAxis, 1}};
    const Vector x = Random(n, 1, 3), dy = Random(n, 2), wide = Random(2 * n, 3, 3);
    cases.insert(
        cases.end(),
        {
            {"zero", {OpKind::kZero, {}, {}, {n}}, "", "f"},
            {"add", {OpKind::kAdd, attrs, {x, dy}, {n}, {{0, 0}}}, "ff", "f"},
            {"slice",
             {.kind = OpKind::kSlice,
              .attrs = part,
              .in = {wide},
              .out_sizes = {n},
              .coords = {3, 1}},
             "f",
             "f"},
            {"slice of rows",
             {.kind = OpKind::kSlice,
              .attrs = {{Attr::kElements, D(n)},
                        {Attr::kAxis, 1},
                        {Attr::kRows, D(n % 8 == 0 ? 8 : n)}},
              .in = {wide},
              .out_sizes = {n},
              .coords = {3, 1}},
             "f",
             "f"},
            {"slice of columns",
             {.kind = OpKind::kSlice,
              .attrs = {{Attr::kElements, D(n)},
                        {Attr::kRows, D(n % 8 == 0 ? 8 : n)},
                        {Attr::kH, D(n % 8 == 0 ? n / 4 : 2)},
                        {Attr::kColumns, 1}},
              .in = {wide},
              .out_sizes = {n}},
             "f",
             "f"},
            {"add to columns",
             {.kind = OpKind::kAdd,
              .attrs = {{Attr::kElements, D(n)},
                        {Attr::kRows, D(n % 8 == 0 ? 8 : n)},
                        {Attr::kH, D(n % 8 == 0 ? n / 4 : 2)},
                        {Attr::kColumns, 1}},
              .in = {wide, x},
              .out_sizes = {2 * n},
              .shared = {{0, 0}}},
             "ff",
             "f"},
            {"copy", {OpKind::kCopy, {}, {x}, {n}}, "f", "f"},
            {"gelu", {OpKind::kGelu, attrs, {x}, {n}}, "f", "f"},
            {"gelu_bwd", {OpKind::kGeluBwd, attrs, {dy, x}, {n}, {{0, 0}}}, "ff", "f"},
            {"relu", {OpKind::kRelu, attrs, {x}, {n}}, "f", "f"},
            {"relu_bwd", {OpKind::kReluBwd, attrs, {dy, x}, {n}}, "ff", "f"},
            {"swiglu", {OpKind::kSwiglu, attrs, {wide}, {n}}, "f", "f"},
            {"swiglu_bwd", {OpKind::kSwigluBwd, attrs, {dy, wide}, {2 * n}}, "ff", "f"},
            {"tanh", {OpKind::kTanh, attrs, {x}, {n}}, "f", "f"},
            {"tanh_bwd",
             {OpKind::kTanhBwd, attrs, {dy, RunOp({OpKind::kTanh, attrs, {x}, {n}})[0]}, {n}},
             "ff",
             "f"},
        });
    AddVariants(n, cases);
  }
  return cases;
}

}  // namespace orrery
