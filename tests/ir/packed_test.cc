// SPDX-License-Identifier: Apache-2.0
// Matrices in 4 and 8 bits: the nearest code by search, scales by hand, and what a cut piece reads back.
#include "model/plan/ir/packed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace orrery::ir {
namespace {

std::vector<double> Drawn(int64_t n) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal(0, 0.02);
  std::vector<double> values(static_cast<std::size_t>(n));
  for (double& x : values) x = normal(random);
  return values;
}

double Value(const PackedTensor& t, Packed packing, const PackedPiece& piece, int64_t r,
             int64_t c) {
  return PackedNumber(packing, t.codes.data(), r * piece.width + c) *
         PackedScale(packing, piece, t.scales.data(), t.groups.data(),
                     static_cast<int64_t>(t.groups.size()), r, c);
}

TEST(Nf4, TakesTheNearestLevel) {
  for (double x = -1.1; x <= 1.1; x += 0.001) {
    double nearest = 9;
    for (int code = 0; code < 16; ++code) nearest = std::min(nearest, std::abs(Nf4Level(code) - x));
    EXPECT_NEAR(std::abs(Nf4Level(Nf4Code(x)) - x), nearest, 1e-12) << x;
  }
  EXPECT_EQ(Nf4Level(Nf4Code(0)), 0);
}

TEST(Packed, Int8ByHand) {
  const std::vector<double> values{1.27, -0.635, 0, 0.01, 0, 0, 0, 0};
  const PackedTensor t = Pack(Packed::kInt8, values, 2, 4);
  EXPECT_EQ(t.scales, (std::vector<double>{static_cast<float>(0.01), 1}));
  EXPECT_EQ(t.codes, (std::vector<double>{255, 64, 128, 129, 128, 128, 128, 128}));
}

// 66 blocks in one group; a scale is off by half a step of e4m3 of the farthest from the mean.
TEST(Packed, Nf4ReadsBackWithinItsSteps) {
  const int64_t rows = 33, width = 128;
  const std::vector<double> values = Drawn(rows * width);
  const PackedTensor t = Pack(Packed::kNf4, values, rows, width);
  EXPECT_EQ(t.codes.size(), values.size() / 2);
  EXPECT_EQ(t.scales.size(), 66u);
  EXPECT_EQ(t.groups.size(), 2u);
  double error = 0, size = 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; ++c) {
      const double x = values[static_cast<std::size_t>(r * width + c)];
      error += std::pow(Value(t, Packed::kNf4, {rows, width}, r, c) - x, 2);
      size += x * x;
    }
  // Normal numbers in blocks of 64 have about 9 % of error (Dettmers et al. 2023, table 2: better than fp4 and int4).
  EXPECT_GT(std::sqrt(error / size), 0.05);
  EXPECT_LT(std::sqrt(error / size), 0.12);
}

TEST(Packed, PiecesReadWhatTheWholeReads) {
  const int64_t rows = 192, width = 256;  // 768 blocks: 3 groups
  const std::vector<double> values = Drawn(rows * width);
  for (const Packed packing : {Packed::kNf4, Packed::kE4m3}) {
    const PackedTensor whole = Pack(packing, values, rows, width);
    for (const bool across : {false, true}) {
      for (int64_t part = 0; part < 2; ++part) {
        const PackedPiece piece{across ? rows : rows / 2, across ? width / 2 : width, part, 2,
                                across};
        PackedTensor cut{{}, {}, whole.groups};
        const auto take = [&](const std::vector<double>& from, int64_t columns) {
          std::vector<double> to;
          const int64_t n = across ? columns / 2 : columns;
          for (int64_t r = 0; r < piece.rows; ++r)
            for (int64_t c = 0; c < n; ++c) {
              const int64_t at =
                  across ? r * columns + part * n + c : (part * piece.rows + r) * columns + c;
              to.push_back(from[static_cast<std::size_t>(at)]);
            }
          return to;
        };
        cut.codes = take(whole.codes, packing == Packed::kNf4 ? width / 2 : width);
        cut.scales = packing == Packed::kNf4 ? take(whole.scales, width / 64) : whole.scales;
        for (int64_t r = 0; r < piece.rows; r += 7)
          for (int64_t c = 0; c < piece.width; c += 13)
            EXPECT_EQ(Value(cut, packing, piece, r, c),
                      Value(whole, packing, {rows, width}, across ? r : part * piece.rows + r,
                            across ? part * piece.width + c : c));
      }
    }
  }
}

TEST(Packed, ShapesFollowTheWhole) {
  using V = std::vector<int64_t>;
  EXPECT_EQ(PackedShape(Packed::kNf4, Init::kCodes, {192, 256}), (V{192, 128}));
  EXPECT_EQ(PackedShape(Packed::kNf4, Init::kGroups, {192, 256}), (V{4}));
  EXPECT_EQ(PackedShape(Packed::kNf4, Init::kCodes, {192, 96}), V{});
  EXPECT_EQ(PackedShape(Packed::kInt8, Init::kScales, {192, 256}), (V{192}));
  EXPECT_EQ(PackedShape(Packed::kE4m3, Init::kScales, {192, 256}), (V{1}));
  EXPECT_EQ(PackedShape(Packed::kE4m3Blocks, Init::kScales, {256, 384}), (V{2, 3}));
  EXPECT_EQ(PackedShape(Packed::kNone, Init::kCodes, {192, 256}), V{});
}

}  // namespace
}  // namespace orrery::ir
