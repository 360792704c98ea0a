// SPDX-License-Identifier: Apache-2.0
// Casts to 8 and 4 bits, emulated exactly: codes in memory, single precision in between (model/plan/ir/casts.h).
#include "runtime/device/cpu/low_precision.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "model/plan/ir/casts.h"
#include "model/plan/ir/packed.h"
#include "model/plan/ir/unit_codes.h"
#include "runtime/device/cpu/bodies.h"

namespace orrery::cpu {
namespace {

using ir::Attr;
using ir::CastFormat;
using ir::Dtype;

using Table = std::array<float, 256>;

Table TableOf(Dtype dtype) {
  Table table{};
  for (int code = 0; code < 256; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    const double value = dtype == Dtype::kE8m0   ? ir::DecodePowerOfTwo(bits)
                         : dtype == Dtype::kE5m2 ? ir::DecodeCast(CastFormat::kE5m2, bits)
                                                 : ir::DecodeCast(CastFormat::kE4m3, bits);
    table[static_cast<size_t>(code)] = static_cast<float>(value);
  }
  return table;
}

// The largest magnitude; NaN if there is one.
float Magnitude(const float* x, int64_t n) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float size = std::abs(x[i]);
    if (!(size <= largest)) largest = size;
  }
  return largest;
}

const float* Transformed(Frame& f, const float* x, int64_t rows, int64_t h) {
  float* turned = f.Scratch(rows * h);
  std::copy(x, x + rows * h, turned);
  ir::HadamardRows(turned, rows, h);
  return turned;
}

struct Blocks {
  int64_t rows, width, down, along;
  bool across = false;
};

// Data and scales of one cast of x in outputs `out` and the next; returns the output behind them.
size_t CastInto(Frame& f, const float* x, const Blocks& b, double tensor_scale, size_t out) {
  const auto format = static_cast<CastFormat>(f.Int(Attr::kFmt));
  const auto product = static_cast<ProductType>(f.Int(Attr::kProduct));
  const bool blocks = f.Int(Attr::kBlock) > 0;
  const int64_t n = b.rows * b.width, columns = b.width / b.along;
  const Operand& stored = f.RawOut(out, f.OutSize(out));
  const bool pairs = stored.dtype == Dtype::kE2m1x2;
  float* values = pairs ? f.Scratch(n) : f.Out(out, n);
  float* scales = blocks ? f.Out(out + 1, b.rows / b.down * columns) : nullptr;
  const ir::CastDraws draws(f.args.op.attrs, f.args.coords, f.args.seed, f.args.step,
                            f.args.first_sample);
  const bool stochastic = f.Flag(Attr::kStochastic);
  for (int64_t r = 0; r < b.rows; r += b.down) {
    for (int64_t c = 0; c < b.width; c += b.along) {
      double scale = 1;
      if (blocks) {
        float largest = 0;
        for (int64_t i = r; i < r + b.down; ++i)
          largest = std::max(largest, Magnitude(x + i * b.width + c, b.along));
        scale = ir::BlockScale(product, format, largest, tensor_scale);
        scales[r / b.down * columns + c / b.along] = static_cast<float>(scale);
      }
      const double whole = scale * tensor_scale;
      for (int64_t i = r; i < r + b.down; ++i) {
        float* row = values + i * b.width;
        const float* from = x + i * b.width;
        if (stochastic) {
          const uint64_t key = draws.Row(i, b.across);
          for (int64_t j = c; j < c + b.along; ++j)
            row[j] =
                static_cast<float>(ir::CastTo(format, double{from[j]} / whole, draws.Draw(key, j)));
          continue;
        }
        for (int64_t j = c; j < c + b.along; ++j)
          row[j] = static_cast<float>(ir::CastTo(format, double{from[j]} / whole));
      }
    }
  }
  if (pairs) {
    auto* codes = static_cast<uint8_t*>(stored.data);
    for (int64_t i = 0; i < n / 2; ++i) {
      codes[i] = static_cast<uint8_t>(ir::EncodeCast(format, values[2 * i]) |
                                      ir::EncodeCast(format, values[2 * i + 1]) << 4);
    }
  }
  return out + (blocks ? 2 : 1);
}

}  // namespace

void DecodeCodes(Dtype dtype, const uint8_t* codes, int64_t n, float* y) {
  static const Table kE4m3 = TableOf(Dtype::kE4m3), kE5m2 = TableOf(Dtype::kE5m2),
                     kE8m0 = TableOf(Dtype::kE8m0);
  const Table& table = dtype == Dtype::kE8m0 ? kE8m0 : dtype == Dtype::kE5m2 ? kE5m2 : kE4m3;
  for (int64_t i = 0; i < n; ++i) y[i] = table[codes[i]];
}

void EncodeCodes(Dtype dtype, const float* x, int64_t n, uint8_t* codes) {
  if (dtype == Dtype::kE8m0) {
    for (int64_t i = 0; i < n; ++i) codes[i] = ir::EncodePowerOfTwo(x[i]);
    return;
  }
  const CastFormat format = dtype == Dtype::kE5m2 ? CastFormat::kE5m2 : CastFormat::kE4m3;
  for (int64_t i = 0; i < n; ++i) codes[i] = ir::EncodeCast(format, ir::CastTo(format, x[i]));
}

const float* DecodedOperand(Frame& f, size_t i, const ScaleOperands& scales, int64_t rows,
                            int64_t width, int64_t down, int64_t along) {
  const int64_t n = rows * width;
  const Operand& data = f.RawIn(i, f.InSize(i));
  float* values = f.Scratch(n);
  if (data.dtype == Dtype::kE2m1x2) {
    const auto* codes = static_cast<const uint8_t*>(f.RawIn(i, n / 2).data);
    for (int64_t j = 0; j < n; ++j) {
      const int code = codes[j / 2] >> (j % 2 == 0 ? 0 : 4) & 15;
      values[j] = static_cast<float>(ir::DecodeCast(CastFormat::kE2m1, static_cast<uint8_t>(code)));
    }
  } else {
    ConvertToFloat(f.loops, f.RawIn(i, n), values);
  }
  const bool whole = down == 0 || along == 0;
  const int64_t columns = whole ? 1 : width / along;
  const float* scale = f.In(scales.block, whole ? 1 : rows / down * columns);
  const float outer = scales.tensor >= 0 ? f.In(static_cast<size_t>(scales.tensor), 1)[0] : 1;
  for (int64_t r = 0; r < rows; ++r) {
    const float* own = whole ? scale : scale + r / down * columns;
    float* row = values + r * width;
    if (whole) {
      for (int64_t c = 0; c < width; ++c) row[c] *= own[0] * outer;
    } else {
      for (int64_t c = 0; c < width; ++c) row[c] *= own[c / along] * outer;
    }
  }
  return values;
}

void Quantize(Frame& f) {
  const int64_t rows = f.Size(Attr::kRows), h = f.Size(Attr::kH), block = f.Int(Attr::kBlock);
  const int64_t share = f.Size(Attr::kBlock2, 1);
  if (block > 0 &&
      (rows % share != 0 || h % share != 0 || (f.Flag(Attr::kAlong) && h % block != 0) ||
       (f.Flag(Attr::kAcross) && rows % block != 0)))
    f.Fail("blocks do not divide the tensor");
  const float* x = f.In(0, rows * h);
  const bool hadamard = f.Flag(Attr::kHadamard);
  const float* scales = f.Inputs() > 1 ? f.In(1, hadamard ? 2 : 1) : nullptr;
  const double tensor_scale = scales != nullptr ? scales[0] : 1;
  size_t out = 0;
  if (f.Flag(Attr::kAlong))
    out = CastInto(f, x, {rows, h, block > 0 ? share : rows, block > 0 ? block : h}, tensor_scale,
                   out);
  if (!f.Flag(Attr::kAcross)) return;
  if (hadamard) x = Transformed(f, x, rows, h);
  CastInto(f, x, {rows, h, block > 0 ? block : rows, block > 0 ? share : h, true},
           hadamard && scales != nullptr ? scales[1] : tensor_scale, out);
}

void Unpack(Frame& f) {
  const auto packing = static_cast<ir::Packed>(f.Int(Attr::kFmt));
  const ir::PackedPiece piece{f.Size(Attr::kRows), f.Size(Attr::kH), f.Coord(Attr::kAxis),
                              f.Int(Attr::kParts), f.Flag(Attr::kAcross)};
  const int64_t n_groups = f.Inputs() > 2 ? f.InSize(2) : 0;
  const float *codes = f.In(0, f.InSize(0)), *scales = f.In(1, f.InSize(1));
  const float* groups = n_groups > 0 ? f.In(2, n_groups) : nullptr;
  float* w = f.Out(0, piece.rows * piece.width);
  for (int64_t r = 0; r < piece.rows; ++r) {
    for (int64_t c = 0; c < piece.width; ++c) {
      const int64_t at = r * piece.width + c;
      w[at] = static_cast<float>(ir::PackedNumber(packing, codes, at) *
                                 ir::PackedScale(packing, piece, scales, groups, n_groups, r, c));
    }
  }
}

namespace {

std::vector<ir::CodedSegment> SegmentsOf(Frame& f) {
  if (f.args.unit == nullptr) f.Fail("codes of no unit");
  std::vector<ir::CodedSegment> segments =
      ir::CodedSegments(*f.args.unit, f.args.params, f.Int(Attr::kBlock));
  if (segments.empty()) f.Fail("blocks do not divide the unit's matrices");
  return segments;
}

}  // namespace

void UnitAmax(Frame& f) {
  const std::vector<ir::CodedSegment> segments = SegmentsOf(f);
  const int64_t n = f.Size(Attr::kElements);
  ir::LargestOfUnit(segments, f.Coord(Attr::kZaxis) * n, n, f.In(0, n),
                    f.Out(0, ir::ScalesOf(segments)));
}

void UnitCast(Frame& f) {
  const std::vector<ir::CodedSegment> segments = SegmentsOf(f);
  const int64_t n = f.Size(Attr::kElements);
  ir::CastUnit(segments, static_cast<CastFormat>(f.Int(Attr::kFmt)), f.Coord(Attr::kZaxis) * n, n,
               f.In(0, n), f.In(1, ir::ScalesOf(segments)), f.Out(0, n));
}

void LargestMagnitude(Frame& f) {
  const int64_t n = f.Size(Attr::kElements);
  float largest = Magnitude(f.In(0, n), n);
  if (f.Flag(Attr::kHadamard)) {
    const int64_t h = f.Size(Attr::kH);
    float* both = f.Out(0, 2);
    both[0] = largest;
    both[1] = Magnitude(Transformed(f, f.In(0, n), n / h, h), n);
    return;
  }
  float* out = f.Flag(Attr::kAcc) ? f.InOut(0, 1, 1) : f.Out(0, 1);
  if (f.Flag(Attr::kAcc)) largest = std::max(largest, out[0]);
  out[0] = largest;
}

void RollHistory(Frame& f) {
  const int64_t n = f.Size(Attr::kElements), length = f.Size(Attr::kLength, 1);
  const float* amax = f.In(1, n);
  float* history = f.InOut(0, 0, n * length);
  for (int64_t i = 0; i < n; ++i) {
    float* own = history + i * length;
    std::copy_backward(own, own + length - 1, own + length);
    own[0] = amax[i];
  }
}

void UpdateScales(Frame& f) {
  const int64_t n = f.Size(Attr::kElements);
  const int64_t length = std::max<int64_t>(1, f.Int(Attr::kLength));
  const float* from = f.In(0, n * length);
  float* scale = f.Out(0, n);
  for (int64_t i = 0; i < n; ++i) {
    scale[i] = static_cast<float>(ir::TensorScale(
        static_cast<ProductType>(f.Int(Attr::kProduct)), static_cast<CastFormat>(f.Int(Attr::kFmt)),
        Magnitude(from + i * length, length), f.Get(Attr::kMargin)));
  }
}

}  // namespace orrery::cpu
