// SPDX-License-Identifier: Apache-2.0
// Reference kernels against direct formulas and finite differences: products, norms, element-wise, embeddings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/interpreter/op_runner.h"

namespace orrery::interpreter {
namespace {

using ir::Attr;
using ir::Attrs;
using ir::OpKind;

constexpr double kExact = 1e-12, kNumeric = 1e-7;

TEST(Kernels, EveryOpKindIsDispatchedOrLeftToTheScheduler) {
  for (int k = 0; k < ir::kOpKinds; ++k) {
    const auto kind = static_cast<OpKind>(k);
    const ir::OpClass cls = ir::Info(kind).op_class;
    const bool scheduled = cls == ir::OpClass::kCollective || cls == ir::OpClass::kPointToPoint ||
                           kind == OpKind::kLoad;
    const bool priced_only = kind == OpKind::kMuon;  // `plan run` refuses it (run_job.cc)
    EXPECT_EQ(KernelFor(kind) == nullptr, scheduled || priced_only) << ir::Info(kind).name;
  }
}

TEST(Kernels, MatmulFollowsItsDefinitionForEveryStorageOrder) {
  const int64_t m = 3, n = 4, k = 5;
  const Vector a = Random(m * k, 1), b = Random(k * n, 2), bias = Random(n, 3),
               old = Random(m * n, 4);
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      Vector expected(old);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          expected[i * n + j] += bias[j];
          for (int64_t p = 0; p < k; ++p)
            expected[i * n + j] +=
                (ta ? a[p * m + i] : a[i * k + p]) * (tb ? b[j * k + p] : b[p * n + j]);
        }
      const Attrs attrs{{Attr::kM, m},       {Attr::kN, n},    {Attr::kK, k},  {Attr::kTransA, ta},
                        {Attr::kTransB, tb}, {Attr::kBias, 1}, {Attr::kAcc, 1}};
      const auto c = RunOp({OpKind::kMatmul, attrs, {a, b, bias, old}, {m * n}, {{0, 3}}});
      EXPECT_LT(LargestDifference(c[0], expected), kExact) << ta << tb;
    }
  }
}

TEST(Kernels, RejectsOperandsThatContradictTheAttributes) {
  const Attrs attrs{{Attr::kM, 2}, {Attr::kN, 2}, {Attr::kK, 2}};
  EXPECT_THROW(RunOp({OpKind::kMatmul, attrs, {Vector(4), Vector(6)}, {4}}), PlanFault);
  EXPECT_THROW(RunOp({OpKind::kMatmul, attrs, {Vector(4)}, {4}}), PlanFault);
}

struct ElementwiseCase {
  OpKind forward, backward;
  bool saves_output;
};
class Elementwise : public testing::TestWithParam<ElementwiseCase> {};

TEST_P(Elementwise, BackwardIsTheDerivative) {
  const auto [forward, backward, saves_output] = GetParam();
  const int64_t n = 12;
  const int64_t wide = forward == OpKind::kSwiglu ? 2 * n : n;
  const Vector x = Random(wide, 5), dy = Random(n, 6);
  const Attrs attrs{{Attr::kElements, n}};
  const auto f = [&](const Vector& at) { return Dot(dy, RunOp({forward, attrs, {at}, {n}})[0]); };
  const Vector saved = saves_output ? RunOp({forward, attrs, {x}, {n}})[0] : x;
  EXPECT_LT(
      LargestDifference(RunOp({backward, attrs, {dy, saved}, {wide}})[0], NumericGradient(f, x)),
      kNumeric);
}
INSTANTIATE_TEST_SUITE_P(All, Elementwise,
                         testing::Values(ElementwiseCase{OpKind::kGelu, OpKind::kGeluBwd, false},
                                         ElementwiseCase{OpKind::kRelu, OpKind::kReluBwd, false},
                                         ElementwiseCase{OpKind::kSwiglu, OpKind::kSwigluBwd,
                                                         false},
                                         ElementwiseCase{OpKind::kTanh, OpKind::kTanhBwd, true}));

TEST(Kernels, GatesAndUpsMayBeApart) {
  const Vector gate = Random(12, 5), up = Random(12, 6), dy = Random(12, 7);
  Vector pairs;
  for (int i = 0; i < 12; ++i) pairs.insert(pairs.end(), {gate[i], up[i]});
  const Attrs attrs{{Attr::kElements, 12}};
  EXPECT_EQ(RunOp({OpKind::kSwiglu, attrs, {gate, up}, {12}})[0],
            RunOp({OpKind::kSwiglu, attrs, {pairs}, {12}})[0]);
  const auto apart = RunOp({OpKind::kSwigluBwd, attrs, {dy, gate, up}, {12, 12}});
  const Vector joined = RunOp({OpKind::kSwigluBwd, attrs, {dy, pairs}, {24}})[0];
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(apart[0][i], joined[2 * i]);
    EXPECT_EQ(apart[1][i], joined[2 * i + 1]);
  }
}

TEST(Kernels, SlicesOfAllRanksMakeTheWhole) {
  const Vector x{1, 2, 3, 4, 5, 6};
  const Attrs attrs{{Attr::kElements, 2}, {Attr::kAxis, 1}};
  for (int part = 0; part < 3; ++part) {
    const Vector y = RunOp({.kind = OpKind::kSlice,
                            .attrs = attrs,
                            .in = {x},
                            .out_sizes = {2},
                            .coords = {7, part}})[0];
    EXPECT_EQ(y, (Vector{x[2 * part], x[2 * part + 1]}));
  }
  EXPECT_THROW(
      RunOp(
          {.kind = OpKind::kSlice, .attrs = attrs, .in = {x}, .out_sizes = {2}, .coords = {0, 3}}),
      PlanFault);
  EXPECT_THROW(
      RunOp(
          {.kind = OpKind::kSlice, .attrs = attrs, .in = {x}, .out_sizes = {3}, .coords = {0, 1}}),
      PlanFault);
}

TEST(Kernels, LayerNormGradientsAreTheDerivatives) {
  const int64_t rows = 3, h = 5;
  const Attrs attrs{{Attr::kRows, rows}, {Attr::kH, h}};
  const Vector x = Random(rows * h, 1), gamma = Random(h, 2), beta = Random(h, 3),
               dy = Random(rows * h, 4);
  const Vector residual = Random(rows * h, 5), old = Random(h, 6);
  const auto loss = [&](const Vector& x0, const Vector& g0, const Vector& b0) {
    return Dot(dy, RunOp({OpKind::kLayerNorm, attrs, {x0, g0, b0}, {rows * h, 2 * rows}})[0]);
  };
  const Vector stats =
      RunOp({OpKind::kLayerNorm, attrs, {x, gamma, beta}, {rows * h, 2 * rows}})[1];
  Attrs adding = attrs;
  adding.Set(Attr::kAdd, 1);
  const Vector dx = NumericGradient([&](const Vector& at) { return loss(at, gamma, beta); }, x);
  EXPECT_LT(LargestDifference(
                RunOp({OpKind::kLayerNormBwd, attrs, {dy, x, stats, gamma}, {rows * h}})[0], dx),
            kNumeric);
  EXPECT_LT(
      LargestDifference(
          RunOp({OpKind::kLayerNormBwd, adding, {dy, x, stats, gamma, residual}, {rows * h}})[0],
          Sum(dx, residual)),
      kNumeric);
  const auto grads =
      RunOp({OpKind::kLayerNormWgrad, attrs, {old, old, dy, x, stats}, {h, h}, {{0, 0}, {1, 1}}});
  const Vector dgamma = NumericGradient([&](const Vector& at) { return loss(x, at, beta); }, gamma);
  const Vector dbeta = NumericGradient([&](const Vector& at) { return loss(x, gamma, at); }, beta);
  EXPECT_LT(LargestDifference(grads[0], Sum(old, dgamma)), kNumeric);
  EXPECT_LT(LargestDifference(grads[1], Sum(old, dbeta)), kNumeric);
}

TEST(Kernels, RmsNormGradientsAreTheDerivatives) {
  const int64_t rows = 3, h = 5;
  const Attrs attrs{{Attr::kRows, rows}, {Attr::kH, h}};
  const Vector x = Random(rows * h, 1), gamma = Random(h, 2), dy = Random(rows * h, 4);
  const Vector residual = Random(rows * h, 5), old = Random(h, 6);
  const auto loss = [&](const Vector& x0, const Vector& g0) {
    return Dot(dy, RunOp({OpKind::kRmsNorm, attrs, {x0, g0}, {rows * h, rows}})[0]);
  };
  const Vector stats = RunOp({OpKind::kRmsNorm, attrs, {x, gamma}, {rows * h, rows}})[1];
  Attrs adding = attrs;
  adding.Set(Attr::kAdd, 1);
  const Vector dx = NumericGradient([&](const Vector& at) { return loss(at, gamma); }, x);
  EXPECT_LT(LargestDifference(
                RunOp({OpKind::kRmsNormBwd, attrs, {dy, x, stats, gamma}, {rows * h}})[0], dx),
            kNumeric);
  EXPECT_LT(
      LargestDifference(
          RunOp({OpKind::kRmsNormBwd, adding, {dy, x, stats, gamma, residual}, {rows * h}})[0],
          Sum(dx, residual)),
      kNumeric);
  const Vector dgamma = NumericGradient([&](const Vector& at) { return loss(x, at); }, gamma);
  EXPECT_LT(LargestDifference(
                RunOp({OpKind::kRmsNormWgrad, attrs, {old, dy, x, stats}, {h}, {{0, 0}}})[0],
                Sum(old, dgamma)),
            kNumeric);
}

TEST(Kernels, BiasResidualAndColumnSum) {
  const Attrs attrs{{Attr::kRows, 2}, {Attr::kH, 3}, {Attr::kBias, 1}};
  const Vector x{1, 2, 3, 4, 5, 6}, y{10, 20, 30, 40, 50, 60}, bias{100, 200, 300};
  EXPECT_EQ(RunOp({OpKind::kBiasResidual, attrs, {x, y, bias}, {6}})[0],
            (Vector{111, 222, 333, 144, 255, 366}));
  EXPECT_EQ(RunOp({OpKind::kColSum, attrs, {bias, x}, {3}, {{0, 0}}})[0], (Vector{105, 207, 309}));
}

TEST(Kernels, DropoutKeepsTheExpectedShareAndItsBackwardIsTheDerivative) {
  const int64_t rows = 40, h = 50;
  const Attrs attrs{
      {Attr::kRows, rows}, {Attr::kH, h}, {Attr::kRate, 0.25}, {Attr::kSite, 2}, {Attr::kBatch, 4}};
  const Vector x(rows * h, 3.0), dy = Random(rows * h, 1);
  const auto out = RunOp({OpKind::kDropout, attrs, {x}, {rows * h, rows * h}});
  double kept = 0;
  for (int64_t i = 0; i < rows * h; ++i) {
    EXPECT_EQ(out[0][i], out[1][i] * 3.0 / 0.75);
    kept += out[1][i];
  }
  EXPECT_NEAR(kept / (rows * h), 0.75, 0.04);
  const Attrs back{{Attr::kElements, rows * h}, {Attr::kRate, 0.25}};
  const auto loss = [&](const Vector& at) {
    return Dot(dy, RunOp({OpKind::kDropout, attrs, {at}, {rows * h, rows * h}})[0]);
  };
  EXPECT_LT(LargestDifference(RunOp({OpKind::kDropoutBwd, back, {dy, out[1]}, {rows * h}})[0],
                              NumericGradient(loss, x)),
            kNumeric);
}

TEST(Kernels, DropoutMasksFollowGlobalSamplesAndPositions) {
  const int64_t h = 8, rows = 6;  // three positions of two samples
  Attrs attrs{{Attr::kRows, rows}, {Attr::kH, h}, {Attr::kRate, 0.5}, {Attr::kBatch, 2}};
  const Vector x(rows * h, 1.0);
  const Vector whole = RunOp({OpKind::kDropout, attrs, {x}, {rows * h, rows * h}})[1];
  attrs.Set(Attr::kBatch, 1);
  attrs.Set(Attr::kRows, 3);
  for (int64_t sample = 0; sample < 2; ++sample) {
    OpCall call{
        OpKind::kBiasResidual, attrs, {Vector(3 * h, 0.0), Vector(3 * h, 1.0)}, {3 * h, 3 * h}};
    call.first_sample = sample;
    const Vector mask = RunOp(call)[1];
    for (int64_t p = 0; p < 3; ++p)
      for (int64_t c = 0; c < h; ++c) EXPECT_EQ(mask[p * h + c], whole[(p * 2 + sample) * h + c]);
  }
  attrs.Set(Attr::kRows, 2);  // the second shard of a sequence, one position of two samples
  attrs.Set(Attr::kBatch, 2);
  attrs.Set(Attr::kAxis, 0);
  const Vector shard =
      RunOp({OpKind::kDropout, attrs, {Vector(2 * h, 1.0)}, {2 * h, 2 * h}, {}, {1}})[1];
  EXPECT_TRUE(std::equal(shard.begin(), shard.end(), whole.begin() + 2 * h));
}

TEST(Kernels, EmbeddingShardsAddUpAndScatterBack) {
  const int64_t rows = 4, h = 2, vl = 3;
  const Vector tokens{0, 5, 2, 5}, table = Random(2 * vl * h, 1), dx = Random(rows * h, 2),
                                   zero(vl * h, 0.0);
  const Attrs attrs{{Attr::kRows, rows}, {Attr::kH, h}, {Attr::kVl, vl}, {Attr::kAxis, 0}};
  Vector sum(rows * h, 0.0), gradient;
  for (int shard = 0; shard < 2; ++shard) {
    const Vector piece(table.begin() + shard * vl * h, table.begin() + (shard + 1) * vl * h);
    sum = Sum(sum, RunOp({OpKind::kEmbed, attrs, {tokens, piece}, {rows * h}, {}, {shard}})[0]);
    const Vector part =
        RunOp({OpKind::kEmbedBwd, attrs, {zero, tokens, dx}, {vl * h}, {{0, 0}}, {shard}})[0];
    gradient.insert(gradient.end(), part.begin(), part.end());
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < h; ++c)
      EXPECT_EQ(sum[r * h + c], table[static_cast<int64_t>(tokens[r]) * h + c]);
  const Attrs whole{{Attr::kRows, rows}, {Attr::kH, h}, {Attr::kVl, 2 * vl}};
  const auto loss = [&](const Vector& at) {
    return Dot(dx, RunOp({OpKind::kEmbed, whole, {tokens, at}, {rows * h}})[0]);
  };
  EXPECT_LT(LargestDifference(gradient, NumericGradient(loss, table)), kNumeric);
}

TEST(Kernels, EmbeddingAccumulatesWhenAsked) {
  const Attrs attrs{{Attr::kRows, 1}, {Attr::kH, 2}, {Attr::kVl, 2}, {Attr::kAcc, 1}};
  EXPECT_EQ(RunOp({OpKind::kEmbed, attrs, {{1}, {1, 2, 3, 4}, {10, 20}}, {2}, {{0, 2}}})[0],
            (Vector{13, 24}));
}

TEST(Kernels, UnwrittenTokensAreAFault) {
  const Attrs attrs{{Attr::kRows, 1}, {Attr::kH, 1}, {Attr::kVl, 2}};
  EXPECT_THROW(RunOp({OpKind::kEmbed, attrs, {{std::nan("")}, {1, 2}}, {1}}), PlanFault);
}

TEST(Kernels, PositionsFollowTheSequenceShard) {
  const int64_t rows = 4, h = 2, batch = 2;  // two positions of two samples, second shard
  const Attrs attrs{{Attr::kRows, rows}, {Attr::kH, h}, {Attr::kBatch, batch}, {Attr::kAxis, 0}};
  const Vector x = Random(rows * h, 1), table = Random(4 * h, 2), zero(4 * h, 0.0);
  const Vector y = RunOp({OpKind::kAddPos, attrs, {x, table}, {rows * h}, {}, {1}})[0];
  for (int64_t r = 0; r < rows; ++r) EXPECT_EQ(y[r * h], x[r * h] + table[(2 + r / batch) * h]);
  const Vector back = RunOp({OpKind::kPosBwd, attrs, {zero, x}, {4 * h}, {{0, 0}}, {1}})[0];
  const auto loss = [&](const Vector& at) {
    return Dot(x, RunOp({OpKind::kAddPos, attrs, {x, at}, {rows * h}, {}, {1}})[0]);
  };
  EXPECT_LT(LargestDifference(back, NumericGradient(loss, table)), kNumeric);
}

TEST(Kernels, ScatterRowsUndoesGatherRows) {
  const int64_t batch = 2, h = 2;
  const Vector x = Random(4 * batch * h, 1), dy = Random(2 * batch * h, 2), pos{3, 0, 1, 2};
  const Attrs gather{{Attr::kRows, 4}, {Attr::kH, h}, {Attr::kBatch, batch}};
  const auto loss = [&](const Vector& at) {
    return Dot(dy, RunOp({OpKind::kGatherRows, gather, {at, pos}, {4 * h}})[0]);
  };
  const Vector expected = NumericGradient(loss, x);
  Vector gradient;
  for (int shard = 0; shard < 2; ++shard) {  // each shard keeps 4 of the 8 rows
    Attrs scatter = gather;
    scatter.Set(Attr::kElements, 4);
    scatter.Set(Attr::kAxis, 0);
    const Vector part = RunOp({OpKind::kScatterRows, scatter, {dy, pos}, {4 * h}, {}, {shard}})[0];
    gradient.insert(gradient.end(), part.begin(), part.end());
  }
  EXPECT_LT(LargestDifference(gradient, expected), kNumeric);
}

TEST(Kernels, CrossEntropyGradientIsTheDerivativeAndPaddingIsMasked) {
  const int64_t rows = 3, v = 5, vl = 3;  // two shards, one padded column
  const double scale = 0.25;
  const Vector logits = Random(rows * v, 1), labels{0, 4, 2};
  double expected_loss = 0;
  const auto direct = [&](const Vector& x) {
    double loss = 0;
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < v; ++c) sum += std::exp(x[r * v + c]);
      loss += scale * (std::log(sum) - x[r * v + static_cast<int64_t>(labels[r])]);
    }
    return loss;
  };
  expected_loss = direct(logits);
  const Vector expected = NumericGradient(direct, logits);
  const Attrs attrs{
      {Attr::kRows, rows}, {Attr::kVl, vl}, {Attr::kV, v}, {Attr::kAxis, 0}, {Attr::kScale, scale}};
  std::vector<Vector> local(2, Vector(rows * vl, std::nan("")));  // padding never read
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < v; ++c) local[c / vl][r * vl + c % vl] = logits[r * v + c];
  std::vector<Vector> m, s;
  for (int k = 0; k < 2; ++k)
    m.push_back(RunOp({OpKind::kXentMax, attrs, {local[k]}, {rows}, {}, {k}})[0]);
  for (int64_t r = 0; r < rows; ++r) m[0][r] = std::max(m[0][r], m[1][r]);
  for (int k = 0; k < 2; ++k)
    s.push_back(RunOp({OpKind::kXentSum, attrs, {local[k], m[0], labels}, {2 * rows}, {}, {k}})[0]);
  const Vector total = Sum(s[0], s[1]);
  for (int k = 0; k < 2; ++k) {
    const auto out = RunOp({OpKind::kXentGrad,
                            attrs,
                            {local[k], m[0], total, labels, {7}, {8}},
                            {rows * vl, 1},
                            {{1, 4}},
                            {k}});
    EXPECT_NEAR(out[1][0], 7 + expected_loss, kExact);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < vl; ++c) {
        const double want = k * vl + c < v ? 8 * expected[r * v + k * vl + c] : 0;
        EXPECT_NEAR(out[0][r * vl + c], want, 8 * kNumeric);
      }
  }
}

TEST(Kernels, MeanSquaredErrorGradientIsTheDerivative) {
  const Attrs attrs{{Attr::kElements, 4}, {Attr::kScale, 0.5}};
  const Vector y = Random(4, 1), t = Random(4, 2);
  const auto loss = [&](const Vector& at) {
    return RunOp({OpKind::kMse, attrs, {at, t, {0}}, {4, 1}, {{1, 2}}})[1][0];
  };
  EXPECT_LT(LargestDifference(RunOp({OpKind::kMse, attrs, {y, t, {0}}, {4, 1}, {{1, 2}}})[0],
                              NumericGradient(loss, y)),
            kNumeric);
}

TEST(Collectives, EqualDirectSums) {
  std::vector<Vector> x{{1, 2, 3, 4}, {10, 20, 30, 40}};
  std::vector<Vector> half(2, Vector(2)), twice(2, Vector(8));
  const auto operand = [](Vector& v) { return Operand{v.data(), static_cast<int64_t>(v.size())}; };
  const auto pairs = [&](std::vector<Vector>& out) {
    return std::vector<MemberOperands>{{operand(x[0]), operand(out[0])},
                                       {operand(x[1]), operand(out[1])}};
  };
  ReduceScatter(pairs(half), false);
  EXPECT_EQ(half, (std::vector<Vector>{{11, 22}, {33, 44}}));
  AllGather(pairs(twice));
  EXPECT_EQ(twice[0], (Vector{1, 2, 3, 4, 10, 20, 30, 40}));
  EXPECT_EQ(twice[1], twice[0]);
  EXPECT_THROW(AllGather(pairs(half)), PlanFault);
  std::vector<Vector> most(2, Vector(4));
  AllReduce(pairs(most), true);
  EXPECT_EQ(most[0], x[1]);
  AllReduce(pairs(x), false);
  EXPECT_EQ(x[0], (Vector{11, 22, 33, 44}));
  EXPECT_EQ(x[1], x[0]);
}

}  // namespace
}  // namespace orrery::interpreter
