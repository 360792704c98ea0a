// SPDX-License-Identifier: Apache-2.0
// Losses: cross entropy over a vocabulary that may be sharded, and mean squared error. Losses are summed in double.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/device/cpu/bodies.h"

namespace orrery::cpu {
namespace {

using ir::Attr;

// The local columns that are real, [0, count), and the global index of the first.
struct Columns {
  int64_t rows, width, first, count;
  int64_t n() const { return rows * width; }
};

Columns LocalColumns(const Frame& f) {
  const int64_t vl = f.Size(Attr::kVl), first = f.Coord(Attr::kAxis) * vl;
  return {f.Size(Attr::kRows), vl, first, std::clamp<int64_t>(f.Size(Attr::kV) - first, 0, vl)};
}

// Local column of a row's label, -1 where another rank has it.
int64_t TargetColumn(const Frame& f, const Columns& cols, int32_t label) {
  if (label < 0) f.Fail(fmt::format("label is {}", label));
  const int64_t local = label - cols.first;
  return local >= 0 && local < cols.count ? local : -1;
}

double LossScaleInput(Frame& f, size_t index) { return f.Inputs() > index ? f.Scalar(index) : 1.0; }

}  // namespace

void CrossEntropyMax(Frame& f) {
  const Columns cols = LocalColumns(f);
  const Reader x = f.InPieces(0, cols.n(), cols.width);
  float* m = f.Out(0, cols.rows);
  for (int64_t r = 0; r < cols.rows; ++r)
    m[r] = f.loops.max_row(x.At(r * cols.width, cols.width), cols.count);
}

void CrossEntropySum(Frame& f) {
  const Columns cols = LocalColumns(f);
  const Reader x = f.InPieces(0, cols.n(), cols.width);
  const float* m = f.In(1, cols.rows);
  const int32_t* labels = f.Indices(2, cols.rows);
  float* s = f.Out(0, 2 * cols.rows);
  for (int64_t r = 0; r < cols.rows; ++r) {
    const float* row = x.At(r * cols.width, cols.width);
    const int64_t target = TargetColumn(f, cols, labels[r]);
    s[2 * r] = f.loops.sum_exp_row(row, m[r], cols.count);
    s[2 * r + 1] = target >= 0 ? row[target] - m[r] : 0.0f;
  }
}

void CrossEntropyGrad(Frame& f) {
  const Columns cols = LocalColumns(f);
  const Reader x = f.InPieces(0, cols.n(), cols.width);
  const float *m = f.In(1, cols.rows), *s = f.In(2, 2 * cols.rows);
  const int32_t* labels = f.Indices(3, cols.rows);
  const double scale = f.Get(Attr::kScale), factor = scale * LossScaleInput(f, 5),
               old = f.Scalar(4);
  const Writer dx = f.OutPieces(0, cols.n(), cols.width);
  float* loss = f.Out(1, 1);
  double sum = 0;
  for (int64_t r = 0; r < cols.rows; ++r) {
    const int64_t at = r * cols.width, target = TargetColumn(f, cols, labels[r]);
    sum += std::log(static_cast<double>(s[2 * r])) - static_cast<double>(s[2 * r + 1]);
    float* row = dx.At(at);
    f.loops.xent_grad_row(x.At(at, cols.width), m[r], static_cast<float>(factor / s[2 * r]), row,
                          cols.count);
    std::fill(row + cols.count, row + cols.width, 0.0f);
    if (target >= 0) row[target] -= static_cast<float>(factor);
    dx.Done(at, cols.width);
  }
  loss[0] = static_cast<float>(old + scale * sum);
}

void MeanSquaredError(Frame& f) {
  const int64_t n = f.Size(Attr::kElements);
  const float *y = f.In(0, n), *target = f.In(1, n);
  const double scale = f.Get(Attr::kScale), loss_scale = LossScaleInput(f, 3), old = f.Scalar(2);
  float *dy = f.Out(0, n), *loss = f.Out(1, 1);
  double sum = 0;
  f.loops.mse(y, target, static_cast<float>(2 * scale * loss_scale), dy, n, &sum);
  loss[0] = static_cast<float>(old + scale * sum);
}

}  // namespace orrery::cpu
