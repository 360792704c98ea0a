// SPDX-License-Identifier: Apache-2.0
// Reference attention against finite differences and against an independent direct formula.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/interpreter/op_runner.h"

namespace orrery::interpreter {
namespace {

using ir::Attr;
using ir::Attrs;
using ir::OpKind;

constexpr double kExact = 1e-12, kNumeric = 1e-7;

struct Case {
  const char* name;
  int64_t nh, kv;
  bool causal;
  int64_t buckets;
  double scale;
  double rate = 0;
  int64_t window = 0;
  double cap = 0;
};

struct Shape {
  int64_t batch = 2, seq = 4, hd = 2;
  int64_t rows() const { return batch * seq; }
};

Attrs MakeAttrs(const Case& c, const Shape& s, bool flash) {
  return {{Attr::kBatch, s.batch}, {Attr::kSeq, s.seq},
          {Attr::kNh, c.nh},       {Attr::kKv, c.kv},
          {Attr::kHd, s.hd},       {Attr::kCausal, c.causal},
          {Attr::kFlash, flash},   {Attr::kBuckets, static_cast<double>(c.buckets)},
          {Attr::kScale, c.scale}, {Attr::kRate, c.rate},
          {Attr::kSite, 3},        {Attr::kAxis, 0},
          {Attr::kCap, c.cap},     {Attr::kWindow, static_cast<double>(c.window)}};
}

class SelfAttention : public testing::TestWithParam<Case> {
 protected:
  Case c = GetParam();
  Shape s;
  int64_t width = (c.nh + 2 * c.kv) * s.hd, context = s.rows() * c.nh * s.hd;
  Vector qkv = Random(s.rows() * width, 1), bias = Random(c.buckets * c.nh, 2),
         dctx = Random(context, 3);

  int64_t Saved(bool flash) const {
    return flash ? s.rows() * c.nh : s.batch * c.nh * s.seq * s.seq;
  }
  std::vector<Vector> Forward(const Vector& x, const Vector& b, bool flash) const {
    std::vector<Vector> in{x};
    if (c.buckets > 0) in.push_back(b);
    std::vector<int64_t> out{context, Saved(flash)};
    if (c.rate > 0 && !flash) out.insert(out.end(), 2, Saved(false));
    return RunOp({OpKind::kAttn, MakeAttrs(c, s, flash), in, out, {}, {1}});
  }
  std::vector<Vector> Backward(bool flash) const {
    const auto out = Forward(qkv, bias, flash);
    std::vector<Vector> in{dctx, qkv};
    in.insert(in.end(), out.begin(), out.end());
    if (c.buckets == 0)
      return RunOp({OpKind::kAttnBwd, MakeAttrs(c, s, flash), in, {s.rows() * width}, {}, {1}});
    in.push_back(bias);
    in.push_back(Vector(bias.size(), 0.0));
    return RunOp({OpKind::kAttnBwd,
                  MakeAttrs(c, s, flash),
                  in,
                  {s.rows() * width, c.buckets * c.nh},
                  {{1, in.size() - 1}},
                  {1}});
  }
};

TEST_P(SelfAttention, FollowsItsDefinition) {
  c.rate = 0;  // the direct formula has no dropout
  const Vector ctx = Forward(qkv, bias, false)[0];
  const int64_t per = c.nh / c.kv + 2;
  const double scale = c.scale != 0 ? c.scale : 1 / std::sqrt(2.0);
  const auto at = [&](int64_t pos, int64_t b, int64_t slot, int64_t d) {
    return qkv[(pos * s.batch + b) * width + slot * s.hd + d];
  };
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < c.nh; ++h)
      for (int64_t i = 0; i < s.seq; ++i) {
        const int64_t group = h / (per - 2), q = group * per + h % (per - 2),
                      k = group * per + per - 2;
        double sum = 0;
        Vector expected(s.hd, 0.0);
        for (int64_t j = 0; j < (c.causal ? i + 1 : s.seq); ++j) {
          if (c.window > 0 && i - j >= c.window) continue;
          double score = 0;
          for (int64_t d = 0; d < s.hd; ++d) score += scale * at(i, b, q, d) * at(j, b, k, d);
          if (c.buckets > 0) score += bias[RelativeBucket(i, j, c.buckets, !c.causal) * c.nh + h];
          if (c.cap > 0) score = c.cap * std::tanh(score / c.cap);
          sum += std::exp(score);
          for (int64_t d = 0; d < s.hd; ++d) expected[d] += std::exp(score) * at(j, b, k + 1, d);
        }
        for (int64_t d = 0; d < s.hd; ++d)
          EXPECT_NEAR(ctx[((i * s.batch + b) * c.nh + h) * s.hd + d], expected[d] / sum, kExact);
      }
}

TEST_P(SelfAttention, BackwardIsTheDerivative) {
  for (const bool flash : {false, true}) {
    const auto grads = Backward(flash);
    const auto by_qkv = [&](const Vector& x) { return Dot(dctx, Forward(x, bias, flash)[0]); };
    EXPECT_LT(LargestDifference(grads[0], NumericGradient(by_qkv, qkv)), kNumeric);
    if (c.buckets == 0) continue;
    const auto by_bias = [&](const Vector& b) { return Dot(dctx, Forward(qkv, b, flash)[0]); };
    EXPECT_LT(LargestDifference(grads[1], NumericGradient(by_bias, bias)), kNumeric);
  }
}

TEST_P(SelfAttention, FlashAndMaterialisedAgree) {
  EXPECT_LT(LargestDifference(Forward(qkv, bias, true)[0], Forward(qkv, bias, false)[0]), kExact);
  EXPECT_LT(LargestDifference(Backward(true)[0], Backward(false)[0]), kExact);
}

INSTANTIATE_TEST_SUITE_P(
    All, SelfAttention,
    testing::Values(Case{"causal", 2, 2, true, 0, 0}, Case{"full", 2, 2, false, 0, 0},
                    Case{"grouped", 4, 2, true, 0, 0}, Case{"bias", 2, 2, false, 8, 1},
                    Case{"causal_bias", 2, 2, true, 4, 1}, Case{"dropout", 4, 2, true, 0, 0, 0.3},
                    Case{"bias_dropout", 2, 2, false, 8, 1, 0.3},
                    Case{"window", 4, 2, true, 0, 0, 0, 2},
                    Case{"window_of_one", 2, 2, true, 0, 0, 0, 1},
                    Case{"cap", 2, 2, true, 0, 3, 0, 0, 0.5},
                    Case{"window_cap_dropout", 4, 2, true, 0, 2, 0.3, 3, 0.7}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(AttentionDropout, HeadShardsDropWhatTheWholeDrops) {
  const Shape s;
  const Case whole{"whole", 2, 2, true, 0, 0, 0.4}, half{"half", 1, 1, true, 0, 0, 0.4};
  const int64_t scores = s.batch * s.seq * s.seq;
  const auto mask = [&](const Case& c, int coord) {
    return RunOp({OpKind::kAttn,
                  MakeAttrs(c, s, false),
                  {Random(s.rows() * 3 * c.nh * s.hd, 1)},
                  {s.rows() * c.nh * s.hd, c.nh * scores, c.nh * scores, c.nh * scores},
                  {},
                  {coord}})[2];
  };
  const Vector both = mask(whole, 0);
  for (int head = 0; head < 2; ++head) {
    const Vector one = mask(half, head);
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t i = 0; i < s.seq * s.seq; ++i)
        EXPECT_EQ(one[b * s.seq * s.seq + i], both[(b * 2 + head) * s.seq * s.seq + i]);
  }
  EXPECT_NE(mask(half, 0), mask(half, 1));
}

TEST(CrossAttention, GradientsAreTheDerivatives) {
  const int64_t batch = 2, seq = 3, seq_kv = 4, nh = 2, hd = 2;
  const int64_t q_size = seq * batch * nh * hd, kv_size = seq_kv * batch * nh * 2 * hd;
  const Vector q = Random(q_size, 1), kv = Random(kv_size, 2), dctx = Random(q_size, 3);
  Vector previous;
  for (const bool flash : {false, true}) {
    const Attrs attrs{{Attr::kBatch, batch}, {Attr::kSeq, seq}, {Attr::kSeqKv, seq_kv},
                      {Attr::kNh, nh},       {Attr::kHd, hd},   {Attr::kFlash, flash}};
    const int64_t saved = flash ? seq * batch * nh : batch * nh * seq * seq_kv;
    const auto forward = [&](const Vector& q0, const Vector& kv0) {
      return RunOp({OpKind::kCrossAttn, attrs, {q0, kv0}, {q_size, saved}});
    };
    const auto out = forward(q, kv);
    const auto grads =
        RunOp({OpKind::kCrossAttnBwd, attrs, {dctx, q, kv, out[0], out[1]}, {q_size, kv_size}});
    const auto by_q = [&](const Vector& x) { return Dot(dctx, forward(x, kv)[0]); };
    const auto by_kv = [&](const Vector& x) { return Dot(dctx, forward(q, x)[0]); };
    EXPECT_LT(LargestDifference(grads[0], NumericGradient(by_q, q)), kNumeric);
    EXPECT_LT(LargestDifference(grads[1], NumericGradient(by_kv, kv)), kNumeric);
    if (!previous.empty()) {
      EXPECT_LT(LargestDifference(out[0], previous), kExact);
    }
    previous = out[0];
  }
}

TEST(RelativeBuckets, AreExactNearAndLogarithmicFar) {
  EXPECT_EQ(RelativeBucket(5, 5, 32, true), 0);
  EXPECT_EQ(RelativeBucket(5, 4, 32, true), 1);
  EXPECT_EQ(RelativeBucket(4, 5, 32, true), 17);
  EXPECT_EQ(RelativeBucket(500, 0, 32, true), 15);
  EXPECT_EQ(RelativeBucket(4, 9, 32, false), 0);
  EXPECT_EQ(RelativeBucket(20, 5, 32, false), 15);
  EXPECT_EQ(RelativeBucket(40, 0, 32, false), 23);  // 16 + floor(log(40/16)/log(128/16) * 16)
}

// Norms of queries and keys: of each head, and of all heads as one.
class QkNormOp : public testing::TestWithParam<bool> {};

TEST_P(QkNormOp, BackwardIsTheDerivativeAndValuesPass) {
  const bool whole = GetParam();
  const int64_t rows = 3, nh = 4, kv = 2, hd = 2, width = (nh + 2 * kv) * hd, heads = nh + kv;
  const int64_t gains = (whole ? heads : 2) * hd, n = rows * width;
  const int64_t raw = rows * heads * hd, stats = rows * (whole ? 2 : heads);
  const Attrs attrs{{Attr::kRows, rows},
                    {Attr::kNh, nh},
                    {Attr::kKv, kv},
                    {Attr::kHd, hd},
                    {Attr::kWhole, whole}};
  const Vector x = Random(n, 1), gamma = Random(gains, 2), dy = Random(n, 3);
  const auto forward = [&](const Vector& at, const Vector& gain) {
    return RunOp({OpKind::kQkNorm, attrs, {at, gain}, {n, raw, stats}, {{0, 0}}});
  };
  const auto out = forward(x, gamma);
  for (int64_t r = 0; r < rows; ++r) {  // the value head of each group
    for (int64_t d = 0; d < hd; ++d)
      EXPECT_EQ(out[0][r * width + 3 * hd + d], x[r * width + 3 * hd + d]);
  }
  double square = 0;  // of the first query of the first row, or of all of them
  for (int64_t h = 0; h < (whole ? nh : 1); ++h) {
    const int64_t at = (h / 2 * 4 + h % 2) * hd;
    for (int64_t d = 0; d < hd; ++d)
      square += x[at + d] * x[at + d] / double((whole ? nh : 1) * hd);
  }
  EXPECT_NEAR(out[0][0], gamma[0] * x[0] / std::sqrt(square + 1e-5), kExact);
  const Vector dx = RunOp({OpKind::kQkNormBwd, attrs, {dy, out[1], out[2], gamma}, {n}})[0];
  const Vector dgamma = RunOp({OpKind::kQkNormWgrad,
                               attrs,
                               {Vector(gains, 0.0), dy, out[1], out[2]},
                               {gains},
                               {{0, 0}}})[0];
  const auto by_x = [&](const Vector& at) { return Dot(dy, forward(at, gamma)[0]); };
  const auto by_gamma = [&](const Vector& at) { return Dot(dy, forward(x, at)[0]); };
  EXPECT_LT(LargestDifference(dx, NumericGradient(by_x, x)), kNumeric);
  EXPECT_LT(LargestDifference(dgamma, NumericGradient(by_gamma, gamma)), kNumeric);
}
INSTANTIATE_TEST_SUITE_P(All, QkNormOp, testing::Bool());

TEST(Rope, TurnsTheFirstColumnsByTheGivenBase) {
  const Attrs attrs{{Attr::kRows, 2}, {Attr::kBatch, 1}, {Attr::kNh, 1},    {Attr::kKv, 1},
                    {Attr::kHd, 6},   {Attr::kTurn, 4},  {Attr::kBase, 100}};
  const Vector x = Random(2 * 18, 1), y = RunOp({OpKind::kRope, attrs, {x}, {36}})[0];
  EXPECT_NEAR(y[18], x[18] * std::cos(1) - x[20] * std::sin(1), kExact);
  EXPECT_NEAR(y[19], x[19] * std::cos(0.1) - x[21] * std::sin(0.1), kExact);
  EXPECT_EQ(y[22], x[22]);
  EXPECT_EQ(y[23], x[23]);
}

Vector Rotate(const Vector& x, int64_t rows, int64_t batch, int64_t nh, int64_t kv, int64_t hd,
              bool inverse) {
  const Attrs attrs{{Attr::kRows, rows}, {Attr::kBatch, batch}, {Attr::kNh, nh},
                    {Attr::kKv, kv},     {Attr::kHd, hd},       {Attr::kInverse, inverse}};
  return RunOp({OpKind::kRope, attrs, {x}, {static_cast<int64_t>(x.size())}})[0];
}

// Queries, keys and values of products of their own: one row per kv group comes out, its queries, its key, its value.
TEST(Rope, JoinsTensorsThatAreApart) {
  const int64_t rows = 3, nh = 4, kv = 2, hd = 4, width = (nh + 2 * kv) * hd;
  const Vector q = Random(rows * nh * hd, 1), k = Random(rows * kv * hd, 2),
               v = Random(rows * kv * hd, 3);
  Vector packed;
  for (int64_t group = 0; group < rows * kv; ++group) {
    const auto add = [&](const Vector& from, int64_t n) {
      packed.insert(packed.end(), from.begin() + group * n, from.begin() + (group + 1) * n);
    };
    add(q, 2 * hd), add(k, hd), add(v, hd);
  }
  Attrs attrs{
      {Attr::kRows, rows}, {Attr::kBatch, 1}, {Attr::kNh, nh}, {Attr::kKv, kv}, {Attr::kHd, hd}};
  const Vector joined = RunOp({OpKind::kRope, attrs, {q, k, v}, {rows * width}})[0];
  EXPECT_EQ(joined, RunOp({OpKind::kRope, attrs, {packed}, {rows * width}})[0]);
  attrs.Set(Attr::kInverse, 1);
  const auto back =
      RunOp({OpKind::kRope, attrs, {joined}, {rows * nh * hd, rows * kv * hd, rows * kv * hd}});
  EXPECT_LT(LargestDifference(back[0], q), kExact);
  EXPECT_LT(LargestDifference(back[1], k), kExact);
  EXPECT_EQ(back[2], v);
}

TEST(Rope, InverseUndoesItAndIsItsGradient) {
  const int64_t rows = 6, batch = 2, nh = 4, kv = 2, hd = 4, width = (nh + 2 * kv) * hd;
  const Vector x = Random(rows * width, 1), dy = Random(rows * width, 2);
  const Vector y = Rotate(x, rows, batch, nh, kv, hd, false);
  EXPECT_GT(LargestDifference(y, x), 0.1);
  EXPECT_LT(LargestDifference(Rotate(y, rows, batch, nh, kv, hd, true), x), kExact);
  const auto loss = [&](const Vector& at) {
    return Dot(dy, Rotate(at, rows, batch, nh, kv, hd, false));
  };
  EXPECT_LT(LargestDifference(Rotate(dy, rows, batch, nh, kv, hd, true), NumericGradient(loss, x)),
            kNumeric);
}

TEST(Rope, ScoresDependOnDistanceOnlyAndValuesStay) {
  const int64_t rows = 5, hd = 4, width = 3 * hd;
  const Vector row = Random(width, 1);
  Vector x;
  for (int64_t r = 0; r < rows; ++r) x.insert(x.end(), row.begin(), row.end());
  const Vector y = Rotate(x, rows, 1, 1, 1, hd, false);
  const auto score = [&](int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t d = 0; d < hd; ++d) sum += y[i * width + d] * y[j * width + hd + d];
    return sum;
  };
  EXPECT_NEAR(score(2, 1), score(4, 3), kExact);
  EXPECT_GT(std::abs(score(2, 1) - score(4, 1)), 1e-3);
  for (int64_t d = 0; d < hd; ++d) EXPECT_EQ(y[4 * width + 2 * hd + d], row[2 * hd + d]);
}

}  // namespace
}  // namespace orrery::interpreter
