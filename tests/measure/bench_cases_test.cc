// SPDX-License-Identifier: Apache-2.0
// Kernels timed alone: every case that `plan bench gemm|attention|memory` makes runs on the CPU.
#include "calib/measure/bench_cases.h"

#include <gtest/gtest.h>

#include "calib/measure/bench_command.h"

namespace orrery {
namespace {

DeviceShape Product(const char* op, const char* epilogue) {
  DeviceShape shape;
  shape.op = op;
  shape.epilogue = epilogue;
  shape.m = 12;
  shape.n = 20;
  shape.k = 7;
  return shape;
}

DeviceShape Attention(const char* op) {
  DeviceShape shape;
  shape.attention = true;
  shape.op = op;
  shape.batch = 2;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.seq_q = shape.seq_kv = 16;
  shape.head_dim = 8;
  shape.causal = true;
  return shape;
}

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
  for (const char* op : {"nn", "nt", "tn"}) {
    for (const char* epilogue : {"none", "bias", "accumulate"})
      ExpectRuns(ProductCase(Product(op, epilogue), GetParam()));
  }
  for (const char* op : {"forward", "backward"})
    ExpectRuns(AttentionCase(Attention(op), GetParam()));
  for (const BenchCase& one : MemoryCases(6, 32, GetParam())) ExpectRuns(one);
}

INSTANTIATE_TEST_SUITE_P(Stored, Types,
                         testing::Values(ir::Dtype::kF32, ir::Dtype::kBf16, ir::Dtype::kF16));

TEST(BenchCases, CountWhatTheyMoveAndCompute) {
  const BenchCase one = ProductCase(Product("nt", "accumulate"), ir::Dtype::kBf16);
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
