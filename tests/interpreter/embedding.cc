// SPDX-License-Identifier: Apache-2.0
// Reference token and position embeddings and the row gather of masked language models.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/interpreter/kernels.h"

namespace orrery::interpreter {
namespace {

using ir::Attr;

// A stored index as an integer; an unwritten or fractional one is a fault of the plan.
int64_t Index(double value, const char* what) {
  if (!(value >= 0) || value != std::floor(value))
    throw PlanFault(fmt::format("{} index is {}", what, value));
  return static_cast<int64_t>(value);
}

// Rows of a [?, h] operand.
int64_t RowsOf(const Operand& x, int64_t h) { return x.n / h; }

int64_t SourceRow(const KernelArgs& a, const double* pos, int64_t row, int64_t limit) {
  const int64_t batch = a.Int(Attr::kBatch);
  const int64_t source = Index(pos[row], "row") * batch + row % batch;
  if (source >= limit) throw PlanFault(fmt::format("row {} of {} gathered", source, limit));
  return source;
}

}  // namespace

void Embed(const KernelArgs& a) {
  const int64_t rows = a.Int(Attr::kRows), h = a.Int(Attr::kH), vl = a.Int(Attr::kVl);
  const int64_t first = a.Coord(Attr::kAxis) * vl;
  const double scale = a.Flag(Attr::kScale) ? a.Get(Attr::kScale) : 1.0;
  const bool acc = a.Flag(Attr::kAcc);
  const double *tokens = a.In(0, rows), *table = a.In(1, vl * h),
               *old = acc ? a.In(2, rows * h) : nullptr;
  double* x = a.Out(0, rows * h);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t local = Index(tokens[r], "token") - first;
    const bool mine = local >= 0 && local < vl;
    for (int64_t c = 0; c < h; ++c)
      x[r * h + c] = (acc ? old[r * h + c] : 0.0) + (mine ? scale * table[local * h + c] : 0.0);
  }
}

void EmbedBackward(const KernelArgs& a) {
  const int64_t rows = a.Int(Attr::kRows), h = a.Int(Attr::kH), vl = a.Int(Attr::kVl);
  const int64_t first = a.Coord(Attr::kAxis) * vl;
  const double scale = a.Flag(Attr::kScale) ? a.Get(Attr::kScale) : 1.0;
  const double *tokens = a.In(1, rows), *dx = a.In(2, rows * h);
  double* dtable = a.Out(0, vl * h);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t local = Index(tokens[r], "token") - first;
    if (local < 0 || local >= vl) continue;
    for (int64_t c = 0; c < h; ++c) dtable[local * h + c] += scale * dx[r * h + c];
  }
}

void AddPositions(const KernelArgs& a) {
  const int64_t rows = a.Int(Attr::kRows), h = a.Int(Attr::kH);
  a.ExpectInputs(2);
  const double *x = a.In(0, rows * h), *table = a.in[1].data;
  double* y = a.Out(0, rows * h);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t position = a.Position(r);
    if (position >= RowsOf(a.in[1], h)) throw PlanFault("add_pos: position beyond the table");
    for (int64_t c = 0; c < h; ++c) y[r * h + c] = x[r * h + c] + table[position * h + c];
  }
}

void PositionsBackward(const KernelArgs& a) {
  const int64_t rows = a.Int(Attr::kRows), h = a.Int(Attr::kH);
  a.ExpectInputs(2);
  const double* dx = a.In(1, rows * h);
  double* dtable = a.Out(0, a.in[0].n);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t position = a.Position(r);
    if (position >= RowsOf(a.in[0], h)) throw PlanFault("pos_bwd: position beyond the table");
    for (int64_t c = 0; c < h; ++c) dtable[position * h + c] += dx[r * h + c];
  }
}

void GatherRows(const KernelArgs& a) {
  const int64_t rows = a.Int(Attr::kRows), h = a.Int(Attr::kH);
  a.ExpectInputs(2);
  const double *x = a.in[0].data, *pos = a.In(1, rows);
  double* y = a.Out(0, rows * h);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t source = SourceRow(a, pos, r, RowsOf(a.in[0], h));
    std::copy(x + source * h, x + (source + 1) * h, y + r * h);
  }
}

void ScatterRows(const KernelArgs& a) {
  const int64_t rows = a.Int(Attr::kRows), h = a.Int(Attr::kH), kept = a.Int(Attr::kElements);
  const int64_t first = a.Coord(Attr::kAxis) * kept;
  const double *dy = a.In(0, rows * h), *pos = a.In(1, rows);
  double* dx = a.Out(0, kept * h);
  std::fill(dx, dx + kept * h, 0.0);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t local = SourceRow(a, pos, r, std::numeric_limits<int64_t>::max()) - first;
    if (local < 0 || local >= kept) continue;
    for (int64_t c = 0; c < h; ++c) dx[local * h + c] += dy[r * h + c];
  }
}

}  // namespace orrery::interpreter
