// SPDX-License-Identifier: Apache-2.0
// Attention over sequences that ranks share, block by block of query rows.
//
// Keys stand in chunks of consecutive positions. A block of queries sees a beginning of each chunk, so that its scores are
// one product per chunk. Steps merge by the log of their sums (Dao et al. 2022, section 3.1): with m the larger of both,
// out = (e^(old - m) before + sum e^(s - m) v) / (e^(old - m) + sum e^(s - m)).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "model/plan/ir/alibi.h"
#include "model/plan/ir/positions.h"
#include "runtime/device/cpu/attention.h"
#include "runtime/device/cpu/bodies.h"
#include "runtime/device/cpu/gemm.h"

namespace orrery::cpu {
namespace {

using ir::Attr;

constexpr float kNotSeen = -1e30f;  // a score whose probability is zero

// Rows [begin, begin + rows) of a rank's queries or of the keys, at consecutive positions.
struct Chunk {
  int64_t begin, rows, position;
};

struct Part {
  int64_t batch, seq, seq_kv, nh, kv, hd, per_kv, window, first_head, alibi;
  bool drops;
  float scale, cap;
  std::vector<Chunk> queries, keys;

  int64_t rows() const { return seq * batch; }
  int64_t qkv_width() const { return (nh + 2 * kv) * hd; }
  int64_t kv_width() const { return 2 * kv * hd; }
  int64_t Query(int64_t b, int64_t h) const {
    return b * qkv_width() + (h / per_kv) * (per_kv + 2) * hd + h % per_kv * hd;
  }
  int64_t Key(int64_t b, int64_t h) const { return b * kv_width() + h / per_kv * 2 * hd; }
  int64_t Context(int64_t b, int64_t h, int64_t i) const { return ((i * batch + b) * nh + h) * hd; }
  int64_t Sum(int64_t b, int64_t h, int64_t i) const { return (i * batch + b) * nh + h; }
  // Keys [first, end) of a chunk that a query at this position sees.
  int64_t First(const Chunk& chunk, int64_t position) const {
    if (window == 0) return 0;
    return std::clamp<int64_t>(position - window + 1 - chunk.position, 0, chunk.rows);
  }
  static int64_t End(const Chunk& chunk, int64_t position) {
    return std::clamp<int64_t>(position + 1 - chunk.position, 0, chunk.rows);
  }
};

void AddChunks(const ir::Positions& held, int64_t first_row, std::vector<Chunk>* chunks) {
  const int64_t rows = held.part / held.chunks();
  for (int64_t at = 0; at < held.part; at += rows)
    chunks->push_back({first_row + at, rows, held.At(at)});
}

Part MakePart(const Frame& f) {
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
  const double scale = f.Get(Attr::kScale);
  s.scale = static_cast<float>(scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(s.hd)));
  s.cap = static_cast<float>(f.Get(Attr::kCap));
  const ir::Positions own = ir::PositionsOf(f.args.op.attrs, f.args.coords);
  const ir::PartKeys keys = ir::PartKeysOf(f.args.op.attrs, own);
  if (own.part != s.seq || keys.members * own.part != s.seq_kv)
    f.Fail("queries and keys are not those of its step");
  AddChunks(own, 0, &s.queries);
  for (int64_t m = 0; m < keys.members; ++m) AddChunks(keys.Of(m), m * own.part, &s.keys);
  return s;
}

// A block of query rows of one head of one sample, all in one chunk.
struct Block {
  int64_t b, h, first, rows, position;
};

class PartPass {
 public:
  PartPass(Frame& f, const Part& s, const float* qkv, const float* kv)
      : f_(f),
        s_(s),
        dropout_(f),
        qkv_(qkv),
        kv_(kv),
        q_(f.Scratch(s.seq * s.hd)),
        k_(f.Scratch(s.seq_kv * s.hd)),
        v_(f.Scratch(s.seq_kv * s.hd)),
        p_(f.Scratch(std::min(kQueryBlock, s.seq) * s.seq_kv)),
        kept_(s.drops ? f.Scratch(std::min(kQueryBlock, s.seq) * s.seq_kv) : nullptr) {}

 protected:
  void GatherHead(int64_t b, int64_t h) {
    cpu::GatherHead(qkv_ + s_.Query(b, h), s_.batch * s_.qkv_width(), s_.seq, s_.hd, q_);
    if (h % s_.per_kv != 0) return;
    const float* keys = kv_ + s_.Key(b, h);
    cpu::GatherHead(keys, s_.batch * s_.kv_width(), s_.seq_kv, s_.hd, k_);
    cpu::GatherHead(keys + s_.hd, s_.batch * s_.kv_width(), s_.seq_kv, s_.hd, v_);
  }

  template <class Visit>
  void ForEachBlock(int64_t b, int64_t h, Visit visit) {
    for (const Chunk& chunk : s_.queries) {
      for (int64_t i = 0; i < chunk.rows; i += kQueryBlock)
        visit(Block{b, h, chunk.begin + i, std::min(kQueryBlock, chunk.rows - i),
                    chunk.position + i});
    }
  }
  // Chunks of keys of which the block sees some, with the number that its last row sees.
  template <class Visit>
  void ForEachSeen(const Block& block, Visit visit) const {
    for (const Chunk& chunk : s_.keys) {
      const int64_t end = Part::End(chunk, block.position + block.rows - 1);
      if (end > 0 && s_.First(chunk, block.position) < end) visit(chunk, end);
    }
  }

  float* Row(int64_t r) const { return p_ + r * s_.seq_kv; }

  // Scaled and capped, into p_; kNotSeen where a query does not see a key.
  void Scores(const Block& block) {
    std::fill_n(p_, block.rows * s_.seq_kv, kNotSeen);
    ForEachSeen(block, [&](const Chunk& chunk, int64_t end) {
      Gemm(f_, {false, true, block.rows, end, s_.hd, s_.scale, q_ + block.first * s_.hd, s_.hd,
                k_ + chunk.begin * s_.hd, s_.hd, 0.0f, p_ + chunk.begin, s_.seq_kv});
      for (int64_t r = 0; r < block.rows; ++r) {
        float* row = Row(r) + chunk.begin;
        if (s_.alibi > 0) AddAlibi(block, chunk, end, block.position + r, row);
        if (s_.cap > 0) {
          f_.loops.scale(1 / s_.cap, row, row, end);
          f_.loops.tanh(row, row, end);
          f_.loops.scale(s_.cap, row, row, end);
        }
        const int64_t position = block.position + r;
        std::fill_n(row, std::min(end, s_.First(chunk, position)), kNotSeen);
        const int64_t seen = Part::End(chunk, position);
        if (seen < end) std::fill_n(row + seen, end - seen, kNotSeen);
      }
    });
  }

  void AddAlibi(const Block& block, const Chunk& chunk, int64_t end, int64_t query,
                float* scores) const {
    const auto slope = static_cast<float>(ir::AlibiSlope(s_.first_head + block.h, s_.alibi));
    for (int64_t j = 0; j < end; ++j)
      scores[j] += slope * static_cast<float>(chunk.position + j - query);
  }

  // Factors of the dropped probabilities of a block, into kept_.
  void DrawKept(const Block& block) {
    ForEachSeen(block, [&](const Chunk& chunk, int64_t end) {
      for (int64_t r = 0; r < block.rows; ++r)
        dropout_.Row(block.b, s_.first_head + block.h, block.position + r, chunk.position,
                     kept_ + r * s_.seq_kv + chunk.begin, end);
    });
  }

  Frame& f_;
  const Part& s_;
  Dropout dropout_;
  const float *qkv_, *kv_;
  float *q_, *k_, *v_;  // of one head
  float *p_, *kept_;    // [block, seq_kv]
};

class PartForward : PartPass {
 public:
  struct Operands {
    const float *qkv, *kv, *before, *sums;  // null: this is the first step
    float *out, *lse;
  };
  PartForward(Frame& f, const Part& s, const Operands& o)
      : PartPass(f, s, o.qkv, o.kv),
        o_(o),
        context_(f.Scratch(std::min(kQueryBlock, s.seq) * s.hd)) {}

  void Run() {
    for (int64_t b = 0; b < s_.batch; ++b) {
      for (int64_t h = 0; h < s_.nh; ++h) {
        GatherHead(b, h);
        ForEachBlock(b, h, [&](const Block& block) { Merge(block); });
      }
    }
  }

 private:
  void Merge(const Block& block) {
    Scores(block);
    float tops[kQueryBlock], sums[kQueryBlock], shares[kQueryBlock];
    for (int64_t r = 0; r < block.rows; ++r) {
      float* row = Row(r);
      const int64_t at = s_.Sum(block.b, block.h, block.first + r);
      tops[r] = *std::max_element(row, row + s_.seq_kv);
      if (o_.sums != nullptr) tops[r] = std::max(tops[r], o_.sums[at]);
      shares[r] = o_.sums != nullptr ? std::exp(o_.sums[at] - tops[r]) : 0.0f;
      f_.loops.exp_row(row, tops[r], s_.seq_kv, s_.seq_kv);
      sums[r] = shares[r];
      for (int64_t j = 0; j < s_.seq_kv; ++j) sums[r] += row[j];
    }
    if (s_.drops) Drop(block);
    std::fill_n(context_, block.rows * s_.hd, 0.0f);
    ForEachSeen(block, [&](const Chunk& chunk, int64_t end) {
      Gemm(f_, {false, false, block.rows, s_.hd, end, 1.0f, p_ + chunk.begin, s_.seq_kv,
                v_ + chunk.begin * s_.hd, s_.hd, 1.0f, context_, s_.hd});
    });
    for (int64_t r = 0; r < block.rows; ++r) {
      const int64_t i = block.first + r, at = s_.Context(block.b, block.h, i);
      for (int64_t c = 0; c < s_.hd; ++c) {
        const float old = o_.before != nullptr ? shares[r] * o_.before[at + c] : 0.0f;
        o_.out[at + c] = (old + context_[r * s_.hd + c]) / sums[r];
      }
      o_.lse[s_.Sum(block.b, block.h, i)] = tops[r] + std::log(sums[r]);
    }
  }

  void Drop(const Block& block) {
    DrawKept(block);
    ForEachSeen(block, [&](const Chunk& chunk, int64_t end) {
      for (int64_t r = 0; r < block.rows; ++r) {
        float* row = Row(r) + chunk.begin;
        f_.loops.multiply(row, kept_ + r * s_.seq_kv + chunk.begin, 1.0f, row, end);
      }
    });
  }

  const Operands o_;
  float* context_;  // [block, hd]
};

class PartBackward : PartPass {
 public:
  struct Operands {
    const float *dctx, *qkv, *kv, *ctx, *lse;
    float *dkv, *dqkv;  // dqkv: queries' columns are added to
  };
  PartBackward(Frame& f, const Part& s, const Operands& o)
      : PartPass(f, s, o.qkv, o.kv),
        o_(o),
        dctx_(f.Scratch(s.seq * s.hd)),
        dq_(f.Scratch(s.seq * s.hd)),
        dk_(f.Scratch(s.seq_kv * s.hd)),
        dv_(f.Scratch(s.seq_kv * s.hd)),
        ds_(f.Scratch(std::min(kQueryBlock, s.seq) * s.seq_kv)) {}

  void Run() {
    for (int64_t b = 0; b < s_.batch; ++b)
      for (int64_t h = 0; h < s_.nh; ++h) Head(b, h);
  }

 private:
  void Head(int64_t b, int64_t h) {
    GatherHead(b, h);
    cpu::GatherHead(o_.dctx + s_.Context(b, h, 0), s_.batch * s_.nh * s_.hd, s_.seq, s_.hd, dctx_);
    std::fill_n(dq_, s_.seq * s_.hd, 0.0f);
    if (h % s_.per_kv == 0) {
      std::fill_n(dk_, s_.seq_kv * s_.hd, 0.0f);
      std::fill_n(dv_, s_.seq_kv * s_.hd, 0.0f);
    }
    ForEachBlock(b, h, [&](const Block& block) { BlockGrads(block); });
    for (int64_t i = 0; i < s_.seq; ++i) {
      float* to = o_.dqkv + s_.Query(b, h) + i * s_.batch * s_.qkv_width();
      f_.loops.add(to, dq_ + i * s_.hd, to, s_.hd);
    }
    if ((h + 1) % s_.per_kv != 0) return;
    float* keys = o_.dkv + s_.Key(b, h);
    ScatterHead(dk_, s_.seq_kv, s_.hd, keys, s_.batch * s_.kv_width());
    ScatterHead(dv_, s_.seq_kv, s_.hd, keys + s_.hd, s_.batch * s_.kv_width());
  }

  void BlockGrads(const Block& block) {
    Scores(block);
    if (s_.drops) DrawKept(block);
    ForEachSeen(block, [&](const Chunk& chunk, int64_t end) { ChunkGrads(block, chunk, end); });
  }

  // p_ holds scores; of each row the keys up to `end` of the chunk.
  void ChunkGrads(const Block& block, const Chunk& chunk, int64_t end) {
    const int64_t hd = s_.hd, ld = s_.seq_kv, at = block.first * hd, keys = chunk.begin * hd;
    float *p = p_ + chunk.begin, *ds = ds_ + chunk.begin;
    Gemm(f_, {false, true, block.rows, end, hd, 1.0f, dctx_ + at, hd, v_ + keys, hd, 0.0f, ds, ld});
    for (int64_t r = 0; r < block.rows; ++r) RowGrads(block, chunk, end, r);
    Gemm(f_,
         {false, false, block.rows, hd, end, s_.scale, ds, ld, k_ + keys, hd, 1.0f, dq_ + at, hd});
    Gemm(f_,
         {true, false, end, hd, block.rows, s_.scale, ds, ld, q_ + at, hd, 1.0f, dk_ + keys, hd});
    Gemm(f_, {true, false, end, hd, block.rows, 1.0f, p, ld, dctx_ + at, hd, 1.0f, dv_ + keys, hd});
  }

  // Scores and products with v to dropped probabilities and gradients of scores.
  void RowGrads(const Block& block, const Chunk& chunk, int64_t end, int64_t r) {
    const int64_t i = block.first + r;
    float *p = Row(r) + chunk.begin, *ds = ds_ + r * s_.seq_kv + chunk.begin;
    const float* kept = s_.drops ? kept_ + r * s_.seq_kv + chunk.begin : nullptr;
    const float lse = o_.lse[s_.Sum(block.b, block.h, i)];
    const float mean =
        f_.loops.dot(dctx_ + i * s_.hd, o_.ctx + s_.Context(block.b, block.h, i), s_.hd);
    for (int64_t j = 0; j < end; ++j) {
      const float score = p[j], slope = s_.cap > 0 ? 1 - score * score / (s_.cap * s_.cap) : 1.0f;
      const float probability = score > kNotSeen ? std::exp(score - lse) : 0.0f;
      const float factor = kept != nullptr ? kept[j] : 1.0f;
      ds[j] = probability > 0 ? slope * probability * (factor * ds[j] - mean) : 0.0f;
      p[j] = probability * factor;
    }
  }

  const Operands o_;
  float *dctx_, *dq_, *dk_, *dv_, *ds_;
};

const char* ElementAt(const Operand& x, int64_t element) {
  return static_cast<const char*>(x.data) + element * ir::DtypeBytes(x.dtype);
}
char* ElementOf(const Operand& x, int64_t element) {
  return static_cast<char*>(x.data) + element * ir::DtypeBytes(x.dtype);
}
void Copy(const Operand& from, int64_t at, const Operand& to, int64_t where, int64_t n) {
  std::memcpy(ElementOf(to, where), ElementAt(from, at),
              static_cast<size_t>(n * ir::DtypeBytes(from.dtype)));
}

}  // namespace

void PartAttention(Frame& f) {
  const Part s = MakePart(f);
  const bool acc = f.Flag(Attr::kAcc);
  PartForward::Operands o{};
  o.qkv = f.In(0, s.rows() * s.qkv_width());
  o.kv = f.In(1, s.seq_kv * s.batch * s.kv_width());
  if (acc) o.before = f.In(2, s.rows() * s.nh * s.hd);
  if (acc) o.sums = f.In(3, s.rows() * s.nh);
  o.out = f.Out(0, s.rows() * s.nh * s.hd);
  o.lse = f.Out(1, s.rows() * s.nh);
  PartForward(f, s, o).Run();
}

void PartAttentionBackward(Frame& f) {
  const Part s = MakePart(f);
  const int64_t context = s.rows() * s.nh * s.hd, qkv = s.rows() * s.qkv_width();
  const int64_t keys = s.seq_kv * s.batch * s.kv_width();
  PartBackward::Operands o{};
  o.dctx = f.In(0, context);
  o.qkv = f.In(1, qkv);
  o.kv = f.In(2, keys);
  o.ctx = f.In(3, context);
  o.lse = f.In(4, s.rows() * s.nh);
  o.dkv = f.Out(0, keys);
  o.dqkv = f.Flag(Attr::kAcc) ? f.InOut(1, 5, qkv) : f.Out(1, qkv);
  if (!f.Flag(Attr::kAcc)) std::fill_n(o.dqkv, qkv, 0.0f);
  PartBackward(f, s, o).Run();
}

void KeysAndValues(Frame& f) {
  const int64_t rows = f.Size(Attr::kRows), nh = f.Size(Attr::kNh, 1), kv = f.Size(Attr::kKv, 1);
  const int64_t hd = f.Size(Attr::kHd, 1), pair = 2 * hd, group = (nh / kv + 2) * hd;
  const bool inverse = f.Flag(Attr::kInverse);
  if (nh % kv != 0) f.Fail("query heads are no multiple of the key heads");
  const Operand& wide = f.RawIn(0, rows * kv * group);
  const Operand& out = f.RawOut(0, rows * kv * (inverse ? group : pair));
  const Operand& narrow = inverse ? f.RawIn(1, rows * kv * pair) : out;
  if (wide.dtype != out.dtype || narrow.dtype != out.dtype) f.Fail("operands differ in type");
  if (inverse && wide.data != out.data) Copy(wide, 0, out, 0, wide.n);
  for (int64_t r = 0; r < rows * kv; ++r) {
    const int64_t at = (r + 1) * group - pair;
    inverse ? Copy(narrow, r * pair, out, at, pair) : Copy(wide, at, out, r * pair, pair);
  }
}

void Regroup(Frame& f) {
  const int64_t rows = f.Size(Attr::kRows, 1), parts = f.Size(Attr::kParts, 1);
  const int64_t h = f.Size(Attr::kH, 1);
  const bool zigzag = f.Flag(Attr::kZigzag), to_apart = zigzag == f.Flag(Attr::kInverse);
  const Operand &x = f.RawIn(0, rows * parts * h), &y = f.RawOut(0, rows * parts * h);
  if (x.dtype != y.dtype) f.Fail("input and output differ in type");
  if (zigzag && rows % 2 != 0) f.Fail("an odd number of rows in zigzag order");
  const int64_t half = rows / 2, run = zigzag ? half : 1;  // rows that stay together
  for (int64_t part = 0; part < parts; ++part) {
    for (int64_t r = 0; r < rows; r += run) {
      const int64_t apart = part * rows + r;
      const int64_t together = !zigzag    ? r * parts + part
                               : r < half ? part * half
                                          : (2 * parts - 1 - part) * half;
      to_apart ? Copy(x, together * h, y, apart * h, run * h)
               : Copy(x, apart * h, y, together * h, run * h);
    }
  }
}

}  // namespace orrery::cpu
