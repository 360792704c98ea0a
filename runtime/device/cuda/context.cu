// SPDX-License-Identifier: Apache-2.0
// Attention over sequences that ranks share, by plain kernels as those of attention.cu: a block has a row of queries or of
// keys, and knows the position of every row. Semantics: model/plan/ir/op.h.
#include "model/plan/ir/alibi.h"
#include "model/plan/ir/positions.h"
#include "runtime/device/cuda/attention.h"
#include "runtime/device/cuda/ops.h"

namespace orrery::cuda {
namespace {

using ir::Attr;

constexpr int kThreads = 128, kSlots = kThreads / kWarpSize;

struct Part {
  int64_t batch, seq, seq_kv, nh, kv, hd, per_kv, window, first_head, alibi;
  bool drops, acc;
  float scale, cap;
  ir::Positions own;
  ir::PartKeys keys;

  __host__ __device__ int64_t QkvWidth() const { return (nh + 2 * kv) * hd; }
  __host__ __device__ int64_t QueryAt(int64_t b, int64_t h, int64_t i) const {
    return (i * batch + b) * QkvWidth() + (h / per_kv) * (per_kv + 2) * hd + h % per_kv * hd;
  }
  __host__ __device__ int64_t KeyAt(int64_t b, int64_t h, int64_t j) const {
    return (j * batch + b) * 2 * kv * hd + h / per_kv * 2 * hd;
  }
  __host__ __device__ int64_t ContextAt(int64_t b, int64_t h, int64_t i) const {
    return ((i * batch + b) * nh + h) * hd;
  }
  __host__ __device__ int64_t SumAt(int64_t b, int64_t h, int64_t i) const {
    return (i * batch + b) * nh + h;
  }
  __host__ __device__ int64_t KeyPosition(int64_t j) const {
    return keys.Of(j / own.part).At(j % own.part);
  }
  __host__ __device__ bool Sees(int64_t i, int64_t j) const {
    const int64_t back = own.At(i) - KeyPosition(j);
    return back >= 0 && (window == 0 || back < window);
  }
  int64_t Rows() const { return batch * seq * nh; }
  int64_t Context() const { return Rows() * hd; }
  int64_t Qkv() const { return batch * seq * QkvWidth(); }
  int64_t Keys() const { return batch * seq_kv * 2 * kv * hd; }
};

struct PartOperands {
  Part s;
  Draw draw;
  Ref qkv, kv, before, sums, out, lse;  // forward; lse is an input of backward
  Ref dctx, dkv, dqkv;
};

struct Row {
  int64_t b, h, i;
};
__device__ inline Row RowOfBlock(int64_t heads, int64_t seq) {
  const int64_t block = blockIdx.x;
  return {block / (heads * seq), block / seq % heads, block % seq};
}

__device__ inline float Dot(Ref x, int64_t at, Ref y, int64_t y_at, int64_t n) {
  float sum = 0;
  for (int64_t d = 0; d < n; ++d) sum += Load(x, at + d) * Load(y, y_at + d);
  return sum;
}

__device__ inline float Score(const PartOperands& o, const Row& r, int64_t j) {
  const Part& s = o.s;
  float score = s.scale * Dot(o.qkv, s.QueryAt(r.b, r.h, r.i), o.kv, s.KeyAt(r.b, r.h, j), s.hd);
  if (s.alibi > 0)
    score += static_cast<float>(ir::AlibiSlope(s.first_head + r.h, s.alibi)) *
             static_cast<float>(s.KeyPosition(j) - s.own.At(r.i));
  return s.cap > 0 ? s.cap * tanhf(score / s.cap) : score;
}

__device__ inline float Factor(const PartOperands& o, const Row& r, int64_t j) {
  if (!o.s.drops) return 1.0f;
  const uint64_t head =
      ir::HashMore(o.draw.Sample(r.b), static_cast<uint64_t>(o.s.first_head + r.h));
  return o.draw.Factor(ir::HashMore(head, static_cast<uint64_t>(o.s.own.At(r.i))),
                       o.s.KeyPosition(j));
}

__global__ void PartForwardKernel(PartOperands o) {
  ORRERY_SHARED(float, p);  // [seq_kv], and slots of reductions
  const Part& s = o.s;
  float* slots = p + s.seq_kv;
  const Row r = RowOfBlock(s.nh, s.seq);
  const int64_t at = s.SumAt(r.b, r.h, r.i), to = s.ContextAt(r.b, r.h, r.i);
  const float old = s.acc ? Load(o.sums, at) : -INFINITY;
  float top = old;
  for (int64_t j = threadIdx.x; j < s.seq_kv; j += kThreads) {
    p[j] = s.Sees(r.i, j) ? Score(o, r, j) : -INFINITY;
    top = fmaxf(top, p[j]);
  }
  top = BlockMax(top, slots);
  float sum = 0;
  for (int64_t j = threadIdx.x; j < s.seq_kv; j += kThreads) {
    p[j] = expf(p[j] - top);
    sum += p[j];
    if (p[j] > 0) p[j] *= Factor(o, r, j);
  }
  const float share = s.acc ? expf(old - top) : 0.0f;
  sum = BlockSum(sum, slots) + share;
  for (int64_t d = threadIdx.x; d < s.hd; d += kThreads) {
    float context = s.acc ? share * Load(o.before, to + d) : 0.0f;
    for (int64_t j = 0; j < s.seq_kv; ++j)
      if (p[j] > 0) context += p[j] * Load(o.kv, s.KeyAt(r.b, r.h, j) + s.hd + d);
    Store(o.out, to + d, context / sum);
  }
  if (threadIdx.x == 0) Store(o.lse, at, top + logf(sum));
}

// Probability of a key behind dropout, and the gradient of its score before cap and scaling.
struct Gradient {
  float dropped, score;
};
__device__ inline Gradient GradientOf(const PartOperands& o, const float* delta, const Row& r,
                                      int64_t j) {
  const Part& s = o.s;
  if (!s.Sees(r.i, j)) return {0, 0};
  const float score = Score(o, r, j), factor = Factor(o, r, j);
  const float slope = s.cap > 0 ? 1.0f - (score / s.cap) * (score / s.cap) : 1.0f;
  const int64_t row = s.SumAt(r.b, r.h, r.i);
  const float p = expf(score - Load(o.lse, row));
  const float dp = Dot(o.dctx, s.ContextAt(r.b, r.h, r.i), o.kv, s.KeyAt(r.b, r.h, j) + s.hd, s.hd);
  return {p * factor, p * (factor * dp - delta[row]) * slope};
}

// The block of the first head of a group also clears the columns of its key and value, in the first step.
__global__ void PartQueryGradKernel(PartOperands o, const float* delta) {
  ORRERY_SHARED(float, grad);  // [seq_kv]
  const Part& s = o.s;
  const Row r = RowOfBlock(s.nh, s.seq);
  for (int64_t j = threadIdx.x; j < s.seq_kv; j += kThreads)
    grad[j] = GradientOf(o, delta, r, j).score;
  __syncthreads();
  const int64_t to = s.QueryAt(r.b, r.h, r.i);
  for (int64_t d = threadIdx.x; d < s.hd; d += kThreads) {
    float sum = 0;
    for (int64_t j = 0; j < s.seq_kv; ++j) sum += grad[j] * Load(o.kv, s.KeyAt(r.b, r.h, j) + d);
    Store(o.dqkv, to + d, s.scale * sum + (s.acc ? Load(o.dqkv, to + d) : 0.0f));
  }
  if (s.acc || r.h % s.per_kv != 0) return;
  for (int64_t d = threadIdx.x; d < 2 * s.hd; d += kThreads)
    Store(o.dqkv, to + s.per_kv * s.hd + d, 0.0f);
}

// A block has a key of a group of heads that share it, and two columns of its gradients per thread.
__global__ void PartKeyGradKernel(PartOperands o, const float* delta) {
  ORRERY_SHARED(float, grad);  // scores [seq], dropped probabilities [seq]
  const Part& s = o.s;
  const Row key = RowOfBlock(s.kv, s.seq_kv);  // i: the key
  float* dropped = grad + s.seq;
  float dk[2] = {}, dv[2] = {};
  const auto column = [](int c) {
    return static_cast<int64_t>(2 * blockIdx.y + c) * kThreads + threadIdx.x;
  };
  for (int64_t g = 0; g < s.per_kv; ++g) {
    const int64_t h = key.h * s.per_kv + g;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < s.seq; i += kThreads) {
      const Gradient gradient = GradientOf(o, delta, {key.b, h, i}, key.i);
      grad[i] = gradient.score;
      dropped[i] = gradient.dropped;
    }
    __syncthreads();
    for (int c = 0; c < 2; ++c) {
      const int64_t d = column(c);
      for (int64_t i = 0; d < s.hd && i < s.seq; ++i) {
        dk[c] += grad[i] * Load(o.qkv, s.QueryAt(key.b, h, i) + d);
        dv[c] += dropped[i] * Load(o.dctx, s.ContextAt(key.b, h, i) + d);
      }
    }
  }
  const int64_t to = s.KeyAt(key.b, key.h * s.per_kv, key.i);
  for (int c = 0; c < 2; ++c) {
    const int64_t d = column(c);
    if (d >= s.hd) continue;
    Store(o.dkv, to + d, s.scale * dk[c]);
    Store(o.dkv, to + s.hd + d, dv[c]);
  }
}

// Rows of qkv [groups, per_group, hd] and of kv [groups, 2, hd]: a thread has an element of kv.
__global__ void KeyValuesKernel(Ref wide, Ref narrow, Ref out, int64_t n, int64_t per_group,
                                int64_t hd, bool inverse) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= n) return;
  const int64_t pair = 2 * hd, group = at / pair;
  const int64_t within = group * per_group * hd + (per_group - 2) * hd + at % pair;
  if (inverse)
    Store(out, within, Load(narrow, at));
  else
    Store(out, at, Load(wide, within));
}

__global__ void RegroupKernel(Ref x, Ref y, int64_t n, int64_t rows, int64_t parts, int64_t h,
                              bool zigzag, bool to_apart) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= n) return;
  const int64_t apart = at / h, part = apart / rows, r = apart % rows, half = rows / 2;
  const int64_t together = !zigzag    ? r * parts + part
                           : r < half ? part * half + r
                                      : (2 * parts - 1 - part) * half + (r - half);
  const int64_t other = together * h + at % h;
  Store(y, to_apart ? at : other, Load(x, to_apart ? other : at));
}

Part PartOf(const OpFrame& f) {
  Part s{};
  s.batch = f.Size(Attr::kBatch, 1);
  s.seq = f.Size(Attr::kSeq, 1);
  s.seq_kv = f.Size(Attr::kSeqKv, 1);
  s.nh = f.Size(Attr::kNh, 1);
  s.kv = f.Size(Attr::kKv, 1);
  s.hd = f.Size(Attr::kHd, 1);
  if (s.nh % s.kv != 0) f.Fail("query heads are no multiple of the key heads");
  if (!f.Flag(Attr::kCausal)) f.Fail("only causal attention is shared");
  s.per_kv = s.nh / s.kv;
  s.window = f.Size(Attr::kWindow);
  s.first_head = f.Coord(Attr::kAxis) * s.nh;
  s.alibi = f.Size(Attr::kAlibi);
  s.drops = f.Get(Attr::kRate) > 0;
  s.acc = f.Flag(Attr::kAcc);
  const double scale = f.Get(Attr::kScale);
  s.scale = static_cast<float>(scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(s.hd)));
  s.cap = static_cast<float>(f.Get(Attr::kCap));
  s.own = ir::PositionsOf(f.args.op.attrs, f.args.coords);
  s.keys = ir::PartKeysOf(f.args.op.attrs, s.own);
  if (s.own.part != s.seq || s.keys.members * s.own.part != s.seq_kv)
    f.Fail("queries and keys are not those of its step");
  return s;
}

size_t Floats(int64_t n) { return sizeof(float) * static_cast<size_t>(n); }

}  // namespace

void PartAttention(OpFrame& f) {
  PartOperands o = {};
  o.s = PartOf(f), o.draw = DrawOf(f);
  o.qkv = f.In(0, o.s.Qkv());
  o.kv = f.In(1, o.s.Keys());
  if (o.s.acc) o.before = f.In(2, o.s.Context());
  if (o.s.acc) o.sums = f.In(3, o.s.Rows());
  o.out = f.Out(0, o.s.Context());
  o.lse = f.Out(1, o.s.Rows());
  Launch(f.queue, PartForwardKernel, Blocks(o.s.Rows(), 1), kThreads, Floats(o.s.seq_kv + kSlots),
         o);
}

void PartAttentionBackward(OpFrame& f) {
  PartOperands o = {};
  o.s = PartOf(f), o.draw = DrawOf(f);
  const Part& s = o.s;
  AttentionOperands rows;
  rows.s.batch = s.batch, rows.s.seq = s.seq, rows.s.nh = s.nh, rows.s.hd = s.hd;
  o.dctx = rows.dctx = f.In(0, s.Context());
  o.qkv = f.In(1, s.Qkv());
  o.kv = f.In(2, s.Keys());
  rows.ctx = f.In(3, s.Context());
  o.lse = f.In(4, s.Rows());
  o.dkv = f.Out(0, s.Keys());
  o.dqkv = s.acc ? f.InOut(1, 5, s.Qkv()) : f.Out(1, s.Qkv());
  float* delta = f.Scratch<float>(s.Rows());
  RowDeltas(f, rows, delta);
  Launch(f.queue, PartQueryGradKernel, Blocks(s.Rows(), 1), kThreads, Floats(s.seq_kv), o, delta);
  Launch(f.queue, PartKeyGradKernel,
         dim3(Blocks(s.batch * s.kv * s.seq_kv, 1), Blocks(s.hd, 2 * kThreads)), kThreads,
         Floats(2 * s.seq), o, delta);
}

void KeysAndValues(OpFrame& f) {
  const int64_t rows = f.Size(Attr::kRows), nh = f.Size(Attr::kNh, 1), kv = f.Size(Attr::kKv, 1);
  const int64_t hd = f.Size(Attr::kHd, 1), per_group = nh / kv + 2, n = rows * kv * 2 * hd;
  const bool inverse = f.Flag(Attr::kInverse);
  if (nh % kv != 0) f.Fail("query heads are no multiple of the key heads");
  const Ref wide = f.In(0, rows * kv * per_group * hd);
  const Ref out = f.Out(0, inverse ? rows * kv * per_group * hd : n);
  const Ref narrow = inverse ? f.In(1, n) : Ref{};
  if (inverse && wide.data != out.data) f.Fail("keys and values are put back in place only");
  Launch(f.queue, KeyValuesKernel, Blocks(n, kThreads), kThreads, 0, wide, narrow, out, n,
         per_group, hd, inverse);
}

void Regroup(OpFrame& f) {
  const int64_t rows = f.Size(Attr::kRows, 1), parts = f.Size(Attr::kParts, 1);
  const int64_t h = f.Size(Attr::kH, 1), n = rows * parts * h;
  const bool zigzag = f.Flag(Attr::kZigzag);
  if (zigzag && rows % 2 != 0) f.Fail("an odd number of rows in zigzag order");
  const Ref x = f.In(0, n), y = f.Out(0, n);
  Launch(f.queue, RegroupKernel, Blocks(n, kThreads), kThreads, 0, x, y, n, rows, parts, h, zigzag,
         zigzag == f.Flag(Attr::kInverse));
}

}  // namespace orrery::cuda
