// SPDX-License-Identifier: Apache-2.0
// Reference attention, self (grouped queries, causal, relative bias) and cross, and rotary positions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "model/plan/ir/positions.h"
#include "tests/interpreter/dropout.h"

namespace orrery::interpreter {
namespace {

using ir::Attr;

// One kind of attention op: where head h of sample b stands in each operand. Offsets and strides in elements.
struct Shape {
  int64_t batch, seq, seq_kv, nh, hd, buckets;
  bool causal, flash;
  double scale;
  int64_t q_width, kv_width;  // of one row
  int64_t queries_per_kv;     // query heads that share one key head
  bool cross;
  int64_t first_head;  // global index of head 0
  bool drops;
  int64_t window;  // keys that a query sees, 0: all
  double cap;
  int64_t alibi;  // heads of the model, 0: no linear biases

  int64_t QueryOffset(int64_t h) const {
    return cross ? h * hd
                 : (h / queries_per_kv) * (queries_per_kv + 2) * hd + (h % queries_per_kv) * hd;
  }
  int64_t KeyOffset(int64_t h) const {
    return cross ? 2 * h * hd
                 : (h / queries_per_kv) * (queries_per_kv + 2) * hd + queries_per_kv * hd;
  }
  int64_t Keys(int64_t i) const { return causal ? std::min(i + 1, seq_kv) : seq_kv; }
  int64_t FirstKey(int64_t i) const {
    return window > 0 ? std::max<int64_t>(0, i + 1 - window) : 0;
  }
  int64_t Probabilities() const { return batch * nh * seq * seq_kv; }
  int64_t SavedElements() const { return flash ? seq * batch * nh : Probabilities(); }
  // Position of a row of probabilities.
  int64_t Row(int64_t b, int64_t h, int64_t i) const { return ((b * nh + h) * seq + i) * seq_kv; }
};

Shape MakeShape(const KernelArgs& a, bool cross) {
  Shape s{};
  s.cross = cross;
  s.batch = a.Int(Attr::kBatch);
  s.seq = a.Int(Attr::kSeq);
  s.seq_kv = cross ? a.Int(Attr::kSeqKv) : s.seq;
  s.nh = a.Int(Attr::kNh);
  s.hd = a.Int(Attr::kHd);
  s.causal = !cross && a.Flag(Attr::kCausal);
  s.flash = a.Flag(Attr::kFlash);
  s.buckets = cross ? 0 : a.Int(Attr::kBuckets);
  s.scale =
      a.Get(Attr::kScale) != 0 ? a.Get(Attr::kScale) : 1 / std::sqrt(static_cast<double>(s.hd));
  // Ranks that have changed positions for heads hold parts of the tensor rank's heads.
  s.first_head = (a.Coord(Attr::kAxis) * a.Int(Attr::kParts) + a.Coord(Attr::kCp)) * s.nh;
  s.drops = a.Get(Attr::kRate) > 0;
  s.window = cross ? 0 : a.Int(Attr::kWindow);
  s.cap = cross ? 0 : a.Get(Attr::kCap);
  s.alibi = cross ? 0 : a.Int(Attr::kAlibi);
  const int64_t kv = cross ? s.nh : a.Int(Attr::kKv);
  if (kv < 1 || s.nh % kv != 0)
    throw PlanFault("attention: query heads are no multiple of the key heads");
  s.queries_per_kv = s.nh / kv;
  s.q_width = cross ? s.nh * s.hd : kv * (s.queries_per_kv + 2) * s.hd;
  s.kv_width = cross ? 2 * s.nh * s.hd : s.q_width;
  return s;
}

double Dot(const double* x, const double* y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

void Axpy(double factor, const double* x, double* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

// Scores of query row i of head h against its visible keys.
void Scores(const Shape& s, const double* q_row, const double* keys, const double* bias, int64_t h,
            int64_t i, std::vector<double>& score) {
  for (int64_t j = 0; j < s.Keys(i); ++j) {
    score[j] = s.scale * Dot(q_row, keys + j * s.batch * s.kv_width, s.hd);
    if (bias != nullptr) score[j] += bias[RelativeBucket(i, j, s.buckets, !s.causal) * s.nh + h];
    if (s.alibi > 0) score[j] += AlibiSlope(s.first_head + h, s.alibi) * static_cast<double>(j - i);
    if (s.cap > 0) score[j] = s.cap * std::tanh(score[j] / s.cap);
    if (j < s.FirstKey(i)) score[j] = -std::numeric_limits<double>::infinity();
  }
}

// What the forward pass leaves for the backward pass. mask and dropped: materialised attention with dropout only.
struct Saved {
  double* softmax;  // probabilities, or with flash the log of each row's sum
  double *mask = nullptr, *dropped = nullptr;
};

// Softmax of one row of scores in place; returns the log of the sum.
double Softmax(std::vector<double>& p, int64_t n) {
  const double top = *std::max_element(p.begin(), p.begin() + n);
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += p[j] = std::exp(p[j] - top);
  for (int64_t j = 0; j < n; ++j) p[j] /= sum;
  return top + std::log(sum);
}

void Forward(const Shape& s, const Dropout& dropout, const double* q, const double* kv,
             const double* bias, double* ctx, const Saved& saved) {
  std::vector<double> p(s.seq_kv);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.nh; ++h) {
      const double* keys = kv + b * s.kv_width + s.KeyOffset(h);
      for (int64_t i = 0; i < s.seq; ++i) {
        const int64_t row = i * s.batch + b, at = s.Row(b, h, i);
        std::fill(p.begin(), p.end(), 0.0);
        Scores(s, q + row * s.q_width + s.QueryOffset(h), keys, bias, h, i, p);
        const double log_sum = Softmax(p, s.Keys(i));
        if (s.flash)
          saved.softmax[row * s.nh + h] = log_sum;
        else
          std::copy(p.begin(), p.end(), saved.softmax + at);
        for (int64_t j = 0; s.drops && j < s.seq_kv; ++j) {
          const double factor = dropout.Factor(b, s.first_head + h, i, j);
          p[j] *= factor;
          if (saved.mask != nullptr) saved.mask[at + j] = factor != 0 ? 1 : 0;
        }
        if (saved.dropped != nullptr) std::copy(p.begin(), p.end(), saved.dropped + at);
        double* out = ctx + (row * s.nh + h) * s.hd;
        std::fill(out, out + s.hd, 0.0);
        for (int64_t j = s.FirstKey(i); j < s.Keys(i); ++j)
          Axpy(p[j], keys + j * s.batch * s.kv_width + s.hd, out, s.hd);
      }
    }
  }
}

// Probabilities of one query row, from what the forward pass saved.
void SavedRow(const Shape& s, const double* q_row, const double* keys, const double* bias,
              const double* saved, int64_t b, int64_t h, int64_t i, std::vector<double>& p) {
  if (!s.flash) {
    const double* kept = saved + s.Row(b, h, i);
    std::copy(kept, kept + s.seq_kv, p.begin());
    return;
  }
  Scores(s, q_row, keys, bias, h, i, p);
  const double lse = saved[(i * s.batch + b) * s.nh + h];
  for (int64_t j = 0; j < s.Keys(i); ++j) p[j] = std::exp(p[j] - lse);
}

// What dropout made of the probabilities of one row: kept[j] is their factor, dropped[j] the product.
void DropRow(const Shape& s, const Dropout& dropout, const Saved& saved, double rate, int64_t b,
             int64_t h, int64_t i, const std::vector<double>& p, std::vector<double>& kept,
             std::vector<double>& dropped) {
  for (int64_t j = 0; j < s.seq_kv; ++j) {
    if (!s.drops)
      kept[j] = 1;
    else if (saved.mask != nullptr)
      kept[j] = saved.mask[s.Row(b, h, i) + j] / (1 - rate);
    else
      kept[j] = dropout.Factor(b, s.first_head + h, i, j);
    dropped[j] = saved.dropped != nullptr ? saved.dropped[s.Row(b, h, i) + j] : p[j] * kept[j];
  }
}

struct Gradients {
  double *q, *kv, *bias;  // q and kv may be one buffer; zero on entry. bias accumulates
};

void Backward(const Shape& s, const KernelArgs& a, const double* dctx, const double* q,
              const double* kv, const double* ctx, const Saved& saved, const double* bias,
              const Gradients& d) {
  const Dropout dropout(a);
  std::vector<double> p(s.seq_kv), kept(s.seq_kv), dropped(s.seq_kv), score(s.seq_kv);
  const int64_t step = s.batch * s.kv_width;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.nh; ++h) {
      const int64_t key_at = b * s.kv_width + s.KeyOffset(h);
      for (int64_t i = 0; i < s.seq; ++i) {
        const int64_t row = i * s.batch + b, query_at = row * s.q_width + s.QueryOffset(h);
        std::fill(p.begin(), p.end(), 0.0);
        SavedRow(s, q + query_at, kv + key_at, bias, saved.softmax, b, h, i, p);
        DropRow(s, dropout, saved, a.Get(Attr::kRate), b, h, i, p, kept, dropped);
        const double* dout = dctx + (row * s.nh + h) * s.hd;
        const double mean = Dot(dout, ctx + (row * s.nh + h) * s.hd, s.hd);
        if (s.cap > 0) Scores(s, q + query_at, kv + key_at, bias, h, i, score);
        for (int64_t j = s.FirstKey(i); j < s.Keys(i); ++j) {
          const double* key = kv + key_at + j * step;
          const double slope = s.cap > 0 ? 1 - score[j] * score[j] / (s.cap * s.cap) : 1;
          const double dscore = slope * p[j] * (kept[j] * Dot(dout, key + s.hd, s.hd) - mean);
          Axpy(s.scale * dscore, key, d.q + query_at, s.hd);
          Axpy(s.scale * dscore, q + query_at, d.kv + key_at + j * step, s.hd);
          Axpy(dropped[j], dout, d.kv + key_at + j * step + s.hd, s.hd);
          if (d.bias != nullptr)
            d.bias[RelativeBucket(i, j, s.buckets, !s.causal) * s.nh + h] += dscore;
        }
      }
    }
  }
}

// Operands `first`, `first + 1`, ... of the forward outputs or of the backward inputs.
Saved OpenSaved(const Shape& s, const KernelArgs& a, size_t first, bool forward) {
  const auto open = [&](size_t i, int64_t n) { return forward ? a.Out(i, n) : a.In(i, n); };
  Saved saved{open(first, s.SavedElements())};
  if (!s.drops || s.flash) return saved;
  saved.mask = open(first + 1, s.Probabilities());
  saved.dropped = open(first + 2, s.Probabilities());
  return saved;
}

}  // namespace

double AlibiSlope(int64_t head, int64_t heads) {
  const double power = std::exp2(std::floor(std::log2(static_cast<double>(heads))));
  std::vector<double> slopes;
  for (double base = std::pow(2, -8 / power), s = base; slopes.size() < power; s *= base)
    slopes.push_back(s);
  const double extra = std::pow(2, -4 / power);
  for (double s = extra; static_cast<int64_t>(slopes.size()) < heads; s *= extra * extra)
    slopes.push_back(s);
  return slopes.at(static_cast<std::size_t>(head));
}

// T5 (Raffel et al. 2020): exact buckets for near keys, logarithmic ones up to distance 128.
int64_t RelativeBucket(int64_t query, int64_t key, int64_t buckets, bool bidirectional) {
  int64_t first = 0, distance = query - key;
  if (bidirectional) {
    buckets /= 2;
    if (distance < 0) first = buckets;
    distance = std::abs(distance);
  }
  distance = std::max<int64_t>(distance, 0);
  const int64_t exact = buckets / 2;
  if (distance < exact || exact == 0) return first + std::min(distance, buckets - 1);
  const double beyond = std::log(static_cast<double>(distance) / exact) / std::log(128.0 / exact);
  return first + std::min(exact + static_cast<int64_t>(beyond * (buckets - exact)), buckets - 1);
}

void Attention(const KernelArgs& a) {
  const Shape s = MakeShape(a, false);
  const int64_t rows = s.seq * s.batch;
  const double* qkv = a.In(0, rows * s.q_width);
  const double* bias = s.buckets > 0 ? a.In(1, s.buckets * s.nh) : nullptr;
  Forward(s, Dropout(a), qkv, qkv, bias, a.Out(0, rows * s.nh * s.hd), OpenSaved(s, a, 1, true));
}

void AttentionBackward(const KernelArgs& a) {
  const Shape s = MakeShape(a, false);
  const int64_t rows = s.seq * s.batch, context = rows * s.nh * s.hd;
  const Saved saved = OpenSaved(s, a, 3, false);
  const double *qkv = a.In(1, rows * s.q_width), *bias = nullptr;
  Gradients d{a.Out(0, rows * s.q_width), a.Out(0, rows * s.q_width), nullptr};
  if (s.buckets > 0) {
    const size_t at = saved.mask != nullptr ? 6 : 4;
    bias = a.In(at, s.buckets * s.nh);
    d.bias = a.Out(1, s.buckets * s.nh);
    if (a.In(at + 1, s.buckets * s.nh) != d.bias)
      throw PlanFault("attn_bwd: the bias gradient must accumulate in place");
  }
  std::fill(d.q, d.q + rows * s.q_width, 0.0);
  Backward(s, a, a.In(0, context), qkv, qkv, a.In(2, context), saved, bias, d);
}

void CrossAttention(const KernelArgs& a) {
  const Shape s = MakeShape(a, true);
  const int64_t context = s.seq * s.batch * s.nh * s.hd;
  Forward(s, Dropout(a), a.In(0, context), a.In(1, s.seq_kv * s.batch * s.kv_width), nullptr,
          a.Out(0, context), OpenSaved(s, a, 1, true));
}

void CrossAttentionBackward(const KernelArgs& a) {
  const Shape s = MakeShape(a, true);
  const int64_t context = s.seq * s.batch * s.nh * s.hd, kv = s.seq_kv * s.batch * s.kv_width;
  const Gradients d{a.Out(0, context), a.Out(1, kv), nullptr};
  std::fill(d.q, d.q + context, 0.0);
  std::fill(d.kv, d.kv + kv, 0.0);
  Backward(s, a, a.In(0, context), a.In(1, context), a.In(2, kv), a.In(3, context),
           OpenSaved(s, a, 4, false), nullptr, d);
}

// Su et al. 2021, in the half-split pairing (i, i + turn/2); the inverse turns back.
namespace {

// Where element i of a packed tensor stands apart. Packed: [row][kv group][its queries, its key, its value][hd]; apart:
// queries [row][head][hd], keys and values [row][kv group][hd].
struct Apart {
  size_t part = 0;
  int64_t at = 0;
};
Apart PlaceOf(const KernelArgs& a, int64_t i) {
  const int64_t hd = a.Int(Attr::kHd), queries = a.Int(Attr::kNh) / a.Int(Attr::kKv);
  const int64_t group = i / hd / (queries + 2), head = i / hd % (queries + 2);
  if (head < queries) return {0, (group * queries + head) * hd + i % hd};
  return {head == queries ? size_t{1} : size_t{2}, group * hd + i % hd};
}
// Elements of queries (0), keys (1) and values (2) apart.
int64_t SizeOf(const KernelArgs& a, size_t part) {
  return a.Int(Attr::kRows) * a.Int(Attr::kHd) * a.Int(part == 0 ? Attr::kNh : Attr::kKv);
}

// Of pair i, as the papers write it: a wavelength is long, short or between (llama3), or the pair lies on the ramp (yarn).
double FrequencyOf(const KernelArgs& a, int64_t i, int64_t turn) {
  const double plain = std::pow(a.Get(Attr::kBase), -2.0 * double(i) / double(turn));
  const double slow = plain / a.Get(Attr::kStretch);
  const double from = a.Get(Attr::kRampFrom), to = a.Get(Attr::kRampTo);
  if (const double original = a.Get(Attr::kOriginal); original > 0) {
    const double wavelength = 2 * std::acos(-1.0) / plain;
    if (wavelength > original / from) return slow;
    if (wavelength < original / to) return plain;
    const double smooth = (original / wavelength - from) / (to - from);
    return (1 - smooth) * slow + smooth * plain;
  }
  if (to == from || double(i) >= to) return slow;
  if (double(i) <= from) return plain;
  const double ramp = (double(i) - from) / (to - from);
  return slow * ramp + plain * (1 - ramp);
}

}  // namespace

void Rope(const KernelArgs& a) {
  const int64_t rows = a.Int(Attr::kRows), batch = a.Int(Attr::kBatch), nh = a.Int(Attr::kNh);
  const int64_t kv = a.Int(Attr::kKv), hd = a.Int(Attr::kHd);
  const int64_t turn = a.Int(Attr::kTurn) > 0 ? a.Int(Attr::kTurn) : hd;
  if (kv < 1 || nh % kv != 0 || turn % 2 != 0 || turn > hd)
    throw PlanFault("rope: heads do not divide");
  const int64_t per_group = nh / kv + 2, width = kv * per_group * hd;
  const bool splits = a.out.size() == 3;
  std::vector<double> turned(splits ? static_cast<size_t>(rows * width) : 0);
  double* y = splits ? turned.data() : a.Out(0, rows * width);
  if (a.in.size() == 3) {
    const double* x[] = {a.In(0, SizeOf(a, 0)), a.In(1, SizeOf(a, 1)), a.In(2, SizeOf(a, 2))};
    for (int64_t i = 0; i < rows * width; ++i) y[i] = x[PlaceOf(a, i).part][PlaceOf(a, i).at];
  } else if (const double* x = a.In(0, rows * width); x != y) {
    std::copy(x, x + rows * width, y);
  }
  const ir::Positions positions = ir::PositionsOf(a.op.attrs, a.coords);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < turn / 2; ++i) {
      const double position = static_cast<double>(positions.At(r / batch));
      double angle = position * FrequencyOf(a, i, turn);
      if (a.Flag(Attr::kInverse)) angle = -angle;
      const double c = a.Get(Attr::kMagnify) * std::cos(angle),
                   s = a.Get(Attr::kMagnify) * std::sin(angle);
      for (int64_t head = 0; head < kv * per_group; ++head) {
        if (head % per_group == per_group - 1) continue;  // the value head
        double* at = y + r * width + head * hd + i;
        const double low = at[0], high = at[turn / 2];
        at[0] = low * c - high * s;
        at[turn / 2] = high * c + low * s;
      }
    }
  }
  if (!splits) return;
  double* to[] = {a.Out(0, SizeOf(a, 0)), a.Out(1, SizeOf(a, 1)), a.Out(2, SizeOf(a, 2))};
  for (int64_t i = 0; i < rows * width; ++i) to[PlaceOf(a, i).part][PlaceOf(a, i).at] = y[i];
}

}  // namespace orrery::interpreter
