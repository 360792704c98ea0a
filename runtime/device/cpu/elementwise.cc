// SPDX-License-Identifier: Apache-2.0
// Element-wise ops and column sums.
#include <algorithm>
#include <cstring>

#include "runtime/device/cpu/bodies.h"

namespace orrery::cpu {
namespace {

using ir::Attr;

constexpr int64_t kPiece = 1024;  // elements that fit the nearest cache together

// y[n] = loop(x[x_width n])
void Map(Frame& f, void (*loop)(const float*, float*, int64_t), int64_t x_width = 1) {
  const int64_t n = f.Size(Attr::kElements);
  const Reader x = f.InPieces(0, x_width * n, x_width * kPiece);
  const Writer y = f.OutPieces(0, n, kPiece);
  for (int64_t at = 0; at < n; at += kPiece) {
    const int64_t piece = std::min(kPiece, n - at);
    loop(x.At(x_width * at, x_width * piece), y.At(at), piece);
    y.Done(at, piece);
  }
}

// z[width n] = loop(x[n], y[width n])
void Map2(Frame& f, void (*loop)(const float*, const float*, float*, int64_t), int64_t n,
          int64_t width = 1) {
  const Reader x = f.InPieces(0, n, kPiece), y = f.InPieces(1, width * n, width * kPiece);
  const Writer z = f.OutPieces(0, width * n, width * kPiece);
  for (int64_t at = 0; at < n; at += kPiece) {
    const int64_t piece = std::min(kPiece, n - at);
    loop(x.At(at, piece), y.At(width * at, width * piece), z.At(width * at), piece);
    z.Done(width * at, width * piece);
  }
}

void Map2(Frame& f, void (*loop)(const float*, const float*, float*, int64_t)) {
  Map2(f, loop, f.Size(Attr::kElements));
}

}  // namespace

void Zero(Frame& f) {
  const Operand& x = f.RawOut(0, f.OutSize(0));
  std::memset(x.data, 0, static_cast<size_t>(x.n * ir::DtypeBytes(x.dtype)));
}

void Add(Frame& f) { Map2(f, f.loops.add, f.OutSize(0)); }

void Slice(Frame& f) {
  const int64_t n = f.Size(Attr::kElements, 1), first = f.Coord(Attr::kAxis) * n,
                whole = f.InSize(0);
  const Operand &x = f.RawIn(0, whole), &y = f.RawOut(0, n);
  if (x.dtype != y.dtype) f.Fail("input and output differ in type");
  if (whole % n != 0 || first + n > whole) f.Fail("the part lies outside the input");
  const auto element = static_cast<size_t>(ir::DtypeBytes(x.dtype));
  const auto offset = static_cast<size_t>(first) * element;
  std::memcpy(y.data, static_cast<const char*>(x.data) + offset, static_cast<size_t>(n) * element);
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
void Relu(Frame& f) { Map(f, f.loops.relu); }
void ReluBackward(Frame& f) { Map2(f, f.loops.relu_bwd); }
void Swiglu(Frame& f) { Map(f, f.loops.swiglu, 2); }
void SwigluBackward(Frame& f) { Map2(f, f.loops.swiglu_bwd, f.Size(Attr::kElements), 2); }
void Tanh(Frame& f) { Map(f, f.loops.tanh); }
void TanhBackward(Frame& f) { Map2(f, f.loops.tanh_bwd); }

}  // namespace orrery::cpu
