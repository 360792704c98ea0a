// SPDX-License-Identifier: Apache-2.0
// Reference casts to 8 and 4 bits: each block's scale, then each element by the rounding of model/plan/ir/casts.h. Operands
// hold numbers, two of them where a stored element has two of 4 bits.
#include <algorithm>
#include <cmath>
#include <vector>

#include "model/plan/ir/casts.h"
#include "model/plan/ir/packed.h"
#include "model/plan/ir/unit_codes.h"
#include "tests/interpreter/kernels.h"

namespace orrery::interpreter {
namespace {

using ir::Attr;
using ir::CastFormat;

// Two numbers of 4 bits in one double: 16 code + code, as a byte would hold them.
double Paired(double low, double high) {
  return ir::EncodeCast(CastFormat::kE2m1, low) + 16.0 * ir::EncodeCast(CastFormat::kE2m1, high);
}

void Store(const Operand& out, const std::vector<double>& values) {
  const auto n = static_cast<int64_t>(values.size());
  if (out.n == n) {
    std::copy(values.begin(), values.end(), out.data);
  } else if (out.n == n / 2) {
    for (int64_t i = 0; i < out.n; ++i) out.data[i] = Paired(values[2 * i], values[2 * i + 1]);
  } else {
    throw PlanFault("quantize: an output of another size");
  }
}

double Magnitude(const double* x, int64_t n) {
  double largest = 0;
  for (int64_t i = 0; i < n; ++i)
    if (!(std::abs(x[i]) <= largest)) largest = std::abs(x[i]);  // NaN stays
  return largest;
}

struct Blocks {
  int64_t rows, width, down, along;
  bool across = false;
};

// Data and scales of one cast of x, appended to the outputs from `out` on; returns the next output.
size_t CastInto(const KernelArgs& a, const double* x, const Blocks& b, double tensor_scale,
                size_t out) {
  const auto format = static_cast<CastFormat>(a.Int(Attr::kFmt));
  const auto product = static_cast<ProductType>(a.Int(Attr::kProduct));
  const ir::CastDraws draws(a.op.attrs, a.coords, a.seed, a.step, a.first_sample);
  const bool stochastic = a.Flag(Attr::kStochastic);
  std::vector<double> values(b.rows * b.width), scales;
  for (int64_t r = 0; r < b.rows; r += b.down) {
    for (int64_t c = 0; c < b.width; c += b.along) {
      double largest = 0;
      for (int64_t i = r; i < r + b.down; ++i)
        largest = std::max(largest, Magnitude(x + i * b.width + c, b.along));
      const double scale =
          a.Int(Attr::kBlock) > 0 ? ir::BlockScale(product, format, largest, tensor_scale) : 1;
      scales.push_back(scale);
      for (int64_t i = r; i < r + b.down; ++i) {
        const uint64_t row = draws.Row(i, b.across);
        for (int64_t j = c; j < c + b.along; ++j) {
          const double due = x[i * b.width + j] / (scale * tensor_scale);
          values[i * b.width + j] =
              stochastic ? ir::CastTo(format, due, draws.Draw(row, j)) : ir::CastTo(format, due);
        }
      }
    }
  }
  Store(a.out[out], values);
  if (a.Int(Attr::kBlock) == 0) return out + 1;
  std::copy(scales.begin(), scales.end(), a.Out(out + 1, static_cast<int64_t>(scales.size())));
  return out + 2;
}

}  // namespace

void Quantize(const KernelArgs& a) {
  const int64_t rows = a.Int(Attr::kRows), h = a.Int(Attr::kH), block = a.Int(Attr::kBlock);
  const int64_t share = a.Int(Attr::kBlock2);
  const double* x = a.In(0, rows * h);
  const bool hadamard = a.Flag(Attr::kHadamard);
  const double* scales = a.in.size() > 1 ? a.In(1, hadamard ? 2 : 1) : nullptr;
  const double tensor_scale = scales != nullptr ? scales[0] : 1;
  std::vector<double> source(x, x + rows * h);
  size_t out = 0;
  if (a.Flag(Attr::kAlong))
    out = CastInto(a, source.data(), {rows, h, block > 0 ? share : rows, block > 0 ? block : h},
                   tensor_scale, out);
  if (!a.Flag(Attr::kAcross)) return;
  if (hadamard) ir::HadamardRows(source.data(), rows, h);
  CastInto(a, source.data(), {rows, h, block > 0 ? block : rows, block > 0 ? share : h, true},
           hadamard && scales != nullptr ? scales[1] : tensor_scale, out);
}

std::vector<double> Decoded(const KernelArgs& a, size_t i, size_t scales, int tensor, int64_t rows,
                            int64_t width, int64_t down, int64_t along) {
  const int64_t n = rows * width;
  const bool pairs = a.in[i].n == n / 2;
  const double* data = a.In(i, pairs ? n / 2 : n);
  const bool whole = down == 0 || along == 0;
  const int64_t across = whole ? 1 : width / along;
  const double* scale = a.In(scales, whole ? 1 : rows / down * across);
  const double outer = tensor >= 0 ? *a.In(static_cast<size_t>(tensor), 1) : 1;
  std::vector<double> values(n);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; ++c) {
      const int64_t at = r * width + c;
      const int code = pairs ? static_cast<int>(data[at / 2]) >> (at % 2 == 0 ? 0 : 4) & 15 : 0;
      const double number =
          pairs ? ir::DecodeCast(CastFormat::kE2m1, static_cast<uint8_t>(code)) : data[at];
      values[at] = number * outer * (whole ? *scale : scale[r / down * across + c / along]);
    }
  return values;
}

void Unpack(const KernelArgs& a) {
  const auto packing = static_cast<ir::Packed>(a.Int(Attr::kFmt));
  const ir::PackedPiece piece{a.Int(Attr::kRows), a.Int(Attr::kH), a.Coord(Attr::kAxis),
                              a.Int(Attr::kParts), a.Flag(Attr::kAcross)};
  const double *codes = a.In(0, a.in[0].n), *scales = a.In(1, a.in[1].n);
  const bool grouped = a.in.size() > 2;
  const double* groups = grouped ? a.In(2, a.in[2].n) : nullptr;
  double* w = a.Out(0, piece.rows * piece.width);
  for (int64_t r = 0; r < piece.rows; ++r) {
    for (int64_t c = 0; c < piece.width; ++c) {
      const int64_t at = r * piece.width + c;
      w[at] = ir::PackedNumber(packing, codes, at) *
              ir::PackedScale(packing, piece, scales, groups, grouped ? a.in[2].n : 0, r, c);
    }
  }
}

namespace {

std::vector<ir::CodedSegment> SegmentsOf(const KernelArgs& a) {
  if (a.unit == nullptr) throw PlanFault("codes of no unit");
  return ir::CodedSegments(*a.unit, a.params, a.Int(Attr::kBlock));
}

}  // namespace

void UnitAmax(const KernelArgs& a) {
  const std::vector<ir::CodedSegment> segments = SegmentsOf(a);
  const int64_t n = a.Int(Attr::kElements);
  ir::LargestOfUnit(segments, a.Coord(Attr::kZaxis) * n, n, a.In(0, n),
                    a.Out(0, ir::ScalesOf(segments)));
}

void UnitCast(const KernelArgs& a) {
  const std::vector<ir::CodedSegment> segments = SegmentsOf(a);
  const int64_t n = a.Int(Attr::kElements);
  ir::CastUnit(segments, static_cast<CastFormat>(a.Int(Attr::kFmt)), a.Coord(Attr::kZaxis) * n, n,
               a.In(0, n), a.In(1, ir::ScalesOf(segments)), a.Out(0, n));
}

void LargestMagnitude(const KernelArgs& a) {
  const int64_t n = a.Int(Attr::kElements);
  double largest = Magnitude(a.In(0, n), n);
  if (a.Flag(Attr::kHadamard)) {
    std::vector<double> x(a.In(0, n), a.In(0, n) + n);
    ir::HadamardRows(x.data(), n / a.Int(Attr::kH), a.Int(Attr::kH));
    double* out = a.Out(0, 2);
    out[0] = largest;
    out[1] = Magnitude(x.data(), n);
    return;
  }
  if (a.Flag(Attr::kAcc)) largest = std::max(largest, *a.In(1, 1));
  *a.Out(0, 1) = largest;
}

void RollHistory(const KernelArgs& a) {
  const int64_t n = a.Int(Attr::kElements), length = a.Int(Attr::kLength);
  const double *old = a.In(0, n * length), *amax = a.In(1, n);
  double* history = a.Out(0, n * length);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = length - 1; k > 0; --k) history[i * length + k] = old[i * length + k - 1];
    history[i * length] = amax[i];
  }
}

void UpdateScales(const KernelArgs& a) {
  const int64_t n = a.Int(Attr::kElements), length = std::max<int64_t>(1, a.Int(Attr::kLength));
  const double* from = a.In(0, n * length);
  double* scale = a.Out(0, n);
  for (int64_t i = 0; i < n; ++i)
    scale[i] = ir::TensorScale(static_cast<ProductType>(a.Int(Attr::kProduct)),
                               static_cast<CastFormat>(a.Int(Attr::kFmt)),
                               Magnitude(from + i * length, length), a.Get(Attr::kMargin));
}

}  // namespace orrery::interpreter
