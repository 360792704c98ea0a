// SPDX-License-Identifier: Apache-2.0
// `plan bench gemm|attention|memory` on a device: every case runs, is timed by marks, and comes out as a row that
// `plan calibrate` reads.
#include <gtest/gtest.h>

#include "calib/measure/bench_cases.h"
#include "tests/cuda_emulation/emulated_device.h"

namespace orrery {
namespace {

DeviceShape Product(const char* op, const char* epilogue) {
  DeviceShape shape;
  shape.op = op;
  shape.epilogue = epilogue;
  shape.m = 16;
  shape.n = 24;
  shape.k = 8;
  return shape;
}

DeviceShape Attention(const char* op) {
  DeviceShape shape;
  shape.attention = true;
  shape.op = op;
  shape.batch = 1;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.seq_q = shape.seq_kv = 16;
  shape.head_dim = 8;
  shape.causal = true;
  return shape;
}

std::vector<BenchCase> AllCases(ir::Dtype dtype) {
  std::vector<BenchCase> cases = MemoryCases(4, 32, dtype);
  for (const char* op : {"nn", "nt", "tn"}) {
    for (const char* epilogue : {"none", "bias", "accumulate"}) cases.push_back(ProductCase(Product(op, epilogue), dtype));
  }
  for (const char* op : {"forward", "backward"}) cases.push_back(AttentionCase(Attention(op), dtype));
  return cases;
}

class OnDevice : public testing::TestWithParam<bool> {};

TEST_P(OnDevice, EveryCaseIsTimed) {
  for (const ir::Dtype dtype : {ir::Dtype::kF32, ir::Dtype::kBf16}) {
    std::vector<measured::KernelSample> rows;
    for (BenchCase& one : AllCases(dtype)) {
      const int64_t bytes = bench::ArenaBytes(one.run);
      EmulatedCounts counts;
      const auto device = bench::MakeKernelDevice(OpenEmulatedDevice(GetParam(), 3, &counts), bytes);
      const bench::KernelTime time = bench::TimeKernel(one.run, device.get(), 1e-4);
      EXPECT_GT(time.seconds, 1e-8) << one.row.op;
      EXPECT_LE(time.low, time.seconds);
      EXPECT_LE(time.seconds, time.high);
      EXPECT_GE(counts.ops, time.calls + 2) << one.row.op;  // two to find out how many
      one.row.seconds = time.seconds;
      one.row.device = device->Name();
      rows.push_back(one.row);
    }
    const auto read = measured::ReadKernelCsv(
        std::make_shared<Source>(Source{"rows.csv", measured::KernelCsv(rows, "test")}));
    ASSERT_EQ(read.size(), rows.size());
    EXPECT_EQ(read[0].device, "emulated");
  }
}
INSTANTIATE_TEST_SUITE_P(AtOnceAndLater, OnDevice, testing::Bool());

}  // namespace
}  // namespace orrery
