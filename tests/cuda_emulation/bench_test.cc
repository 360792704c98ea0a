// SPDX-License-Identifier: Apache-2.0
// `plan bench gemm|attention|memory` on a device: every case runs, is timed by marks, and comes out as a row that
// `plan calibrate` reads.
#include <gtest/gtest.h>

#include "tests/cuda_emulation/emulated_device.h"
#include "tests/measure/small_cases.h"

namespace orrery {
namespace {

class OnDevice : public testing::TestWithParam<bool> {};

TEST_P(OnDevice, EveryCaseIsTimed) {
  for (const ir::Dtype dtype : {ir::Dtype::kF32, ir::Dtype::kBf16}) {
    std::vector<measured::KernelSample> rows;
    for (BenchCase& one : SmallCases(dtype)) {
      const int64_t bytes = bench::ArenaBytes(one.run);
      EmulatedCounts counts;
      const auto device =
          bench::MakeKernelDevice(OpenEmulatedDevice(GetParam(), 3, &counts), bytes);
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
