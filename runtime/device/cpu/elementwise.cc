// SPDX-License-Identifier: Apache-2.0
// Element-wise ops and column sums.
#include <cstring>

#include "runtime/device/cpu/bodies.h"

namespace orrery::cpu {
namespace {

using ir::Attr;

// y[y_width n] = loop(x[x_width n])
void Map(Frame& f, void (*loop)(const float*, float*, int64_t), int64_t x_width = 1) {
  const int64_t n = f.Size(Attr::kElements);
  const float* x = f.In(0, x_width * n);
  loop(x, f.Out(0, n), n);
}

// z[width n] = loop(x[n], y[width n])
void Map2(Frame& f, void (*loop)(const float*, const float*, float*, int64_t), int64_t width = 1) {
  const int64_t n = f.Size(Attr::kElements);
  const float *x = f.In(0, n), *y = f.In(1, width * n);
  loop(x, y, f.Out(0, width * n), n);
}

}  // namespace

void Zero(Frame& f) {
  const Operand& x = f.RawOut(0, f.OutSize(0));
  std::memset(x.data, 0, static_cast<size_t>(x.n * ir::DtypeBytes(x.dtype)));
}

void Add(Frame& f) {
  const int64_t n = f.OutSize(0);
  const float *x = f.In(0, n), *y = f.In(1, n);
  f.loops.add(x, y, f.Out(0, n), n);
}

void Slice(Frame& f) {
  const int64_t n = f.Size(Attr::kElements, 1), first = f.Coord(Attr::kAxis) * n, whole = f.InSize(0);
  const Operand &x = f.RawIn(0, whole), &y = f.RawOut(0, n);
  if (x.dtype != y.dtype) f.Fail("input and output differ in type");
  if (whole % n != 0 || first + n > whole) f.Fail("the part lies outside the input");
  const auto element = static_cast<size_t>(ir::DtypeBytes(x.dtype));
  const auto offset = static_cast<size_t>(first) * element;
  std::memcpy(y.data, static_cast<const char*>(x.data) + offset, static_cast<size_t>(n) * element);
}

void ColumnSum(Frame& f) {
  const int64_t rows = f.Size(Attr::kRows), h = f.Size(Attr::kH);
  const float* dy = f.In(1, rows * h);
  f.loops.col_sum(dy, f.InOut(0, 0, h), rows, h);
}

void Gelu(Frame& f) { Map(f, f.loops.gelu); }
void GeluBackward(Frame& f) { Map2(f, f.loops.gelu_bwd); }
void Relu(Frame& f) { Map(f, f.loops.relu); }
void ReluBackward(Frame& f) { Map2(f, f.loops.relu_bwd); }
void Swiglu(Frame& f) { Map(f, f.loops.swiglu, 2); }
void SwigluBackward(Frame& f) { Map2(f, f.loops.swiglu_bwd, 2); }
void Tanh(Frame& f) { Map(f, f.loops.tanh); }
void TanhBackward(Frame& f) { Map2(f, f.loops.tanh_bwd); }

}  // namespace orrery::cpu
