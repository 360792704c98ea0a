// SPDX-License-Identifier: Apache-2.0
// Packs matrices in 4 and 8 bits.
#include "model/plan/ir/packed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "model/plan/ir/casts.h"

namespace orrery::ir {
namespace {

// Dettmers et al. 2023, appendix E.
constexpr std::array<double, 16> kNf4 = {-1.0,
                                         -0.6961928009986877,
                                         -0.5250730514526367,
                                         -0.39491748809814453,
                                         -0.28444138169288635,
                                         -0.18477343022823334,
                                         -0.09105003625154495,
                                         0.0,
                                         0.07958029955625534,
                                         0.16093020141124725,
                                         0.24611230194568634,
                                         0.33791524171829224,
                                         0.44070982933044434,
                                         0.5626170039176941,
                                         0.7229568362236023,
                                         1.0};

double Largest(std::span<const double> values) {
  double largest = 0;
  for (const double x : values) largest = std::max(largest, std::abs(x));
  return largest;
}

double Single(double x) { return static_cast<float>(x); }

PackedTensor PackInt8(std::span<const double> values, int64_t rows, int64_t width) {
  PackedTensor packed;
  for (int64_t r = 0; r < rows; ++r) {
    const auto row =
        values.subspan(static_cast<std::size_t>(r * width), static_cast<std::size_t>(width));
    const double largest = Largest(row);
    const double scale = largest == 0 ? 1 : Single(largest / 127);
    packed.scales.push_back(scale);
    for (const double x : row)
      packed.codes.push_back(128 + std::clamp(std::nearbyint(x / scale), -127.0, 127.0));
  }
  return packed;
}

// The scales of blocks in e4m3, less their mean, by groups.
void PackScales(const std::vector<double>& largest, PackedTensor* packed) {
  double mean = 0;
  for (const double x : largest) mean += x;
  mean = Single(mean / static_cast<double>(std::max<std::size_t>(1, largest.size())));
  for (std::size_t first = 0; first < largest.size(); first += kNf4Group) {
    const std::size_t end = std::min(largest.size(), first + kNf4Group);
    double farthest = 0;
    for (std::size_t i = first; i < end; ++i)
      farthest = std::max(farthest, std::abs(largest[i] - mean));
    const double scale = TensorScale(ProductType::kFp8, CastFormat::kE4m3, farthest, 0);
    packed->groups.push_back(scale);
    for (std::size_t i = first; i < end; ++i)
      packed->scales.push_back(CastTo(CastFormat::kE4m3, (largest[i] - mean) / scale));
  }
  packed->groups.push_back(mean);
}

PackedTensor PackNf4(std::span<const double> values) {
  PackedTensor packed;
  std::vector<double> largest;
  for (std::size_t first = 0; first < values.size(); first += kNf4Block) {
    const auto block = values.subspan(first, kNf4Block);
    const double scale = Largest(block);
    largest.push_back(scale);
    const auto code = [&](std::size_t i) { return Nf4Code(scale == 0 ? 0 : block[i] / scale); };
    for (std::size_t i = 0; i < block.size(); i += 2)
      packed.codes.push_back(code(i) + 16 * code(i + 1));
  }
  PackScales(largest, &packed);
  return packed;
}

PackedTensor PackE4m3(std::span<const double> values, int64_t rows, int64_t width, bool blocks) {
  const int64_t down = blocks ? kPackedSquare : rows, along = blocks ? kPackedSquare : width;
  PackedTensor packed;
  packed.codes.resize(values.size());
  for (int64_t r = 0; r < rows; r += down) {
    for (int64_t c = 0; c < width; c += along) {
      double largest = 0;
      for (int64_t i = r; i < r + down; ++i)
        largest = std::max(largest, Largest(values.subspan(static_cast<std::size_t>(i * width + c),
                                                           static_cast<std::size_t>(along))));
      const double scale = blocks
                               ? BlockScale(ProductType::kFp8Block, CastFormat::kE4m3, largest, 1)
                               : TensorScale(ProductType::kFp8, CastFormat::kE4m3, largest, 0);
      packed.scales.push_back(scale);
      for (int64_t i = r; i < r + down; ++i) {
        for (int64_t j = i * width + c; j < i * width + c + along; ++j) {
          const auto at = static_cast<std::size_t>(j);
          packed.codes[at] = CastTo(CastFormat::kE4m3, values[at] / scale);
        }
      }
    }
  }
  return packed;
}

}  // namespace

double Nf4Level(int code) { return kNf4[static_cast<std::size_t>(code)]; }

int Nf4Code(double x) {
  int code = 0;
  while (code < 15 && x > (Nf4Level(code) + Nf4Level(code + 1)) / 2) ++code;
  return code;
}

PackedTensor Pack(Packed packing, std::span<const double> values, int64_t rows, int64_t width) {
  switch (packing) {
    case Packed::kNone:
      break;
    case Packed::kInt8:
      return PackInt8(values, rows, width);
    case Packed::kNf4:
      return PackNf4(values);
    case Packed::kE4m3:
    case Packed::kE4m3Blocks:
      return PackE4m3(values, rows, width, packing == Packed::kE4m3Blocks);
  }
  return {};
}

std::vector<int64_t> PackedShape(Packed packing, Init part, const std::vector<int64_t>& of) {
  if (of.size() != 2) return {};
  const int64_t rows = of[0], width = of[1];
  const bool nf4 = packing == Packed::kNf4, squares = packing == Packed::kE4m3Blocks;
  if (packing == Packed::kNone || (nf4 && width % kNf4Block != 0) ||
      (squares && (rows % kPackedSquare != 0 || width % kPackedSquare != 0)))
    return {};
  switch (part) {
    case Init::kCodes:
      return {rows, nf4 ? width / 2 : width};
    case Init::kScales:
      if (nf4) return {rows, width / kNf4Block};
      if (squares) return {rows / kPackedSquare, width / kPackedSquare};
      return {packing == Packed::kInt8 ? rows : 1};
    case Init::kGroups:
      if (!nf4) return {};
      return {(rows * (width / kNf4Block) + kNf4Group - 1) / kNf4Group + 1};
    default:
      return {};
  }
}

std::string PackedName(const Param& param) {
  for (const std::string_view suffix : {".scales", ".groups"}) {
    if (param.init != Init::kCodes && param.name.ends_with(suffix))
      return param.name.substr(0, param.name.size() - suffix.size());
  }
  return param.name;
}

}  // namespace orrery::ir
