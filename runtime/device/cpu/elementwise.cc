// SPDX-License-Identifier: Apache-2.0
// Element-wise ops and column sums.
#include <algorithm>
#include <cstring>

#include "runtime/device/cpu/bodies.h"

namespace orrery::cpu {
namespace {

using ir::Attr;

constexpr int64_t kPiece = 1024;  // elements that fit the nearest cache together

// y[n] = run(x[width n]) and z[width n] = run(x[n], y[width n]), piece by piece.
template <typename F>
void MapPieces(Frame& f, int64_t width, F run) {
  const int64_t n = f.Size(Attr::kElements);
  const Reader x = f.InPieces(0, width * n, width * kPiece);
  const Writer y = f.OutPieces(0, n, kPiece);
  for (int64_t at = 0; at < n; at += kPiece) {
    const int64_t piece = std::min(kPiece, n - at);
    run(x.At(width * at, width * piece), y.At(at), piece);
    y.Done(at, piece);
  }
}
template <typename F>
void MapTwoPieces(Frame& f, int64_t n, int64_t width, F run) {
  const Reader x = f.InPieces(0, n, kPiece), y = f.InPieces(1, width * n, width * kPiece);
  const Writer z = f.OutPieces(0, width * n, width * kPiece);
  for (int64_t at = 0; at < n; at += kPiece) {
    const int64_t piece = std::min(kPiece, n - at);
    run(x.At(at, piece), y.At(width * at, width * piece), z.At(width * at), piece);
    z.Done(width * at, width * piece);
  }
}

void Map(Frame& f, void (*loop)(const float*, float*, int64_t), int64_t width = 1) {
  MapPieces(f, width, loop);
}
void Map2(Frame& f, void (*loop)(const float*, const float*, float*, int64_t), int64_t width = 1) {
  MapTwoPieces(f, f.Size(Attr::kElements), width, loop);
}

// Pairs (gate, up) apart, and together again.
void Split(const float* pairs, float* gate, float* up, int64_t n) {
  for (int64_t i = 0; i < n; ++i) gate[i] = pairs[2 * i], up[i] = pairs[2 * i + 1];
}
void Join(const float* gate, const float* up, float* pairs, int64_t n) {
  for (int64_t i = 0; i < n; ++i) pairs[2 * i] = gate[i], pairs[2 * i + 1] = up[i];
}

// Columns of a wider tensor: n / rows of each of so many rows of `h`.
struct Columns {
  int64_t rows, h, first, width;
};
Columns ColumnsOf(const Frame& f) {
  const int64_t n = f.Size(Attr::kElements, 1), rows = f.Size(Attr::kRows, 1);
  const Columns at{rows, f.Size(Attr::kH, 1), f.Int(Attr::kColumns), n / rows};
  if (n % rows != 0 || at.first + at.width > at.h) f.Fail("the columns lie outside their tensor");
  return at;
}
void TakeColumns(Frame& f) {
  const Columns at = ColumnsOf(f);
  const Operand &x = f.RawIn(0, at.rows * at.h), &y = f.RawOut(0, at.rows * at.width);
  if (x.dtype != y.dtype) f.Fail("input and output differ in type");
  const int64_t element = ir::DtypeBytes(x.dtype), part = at.width * element;
  const char* from = static_cast<const char*>(x.data) + at.first * element;
  char* to = static_cast<char*>(y.data);
  for (int64_t row = 0; row < at.rows; ++row, from += at.h * element, to += part)
    std::memcpy(to, from, static_cast<size_t>(part));
}

ir::GateKind GateOf(const Frame& f) { return static_cast<ir::GateKind>(f.Size(Attr::kGate)); }
bool Squares(const Frame& f) { return f.Get(Attr::kPower) == 2; }

}  // namespace

void Zero(Frame& f) {
  const Operand& x = f.RawOut(0, f.OutSize(0));
  std::memset(x.data, 0, static_cast<size_t>(x.n * ir::DtypeBytes(x.dtype)));
}

void Add(Frame& f) {
  if (f.Int(Attr::kColumns) < 0) return MapTwoPieces(f, f.OutSize(0), 1, f.loops.add);
  const Columns at = ColumnsOf(f);
  const float* x = f.In(1, at.rows * at.width);
  float* sum = f.InOut(0, 0, at.rows * at.h) + at.first;
  for (int64_t row = 0; row < at.rows; ++row, sum += at.h, x += at.width)
    for (int64_t c = 0; c < at.width; ++c) sum[c] += x[c];
}

void Slice(Frame& f) {
  if (f.Int(Attr::kColumns) >= 0) return TakeColumns(f);
  const int64_t n = f.Size(Attr::kElements, 1), first = f.Coord(Attr::kAxis) * n,
                whole = f.InSize(0);
  const Operand &x = f.RawIn(0, whole), &y = f.RawOut(0, n);
  if (x.dtype != y.dtype) f.Fail("input and output differ in type");
  if (whole % n != 0 || first + n > whole) f.Fail("the part lies outside the input");
  const int64_t rows = std::max<int64_t>(1, f.Size(Attr::kRows));
  if (n % rows != 0) f.Fail("the part is no whole number of rows");
  const int64_t element = ir::DtypeBytes(x.dtype), part = n / rows * element;
  const char* from = static_cast<const char*>(x.data) + first / rows * element;
  for (int64_t row = 0; row < rows; ++row, from += whole / rows * element)
    std::memcpy(static_cast<char*>(y.data) + row * part, from, static_cast<size_t>(part));
}

void Copy(Frame& f) {
  const Operand &x = f.RawIn(0, f.InSize(0)), &y = f.RawOut(0, f.InSize(0));
  if (x.dtype != y.dtype) f.Fail("input and output differ in type");
  std::memcpy(y.data, x.data, static_cast<size_t>(x.n * ir::DtypeBytes(x.dtype)));
}

void ColumnSum(Frame& f) {
  const int64_t rows = f.Size(Attr::kRows), h = f.Size(Attr::kH);
  const int64_t group =
      std::max<int64_t>(4 * (kPiece / std::max<int64_t>(h, 1)), 4);  // the loop takes four at once
  const Reader dy = f.InPieces(1, rows * h, group * h);
  float* sum = f.InOut(0, 0, h);
  for (int64_t r = 0; r < rows; r += group) {
    const int64_t some = std::min(group, rows - r);
    f.loops.col_sum(dy.At(r * h, some * h), sum, some, h);
  }
}

void Gelu(Frame& f) { Map(f, f.loops.gelu); }
void GeluBackward(Frame& f) { Map2(f, f.loops.gelu_bwd); }

void Relu(Frame& f) {
  if (!Squares(f)) return Map(f, f.loops.relu);
  MapPieces(f, 1, [&](const float* x, float* y, int64_t n) {
    f.loops.relu(x, y, n);
    f.loops.multiply(y, y, 1.0f, y, n);
  });
}

void ReluBackward(Frame& f) {
  if (!Squares(f)) return Map2(f, f.loops.relu_bwd);
  float* positive = f.Scratch(kPiece);
  MapTwoPieces(f, f.Size(Attr::kElements), 1,
               [&](const float* dy, const float* x, float* dx, int64_t n) {
                 f.loops.relu(x, positive, n);
                 f.loops.multiply(dy, positive, 2.0f, dx, n);
               });
}

namespace {

// Gates and ups as two tensors.
void SwigluApart(Frame& f) {
  const int64_t n = f.Size(Attr::kElements);
  const ir::GateKind kind = GateOf(f);
  const Reader gates = f.InPieces(0, n, kPiece), ups = f.InPieces(1, n, kPiece);
  const Writer y = f.OutPieces(0, n, kPiece);
  float *value = f.Scratch(kPiece), *pairs = f.Scratch(2 * kPiece);
  const auto loop = kind == ir::GateKind::kGelu ? f.loops.gelu : f.loops.relu;
  for (int64_t at = 0; at < n; at += kPiece) {
    const int64_t piece = std::min(kPiece, n - at);
    const float *gate = gates.At(at, piece), *up = ups.At(at, piece);
    if (kind == ir::GateKind::kSilu) {
      Join(gate, up, pairs, piece);
      f.loops.swiglu(pairs, y.At(at), piece);
    } else {
      loop(gate, value, piece);
      f.loops.multiply(value, up, 1.0f, y.At(at), piece);
    }
    y.Done(at, piece);
  }
}

void SwigluBackwardApart(Frame& f) {
  const int64_t n = f.Size(Attr::kElements);
  const ir::GateKind kind = GateOf(f);
  const Reader dy = f.InPieces(0, n, kPiece), gates = f.InPieces(1, n, kPiece),
               ups = f.InPieces(2, n, kPiece);
  const Writer dgate = f.OutPieces(0, n, kPiece), dup = f.OutPieces(1, n, kPiece);
  float *value = f.Scratch(kPiece), *grad = f.Scratch(kPiece), *pairs = f.Scratch(2 * kPiece),
        *dpairs = f.Scratch(2 * kPiece);
  const bool gelu = kind == ir::GateKind::kGelu;
  const auto loop = gelu ? f.loops.gelu : f.loops.relu;
  const auto slope = gelu ? f.loops.gelu_bwd : f.loops.relu_bwd;
  for (int64_t at = 0; at < n; at += kPiece) {
    const int64_t piece = std::min(kPiece, n - at);
    const float *d = dy.At(at, piece), *gate = gates.At(at, piece), *up = ups.At(at, piece);
    if (kind == ir::GateKind::kSilu) {
      Join(gate, up, pairs, piece);
      f.loops.swiglu_bwd(d, pairs, dpairs, piece);
      Split(dpairs, dgate.At(at), dup.At(at), piece);
    } else {
      f.loops.multiply(d, up, 1.0f, grad, piece);
      loop(gate, value, piece);
      slope(grad, gate, grad, piece);
      f.loops.multiply(d, value, 1.0f, dup.At(at), piece);
      std::copy(grad, grad + piece, dgate.At(at));
    }
    dgate.Done(at, piece);
    dup.Done(at, piece);
  }
}

}  // namespace

void Swiglu(Frame& f) {
  if (f.args.in.size() == 2) return SwigluApart(f);
  const ir::GateKind kind = GateOf(f);
  if (kind == ir::GateKind::kSilu) return Map(f, f.loops.swiglu, 2);
  float *gate = f.Scratch(kPiece), *up = f.Scratch(kPiece);
  const auto loop = kind == ir::GateKind::kGelu ? f.loops.gelu : f.loops.relu;
  MapPieces(f, 2, [&](const float* x, float* y, int64_t n) {
    Split(x, gate, up, n);
    loop(gate, gate, n);
    f.loops.multiply(gate, up, 1.0f, y, n);
  });
}

void SwigluBackward(Frame& f) {
  if (f.args.in.size() == 3) return SwigluBackwardApart(f);
  const ir::GateKind kind = GateOf(f);
  if (kind == ir::GateKind::kSilu) return Map2(f, f.loops.swiglu_bwd, 2);
  float *gate = f.Scratch(kPiece), *up = f.Scratch(kPiece), *grad = f.Scratch(kPiece);
  const bool gelu = kind == ir::GateKind::kGelu;
  const auto loop = gelu ? f.loops.gelu : f.loops.relu;
  const auto slope = gelu ? f.loops.gelu_bwd : f.loops.relu_bwd;
  MapTwoPieces(f, f.Size(Attr::kElements), 2,
               [&](const float* dy, const float* x, float* dx, int64_t n) {
                 Split(x, gate, up, n);
                 f.loops.multiply(dy, up, 1.0f, grad, n);
                 slope(grad, gate, grad, n);
                 loop(gate, gate, n);
                 f.loops.multiply(dy, gate, 1.0f, up, n);
                 Join(grad, up, dx, n);
               });
}

void Tanh(Frame& f) {
  const auto cap = static_cast<float>(f.Get(Attr::kCap));
  if (cap <= 0) return Map(f, f.loops.tanh);
  MapPieces(f, 1, [&](const float* x, float* y, int64_t n) {
    f.loops.scale(1 / cap, x, y, n);
    f.loops.tanh(y, y, n);
    f.loops.scale(cap, y, y, n);
  });
}

void TanhBackward(Frame& f) {
  const auto cap = static_cast<float>(f.Get(Attr::kCap));
  if (cap <= 0) return Map2(f, f.loops.tanh_bwd);
  float* inner = f.Scratch(kPiece);
  MapTwoPieces(f, f.Size(Attr::kElements), 1,
               [&](const float* dy, const float* y, float* dx, int64_t n) {
                 f.loops.scale(1 / cap, y, inner, n);
                 f.loops.tanh_bwd(dy, inner, dx, n);
               });
}

}  // namespace orrery::cpu
