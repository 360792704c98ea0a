// SPDX-License-Identifier: Apache-2.0
// Casts to 8 and 4 bits against tables of every code, written down from the bit fields and searched for the nearest.
#include "model/plan/ir/casts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace orrery::ir {
namespace {

// Bit fields of a format, as its specification prints them.
struct Fields {
  CastFormat format;
  int exponent_bits, mantissa_bits, bias;
  int largest_code;
};
constexpr Fields kE4m3 = {CastFormat::kE4m3, 4, 3, 7, 0x7e};
constexpr Fields kE5m2 = {CastFormat::kE5m2, 5, 2, 15, 0x7b};
constexpr Fields kE2m1 = {CastFormat::kE2m1, 2, 1, 1, 0x7};

// The numbers of the codes 0 to the largest, which grow with the code.
std::vector<double> Numbers(const Fields& f) {
  std::vector<double> numbers;
  for (int code = 0; code <= f.largest_code; ++code) {
    const int exponent = code >> f.mantissa_bits, mantissa = code % (1 << f.mantissa_bits);
    const double fraction = static_cast<double>(mantissa) / (1 << f.mantissa_bits);
    numbers.push_back(exponent == 0 ? fraction * std::pow(2.0, 1 - f.bias)
                                    : (1 + fraction) * std::pow(2.0, exponent - f.bias));
  }
  return numbers;
}

// Nearest number of the table; of two equally near ones that with the even code. Beyond the last: the last.
int NearestCode(const std::vector<double>& numbers, double x) {
  const auto above = std::upper_bound(numbers.begin(), numbers.end(), x);
  if (above == numbers.end()) return static_cast<int>(numbers.size()) - 1;
  const auto high = static_cast<int>(above - numbers.begin()), low = high - 1;
  const double down = x - numbers[low], up = numbers[high] - x;
  if (down != up) return down < up ? low : high;
  return low % 2 == 0 ? low : high;
}

class Casts : public testing::TestWithParam<Fields> {
 protected:
  void Expect(double x) const {
    const int code = NearestCode(numbers_, std::abs(x));
    const double rounded = CastTo(format(), x);
    ASSERT_EQ(rounded, std::copysign(numbers_[code], x)) << x;
    const int sign =
        std::signbit(x) ? 1 << (GetParam().exponent_bits + GetParam().mantissa_bits) : 0;
    ASSERT_EQ(EncodeCast(format(), rounded), code | sign) << x;
  }
  CastFormat format() const { return GetParam().format; }
  const std::vector<double> numbers_ = Numbers(GetParam());
};

TEST_P(Casts, KeepEveryNumberOfTheFormat) {
  for (std::size_t code = 0; code < numbers_.size(); ++code) {
    Expect(numbers_[code]);
    Expect(-numbers_[code]);
    EXPECT_EQ(DecodeCast(format(), static_cast<uint8_t>(code)), numbers_[code]);
  }
  EXPECT_EQ(LargestOf(format()), numbers_.back());
}

TEST_P(Casts, RoundMidpointsToEvenAndTheirNeighboursToTheNearest) {
  for (std::size_t code = 1; code < numbers_.size(); ++code) {
    const double middle = (numbers_[code - 1] + numbers_[code]) / 2;
    for (const double x : {middle, std::nextafter(middle, 0), std::nextafter(middle, 1e300)}) {
      Expect(x);
      Expect(-x);
    }
  }
}

TEST_P(Casts, RoundRandomNumbersToTheNearest) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-20, 20), sign(-1, 1);
  for (int i = 0; i < 100000; ++i)
    Expect(std::copysign(std::pow(2.0, exponent(random)), sign(random)));
}

TEST_P(Casts, SaturateAndKeepNan) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(CastTo(format(), kInfinity), numbers_.back());
  EXPECT_EQ(CastTo(format(), -1e30), -numbers_.back());
  EXPECT_TRUE(std::isnan(CastTo(format(), std::nan(""))));
}

INSTANTIATE_TEST_SUITE_P(Formats, Casts, testing::Values(kE4m3, kE5m2, kE2m1), [](const auto& row) {
  return std::string("m") + std::to_string(row.param.mantissa_bits);
});

TEST(CastCodes, NanOf8Bits) {
  for (const CastFormat format : {CastFormat::kE4m3, CastFormat::kE5m2}) {
    EXPECT_TRUE(std::isnan(DecodeCast(format, EncodeCast(format, std::nan("")))));
  }
}

TEST(Scales, AreTheLeastPowerOfTwoThatHoldsABlock) {
  std::mt19937_64 random(3);
  std::lognormal_distribution<double> sizes(0, 8);
  for (int i = 0; i < 10000; ++i) {
    const double amax = sizes(random);
    const double scale = BlockScale(ProductType::kMxfp8, CastFormat::kE4m3, amax, 1);
    EXPECT_EQ(std::exp2(std::log2(scale)), scale);
    EXPECT_LE(amax / scale, 448);
    EXPECT_GT(amax / (scale / 2), 448);
    EXPECT_EQ(DecodePowerOfTwo(EncodePowerOfTwo(scale)), scale);
  }
  EXPECT_EQ(BlockScale(ProductType::kFp8Block, CastFormat::kE4m3, 448, 1), 1);
  EXPECT_EQ(BlockScale(ProductType::kFp8Block, CastFormat::kE4m3, 0, 1), 1);
}

TEST(Scales, OfATensorMapItsLargestToTheLargestNumber) {
  EXPECT_EQ(TensorScale(ProductType::kFp8, CastFormat::kE4m3, 896, 0), 2);
  EXPECT_EQ(TensorScale(ProductType::kFp8, CastFormat::kE5m2, 57344, 1), 2);  // a margin of one bit
  EXPECT_EQ(TensorScale(ProductType::kFp8, CastFormat::kE4m3, 0, 0), 1);
}

// NVFP4: e4m3 scales of blocks over one scale of the tensor; the largest block uses the whole range of both.
TEST(Scales, OfFourBitsHaveTwoLevels) {
  const double amax = 100;
  const double tensor = TensorScale(ProductType::kNvfp4, CastFormat::kE2m1, amax, 0);
  EXPECT_NEAR(tensor, amax / (6 * 448), 1e-8);
  EXPECT_EQ(BlockScale(ProductType::kNvfp4, CastFormat::kE2m1, amax, tensor), 448);
  EXPECT_GT(BlockScale(ProductType::kNvfp4, CastFormat::kE2m1, 1e-30, tensor), 0);
}

// Of the two numbers around x, and x as their mean.
TEST(StochasticRounding, TakesANeighbourAndKeepsTheMean) {
  const std::vector<double> numbers = Numbers(kE2m1);
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> any(-6, 6), uniform(0, 1);
  for (int i = 0; i < 20; ++i) {
    const double x = any(random);
    const auto above = std::lower_bound(numbers.begin(), numbers.end(), std::abs(x));
    const double high = *above, low = *(above - 1);
    double sum = 0;
    constexpr int kDraws = 20000;
    for (int k = 0; k < kDraws; ++k) {
      const double rounded = CastTo(CastFormat::kE2m1, x, uniform(random));
      ASSERT_TRUE(std::abs(rounded) == low || std::abs(rounded) == high) << x << " " << rounded;
      sum += rounded;
    }
    EXPECT_NEAR(sum / kDraws, x, 4 * (high - low) / 2 / std::sqrt(kDraws)) << x;
  }
  for (const double number : numbers) {
    EXPECT_EQ(CastTo(CastFormat::kE2m1, number, 1e-9), number);
    EXPECT_EQ(CastTo(CastFormat::kE2m1, -number, 1e-9), -number);
  }
  EXPECT_EQ(CastTo(CastFormat::kE2m1, 7, 0.9), 6);
  EXPECT_EQ(CastTo(CastFormat::kE2m1, 5, 0.4), 6);
  EXPECT_EQ(CastTo(CastFormat::kE2m1, 5, 0.6), 4);
}

// Against the definition: x times the diagonal of signs times Sylvester's matrix / 4.
TEST(Hadamard, IsTheSignedMatrixOfSylvester) {
  constexpr int kSigns[] = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
  constexpr int64_t kRows = 32, kWidth = 3;
  std::mt19937_64 random(9);
  std::normal_distribution<double> normal;
  std::vector<double> x(kRows * kWidth);
  for (double& value : x) value = normal(random);
  std::vector<double> turned = x;
  HadamardRows(turned.data(), kRows, kWidth);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kWidth; ++c) {
      double due = 0;
      for (int64_t i = 0; i < 16; ++i) {
        const int bits = __builtin_popcountll(static_cast<uint64_t>(i & (r % 16)));
        due += x[(r / 16 * 16 + i) * kWidth + c] * kSigns[i] * (bits % 2 == 0 ? 1 : -1) / 4;
      }
      EXPECT_NEAR(turned[r * kWidth + c], due, 1e-14);
    }
  }
}

TEST(Hadamard, LeavesProductsAsTheyAreAndSpreadsOutliers) {
  std::mt19937_64 random(2);
  std::normal_distribution<double> normal;
  std::vector<double> a(16), b(16);
  for (int i = 0; i < 16; ++i) a[i] = normal(random), b[i] = normal(random);
  a[5] = 100;
  const auto dot = [&] { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); };
  const double plain = dot();
  HadamardOf(a.data(), 1);
  HadamardOf(b.data(), 1);
  EXPECT_NEAR(dot(), plain, 1e-12);
  for (const double value : a) EXPECT_LT(std::abs(value), 30);
}

// An element of the step's gradients draws the same number in whatever piece a rank holds it.
TEST(CastDraws, BelongToPlacesNotToRanks) {
  Attrs whole{{Attr::kRows, 16}, {Attr::kH, 8}, {Attr::kBatch, 1}, {Attr::kSite, -9}};
  const std::vector<int> first = {0, 0};
  const CastDraws all(whole, first, 1, 3, 2);
  const auto draw = [](const CastDraws& draws, int64_t row, int64_t column, bool across) {
    return draws.Draw(draws.Row(row, across), column);
  };
  Attrs columns = whole, rows = whole, zigzag = whole;
  columns.Set(Attr::kColumns, 1);
  columns.Set(Attr::kH, 4);
  rows.Set(Attr::kAxis, 1);
  rows.Set(Attr::kRows, 8);
  for (const auto& [attr, value] :
       {std::pair{Attr::kCp, 1}, {Attr::kPart, 8}, {Attr::kParts, 2}, {Attr::kZigzag, 1}})
    zigzag.Set(attr, value);
  zigzag.Set(Attr::kRows, 8);
  const std::vector<int> second = {0, 1};
  for (const bool across : {false, true}) {
    EXPECT_EQ(draw(CastDraws(columns, second, 1, 3, 2), 5, 1, across), draw(all, 5, 5, across));
    EXPECT_EQ(draw(CastDraws(rows, second, 1, 3, 2), 1, 6, across), draw(all, 9, 6, across));
    // Rank 1 of 2 holds the chunks 1 and 2 of 4.
    EXPECT_EQ(draw(CastDraws(zigzag, second, 1, 3, 2), 0, 6, across), draw(all, 4, 6, across));
    EXPECT_EQ(draw(CastDraws(zigzag, second, 1, 3, 2), 4, 6, across), draw(all, 8, 6, across));
  }
  // Two samples of a micro-batch against one.
  Attrs pair = whole;
  pair.Set(Attr::kBatch, 2);
  EXPECT_EQ(draw(CastDraws(pair, first, 1, 3, 1), 5, 0, false), draw(all, 2, 0, false));
  EXPECT_NE(draw(all, 5, 5, false), draw(all, 5, 5, true));
  EXPECT_NE(draw(all, 5, 5, false), draw(CastDraws(whole, first, 1, 4, 2), 5, 5, false));
  EXPECT_NE(draw(all, 5, 5, false), draw(CastDraws(whole, first, 1, 3, 3), 5, 5, false));
}

}  // namespace
}  // namespace orrery::ir
