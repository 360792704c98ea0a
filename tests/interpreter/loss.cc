// SPDX-License-Identifier: Apache-2.0
// Reference losses: cross entropy over a vocabulary that may be sharded, and mean squared error.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/interpreter/kernels.h"

namespace orrery::interpreter {
namespace {

using ir::Attr;

// The local columns that are real, [0, count), and the global index of the first.
struct Columns {
  int64_t rows, width, first, count;
};

Columns LocalColumns(const KernelArgs& a) {
  Columns c{a.Int(Attr::kRows), a.Int(Attr::kVl), a.Coord(Attr::kAxis) * a.Int(Attr::kVl), 0};
  c.count = std::max<int64_t>(0, std::min(c.width, a.Int(Attr::kV) - c.first));
  return c;
}

double ScaleInput(const KernelArgs& a, size_t index) {
  return a.in.size() > index ? a.In(index, a.in[index].n)[0] : 1;
}

}  // namespace

void CrossEntropyMax(const KernelArgs& a) {
  const Columns cols = LocalColumns(a);
  const double* x = a.In(0, cols.rows * cols.width);
  double* m = a.Out(0, cols.rows);
  for (int64_t r = 0; r < cols.rows; ++r) {
    m[r] = -std::numeric_limits<double>::infinity();
    for (int64_t c = 0; c < cols.count; ++c) {
      const double value = x[r * cols.width + c];
      if (!(value <= m[r])) m[r] = value;  // NaN wins
    }
  }
}

void CrossEntropySum(const KernelArgs& a) {
  const Columns cols = LocalColumns(a);
  const double *x = a.In(0, cols.rows * cols.width), *m = a.In(1, cols.rows),
               *labels = a.In(2, cols.rows);
  double* s = a.Out(0, 2 * cols.rows);
  for (int64_t r = 0; r < cols.rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < cols.count; ++c) sum += std::exp(x[r * cols.width + c] - m[r]);
    if (!(labels[r] >= 0)) throw PlanFault("xent_sum: label was never written");
    const int64_t local = static_cast<int64_t>(labels[r]) - cols.first;
    s[2 * r] = sum;
    s[2 * r + 1] = local >= 0 && local < cols.count ? x[r * cols.width + local] - m[r] : 0;
  }
}

void CrossEntropyGrad(const KernelArgs& a) {
  const Columns cols = LocalColumns(a);
  const double *x = a.In(0, cols.rows * cols.width), *m = a.In(1, cols.rows),
               *s = a.In(2, 2 * cols.rows);
  const double *labels = a.In(3, cols.rows), *old = a.In(4, 1);
  const double scale = a.Get(Attr::kScale), loss_scale = ScaleInput(a, 5);
  double *dx = a.Out(0, cols.rows * cols.width), *loss = a.Out(1, 1);
  double sum = 0;
  for (int64_t r = 0; r < cols.rows; ++r) {
    sum += std::log(s[2 * r]) - s[2 * r + 1];
    if (!(labels[r] >= 0)) throw PlanFault("xent_grad: label was never written");
    const int64_t target = static_cast<int64_t>(labels[r]) - cols.first;
    for (int64_t c = 0; c < cols.width; ++c) {
      const int64_t i = r * cols.width + c;
      const double softmax = c < cols.count ? std::exp(x[i] - m[r]) / s[2 * r] : 0;
      dx[i] = scale * loss_scale * (softmax - (c == target ? 1 : 0));
    }
  }
  loss[0] = old[0] + scale * sum;
}

void MeanSquaredError(const KernelArgs& a) {
  const int64_t n = a.Int(Attr::kElements);
  const double *y = a.In(0, n), *target = a.In(1, n), *old = a.In(2, 1);
  const double scale = a.Get(Attr::kScale), loss_scale = ScaleInput(a, 3);
  double *dy = a.Out(0, n), *loss = a.Out(1, 1);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double error = y[i] - target[i];
    sum += error * error;
    dy[i] = 2 * scale * loss_scale * error;
  }
  loss[0] = old[0] + scale * sum;
}

}  // namespace orrery::interpreter
