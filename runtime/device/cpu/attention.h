// SPDX-License-Identifier: Apache-2.0
// Operands and tiling that forward and backward attention share.
#pragma once

#include <vector>

#include "runtime/device/cpu/dropout.h"

namespace orrery::cpu {

constexpr int64_t kQueryBlock = 64;  // query rows whose scores are held at once

// One kind of attention op: where head h of sample b stands in each operand. Offsets and widths in elements.
struct AttentionShape {
  int64_t batch, seq, seq_kv, nh, hd, buckets;
  bool causal, flash, cross, drops;
  float scale;
  int64_t q_width, kv_width;  // of one row
  int64_t queries_per_kv;     // query heads that share one key head
  int64_t first_head;         // global index of head 0
  int64_t window;             // keys that a query sees, 0: all
  float cap;                  // of the scores, 0: none
  int64_t alibi;              // heads of the model whose scores have linear biases, 0: none

  int64_t QueryOffset(int64_t h) const {
    return cross ? h * hd
                 : (h / queries_per_kv) * (queries_per_kv + 2) * hd + (h % queries_per_kv) * hd;
  }
  int64_t KeyOffset(int64_t h) const {
    return cross ? 2 * h * hd
                 : (h / queries_per_kv) * (queries_per_kv + 2) * hd + queries_per_kv * hd;
  }
  int64_t Keys(int64_t i) const {
    return causal && i + 1 < seq_kv ? i + 1 : seq_kv;
  }  // visible to query i
  int64_t FirstKey(int64_t i) const { return window > 0 && i >= window ? i + 1 - window : 0; }
  int64_t Context() const { return seq * batch * nh * hd; }
  int64_t Queries() const { return seq * batch * q_width; }
  int64_t KeyValues() const { return seq_kv * batch * kv_width; }
  int64_t Probabilities() const { return batch * nh * seq * seq_kv; }
  int64_t SavedElements() const { return flash ? seq * batch * nh : Probabilities(); }
  int64_t ProbabilityRow(int64_t b, int64_t h, int64_t i) const {
    return ((b * nh + h) * seq + i) * seq_kv;
  }
  int64_t ContextAt(int64_t b, int64_t h, int64_t i) const {
    return ((i * batch + b) * nh + h) * hd;
  }
  int64_t LseAt(int64_t b, int64_t h, int64_t i) const { return (i * batch + b) * nh + h; }
};
AttentionShape MakeAttentionShape(const Frame& f, bool cross);

// A block of query rows of one head of one sample.
struct QueryBlock {
  int64_t b, h, first, rows;
  int64_t keys;  // visible to the last row
};
// Calls f(block) for all blocks of a head, from first to last.
template <typename F>
void ForEachQueryBlock(const AttentionShape& s, int64_t b, int64_t h, F f) {
  for (int64_t i = 0; i < s.seq; i += kQueryBlock) {
    const int64_t rows = i + kQueryBlock < s.seq ? kQueryBlock : s.seq - i;
    f(QueryBlock{b, h, i, rows, s.Keys(i + rows - 1)});
  }
}

// Rows of one head, copied together: where they lie they are a whole row of all heads and samples apart, often a
// multiple of the page size, so that they would displace each other from the caches in every product.
void GatherHead(const float* from, int64_t step, int64_t rows, int64_t hd, float* to);
void ScatterHead(const float* from, int64_t rows, int64_t hd, float* to, int64_t step);

struct HeadRows {
  float *q, *k, *v;  // [seq or seq_kv, hd]
};
HeadRows MakeHeadRows(Frame& f, const AttentionShape& s);
// k and v are copied for the first query head that shares them.
void GatherHeads(const AttentionShape& s, const float* q, const float* kv, int64_t b, int64_t h,
                 const HeadRows& rows);

// Columns of a block of scores in scratch memory: the visible keys, and room for whole vectors.
inline int64_t ScratchColumns(int64_t keys) { return (keys + 15) / 16 * 16; }

// T5's relative position bias (Raffel et al. 2020) by distance: row(h, i)[j] is the bias of key j for query i.
class RelativeBias {
 public:
  // table: [buckets, nh]
  RelativeBias(Frame& f, const AttentionShape& s, const float* table);
  const float* Row(int64_t h, int64_t i) const {
    return by_distance_ + h * distances_ + seq_ - 1 - i;
  }
  float* GradRow(int64_t h, int64_t i) const { return grad_ + h * distances_ + seq_ - 1 - i; }
  void StartGrad(Frame& f);
  void AddGradTo(float* dtable) const;

 private:
  int64_t seq_, nh_, distances_;          // distances: key - query from 1 - seq to seq_kv - 1
  std::vector<int64_t> bucket_;           // by distance
  float *by_distance_, *grad_ = nullptr;  // [nh, distances]
};

// What the forward pass leaves for the backward pass. mask and dropped: materialised attention with dropout only.
struct SavedAttention {
  float* softmax;  // probabilities, or with flash the log of each row's sum
  float *mask = nullptr, *dropped = nullptr;
};

// Scores of a block, scaled, biased and capped, into p[rows, ld] (columns up to the block's keys).
void BlockScores(Frame& f, const AttentionShape& s, const QueryBlock& block, const HeadRows& head,
                 const RelativeBias* bias, float* p, int64_t ld);
// Fills the columns of a block in front of each row's window.
void FillBeforeWindow(const AttentionShape& s, const QueryBlock& block, float value, float* p,
                      int64_t ld);

}  // namespace orrery::cpu
