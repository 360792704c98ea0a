// SPDX-License-Identifier: Apache-2.0
// Attention by plain kernels in single precision: all types, sizes and options. A block has a row of queries or of keys.
// They are the reference of the flash kernels.
#include "runtime/device/cuda/attention.h"

#include "model/plan/ir/alibi.h"

namespace orrery::cuda {
namespace {

constexpr int kThreads = 128, kSlots = kThreads / kWarpSize;

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

// T5's relative positions (Raffel et al. 2020): exact buckets for near keys, logarithmic ones up to distance 128.
__device__ inline int64_t BucketOf(int64_t distance, int64_t buckets, bool bidirectional) {
  int64_t first = 0;
  if (bidirectional) {
    buckets /= 2;
    if (distance < 0) {
      first = buckets;
      distance = -distance;
    }
  }
  distance = distance > 0 ? distance : 0;
  const int64_t exact = buckets / 2;
  if (distance < exact || exact == 0)
    return first + (distance < buckets - 1 ? distance : buckets - 1);
  const double near = static_cast<double>(exact);
  const double beyond = log(static_cast<double>(distance) / near) / log(128.0 / near);
  const int64_t bucket =
      exact + static_cast<int64_t>(beyond * static_cast<double>(buckets - exact));
  return first + (bucket < buckets - 1 ? bucket : buckets - 1);
}

__device__ inline float Score(const AttentionOperands& o, const Row& r, int64_t j) {
  const Heads& s = o.s;
  float score = s.scale * Dot(o.q, s.QueryAt(r.b, r.h, r.i), o.kv, s.KeyAt(r.b, r.h, j), s.hd);
  if (!o.bias.absent()) score += Load(o.bias, BucketOf(r.i - j, s.buckets, !s.causal) * s.nh + r.h);
  if (s.alibi > 0)
    score += static_cast<float>(ir::AlibiSlope(s.first_head + r.h, s.alibi)) *
             static_cast<float>(j - r.i);
  return s.cap > 0 ? s.cap * tanhf(score / s.cap) : score;
}

__device__ inline float Factor(const AttentionOperands& o, const Row& r, int64_t j) {
  const uint64_t head =
      ir::HashMore(o.draw.Sample(r.b), static_cast<uint64_t>(o.s.first_head + r.h));
  return o.draw.Factor(ir::HashMore(head, static_cast<uint64_t>(r.i)), j);
}

__global__ void ForwardKernel(AttentionOperands o) {
  ORRERY_SHARED(float,
                p);  // [seq_kv], and slots of reductions: the limit is that of dynamic memory alone
  const Heads& s = o.s;
  float* slots = p + s.seq_kv;
  const Row r = RowOfBlock(s.nh, s.seq);
  const int64_t first = s.FirstKey(r.i), keys = s.Keys(r.i);
  float top = -INFINITY;
  for (int64_t j = first + threadIdx.x; j < keys; j += kThreads) {
    p[j] = Score(o, r, j);
    top = fmaxf(top, p[j]);
  }
  top = BlockMax(top, slots);
  float sum = 0;
  for (int64_t j = first + threadIdx.x; j < keys; j += kThreads) {
    p[j] = expf(p[j] - top);
    sum += p[j];
  }
  sum = BlockSum(sum, slots);
  if (s.flash && threadIdx.x == 0) Store(o.softmax, s.LseAt(r.b, r.h, r.i), top + logf(sum));
  const int64_t at = s.ProbabilityRow(r.b, r.h, r.i);
  for (int64_t j = threadIdx.x; j < s.seq_kv; j += kThreads) {
    const bool seen = s.Sees(r.i, j);
    float value = seen ? p[j] / sum : 0.0f;
    if (!s.flash) Store(o.softmax, at + j, value);
    const float factor = s.drops ? Factor(o, r, j) : 1.0f;
    value *= factor;
    if (!o.mask.absent()) Store(o.mask, at + j, factor != 0.0f ? 1.0f : 0.0f);
    if (!o.dropped.absent()) Store(o.dropped, at + j, value);
    if (seen) p[j] = value;
  }
  __syncthreads();
  for (int64_t d = threadIdx.x; d < s.hd; d += kThreads) {
    float context = 0;
    for (int64_t j = first; j < keys; ++j)
      context += p[j] * Load(o.kv, s.KeyAt(r.b, r.h, j) + s.hd + d);
    Store(o.ctx, s.ContextAt(r.b, r.h, r.i) + d, context);
  }
}

__global__ void DeltaKernel(AttentionOperands o, float* delta) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarpSize) + WarpIndex();
  if (row >= o.s.seq * o.s.batch * o.s.nh) return;
  float sum = 0;
  for (int64_t d = LaneIndex(); d < o.s.hd; d += kWarpSize)
    sum += Load(o.dctx, row * o.s.hd + d) * Load(o.ctx, row * o.s.hd + d);
  sum = WarpSum(sum);
  if (LaneIndex() == 0) delta[row] = sum;
}

// Probability of key j for a query, behind dropout, and the gradient of its score before cap and scaling:
// d (c tanh(x / c)) = 1 - (y / c)^2 of the capped score y.
struct Gradient {
  float dropped, score;
};
__device__ inline Gradient GradientOf(const AttentionOperands& o, const float* delta, const Row& r,
                                      int64_t j) {
  const Heads& s = o.s;
  const int64_t row = s.LseAt(r.b, r.h, r.i), at = s.ProbabilityRow(r.b, r.h, r.i) + j;
  const float score = s.flash || s.cap > 0 ? Score(o, r, j) : 0.0f;
  const float slope = s.cap > 0 ? 1.0f - (score / s.cap) * (score / s.cap) : 1.0f;
  const float p = s.flash ? expf(score - Load(o.softmax, row)) : Load(o.softmax, at);
  const float dp = Dot(o.dctx, s.ContextAt(r.b, r.h, r.i), o.kv, s.KeyAt(r.b, r.h, j) + s.hd, s.hd);
  float factor = 1;
  if (s.drops) factor = o.mask.absent() ? Factor(o, r, j) : o.draw.keep * Load(o.mask, at);
  return {o.dropped.absent() ? p * factor : Load(o.dropped, at),
          p * (factor * dp - delta[row]) * slope};
}

__global__ void QueryGradKernel(AttentionOperands o, const float* delta) {
  ORRERY_SHARED(float, grad);  // [seq_kv]
  const Heads& s = o.s;
  const Row r = RowOfBlock(s.nh, s.seq);
  const int64_t first = s.FirstKey(r.i), keys = s.Keys(r.i);
  for (int64_t j = first + threadIdx.x; j < keys; j += kThreads)
    grad[j] = GradientOf(o, delta, r, j).score;
  __syncthreads();
  for (int64_t d = threadIdx.x; d < s.hd; d += kThreads) {
    float sum = 0;
    for (int64_t j = first; j < keys; ++j) sum += grad[j] * Load(o.kv, s.KeyAt(r.b, r.h, j) + d);
    Store(o.dq, s.QueryAt(r.b, r.h, r.i) + d, s.scale * sum);
  }
}

// A block has a key of a group of heads that share it, and two columns of its gradients per thread.
__global__ void KeyGradKernel(AttentionOperands o, const float* delta) {
  ORRERY_SHARED(float, grad);  // scores [seq], dropped probabilities [seq]
  const Heads& s = o.s;
  const Row key = RowOfBlock(s.nh / s.queries_per_kv, s.seq_kv);  // i: the key
  float* dropped = grad + s.seq;
  float dk[2] = {}, dv[2] = {};
  const auto column = [](int c) {
    return static_cast<int64_t>(2 * blockIdx.y + c) * kThreads + threadIdx.x;
  };
  for (int64_t g = 0; g < s.queries_per_kv; ++g) {
    const int64_t h = key.h * s.queries_per_kv + g;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < s.seq; i += kThreads) {
      Gradient gradient{0, 0};
      if (s.Sees(i, key.i)) gradient = GradientOf(o, delta, {key.b, h, i}, key.i);
      grad[i] = gradient.score;
      dropped[i] = gradient.dropped;
    }
    __syncthreads();
    for (int c = 0; c < 2; ++c) {
      const int64_t d = column(c);
      for (int64_t i = 0; d < s.hd && i < s.seq; ++i) {
        dk[c] += grad[i] * Load(o.q, s.QueryAt(key.b, h, i) + d);
        dv[c] += dropped[i] * Load(o.dctx, s.ContextAt(key.b, h, i) + d);
      }
    }
  }
  const int64_t to = s.KeyAt(key.b, key.h * s.queries_per_kv, key.i);
  for (int c = 0; c < 2; ++c) {
    const int64_t d = column(c);
    if (d >= s.hd) continue;
    Store(o.dkv, to + d, s.scale * dk[c]);
    Store(o.dkv, to + s.hd + d, dv[c]);
  }
}

// sums[h][distance]: of the scores' gradients over samples and queries; distance = query - key + seq_kv - 1.
__global__ void DistanceGradKernel(AttentionOperands o, const float* delta, float* sums) {
  __shared__ float slots[kSlots];
  const Heads& s = o.s;
  const int64_t distances = s.seq + s.seq_kv - 1, h = blockIdx.x / distances,
                at = blockIdx.x % distances;
  float sum = 0;
  for (int64_t t = threadIdx.x; t < s.batch * s.seq; t += kThreads) {
    const int64_t b = t / s.seq, i = t % s.seq, j = i - (at - (s.seq_kv - 1));
    if (s.Sees(i, j)) sum += GradientOf(o, delta, {b, h, i}, j).score;
  }
  sum = BlockSum(sum, slots);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void BucketGradKernel(AttentionOperands o, const float* sums) {
  const Heads& s = o.s;
  const int64_t distances = s.seq + s.seq_kv - 1,
                t = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (t >= s.buckets * s.nh) return;
  const int64_t bucket = t / s.nh, h = t % s.nh;
  float sum = 0;
  for (int64_t d = 0; d < distances; ++d)
    if (BucketOf(d - (s.seq_kv - 1), s.buckets, !s.causal) == bucket)
      sum += sums[h * distances + d];
  Store(o.dbias, t, Load(o.dbias, t) + sum);
}

size_t Floats(int64_t n) { return sizeof(float) * static_cast<size_t>(n); }

}  // namespace

void PlainForward(OpFrame& f, const AttentionOperands& o) {
  Launch(f.queue, ForwardKernel, Blocks(o.s.Rows(), 1), kThreads, Floats(o.s.seq_kv + kSlots), o);
}

void RowDeltas(OpFrame& f, const AttentionOperands& o, float* delta) {
  Launch(f.queue, DeltaKernel, Blocks(o.s.Rows(), kThreads / kWarpSize), kThreads, 0, o, delta);
}

void PlainBackward(OpFrame& f, const AttentionOperands& o) {
  const Heads& s = o.s;
  float* delta = f.Scratch<float>(s.Rows());
  RowDeltas(f, o, delta);
  Launch(f.queue, QueryGradKernel, Blocks(s.Rows(), 1), kThreads, Floats(s.seq_kv), o, delta);
  const int64_t keys = s.batch * (s.nh / s.queries_per_kv) * s.seq_kv;
  Launch(f.queue, KeyGradKernel, dim3(Blocks(keys, 1), Blocks(s.hd, 2 * kThreads)), kThreads,
         Floats(2 * s.seq), o, delta);
  if (o.dbias.absent()) return;
  const int64_t distances = s.seq + s.seq_kv - 1;
  float* sums = f.Scratch<float>(s.nh * distances);
  Launch(f.queue, DistanceGradKernel, Blocks(s.nh * distances, 1), kThreads, 0, o, delta, sums);
  Launch(f.queue, BucketGradKernel, Blocks(s.buckets * s.nh, kThreads), kThreads, 0, o, sums);
}

}  // namespace orrery::cuda
