// SPDX-License-Identifier: Apache-2.0
// What is said about a machine's GPUs, and about this one's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/device/cuda/probe.h"

namespace orrery::cuda {
namespace {

using testing::HasSubstr;

const Gpu kHopper{"NVIDIA H200", 9, 0, 132}, kAmpere{"NVIDIA A100", 8, 0, 108},
    kBlackwell{"NVIDIA B200", 10, 0, 148};

std::string Refusal(const Findings& found) { return CheckDevices(found, 90).refusal; }

TEST(CheckDevices, WhatIsFitIsTaken) {
  EXPECT_EQ(Refusal({{kHopper, kHopper}, 13000, 13000, ""}), "");
  EXPECT_EQ(Refusal({{kHopper}, 13010, 13000, ""}), "");
  EXPECT_EQ(Refusal({{kBlackwell}, 13000, 13010, ""}), "");
}

TEST(CheckDevices, EachFaultHasItsWords) {
  EXPECT_THAT(Refusal({{}, 0, 13000, ""}), HasSubstr("no NVIDIA driver"));
  EXPECT_THAT(Refusal({{}, 12040, 13000, ""}),
              HasSubstr("CUDA up to 12.4, and this program needs 13.0"));
  EXPECT_THAT(Refusal({{}, 13000, 13000, ""}), HasSubstr("no GPU"));
  EXPECT_THAT(Refusal({{kAmpere}, 13000, 13000, ""}),
              HasSubstr("NVIDIA A100) has compute capability 8.0"));
  EXPECT_THAT(Refusal({{kHopper, kBlackwell}, 13000, 13000, ""}), HasSubstr("GPU 1 a NVIDIA B200"));
  EXPECT_THAT(Refusal({{}, 13000, 13000, "out of order"}), HasSubstr("out of order"));
  EXPECT_FALSE(CheckDevices({{kHopper, kAmpere}, 13000, 13000, ""}, 90).hint.empty());
}

TEST(CheckDevices, RanksNeedRoomOnTheirGpus) {
  Gpu small = kHopper, large = kHopper;
  small.free_bytes = int64_t{10} << 30;
  small.total_bytes = large.free_bytes = large.total_bytes = int64_t{100} << 30;
  const double eight = 8.0 * (1 << 30);
  EXPECT_EQ(CheckRanks({small}, 1, true, eight).refusal, "");
  EXPECT_EQ(CheckRanks({small}, 2, true, eight).refusal,
            "2 ranks on GPU 0 need 16.0 GiB, and 10.0 GiB of 100 GiB are free on the NVIDIA H200");
  EXPECT_EQ(CheckRanks({large, small}, 2, true, eight).refusal, "");  // all on the first
  EXPECT_EQ(CheckRanks({large, small}, 2, false, eight).refusal, "");
  EXPECT_THAT(CheckRanks({large, small}, 2, false, 2 * eight).refusal,
              HasSubstr("1 rank on GPU 1 needs 16.0 GiB"));
  EXPECT_EQ(CheckRanks({large, small}, 1, false, 2 * eight).refusal, "");  // the second has no rank
  const DeviceCheck many = CheckRanks({large}, 2, false, eight);
  EXPECT_EQ(many.refusal, "2 processes for 1 GPU: NCCL takes one each");
  EXPECT_THAT(many.hint, HasSubstr("--comm local"));
}

TEST(CheckDevices, RanksOfSeveralMachinesAreOfOneModel) {
  const std::vector<std::string> places = {"rank 0 on a", "rank 1 on a", "rank 2 on b"};
  EXPECT_EQ(MixedModels({"H200", "H200", "H200"}, places), "");
  EXPECT_EQ(MixedModels({"H200", "H200", "A100"}, places),
            "rank 0 on a has a H200 and rank 2 on b a A100: ranks of different speed wait for each "
            "other");
}

TEST(CheckDevices, LackOfMemorySaysWhatForAndWhatThereWas) {
  Gpu gpu = kHopper;
  gpu.free_bytes = int64_t{10} << 30;
  gpu.total_bytes = int64_t{100} << 30;
  EXPECT_EQ(NoRoom(gpu, int64_t{16} << 30, int64_t{64} << 20),
            "out of memory: the plan's arena takes 16.0 GiB and kernels' scratch memory 64.0 MiB, "
            "and 10.0 GiB of 100 "
            "GiB are free on the NVIDIA H200");
}

TEST(CheckDevices, ThePeakIsTheDataSheets) {
  EXPECT_DOUBLE_EQ(PeakOf(kHopper), 989.4e12);
  EXPECT_EQ(PeakOf(kBlackwell), 0);
}

}  // namespace
}  // namespace orrery::cuda
