// SPDX-License-Identifier: Apache-2.0
// Attention backward, block by block of query rows (Dao et al. 2022, appendix B): with D = dctx . ctx per row,
// dS = P (kept dP - D), dQ = scale dS K, dK += scale dS^T Q, dV += dropped P^T dctx.
#include <algorithm>
#include <optional>

#include "runtime/device/cpu/attention.h"
#include "runtime/device/cpu/bodies.h"
#include "runtime/device/cpu/gemm.h"

namespace orrery::cpu {
namespace {

using ir::Attr;

struct BackwardOperands {
  const float *dctx, *q, *kv, *ctx;
  SavedAttention saved;
  RelativeBias* bias;  // null: none
  float *dq, *dkv;     // may be one buffer; dkv is zero on entry
};

class BackwardPass {
 public:
  BackwardPass(Frame& f, const AttentionShape& s, const BackwardOperands& o)
      : f_(f), s_(s), o_(o), dropout_(f), score_grad_(f.Scratch(std::min(kQueryBlock, s.seq) * s.seq_kv)) {
    const int64_t block = std::min(kQueryBlock, s.seq) * s.seq_kv;
    if (s.flash) p_ = f.Scratch(block);
    if (s.drops) kept_ = f.Scratch(block);
    if (s.drops && s.flash) dropped_ = f.Scratch(block);
  }

  void Run(const QueryBlock& block) {
    const int64_t at = s_.ProbabilityRow(block.b, block.h, block.first), ld = s_.flash ? block.keys : s_.seq_kv;
    const float* p = s_.flash ? Recompute(block) : o_.saved.softmax + at;
    const float* dropped = s_.drops ? Drop(block, p, at, ld) : p;
    ScoreGrad(block, p, ld);
    Products(block, dropped, ld);
  }

 private:
  const float* Recompute(const QueryBlock& block) {
    BlockScores(f_, s_, block, o_.q, o_.kv, o_.bias, p_, block.keys);
    for (int64_t r = 0; r < block.rows; ++r) {
      f_.loops.exp_row(p_ + r * block.keys, o_.saved.softmax[s_.LseAt(block.b, block.h, block.first + r)],
                       s_.Keys(block.first + r), block.keys);
    }
    return p_;
  }

  // Fills kept_ with the factors; returns the dropped probabilities.
  const float* Drop(const QueryBlock& block, const float* p, int64_t at, int64_t ld) {
    for (int64_t r = 0; r < block.rows; ++r) {
      float* kept = kept_ + r * ld;
      if (!s_.flash) {
        f_.loops.scale(dropout_.keep(), o_.saved.mask + at + r * ld, kept, block.keys);
        continue;
      }
      dropout_.Row(block.b, s_.first_head + block.h, block.first + r, kept, block.keys);
      f_.loops.multiply(p + r * ld, kept, 1.0f, dropped_ + r * ld, block.keys);
    }
    return s_.flash ? dropped_ : o_.saved.dropped + at;
  }

  int64_t ContextAt(const QueryBlock& block, int64_t r) const {
    return (((block.first + r) * s_.batch + block.b) * s_.nh + block.h) * s_.hd;
  }

  void ScoreGrad(const QueryBlock& block, const float* p, int64_t ld) {
    const float* values = o_.kv + block.b * s_.kv_width + s_.KeyOffset(block.h) + s_.hd;
    Gemm(f_, {false, true, block.rows, block.keys, s_.hd, 1.0f, o_.dctx + ContextAt(block, 0), s_.batch * s_.nh * s_.hd,
              values, s_.batch * s_.kv_width, 0.0f, score_grad_, ld});
    for (int64_t r = 0; r < block.rows; ++r) {
      const int64_t row = ContextAt(block, r), keys = s_.Keys(block.first + r);
      const float mean = f_.loops.dot(o_.dctx + row, o_.ctx + row, s_.hd);
      float* grad = score_grad_ + r * ld;
      f_.loops.score_grad_row(p + r * ld, s_.drops ? kept_ + r * ld : nullptr, mean, grad, keys, block.keys);
      if (o_.bias == nullptr) continue;
      float* sum = o_.bias->GradRow(block.h, block.first + r);
      f_.loops.add(sum, grad, sum, keys);
    }
  }

  void Products(const QueryBlock& block, const float* dropped, int64_t ld) {
    const int64_t query_at = (block.first * s_.batch + block.b) * s_.q_width + s_.QueryOffset(block.h);
    const int64_t key_at = block.b * s_.kv_width + s_.KeyOffset(block.h);
    const int64_t q_step = s_.batch * s_.q_width, kv_step = s_.batch * s_.kv_width;
    Gemm(f_, {false, false, block.rows, s_.hd, block.keys, s_.scale, score_grad_, ld, o_.kv + key_at, kv_step, 0.0f,
              o_.dq + query_at, q_step});
    Gemm(f_, {true, false, block.keys, s_.hd, block.rows, s_.scale, score_grad_, ld, o_.q + query_at, q_step, 1.0f,
              o_.dkv + key_at, kv_step});
    Gemm(f_, {true, false, block.keys, s_.hd, block.rows, 1.0f, dropped, ld, o_.dctx + ContextAt(block, 0),
              s_.batch * s_.nh * s_.hd, 1.0f, o_.dkv + key_at + s_.hd, kv_step});
  }

  Frame& f_;
  const AttentionShape& s_;
  const BackwardOperands& o_;
  Dropout dropout_;
  float *score_grad_, *p_ = nullptr, *kept_ = nullptr, *dropped_ = nullptr;  // [rows of a block, keys]
};

void Backward(Frame& f, const AttentionShape& s, const BackwardOperands& operands) {
  std::fill(operands.dkv, operands.dkv + s.KeyValues(), 0.0f);
  BackwardPass pass(f, s, operands);
  ForEachQueryBlock(s, [&](const QueryBlock& block) { pass.Run(block); });
}

// Inputs `first`, `first` + 1, ... . Nothing writes to them.
SavedAttention OpenSaved(Frame& f, const AttentionShape& s, size_t first) {
  const auto open = [&](size_t i, int64_t n) { return const_cast<float*>(f.In(i, n)); };
  SavedAttention saved{open(first, s.SavedElements())};
  if (!s.drops || s.flash) return saved;
  saved.mask = open(first + 1, s.Probabilities());
  saved.dropped = open(first + 2, s.Probabilities());
  return saved;
}

}  // namespace

void AttentionBackward(Frame& f) {
  const AttentionShape s = MakeAttentionShape(f, false);
  const float* qkv = f.In(1, s.Queries());
  float* dqkv = f.Out(0, s.Queries());
  BackwardOperands o{f.In(0, s.Context()), qkv, qkv, f.In(2, s.Context()), OpenSaved(f, s, 3), nullptr, dqkv, dqkv};
  if (s.buckets == 0) return Backward(f, s, o);
  const size_t at = o.saved.mask != nullptr ? 6 : 4;
  RelativeBias bias(f, s, f.In(at, s.buckets * s.nh));
  float* dtable = f.InOut(1, at + 1, s.buckets * s.nh);
  bias.StartGrad(f);
  o.bias = &bias;
  Backward(f, s, o);
  bias.AddGradTo(dtable);
}

void CrossAttentionBackward(Frame& f) {
  const AttentionShape s = MakeAttentionShape(f, true);
  const float *dctx = f.In(0, s.Context()), *q = f.In(1, s.Queries()), *kv = f.In(2, s.KeyValues());
  const float* ctx = f.In(3, s.Context());
  float *dq = f.Out(0, s.Queries()), *dkv = f.Out(1, s.KeyValues());
  Backward(f, s, {dctx, q, kv, ctx, OpenSaved(f, s, 4), nullptr, dq, dkv});
}

}  // namespace orrery::cpu
