// SPDX-License-Identifier: Apache-2.0
// Rounding to few bits.
#include "model/plan/ir/casts.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace orrery::ir {
namespace {

struct FormatRow {
  int mantissa;        // bits behind the point
  int least_exponent;  // of normal numbers
  double largest;
};
constexpr FormatRow kFormats[] = {{3, -6, 448}, {2, -14, 57344}, {1, 0, 6}, {0, 0, 1}};
constexpr double kLargestE4m3 = 448;
constexpr int kLeastPower = -127, kMostPower = 127;  // of e8m0

const FormatRow& RowOf(CastFormat format) { return kFormats[static_cast<int>(format)]; }
int SignBit(CastFormat format) { return format == CastFormat::kE2m1 ? 0x8 : 0x80; }
int NanCode(CastFormat format) { return format == CastFormat::kE2m1 ? 0x7 : 0x7f; }

// The least power of two that is not below x > 0.
double PowerAbove(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);  // in [0.5, 1)
  return std::ldexp(1.0,
                    std::clamp(fraction == 0.5 ? exponent - 1 : exponent, kLeastPower, kMostPower));
}

// `whole`: from a size in steps of the format at x to a whole number of them.
template <class Whole>
double Rounded(CastFormat format, double x, Whole whole) {
  if (format == CastFormat::kExact || std::isnan(x)) return x;
  const FormatRow& row = RowOf(format);
  const double size = std::abs(x);
  if (size >= row.largest) return std::copysign(row.largest, x);
  if (size == 0) return x;
  int exponent = 0;
  std::frexp(size, &exponent);  // size in [2^(exponent-1), 2^exponent)
  const int step = std::max(exponent - 1, row.least_exponent) - row.mantissa;
  const double rounded = std::ldexp(whole(std::ldexp(size, -step)), step);
  return std::copysign(std::min(rounded, row.largest), x);
}

}  // namespace

double LargestOf(CastFormat format) { return RowOf(format).largest; }

double CastTo(CastFormat format, double x) {
  // nearbyint rounds ties to even in the default rounding mode.
  return Rounded(format, x, [](double units) { return std::nearbyint(units); });
}

double CastTo(CastFormat format, double x, double draw) {
  return Rounded(format, x, [draw](double units) {
    const double below = std::floor(units);
    return below + (draw < units - below ? 1 : 0);
  });
}

namespace {

int64_t CoordOn(const Attrs& attrs, Attr axis, std::span<const int> coords) {
  const int64_t index = attrs.Int(axis);
  return index < 0 || index >= static_cast<int64_t>(coords.size())
             ? 0
             : coords[static_cast<std::size_t>(index)];
}

}  // namespace

CastDraws::CastDraws(const Attrs& attrs, std::span<const int> coords, uint64_t seed, int64_t step,
                     int64_t first_sample)
    : site_(DropoutSite(seed, step, attrs.Int(Attr::kSite))),
      first_sample_(first_sample),
      first_row_(CoordOn(attrs, Attr::kAxis, coords) * attrs.Int(Attr::kRows)),
      first_column_(CoordOn(attrs, Attr::kColumns, coords) * attrs.Int(Attr::kH)),
      batch_(std::max<int64_t>(1, attrs.Int(Attr::kBatch))),
      positions_(PositionsOf(attrs, coords)) {}

uint64_t CastDraws::Row(int64_t row, bool across) const {
  return HashOf({site_, across ? 1u : 0u, static_cast<uint64_t>(first_sample_ + row % batch_),
                 static_cast<uint64_t>(positions_.At((first_row_ + row) / batch_))});
}

uint8_t EncodeCast(CastFormat format, double x) {
  const FormatRow& row = RowOf(format);
  if (std::isnan(x)) return static_cast<uint8_t>(NanCode(format));
  const int sign = std::signbit(x) ? SignBit(format) : 0;
  const double size = std::abs(x);
  if (size == 0) return static_cast<uint8_t>(sign);
  int exponent = 0;
  std::frexp(size, &exponent);
  const int power = std::max(exponent - 1, row.least_exponent);
  const auto units = static_cast<int>(std::ldexp(size, row.mantissa - power));
  // Normal numbers have a leading one, which the exponent field stands for.
  return static_cast<uint8_t>(sign + ((power - row.least_exponent) << row.mantissa) + units);
}

double DecodeCast(CastFormat format, uint8_t code) {
  const FormatRow& row = RowOf(format);
  const int size = code & (SignBit(format) - 1);
  const int field = size >> row.mantissa, bits = size & ((1 << row.mantissa) - 1);
  const double value = field == 0 ? std::ldexp(bits, row.least_exponent - row.mantissa)
                                  : std::ldexp(bits + (1 << row.mantissa),
                                               row.least_exponent + field - 1 - row.mantissa);
  const bool nan = value > row.largest;
  return (code & SignBit(format) ? -1 : 1) *
         (nan ? std::numeric_limits<double>::quiet_NaN() : value);
}

uint8_t EncodePowerOfTwo(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return static_cast<uint8_t>(exponent - 1 - kLeastPower);
}

double DecodePowerOfTwo(uint8_t code) { return std::ldexp(1.0, int{code} + kLeastPower); }

double TensorScale(ProductType product, CastFormat format, double amax, double margin) {
  if (format == CastFormat::kExact || amax == 0) return 1;
  if (product == ProductType::kFp8Block) return BlockScale(product, format, amax, 1);
  const double range = product == ProductType::kNvfp4 ? kLargestE4m3 : 1;
  const auto scale = static_cast<float>(amax / (LargestOf(format) * range) * std::exp2(margin));
  return scale > 0 ? scale : std::numeric_limits<float>::min();
}

double BlockScale(ProductType product, CastFormat format, double amax, double tensor_scale) {
  if (format == CastFormat::kExact || amax == 0) return 1;
  const double scale = amax / LargestOf(format);
  if (product != ProductType::kNvfp4) return PowerAbove(scale);
  const double coded = CastTo(CastFormat::kE4m3, scale / tensor_scale);
  return coded > 0 ? coded : std::ldexp(1.0, -9);  // e4m3's least number
}

}  // namespace orrery::ir
