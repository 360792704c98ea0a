// SPDX-License-Identifier: Apache-2.0
// Attention forward, self (grouped queries, causal, relative bias) and cross.
//
// A block of query rows sees all its keys at once: its scores are one product, its context another. With flash the block
// lives in scratch memory and only the log of each row's sum is kept (Dao et al. 2022); without, the scores are written
// where the probabilities are kept.
#include "runtime/device/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "model/plan/ir/alibi.h"
#include "runtime/device/cpu/bodies.h"
#include "runtime/device/cpu/gemm.h"

namespace orrery::cpu {

using ir::Attr;

AttentionShape MakeAttentionShape(const Frame& f, bool cross) {
  AttentionShape s{};
  s.cross = cross;
  s.batch = f.Size(Attr::kBatch, 1);
  s.seq = f.Size(Attr::kSeq, 1);
  s.seq_kv = cross ? f.Size(Attr::kSeqKv, 1) : s.seq;
  s.nh = f.Size(Attr::kNh, 1);
  s.hd = f.Size(Attr::kHd, 1);
  s.causal = !cross && f.Flag(Attr::kCausal);
  s.flash = f.Flag(Attr::kFlash);
  s.buckets = cross ? 0 : f.Size(Attr::kBuckets);
  const double scale = f.Get(Attr::kScale);
  s.scale = static_cast<float>(scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(s.hd)));
  // Ranks that have changed positions for heads hold parts of the tensor rank's heads.
  s.first_head = (f.Coord(Attr::kAxis) * f.Size(Attr::kParts, 1) + f.Coord(Attr::kCp)) * s.nh;
  s.drops = f.Get(Attr::kRate) > 0;
  s.window = cross ? 0 : f.Size(Attr::kWindow);
  s.cap = cross ? 0.0f : static_cast<float>(f.Get(Attr::kCap));
  s.alibi = cross ? 0 : f.Size(Attr::kAlibi);
  if (s.window > 0 && !s.causal) f.Fail("a window without a causal mask");
  const int64_t kv = cross ? s.nh : f.Size(Attr::kKv, 1);
  if (s.nh % kv != 0) f.Fail("query heads are no multiple of the key heads");
  s.queries_per_kv = s.nh / kv;
  s.q_width = cross ? s.nh * s.hd : kv * (s.queries_per_kv + 2) * s.hd;
  s.kv_width = cross ? 2 * s.nh * s.hd : s.q_width;
  return s;
}

namespace {

// Exact buckets for near keys, logarithmic ones up to distance 128. distance = query - key.
int64_t BucketOf(int64_t distance, int64_t buckets, bool bidirectional) {
  int64_t first = 0;
  if (bidirectional) {
    buckets /= 2;
    if (distance < 0) first = buckets;
    distance = std::abs(distance);
  }
  distance = std::max<int64_t>(distance, 0);
  const int64_t exact = buckets / 2;
  if (distance < exact || exact == 0) return first + std::min(distance, buckets - 1);
  const double exact_buckets = static_cast<double>(exact);
  const double beyond =
      std::log(static_cast<double>(distance) / exact_buckets) / std::log(128.0 / exact_buckets);
  const auto step = static_cast<int64_t>(beyond * static_cast<double>(buckets - exact));
  return first + std::min(exact + step, buckets - 1);
}

}  // namespace

RelativeBias::RelativeBias(Frame& f, const AttentionShape& s, const float* table)
    : seq_(s.seq),
      nh_(s.nh),
      distances_(s.seq + s.seq_kv - 1),
      by_distance_(f.Scratch(nh_ * distances_)) {
  for (int64_t d = 0; d < distances_; ++d)
    bucket_.push_back(BucketOf(seq_ - 1 - d, s.buckets, !s.causal));
  for (int64_t h = 0; h < nh_; ++h)
    for (int64_t d = 0; d < distances_; ++d)
      by_distance_[h * distances_ + d] = table[bucket_[d] * nh_ + h];
}

void RelativeBias::StartGrad(Frame& f) {
  grad_ = f.Scratch(nh_ * distances_);
  std::fill(grad_, grad_ + nh_ * distances_, 0.0f);
}

void RelativeBias::AddGradTo(float* dtable) const {
  for (int64_t h = 0; h < nh_; ++h)
    for (int64_t d = 0; d < distances_; ++d)
      dtable[bucket_[d] * nh_ + h] += grad_[h * distances_ + d];
}

void GatherHead(const float* from, int64_t step, int64_t rows, int64_t hd, float* to) {
  for (int64_t r = 0; r < rows; ++r) std::copy(from + r * step, from + r * step + hd, to + r * hd);
}

void ScatterHead(const float* from, int64_t rows, int64_t hd, float* to, int64_t step) {
  for (int64_t r = 0; r < rows; ++r) std::copy(from + r * hd, from + (r + 1) * hd, to + r * step);
}

HeadRows MakeHeadRows(Frame& f, const AttentionShape& s) {
  return {f.Scratch(s.seq * s.hd), f.Scratch(s.seq_kv * s.hd), f.Scratch(s.seq_kv * s.hd)};
}

void GatherHeads(const AttentionShape& s, const float* q, const float* kv, int64_t b, int64_t h,
                 const HeadRows& rows) {
  GatherHead(q + b * s.q_width + s.QueryOffset(h), s.batch * s.q_width, s.seq, s.hd, rows.q);
  if (h % s.queries_per_kv != 0) return;
  const float* keys = kv + b * s.kv_width + s.KeyOffset(h);
  GatherHead(keys, s.batch * s.kv_width, s.seq_kv, s.hd, rows.k);
  GatherHead(keys + s.hd, s.batch * s.kv_width, s.seq_kv, s.hd, rows.v);
}

namespace {

void AddAlibi(const AttentionShape& s, int64_t head, int64_t query, float* scores) {
  const auto slope = static_cast<float>(ir::AlibiSlope(head, s.alibi));
  for (int64_t j = 0; j < s.Keys(query); ++j) scores[j] += slope * static_cast<float>(j - query);
}

}  // namespace

void BlockScores(Frame& f, const AttentionShape& s, const QueryBlock& block, const HeadRows& head,
                 const RelativeBias* bias, float* p, int64_t ld) {
  Gemm(f, {false, true, block.rows, block.keys, s.hd, s.scale, head.q + block.first * s.hd, s.hd,
           head.k, s.hd, 0.0f, p, ld});
  for (int64_t r = 0; bias != nullptr && r < block.rows; ++r)
    f.loops.add(p + r * ld, bias->Row(block.h, block.first + r), p + r * ld,
                s.Keys(block.first + r));
  for (int64_t r = 0; s.alibi > 0 && r < block.rows; ++r)
    AddAlibi(s, s.first_head + block.h, block.first + r, p + r * ld);
  for (int64_t r = 0; s.cap > 0 && r < block.rows; ++r) {
    float* row = p + r * ld;
    f.loops.scale(1 / s.cap, row, row, block.keys);
    f.loops.tanh(row, row, block.keys);
    f.loops.scale(s.cap, row, row, block.keys);
  }
}

void FillBeforeWindow(const AttentionShape& s, const QueryBlock& block, float value, float* p,
                      int64_t ld) {
  for (int64_t r = 0; s.window > 0 && r < block.rows; ++r)
    std::fill_n(p + r * ld, s.FirstKey(block.first + r), value);
}

namespace {

constexpr float kUnseen = -1e30f;  // a score whose probability is zero

struct ForwardScratch {
  HeadRows head;
  float *p, *factors, *out;  // scores of a block, dropout factors of a row, context of a block
};

ForwardScratch MakeForwardScratch(Frame& f, const AttentionShape& s) {
  const int64_t rows = std::min(kQueryBlock, s.seq);
  return {MakeHeadRows(f, s), s.flash ? f.Scratch(rows * ScratchColumns(s.seq_kv)) : nullptr,
          s.drops ? f.Scratch(s.seq_kv) : nullptr, f.Scratch(rows * s.hd)};
}

// Drops probabilities of a block into `to`. Materialised: the mask and the product are also kept, in full rows.
void DropBlock(Frame& f, const AttentionShape& s, const Dropout& dropout, const QueryBlock& block,
               const float* p, int64_t ld, float* mask, float* factors, float* to) {
  const int64_t width = s.flash ? block.keys : s.seq_kv;
  for (int64_t r = 0; r < block.rows; ++r) {
    dropout.Row(block.b, s.first_head + block.h, block.first + r, factors, width);
    if (mask != nullptr) f.loops.nonzero(factors, mask + r * ld, width);
    f.loops.multiply(p + r * ld, factors, 1.0f, to + r * ld, width);
  }
}

void ForwardBlock(Frame& f, const AttentionShape& s, const Dropout& dropout,
                  const QueryBlock& block, const RelativeBias* bias, const ForwardScratch& scratch,
                  float* ctx, const SavedAttention& saved) {
  const int64_t at = s.ProbabilityRow(block.b, block.h, block.first);
  const int64_t ld = s.flash ? ScratchColumns(block.keys) : s.seq_kv;
  float* p = s.flash ? scratch.p : saved.softmax + at;
  BlockScores(f, s, block, scratch.head, bias, p, ld);
  FillBeforeWindow(s, block, kUnseen, p, ld);
  float log_sums[kQueryBlock];
  f.loops.softmax_rows(p, block.rows, ld, s.Keys(block.first), s.causal,
                       s.flash ? log_sums : nullptr);
  FillBeforeWindow(s, block, 0.0f, p, ld);
  for (int64_t r = 0; s.flash && r < block.rows; ++r)
    saved.softmax[s.LseAt(block.b, block.h, block.first + r)] = log_sums[r];
  float* weights = saved.dropped != nullptr ? saved.dropped + at : p;
  float* mask = saved.mask != nullptr ? saved.mask + at : nullptr;
  if (s.drops) DropBlock(f, s, dropout, block, p, ld, mask, scratch.factors, weights);
  Gemm(f, {false, false, block.rows, s.hd, block.keys, 1.0f, weights, ld, scratch.head.v, s.hd,
           0.0f, scratch.out, s.hd});
  ScatterHead(scratch.out, block.rows, s.hd, ctx + s.ContextAt(block.b, block.h, block.first),
              s.batch * s.nh * s.hd);
}

void Forward(Frame& f, const AttentionShape& s, const float* q, const float* kv,
             const RelativeBias* bias, float* ctx, const SavedAttention& saved) {
  const Dropout dropout(f);
  const ForwardScratch scratch = MakeForwardScratch(f, s);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.nh; ++h) {
      GatherHeads(s, q, kv, b, h, scratch.head);
      ForEachQueryBlock(s, b, h, [&](const QueryBlock& block) {
        ForwardBlock(f, s, dropout, block, bias, scratch, ctx, saved);
      });
    }
  }
}

SavedAttention OpenSaved(Frame& f, const AttentionShape& s) {
  SavedAttention saved{f.Out(1, s.SavedElements())};
  if (!s.drops || s.flash) return saved;
  saved.mask = f.Out(2, s.Probabilities());
  saved.dropped = f.Out(3, s.Probabilities());
  return saved;
}

}  // namespace

void Attention(Frame& f) {
  const AttentionShape s = MakeAttentionShape(f, false);
  const float* qkv = f.In(0, s.Queries());
  std::optional<RelativeBias> bias;
  if (s.buckets > 0) bias.emplace(f, s, f.In(1, s.buckets * s.nh));
  Forward(f, s, qkv, qkv, bias ? &*bias : nullptr, f.Out(0, s.Context()), OpenSaved(f, s));
}

void CrossAttention(Frame& f) {
  const AttentionShape s = MakeAttentionShape(f, true);
  const float *q = f.In(0, s.Queries()), *kv = f.In(1, s.KeyValues());
  Forward(f, s, q, kv, nullptr, f.Out(0, s.Context()), OpenSaved(f, s));
}

}  // namespace orrery::cpu
