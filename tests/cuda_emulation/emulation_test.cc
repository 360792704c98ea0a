// SPDX-License-Identifier: Apache-2.0
// What the emulation promises: barriers, exchanges, shared memory that holds NaN, and an end for what would hang.
#include "tests/cuda_emulation/emulation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace orrery {
namespace {

TEST(Emulation, EveryThreadOfTheGridRunsOnce) {
  std::vector<int> count(3 * 2 * 64);
  emulation::RunGrid({3, 2}, {64}, 0,
                     [&] { ++count[(blockIdx.y * 3 + blockIdx.x) * 64 + threadIdx.x]; });
  EXPECT_EQ(count, std::vector<int>(count.size(), 1));
}

TEST(Emulation, ABarrierComesBetweenWritingAndReading) {
  std::vector<float> out(128);
  emulation::RunGrid({1}, {128}, 128 * sizeof(float), [&] {
    auto* shared = static_cast<float*>(emulation::DynamicShared());
    shared[threadIdx.x] = static_cast<float>(threadIdx.x);
    __syncthreads();
    out[threadIdx.x] = shared[(threadIdx.x + 77) % 128];
  });
  for (int i = 0; i < 128; ++i) EXPECT_EQ(out[i], (i + 77) % 128);
}

// Without the barrier, the first threads to run read what is not there yet.
TEST(Emulation, AMissingBarrierShows) {
  std::vector<float> out(64);
  emulation::RunGrid({1}, {64}, 64 * sizeof(float), [&] {
    auto* shared = static_cast<float*>(emulation::DynamicShared());
    shared[threadIdx.x] = 1;
    out[threadIdx.x] = shared[63 - threadIdx.x];
  });
  EXPECT_TRUE(std::isnan(out[0]));
}

TEST(Emulation, LanesExchangeValues) {
  std::vector<int> sum(64);
  std::vector<unsigned> odd(64);
  emulation::RunGrid({1}, {64}, 0, [&] {
    int x = static_cast<int>(threadIdx.x);
    for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(~0u, x, mask);
    sum[threadIdx.x] = x;
    odd[threadIdx.x] = __ballot_sync(~0u, threadIdx.x % 2);
  });
  EXPECT_EQ(sum[0], 31 * 32 / 2);
  EXPECT_EQ(sum[40], 31 * 32 / 2 + 32 * 32);
  EXPECT_EQ(odd[5], 0xaaaaaaaau);
}

TEST(EmulationDeathTest, ABarrierThatSomeThreadsNeverReachEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(emulation::RunGrid({1}, {64}, 0,
                                  [] {
                                    if (threadIdx.x < 40) __syncthreads();
                                  }),
               "barrier that others never reach");
  EXPECT_DEATH(emulation::RunGrid({1}, {40}, 0, [] {}), "no multiple of 32");
}

}  // namespace
}  // namespace orrery
