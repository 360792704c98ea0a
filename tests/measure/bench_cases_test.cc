// SPDX-License-Identifier: Apache-2.0
// Kernels timed alone: every case that `plan bench gemm|attention|memory` makes runs on the CPU.
#include "runtime/program/bench/bench_cases.h"

#include <gtest/gtest.h>

#include "runtime/program/bench/bench_command.h"
#include "tests/measure/small_cases.h"

namespace orrery {
namespace {

void ExpectRuns(const BenchCase& one) {
  const auto device = bench::MakeCpuDevice(bench::ArenaBytes(one.run));
  const bench::KernelTime time = bench::TimeKernel(one.run, device.get(), 1e-4);
  EXPECT_GT(time.seconds, 0) << one.row.op;
  EXPECT_LE(time.low, time.seconds);
  EXPECT_LE(time.seconds, time.high);
  EXPECT_GE(time.calls, 5);
  EXPECT_GT(one.row.bytes, 0);
}

class Types : public testing::TestWithParam<ir::Dtype> {};

TEST_P(Types, EveryCaseRuns) {
  for (const BenchCase& one : SmallCases(GetParam())) ExpectRuns(one);
}

INSTANTIATE_TEST_SUITE_P(Stored, Types,
                         testing::Values(ir::Dtype::kF32, ir::Dtype::kBf16, ir::Dtype::kF16));

TEST(BenchCases, CountWhatTheyMoveAndCompute) {
  const BenchCase one = ProductCase(SmallProduct("nt", "accumulate"), ir::Dtype::kBf16);
  EXPECT_EQ(one.row.flops, 2.0 * 12 * 20 * 7);
  EXPECT_EQ(one.row.bytes, 2.0 * (12 * 7 + 20 * 7 + 2 * 12 * 20));
  EXPECT_EQ(one.row.dtype, "bf16");
  EXPECT_EQ(bench::ArenaBytes(one.run), 256 + 512 + 512);  // C is read and written in place
}

TEST(BenchCommand, TellsKernelsFromCollectives) {
  EXPECT_TRUE(BenchesKernels(cli::CommandLine({"plan", "bench", "gemm"})));
  EXPECT_FALSE(BenchesKernels(cli::CommandLine({"plan", "bench", "all_reduce"})));
  EXPECT_FALSE(BenchesKernels(cli::CommandLine({"plan", "bench"})));
  EXPECT_THROW(BenchKernels(cli::CommandLine({"plan", "bench", "gemm", "--dtype", "int8"})),
               InputError);
  EXPECT_THROW(BenchKernels(cli::CommandLine({"plan", "bench", "gemm", "--model", "gpt2-smal"})),
               InputError);
}

}  // namespace
}  // namespace orrery
