// SPDX-License-Identifier: Apache-2.0
// What the CPU kernels promise beyond values: refusals, repeatability, independence of threads and of other rows,
// accuracy of their exponential functions and conversions.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "runtime/device/cpu/gemm.h"
#include "runtime/device/cpu/kernels.h"
#include "runtime/device/cpu/loops.h"
#include "tests/cpu_kernels/typed_call.h"

namespace orrery {
namespace {

using cpu::KernelError;
using ir::Attr;
using ir::Attrs;
using ir::Dtype;
using ir::OpKind;

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Refusals, WrongSizesThrow) {
  for (const TypedCall& original : AllCases()) {
    if (original.call.in.empty() || original.call.kind == OpKind::kLossScale) continue;
    TypedCall typed = original;
    typed.call.shared.clear();
    typed.call.out_sizes[0] += 1;
    EXPECT_THROW(RunCpu(typed, Dtype::kF32), KernelError) << typed.name;
    typed = original;
    typed.call.in.pop_back();
    typed.call.shared.clear();
    typed.call.out_sizes[0] -= 1;
    EXPECT_THROW(RunCpu(typed, Dtype::kF32), KernelError) << typed.name;
  }
}

TEST(Refusals, WrongTypesAndIndicesThrow) {
  const Attrs attrs{{Attr::kRows, 2}, {Attr::kH, 2}, {Attr::kVl, 3}};
  const TypedCall embed{"", {OpKind::kEmbed, attrs, {{0, 2}, Vector(6)}, {4}}, "if", "f"};
  TypedCall changed = embed;
  RunCpu(embed, Dtype::kF32);
  changed.in = "ff";  // tokens are not numbers
  EXPECT_THROW(RunCpu(changed, Dtype::kF32), KernelError);
  changed.in = "ii";
  EXPECT_THROW(RunCpu(changed, Dtype::kF32), KernelError);
  changed = embed;
  changed.call.in[0][1] = -1;
  EXPECT_THROW(RunCpu(changed, Dtype::kF32), KernelError);
  const Attrs gather{{Attr::kRows, 2}, {Attr::kH, 2}, {Attr::kBatch, 1}};
  EXPECT_THROW(
      RunCpu({"", {OpKind::kGatherRows, gather, {Vector(6), {0, 3}}, {4}}, "fi", "f"}, Dtype::kF32),
      KernelError);
  const Attrs rate{{Attr::kRows, 2}, {Attr::kH, 2}, {Attr::kBatch, 1}, {Attr::kRate, 1}};
  EXPECT_THROW(RunCpu({"", {OpKind::kDropout, rate, {Vector(4)}, {4, 4}}, "f", "fm"}, Dtype::kF32),
               KernelError);
  const Attrs axis{{Attr::kRows, 2}, {Attr::kH, 2}, {Attr::kVl, 3}, {Attr::kAxis, 4}};
  EXPECT_THROW(
      RunCpu({"", {OpKind::kEmbed, axis, {{0, 2}, Vector(6)}, {4}}, "if", "f"}, Dtype::kF32),
      KernelError);
}

TEST(Refusals, AccumulationMustHappenInPlace) {
  const Attrs attrs{{Attr::kRows, 2}, {Attr::kH, 2}};
  EXPECT_THROW(
      RunCpu({"", {OpKind::kColSum, attrs, {Vector(2), Vector(4)}, {2}}, "ff", "f"}, Dtype::kF32),
      KernelError);
}

TEST(Repeatability, TwoThreadsAtOnceGiveTheSameBits) {
  for (const Dtype storage : {Dtype::kF32, Dtype::kBf16}) {
    const std::vector<TypedCall> calls = AllCases();
    std::vector<std::vector<Vector>> once, a(calls.size()), b(calls.size());
    for (const TypedCall& typed : calls) once.push_back(RunCpu(typed, storage));
    const auto run = [&](std::vector<std::vector<Vector>>& results) {
      for (size_t i = 0; i < calls.size(); ++i) results[i] = RunCpu(calls[i], storage);
    };
    std::thread first([&] { run(a); }), second([&] { run(b); });
    first.join();
    second.join();
    const auto same = [](const Vector& x, const Vector& y) {
      return std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0;
    };
    for (size_t i = 0; i < calls.size(); ++i) {
      for (size_t o = 0; o < once[i].size(); ++o)
        EXPECT_TRUE(same(once[i][o], a[i][o]) && same(once[i][o], b[i][o])) << calls[i].name;
    }
  }
}

// Whether the library adds up a row in the same order whatever rows are computed beside it: its AVX2 kernels choose theirs
// by the number of rows.
bool RowsAreAddedUpInOneOrder() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512f") != 0;
#else
  return false;
#endif
}

// A data-parallel rank computes fewer rows of the same product. Another order moves a sum of k terms by about sqrt(k)
// roundings of its largest value.
TEST(Repeatability, RowsOfAProductDoNotDependOnTheOthers) {
  const int64_t n = 192, k = 256, all = 256;
  for (const bool tb : {false, true}) {
    for (const Dtype storage : {Dtype::kF32, Dtype::kBf16}) {
      const auto product = [&](int64_t first, int64_t rows) {
        const Vector a = Random(all * k, 1);
        const Attrs attrs{
            {Attr::kM, double(rows)}, {Attr::kN, n}, {Attr::kK, k}, {Attr::kTransB, tb}};
        const Vector part(a.begin() + first * k, a.begin() + (first + rows) * k);
        return RunCpu(
            Rounded({"", {OpKind::kMatmul, attrs, {part, Random(k * n, 2)}, {rows * n}}, "ff", "f"},
                    storage),
            storage)[0];
      };
      const Vector whole = product(0, all);
      const double largest =
          *std::ranges::max_element(whole, {}, [](double value) { return std::abs(value); });
      const double rounding = std::abs(largest) * std::numeric_limits<float>::epsilon() *
                              (RowsAreAddedUpInOneOrder() ? 0.0 : std::sqrt(double(k)));
      for (const int64_t parts : {2, 4, 8}) {
        const int64_t rows = all / parts;
        for (int64_t first = 0; first < all; first += rows) {
          const Vector part = product(first, rows);
          double apart = 0;
          for (int64_t i = 0; i < rows * n; ++i)
            apart = std::max(apart, std::abs(part[i] - whole[first * n + i]));
          EXPECT_LE(apart, rounding) << parts << " parts, from row " << first;
        }
      }
    }
  }
}

// Worst relative error of an element-wise op against the library in double.
template <typename F>
double WorstError(OpKind kind, double low, double high, F exact) {
  Vector x;
  for (int i = 0; i <= 20000; ++i) x.push_back(static_cast<float>(low + (high - low) * i / 20000));
  const Vector y = RunCpu(
      {"", {kind, {{Attr::kElements, double(x.size())}}, {x}, {int64_t(x.size())}}, "f", "f"},
      Dtype::kF32)[0];
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = exact(x[i]);
    if (expected != 0) worst = std::max(worst, std::abs(y[i] - expected) / std::abs(expected));
  }
  return worst;
}

TEST(Accuracy, ExponentialFunctionsAreGoodToAFewUnitsInTheLastPlace) {
  const auto tanh = [](double x) { return std::tanh(x); };
  const auto gelu = [](double x) {
    return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  };
  EXPECT_LT(WorstError(OpKind::kTanh, -1e-3, 1e-3, tanh), 3e-7);
  EXPECT_LT(WorstError(OpKind::kTanh, -12, 12, tanh), 3e-7);
  EXPECT_LT(WorstError(OpKind::kGelu, -4, 12, gelu), 3e-6);
  Vector x;
  for (int i = 0; i <= 100000; ++i) x.push_back(static_cast<float>(-87 + 175.0 * i / 100000));
  for (const double value : x) {
    const auto single = static_cast<float>(value);
    EXPECT_NEAR(cpu::ActiveLoops().sum_exp_row(&single, 0, 1) / std::exp(value), 1, 2e-7) << value;
  }
}

TEST(Accuracy, ExponentialsSaturateAndKeepNan) {
  float p[] = {-1000, 1000, NAN, 0};
  cpu::ActiveLoops().exp_row(p, 0, 4, 4);
  EXPECT_EQ(p[0], 0);
  EXPECT_EQ(p[1], kInf);
  EXPECT_TRUE(std::isnan(p[2]));
  EXPECT_EQ(p[3], 1);
}

TEST(Accuracy, SixteenBitStorageRoundTripsAndRoundsToNearestEven) {
  const cpu::Loops& loops = cpu::ActiveLoops();
  std::vector<uint16_t> all(65536), back(65536);
  std::vector<float> values(65536);
  for (int i = 0; i < 65536; ++i) all[i] = static_cast<uint16_t>(i);
  loops.from_bf16(all.data(), values.data(), 65536);
  loops.to_bf16(values.data(), back.data(), 65536);
  for (int i = 0; i < 65536; ++i) EXPECT_TRUE(back[i] == all[i] || std::isnan(values[i])) << i;
  loops.from_f16(all.data(), values.data(), 65536);
  loops.to_f16(values.data(), back.data(), 65536);
  for (int i = 0; i < 65536; ++i) EXPECT_TRUE(back[i] == all[i] || std::isnan(values[i])) << i;
  const float x[] = {1.0f + 0x1p-8f, 1.0f + 0x1.8p-7f, 65519.0f, 65520.0f,
                     0x1p-25f,       0x1.8p-24f,       NAN,      1.0f + 0x1p-11f};
  uint16_t bf16[8], f16[8];
  loops.to_bf16(x, bf16, 8);
  loops.to_f16(x, f16, 8);
  EXPECT_EQ(bf16[0], 0x3f80);
  EXPECT_EQ(bf16[1], 0x3f82);
  EXPECT_EQ(f16[2], 0x7bff);
  EXPECT_EQ(f16[3], 0x7c00);
  EXPECT_EQ(f16[4], 0);
  EXPECT_EQ(f16[5], 2);
  EXPECT_GT(f16[6] & 0x3ff, 0);
  EXPECT_EQ(f16[7], 0x3c00);
}

class PlainProduct : public testing::TestWithParam<std::array<int64_t, 3>> {};

TEST_P(PlainProduct, AgreesWithTheFastOne) {
  const auto [m, n, k] = GetParam();
  const Vector a = Random(m * k, 1), b = Random(k * n, 2), c = Random(m * n, 3);
  const std::vector<float> fa(a.begin(), a.end()), fb(b.begin(), b.end());
  std::vector<float> pack(cpu::GemmPackFloats());
  for (int flags = 0; flags < 4; ++flags) {
    const bool ta = flags & 1, tb = flags & 2;
    const Attrs attrs{{Attr::kM, m},       {Attr::kN, n},       {Attr::kK, k},
                      {Attr::kTransA, ta}, {Attr::kTransB, tb}, {Attr::kAcc, 1}};
    const Vector expected = RunCpu(
        {"", {OpKind::kMatmul, attrs, {a, b, c}, {m * n}, {{0, 2}}}, "fff", "f"}, Dtype::kF32)[0];
    std::vector<float> found(c.begin(), c.end());
    cpu::ActiveLoops().gemm({ta, tb, m, n, k, 1.0f, fa.data(), ta ? m : k, fb.data(), tb ? k : n,
                             1.0f, found.data(), n},
                            pack.data());
    EXPECT_LT(RelativeError(Vector(found.begin(), found.end()), expected), 1e-5);
  }
}

// The fast one computes some of a transposed A slice by slice.
INSTANTIATE_TEST_SUITE_P(Sizes, PlainProduct,
                         testing::Values(std::array<int64_t, 3>{101, 600, 530},
                                         std::array<int64_t, 3>{1024, 256, 40},
                                         std::array<int64_t, 3>{768, 300, 64},
                                         std::array<int64_t, 3>{640, 300, 64}));

}  // namespace
}  // namespace orrery
