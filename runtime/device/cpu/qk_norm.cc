// SPDX-License-Identifier: Apache-2.0
// RMS norm of queries and keys inside qkv rows (Henry et al. 2020): of each head, or of all heads as one.
//
// The heads of a row are copied into one stretch, queries first; a norm is then a row of it.
#include <algorithm>

#include "runtime/device/cpu/bodies.h"

namespace orrery::cpu {
namespace {

using ir::Attr;

struct QkShape {
  int64_t rows, nh, kv, hd;
  bool whole;

  int64_t Width() const { return (nh + 2 * kv) * hd; }  // of a row of qkv
  int64_t Stretch() const { return (nh + kv) * hd; }
  int64_t Norms() const { return whole ? 2 : nh + kv; }
  int64_t Gains() const { return whole ? Stretch() : 2 * hd; }
  // Norm n of a row: first element and width in the stretch, first gain.
  int64_t First(int64_t n) const { return whole ? n * nh * hd : n * hd; }
  int64_t NormWidth(int64_t n) const { return !whole ? hd : (n == 0 ? nh : kv) * hd; }
  int64_t Gain(int64_t n) const { return whole ? First(n) : n < nh ? 0 : hd; }
};

QkShape ShapeOf(const Frame& f) {
  const QkShape s{f.Size(Attr::kRows), f.Size(Attr::kNh, 1), f.Size(Attr::kKv, 1),
                  f.Size(Attr::kHd, 1), f.Flag(Attr::kWhole)};
  if (s.nh % s.kv != 0) f.Fail("query heads are no multiple of the key heads");
  return s;
}

// Calls copy(place in qkv, place in the stretch, elements) for the queries and the key of each group.
template <typename F>
void ForEachPart(const QkShape& s, F copy) {
  const int64_t queries = s.nh / s.kv;
  for (int64_t g = 0; g < s.kv; ++g) {
    const int64_t at = g * (queries + 2) * s.hd;
    copy(at, g * queries * s.hd, queries * s.hd);
    copy(at + queries * s.hd, (s.nh + g) * s.hd, s.hd);
  }
}
void Gather(const QkShape& s, const float* row, float* stretch) {
  ForEachPart(s,
              [&](int64_t at, int64_t to, int64_t n) { std::copy_n(row + at, n, stretch + to); });
}
void Scatter(const QkShape& s, const float* stretch, float* row) {
  ForEachPart(s,
              [&](int64_t at, int64_t to, int64_t n) { std::copy_n(stretch + to, n, row + at); });
}

}  // namespace

void QkNorm(Frame& f) {
  const QkShape s = ShapeOf(f);
  const float *x = f.In(0, s.rows * s.Width()), *gamma = f.In(1, s.Gains());
  float *y = f.Out(0, s.rows * s.Width()), *raw = f.Out(1, s.rows * s.Stretch());
  float *stats = f.Out(2, s.rows * s.Norms()), *normed = f.Scratch(s.Stretch());
  const auto epsilon = static_cast<float>(f.Get(Attr::kEps));
  if (x != y) std::copy_n(x, s.rows * s.Width(), y);
  for (int64_t r = 0; r < s.rows; ++r) {
    float* kept = raw + r * s.Stretch();
    Gather(s, y + r * s.Width(), kept);
    for (int64_t n = 0; n < s.Norms(); ++n) {
      f.loops.rms_row(kept + s.First(n), gamma + s.Gain(n), normed + s.First(n),
                      stats + r * s.Norms() + n, s.NormWidth(n), epsilon);
    }
    Scatter(s, normed, y + r * s.Width());
  }
}

void QkNormBackward(Frame& f) {
  const QkShape s = ShapeOf(f);
  const float *dy = f.In(0, s.rows * s.Width()), *raw = f.In(1, s.rows * s.Stretch()),
              *stats = f.In(2, s.rows * s.Norms()), *gamma = f.In(3, s.Gains());
  float *dx = f.Out(0, s.rows * s.Width()), *grad = f.Scratch(s.Stretch()),
        *out = f.Scratch(s.Stretch());
  if (dx != dy) std::copy_n(dy, s.rows * s.Width(), dx);  // values pass as they are
  for (int64_t r = 0; r < s.rows; ++r) {
    Gather(s, dx + r * s.Width(), grad);
    for (int64_t n = 0; n < s.Norms(); ++n) {
      f.loops.rms_bwd_row(grad + s.First(n), raw + r * s.Stretch() + s.First(n),
                          stats + r * s.Norms() + n, gamma + s.Gain(n), nullptr, out + s.First(n),
                          s.NormWidth(n));
    }
    Scatter(s, out, dx + r * s.Width());
  }
}

void QkNormWeightGrad(Frame& f) {
  const QkShape s = ShapeOf(f);
  float *dgamma = f.InOut(0, 0, s.Gains()), *grad = f.Scratch(s.Stretch());
  const float *dy = f.In(1, s.rows * s.Width()), *raw = f.In(2, s.rows * s.Stretch()),
              *stats = f.In(3, s.rows * s.Norms());
  for (int64_t r = 0; r < s.rows; ++r) {
    Gather(s, dy + r * s.Width(), grad);
    for (int64_t n = 0; n < s.Norms(); ++n) {
      f.loops.rms_wgrad(grad + s.First(n), raw + r * s.Stretch() + s.First(n),
                        stats + r * s.Norms() + n, dgamma + s.Gain(n), 1, s.NormWidth(n));
    }
  }
}

}  // namespace orrery::cpu
