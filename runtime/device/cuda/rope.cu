// SPDX-License-Identifier: Apache-2.0
// Rotary positions: Su et al. 2021, in the half-split pairing (i, i + turn/2); the inverse turns back. A thread has a pair.
#include "model/plan/ir/positions.h"
#include "runtime/device/cuda/ops.h"

namespace orrery::cuda {
namespace {

using ir::Attr;

constexpr int kThreads = 256;

struct Heads {
  int64_t rows, batch, heads, per_group, hd, turn;
  ir::Rotation rotation;
  bool inverse;
  ir::Positions positions;
  __host__ __device__ int64_t width() const { return heads * hd; }
};

// One tensor of rows of heads, or queries, keys and values apart.
struct QkvRefs {
  Ref parts[3];
  bool apart;
};
struct HeadAt {
  int part;
  int64_t first;  // element
};
__device__ inline HeadAt Find(const QkvRefs& refs, const Heads& s, int64_t row, int64_t head) {
  if (!refs.apart) return {0, row * s.width() + head * s.hd};
  const int64_t groups = s.heads / s.per_group, queries = s.per_group - 2;
  const int64_t group = row * groups + head / s.per_group, at = head % s.per_group;
  if (at < queries) return {0, (group * queries + at) * s.hd};
  return {at == queries ? 1 : 2, group * s.hd};
}

// Blocks go over the rows of one position times frequencies: the angle is computed once per position and pair.
__global__ void RopeKernel(QkvRefs x, QkvRefs y, Heads s) {
  const int64_t half = s.turn / 2, position = blockIdx.x;
  const int64_t begin = position * s.batch,
                end = begin + s.batch < s.rows ? begin + s.batch : s.rows;
  ORRERY_SHARED(float, table);  // cosines, then sines
  for (int64_t i = threadIdx.x; i < half; i += kThreads) {
    const double angle = static_cast<double>(s.positions.At(position)) * s.rotation.Frequency(i);
    const double side = s.rotation.magnify * sin(angle);
    table[i] = static_cast<float>(s.rotation.magnify * cos(angle));
    table[half + i] = static_cast<float>(s.inverse ? -side : side);
  }
  __syncthreads();
  const int64_t pairs = s.heads * half;
  for (int64_t t = threadIdx.x; t < (end - begin) * pairs; t += kThreads) {
    const int64_t row = begin + t / pairs, head = t % pairs / half, i = t % half;
    const HeadAt from = Find(x, s, row, head), to = Find(y, s, row, head);
    const Ref in = x.parts[from.part], out = y.parts[to.part];
    const float a = Load(in, from.first + i), b = Load(in, from.first + i + half);
    const bool turns =
        head % s.per_group != s.per_group - 1;  // the last of a group is the value head
    Store(out, to.first + i, turns ? a * table[i] - b * table[half + i] : a);
    Store(out, to.first + i + half, turns ? b * table[i] + a * table[half + i] : b);
  }
  if (!x.apart && !y.apart) return;
  const int64_t rest = s.hd - s.turn;  // of each head, not turned
  for (int64_t t = threadIdx.x; t < (end - begin) * s.heads * rest; t += kThreads) {
    const int64_t row = begin + t / (s.heads * rest), head = t / rest % s.heads;
    const HeadAt from = Find(x, s, row, head), to = Find(y, s, row, head);
    const int64_t i = s.turn + t % rest;
    Store(y.parts[to.part], to.first + i, Load(x.parts[from.part], from.first + i));
  }
}

}  // namespace

void Rope(OpFrame& f) {
  const int64_t rows = f.Size(Attr::kRows), batch = f.Size(Attr::kBatch, 1),
                nh = f.Size(Attr::kNh, 1);
  const int64_t kv = f.Size(Attr::kKv, 1), hd = f.Size(Attr::kHd, 1);
  const int64_t turn = f.Size(Attr::kTurn) > 0 ? f.Size(Attr::kTurn) : hd;
  if (nh % kv != 0 || turn % 2 != 0 || turn > hd) f.Fail("heads do not divide");
  const int64_t per_group = nh / kv + 2;
  const Heads s{rows,
                batch,
                kv * per_group,
                per_group,
                hd,
                turn,
                ir::RotationOf(f.args.op.attrs, turn),
                f.Flag(Attr::kInverse),
                ir::PositionsOf(f.args.op.attrs, f.args.coords)};
  const int64_t sizes[] = {rows * nh * hd, rows * kv * hd, rows * kv * hd};
  QkvRefs x{{}, f.Inputs() == 3}, y{{}, f.args.out.size() == 3};
  for (size_t part = 0; part < 3; ++part) {
    if (x.apart) x.parts[part] = f.In(part, sizes[part]);
    if (y.apart) y.parts[part] = f.Out(part, sizes[part]);
  }
  if (!x.apart) x.parts[0] = f.In(0, rows * s.width());
  if (!y.apart) y.parts[0] = f.Out(0, rows * s.width());
  if (turn < hd && !x.apart && !y.apart && x.parts[0].data != y.parts[0].data)
    f.Fail("a part of a head turns in place only");
  Launch(f.queue, RopeKernel, Blocks(rows, batch), kThreads,
         sizeof(float) * static_cast<size_t>(hd), x, y, s);
}

}  // namespace orrery::cuda
