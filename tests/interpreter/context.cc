// SPDX-License-Identifier: Apache-2.0
// Reference kernels of sequences that ranks share: pair by pair of positions, whatever the order of the rows.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "model/plan/ir/positions.h"
#include "tests/interpreter/dropout.h"

namespace orrery::interpreter {
namespace {

using ir::Attr;

struct Part {
  int64_t batch, seq, seq_kv, nh, kv, hd, per_kv, window, first_head;
  bool causal, drops;
  double scale, cap;
  std::vector<int64_t> query_at, key_at;  // positions of the rows
  int64_t alibi;                          // heads of the model, 0: no linear biases

  int64_t qkv_width() const { return (nh + 2 * kv) * hd; }
  int64_t kv_width() const { return 2 * kv * hd; }
  int64_t rows() const { return seq * batch; }
  int64_t Query(int64_t b, int64_t h, int64_t i) const {
    return (i * batch + b) * qkv_width() + (h / per_kv) * (per_kv + 2) * hd + h % per_kv * hd;
  }
  int64_t Key(int64_t b, int64_t h, int64_t j) const {
    return (j * batch + b) * kv_width() + h / per_kv * 2 * hd;
  }
  int64_t Context(int64_t b, int64_t h, int64_t i) const { return ((i * batch + b) * nh + h) * hd; }
  int64_t Sum(int64_t b, int64_t h, int64_t i) const { return (i * batch + b) * nh + h; }
  bool Sees(int64_t i, int64_t j) const {
    const int64_t back = query_at[i] - key_at[j];
    return (!causal || back >= 0) && (window == 0 || back < window);
  }
};

Part MakePart(const KernelArgs& a) {
  Part s{a.Int(Attr::kBatch),
         a.Int(Attr::kSeq),
         a.Int(Attr::kSeqKv),
         a.Int(Attr::kNh),
         a.Int(Attr::kKv),
         a.Int(Attr::kHd),
         0,
         a.Int(Attr::kWindow),
         a.Coord(Attr::kAxis) * a.Int(Attr::kNh),
         a.Flag(Attr::kCausal),
         a.Get(Attr::kRate) > 0,
         a.Get(Attr::kScale) != 0 ? a.Get(Attr::kScale) : 1 / std::sqrt(a.Get(Attr::kHd)),
         a.Get(Attr::kCap),
         {},
         {},
         a.Int(Attr::kAlibi)};
  if (s.kv < 1 || s.nh % s.kv != 0) throw PlanFault("part_attn: heads do not divide");
  s.per_kv = s.nh / s.kv;
  const ir::Positions own = ir::PositionsOf(a.op.attrs, a.coords);
  if (own.part != s.seq) throw PlanFault("part_attn: queries are not those of the rank's part");
  const ir::PartKeys keys = ir::PartKeysOf(a.op.attrs, own);
  for (int64_t p = 0; p < own.part; ++p) s.query_at.push_back(own.At(p));
  for (int64_t m = 0; m < keys.members; ++m) {
    for (int64_t p = 0; p < own.part; ++p) s.key_at.push_back(keys.Of(m).At(p));
  }
  if (static_cast<int64_t>(s.key_at.size()) != s.seq_kv)
    throw PlanFault("part_attn: keys are not those of its step");
  return s;
}

double Product(const double* x, const double* y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}
void AddScaled(double factor, const double* x, double* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

// Of head h, query i and key j.
double Score(const Part& s, int64_t h, int64_t i, int64_t j, const double* query,
             const double* key) {
  double score = s.scale * Product(query, key, s.hd);
  if (s.alibi > 0)
    score +=
        AlibiSlope(s.first_head + h, s.alibi) * static_cast<double>(s.key_at[j] - s.query_at[i]);
  return s.cap > 0 ? s.cap * std::tanh(score / s.cap) : score;
}

}  // namespace

void KeysAndValues(const KernelArgs& a) {
  const int64_t rows = a.Int(Attr::kRows), nh = a.Int(Attr::kNh), kv = a.Int(Attr::kKv);
  const int64_t hd = a.Int(Attr::kHd), per_kv = kv > 0 ? nh / kv : 0;
  const int64_t group = (per_kv + 2) * hd, width = kv * group, narrow = 2 * kv * hd;
  const bool inverse = a.Flag(Attr::kInverse);
  const double* qkv = a.In(0, rows * width);
  double* out = a.Out(0, rows * (inverse ? width : narrow));
  const double* from = inverse ? a.In(1, rows * narrow) : nullptr;
  if (inverse && out != qkv) std::copy(qkv, qkv + rows * width, out);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t g = 0; g < kv; ++g) {
      const int64_t wide = r * width + g * group + per_kv * hd, at = r * narrow + g * 2 * hd;
      if (inverse)
        std::copy(from + at, from + at + 2 * hd, out + wide);
      else
        std::copy(qkv + wide, qkv + wide + 2 * hd, out + at);
    }
  }
}

void PartAttention(const KernelArgs& a) {
  const Part s = MakePart(a);
  const Dropout dropout(a);
  const double *qkv = a.In(0, s.rows() * s.qkv_width()),
               *kv = a.In(1, s.seq_kv * s.batch * s.kv_width());
  const bool acc = a.Flag(Attr::kAcc);
  const double *before = acc ? a.In(2, s.rows() * s.nh * s.hd) : nullptr,
               *sums = acc ? a.In(3, s.rows() * s.nh) : nullptr;
  double *out = a.Out(0, s.rows() * s.nh * s.hd), *lse = a.Out(1, s.rows() * s.nh);
  std::vector<double> context(s.hd), score(s.seq_kv);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.nh; ++h) {
      for (int64_t i = 0; i < s.seq; ++i) {
        double top = -std::numeric_limits<double>::infinity();
        for (int64_t j = 0; j < s.seq_kv; ++j) {
          if (!s.Sees(i, j)) continue;
          score[j] = Score(s, h, i, j, qkv + s.Query(b, h, i), kv + s.Key(b, h, j));
          top = std::max(top, score[j]);
        }
        const double old = acc ? sums[s.Sum(b, h, i)] : top;
        top = std::max(top, old);
        std::fill(context.begin(), context.end(), 0.0);
        double sum = 0;
        if (acc) {
          sum = std::exp(old - top);
          AddScaled(sum, before + s.Context(b, h, i), context.data(), s.hd);
        }
        for (int64_t j = 0; j < s.seq_kv; ++j) {
          if (!s.Sees(i, j)) continue;
          const double p = std::exp(score[j] - top);
          sum += p;
          const double kept =
              s.drops ? dropout.Factor(b, s.first_head + h, s.query_at[i], s.key_at[j]) : 1;
          AddScaled(p * kept, kv + s.Key(b, h, j) + s.hd, context.data(), s.hd);
        }
        for (int64_t c = 0; c < s.hd; ++c) out[s.Context(b, h, i) + c] = context[c] / sum;
        lse[s.Sum(b, h, i)] = top + std::log(sum);
      }
    }
  }
}

void PartAttentionBackward(const KernelArgs& a) {
  const Part s = MakePart(a);
  const Dropout dropout(a);
  const int64_t width = s.rows() * s.nh * s.hd, keys = s.seq_kv * s.batch * s.kv_width();
  const double *dctx = a.In(0, width), *qkv = a.In(1, s.rows() * s.qkv_width()),
               *kv = a.In(2, keys);
  const double *ctx = a.In(3, width), *lse = a.In(4, s.rows() * s.nh);
  double *dkv = a.Out(0, keys), *dqkv = a.Out(1, s.rows() * s.qkv_width());
  std::fill(dkv, dkv + keys, 0.0);
  if (!a.Flag(Attr::kAcc)) {
    std::fill(dqkv, dqkv + s.rows() * s.qkv_width(), 0.0);
  } else if (a.In(5, s.rows() * s.qkv_width()) != dqkv) {
    throw PlanFault("part_attn_bwd: adds to another view");
  }
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.nh; ++h) {
      for (int64_t i = 0; i < s.seq; ++i) {
        const double *dout = dctx + s.Context(b, h, i), *query = qkv + s.Query(b, h, i);
        const double mean = Product(dout, ctx + s.Context(b, h, i), s.hd);
        for (int64_t j = 0; j < s.seq_kv; ++j) {
          if (!s.Sees(i, j)) continue;
          const double* key = kv + s.Key(b, h, j);
          const double score = Score(s, h, i, j, query, key);
          const double p = std::exp(score - lse[s.Sum(b, h, i)]);
          const double kept =
              s.drops ? dropout.Factor(b, s.first_head + h, s.query_at[i], s.key_at[j]) : 1;
          const double slope = s.cap > 0 ? 1 - score * score / (s.cap * s.cap) : 1;
          const double dscore = slope * p * (kept * Product(dout, key + s.hd, s.hd) - mean);
          AddScaled(s.scale * dscore, key, dqkv + s.Query(b, h, i), s.hd);
          AddScaled(s.scale * dscore, query, dkv + s.Key(b, h, j), s.hd);
          AddScaled(p * kept, dout, dkv + s.Key(b, h, j) + s.hd, s.hd);
        }
      }
    }
  }
}

void Regroup(const KernelArgs& a) {
  const int64_t rows = a.Int(Attr::kRows), parts = a.Int(Attr::kParts), h = a.Int(Attr::kH);
  const bool zigzag = a.Flag(Attr::kZigzag), inverse = a.Flag(Attr::kInverse);
  const double* x = a.In(0, rows * parts * h);
  double* y = a.Out(0, rows * parts * h);
  if (zigzag && rows % 2 != 0) throw PlanFault("regroup: an odd number of rows in zigzag order");
  for (int64_t part = 0; part < parts; ++part) {
    for (int64_t r = 0; r < rows; ++r) {
      // Without zigzag: [rows, parts] to [parts, rows]. With it: [parts, 2, half] to both halves in the sequence's order.
      const int64_t apart = part * rows + r, half = rows / 2;
      const int64_t together = !zigzag    ? r * parts + part
                               : r < half ? part * half + r
                                          : (2 * parts - 1 - part) * half + (r - half);
      const bool to_apart = zigzag == inverse;
      const int64_t from = to_apart ? together : apart, to = to_apart ? apart : together;
      std::copy(x + from * h, x + (from + 1) * h, y + to * h);
    }
  }
}

}  // namespace orrery::interpreter
