// SPDX-License-Identifier: Apache-2.0
// Token and position embeddings and the row gather of masked language models.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "model/plan/ir/positions.h"
#include "runtime/device/cpu/bodies.h"

namespace orrery::cpu {
namespace {

using ir::Attr;

struct Table {  // the local rows [first, first + rows) of an embedding
  int64_t first, rows, h;
  // Local row of a token, -1 where another rank has it.
  int64_t RowOf(const Frame& f, int64_t token) const {
    if (token < 0) f.Fail(fmt::format("token index is {}", token));
    const int64_t local = token - first;
    return local >= 0 && local < rows ? local : -1;
  }
};

Table TableOf(const Frame& f) {
  const int64_t vl = f.Size(Attr::kVl);
  return {f.Coord(Attr::kAxis) * vl, vl, f.Size(Attr::kH, 1)};
}

// Rows times the op's scale.
class Scaled {
 public:
  Scaled(Frame& f, int64_t h)
      : h_(h),
        scale_(static_cast<float>(f.Get(Attr::kScale))),
        row_(scale_ != 0 ? f.Scratch(h) : nullptr) {}
  const float* Row(const Frame& f, const float* from) const {
    if (row_ == nullptr) return from;
    f.loops.scale(scale_, from, row_, h_);
    return row_;
  }

 private:
  int64_t h_;
  float scale_;
  float* row_;
};

int64_t Position(const Frame& f, int64_t row) {
  const int64_t local = (f.Coord(Attr::kAxis) * f.Int(Attr::kRows) + row) / f.Size(Attr::kBatch, 1);
  return ir::PositionsOf(f.args.op.attrs, f.args.coords).At(local);
}

// Positions of rows [0, rows) must lie in a table of `n` elements.
void CheckPositions(const Frame& f, int64_t rows, int64_t h, int64_t n) {
  if (rows == 0) return;
  const int64_t whole = f.Int(Attr::kPart) * f.Int(Attr::kParts);  // 0: this is the last one
  if (std::max(Position(f, rows - 1), whole - 1) >= n / h) f.Fail("position beyond the table");
}

int64_t SourceRow(const Frame& f, const int32_t* pos, int64_t row, int64_t limit) {
  const int64_t batch = f.Size(Attr::kBatch, 1);
  if (pos[row] < 0) f.Fail(fmt::format("row index is {}", pos[row]));
  const int64_t source = pos[row] * batch + row % batch;
  if (source >= limit) f.Fail(fmt::format("row {} of {} gathered", source, limit));
  return source;
}

}  // namespace

void Embed(Frame& f) {
  const Table t = TableOf(f);
  const int64_t rows = f.Size(Attr::kRows), h = t.h;
  const int32_t* tokens = f.Indices(0, rows);
  const float *table = f.In(1, t.rows * h), *old = f.Flag(Attr::kAcc) ? f.In(2, rows * h) : nullptr;
  float* x = f.Out(0, rows * h);
  const Scaled scaled(f, h);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t local = t.RowOf(f, tokens[r]);
    float* to = x + r * h;
    const float* from = local < 0 ? nullptr : scaled.Row(f, table + local * h);
    if (local < 0) {
      if (old == nullptr)
        std::fill(to, to + h, 0.0f);
      else if (old != x)
        std::copy(old + r * h, old + (r + 1) * h, to);
    } else if (old == nullptr) {
      std::copy(from, from + h, to);
    } else {
      f.loops.add(old + r * h, from, to, h);
    }
  }
}

void EmbedBackward(Frame& f) {
  const Table t = TableOf(f);
  const int64_t rows = f.Size(Attr::kRows), h = t.h;
  const int32_t* tokens = f.Indices(1, rows);
  const float* dx = f.In(2, rows * h);
  float* dtable = f.InOut(0, 0, t.rows * h);
  const Scaled scaled(f, h);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t local = t.RowOf(f, tokens[r]);
    if (local < 0) continue;
    float* to = dtable + local * h;
    f.loops.add(to, scaled.Row(f, dx + r * h), to, h);
  }
}

void AddPositions(Frame& f) {
  const int64_t rows = f.Size(Attr::kRows), h = f.Size(Attr::kH, 1), n = f.InSize(1);
  CheckPositions(f, rows, h, n);
  const float *x = f.In(0, rows * h), *table = f.In(1, n);
  float* y = f.Out(0, rows * h);
  for (int64_t r = 0; r < rows; ++r)
    f.loops.add(x + r * h, table + Position(f, r) * h, y + r * h, h);
}

void PositionsBackward(Frame& f) {
  const int64_t rows = f.Size(Attr::kRows), h = f.Size(Attr::kH, 1), n = f.InSize(0);
  CheckPositions(f, rows, h, n);
  const float* dx = f.In(1, rows * h);
  float* dtable = f.InOut(0, 0, n);
  for (int64_t r = 0; r < rows; ++r) {
    float* to = dtable + Position(f, r) * h;
    f.loops.add(to, dx + r * h, to, h);
  }
}

void GatherRows(Frame& f) {
  const int64_t rows = f.Size(Attr::kRows), h = f.Size(Attr::kH, 1), n = f.InSize(0);
  const float* x = f.In(0, n);
  const int32_t* pos = f.Indices(1, rows);
  float* y = f.Out(0, rows * h);
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = x + SourceRow(f, pos, r, n / h) * h;
    std::copy(from, from + h, y + r * h);
  }
}

void ScatterRows(Frame& f) {
  const int64_t rows = f.Size(Attr::kRows), h = f.Size(Attr::kH, 1), kept = f.Size(Attr::kElements);
  const int64_t first = f.Coord(Attr::kAxis) * kept;
  const float* dy = f.In(0, rows * h);
  const int32_t* pos = f.Indices(1, rows);
  float* dx = f.Out(0, kept * h);
  std::fill(dx, dx + kept * h, 0.0f);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t local = SourceRow(f, pos, r, std::numeric_limits<int64_t>::max()) - first;
    if (local < 0 || local >= kept) continue;
    f.loops.add(dx + local * h, dy + r * h, dx + local * h, h);
  }
}

}  // namespace orrery::cpu
