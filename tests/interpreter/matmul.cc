// SPDX-License-Identifier: Apache-2.0
// Reference matrix product: C[M,N] = op(A) op(B) (+ bias[N]) (+ C).
#include <algorithm>
#include <vector>

#include "tests/interpreter/kernels.h"

namespace orrery::interpreter {
namespace {

using ir::Attr;

// [cols, rows] to [rows, cols], in storage that the calling thread keeps.
const double* Transposed(const double* x, int64_t rows, int64_t cols, std::vector<double>& storage) {
  storage.resize(rows * cols);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) storage[r * cols + c] = x[c * rows + r];
  return storage.data();
}

// y += factor x; the two never overlap.
void AddScaled(double* __restrict y, const double* __restrict x, double factor, int64_t n) {
  for (int64_t j = 0; j < n; ++j) y[j] += factor * x[j];
}

}  // namespace

void Matmul(const KernelArgs& args) {
  const int64_t m = args.Int(Attr::kM), n = args.Int(Attr::kN), k = args.Int(Attr::kK);
  const bool bias = args.Flag(Attr::kBias), acc = args.Flag(Attr::kAcc);
  args.ExpectInputs(2 + bias + acc);
  static thread_local std::vector<double> a_storage, b_storage, row;
  const double* a = args.In(0, m * k);
  const double* b = args.In(1, k * n);
  if (args.Flag(Attr::kTransA)) a = Transposed(a, m, k, a_storage);
  if (args.Flag(Attr::kTransB)) b = Transposed(b, k, n, b_storage);
  const double* added = bias ? args.In(2, n) : nullptr;
  const double* old = acc ? args.In(2 + bias, m * n) : nullptr;
  double* c = args.Out(0, m * n);
  row.resize(n);
  for (int64_t i = 0; i < m; ++i) {
    std::fill(row.begin(), row.end(), 0.0);
    for (int64_t p = 0; p < k; ++p) AddScaled(row.data(), b + p * n, a[i * k + p], n);
    for (int64_t j = 0; j < n; ++j) c[i * n + j] = row[j] + (bias ? added[j] : 0.0) + (acc ? old[i * n + j] : 0.0);
  }
}

}  // namespace orrery::interpreter
