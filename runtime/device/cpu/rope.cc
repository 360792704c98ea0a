// SPDX-License-Identifier: Apache-2.0
// Rotary positions: Su et al. 2021, in the half-split pairing (i, i + turn/2); the inverse turns back.
#include <algorithm>
#include <cmath>

#include "model/plan/ir/positions.h"
#include "runtime/device/cpu/bodies.h"

namespace orrery::cpu {

using ir::Attr;

namespace {

// Rows of queries, keys and values, to or from a row per kv group: its queries, its key, its value.
void CopyHeads(Frame& f, float* packed, bool join) {
  const int64_t rows = f.Size(Attr::kRows), kv = f.Size(Attr::kKv, 1), hd = f.Size(Attr::kHd, 1),
                queries = f.Size(Attr::kNh, 1) / kv;
  const int64_t heads[] = {queries, 1, 1};
  int64_t first = 0;
  for (size_t part = 0; part < 3; ++part) {
    const int64_t width = heads[part] * hd, n = rows * kv * width;
    const float* from = join ? f.In(part, n) : nullptr;
    float* to = join ? nullptr : f.Out(part, n);
    for (int64_t group = 0; group < rows * kv; ++group) {
      float* at = packed + (group * (queries + 2) + first) * hd;
      if (join) {
        std::copy(from + group * width, from + (group + 1) * width, at);
      } else {
        std::copy(at, at + width, to + group * width);
      }
    }
    first += heads[part];
  }
}

}  // namespace

void Rope(Frame& f) {
  const int64_t rows = f.Size(Attr::kRows), batch = f.Size(Attr::kBatch, 1),
                nh = f.Size(Attr::kNh, 1);
  const int64_t kv = f.Size(Attr::kKv, 1), hd = f.Size(Attr::kHd, 1);
  const int64_t turn = f.Size(Attr::kTurn) > 0 ? f.Size(Attr::kTurn) : hd, half = turn / 2;
  if (nh % kv != 0 || turn % 2 != 0 || turn > hd) f.Fail("heads do not divide");
  const int64_t per_group = nh / kv + 2, width = kv * per_group * hd;
  const bool splits = f.args.out.size() == 3;
  float *cosine = f.Scratch(half), *sine = f.Scratch(half);
  float* y = splits ? f.Scratch(rows * width) : f.Out(0, rows * width);
  const ir::Positions positions = ir::PositionsOf(f.args.op.attrs, f.args.coords);
  const ir::Rotation rotation = ir::RotationOf(f.args.op.attrs, turn);
  if (f.args.in.size() == 3) {
    CopyHeads(f, y, true);
  } else if (const float* x = f.In(0, rows * width); x != y) {
    std::copy(x, x + rows * width, y);
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; r % batch == 0 && i < half; ++i) {
      const double angle = static_cast<double>(positions.At(r / batch)) * rotation.Frequency(i);
      const double side = rotation.magnify * std::sin(angle);
      cosine[i] = static_cast<float>(rotation.magnify * std::cos(angle));
      sine[i] = static_cast<float>(f.Flag(Attr::kInverse) ? -side : side);
    }
    for (int64_t head = 0; head < kv * per_group; ++head) {
      if (head % per_group == per_group - 1) continue;  // the value head
      float* low = y + r * width + head * hd;
      f.loops.rope(cosine, sine, low, low + half, half);
    }
  }
  if (splits) CopyHeads(f, y, false);
}

}  // namespace orrery::cpu
