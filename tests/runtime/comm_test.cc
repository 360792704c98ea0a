// SPDX-License-Identifier: Apache-2.0
// Communicators: results over threads and over MPI, and what happens when ranks disagree or fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "runtime/comm/gather.h"
#include "runtime/comm/local.h"
#include "runtime/half.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/launch/mpirun.h"
#include "tests/runtime/exercise.h"

namespace orrery::runtime_test {
namespace {

using testing::HasSubstr;

class Ranks : public testing::TestWithParam<int> {};

TEST_P(Ranks, ExchangeRightlyAsThreads) {
  std::vector<std::string> faults(static_cast<std::size_t>(GetParam()));
  const std::string failure = launch::RunLocalRanks(GetParam(), [&](comm::Endpoint* endpoint) {
    faults[static_cast<std::size_t>(endpoint->rank())] = ExerciseEndpoint(endpoint);
  });
  EXPECT_EQ(failure, "");
  for (const std::string& fault : faults) EXPECT_EQ(fault, "");
}

TEST_P(Ranks, ExchangeRightlyOverMpi) {
#ifdef ORRERY_HAS_MPI
  const std::string mpirun = launch::FindMpirun();
  if (mpirun.empty()) GTEST_SKIP() << "no mpirun on PATH";
  const std::string program = std::string(ORRERY_BINARY_DIR) + "/bin/runtime_mpi_exercise";
  EXPECT_EQ(launch::RunMpirun(mpirun, GetParam(), {program}), 0);
#else
  GTEST_SKIP() << "built without MPI";
#endif
}

INSTANTIATE_TEST_SUITE_P(Counts, Ranks, testing::Values(1, 2, 3, 5, 8));

int64_t Steady() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Rank r's clock is r times 0.75 s ahead; ranks 0 and 1 say that they are on one host.
TEST(Clocks, OffsetsBetweenHostsAreFoundWithinTheirError) {
  std::vector<comm::ClockOffset> offsets;
  const std::string failure = launch::RunLocalRanks(4, [&](comm::Endpoint* endpoint) {
    const int64_t rank = endpoint->rank();
    const auto found = comm::CompareClocks(
        endpoint, 60, [rank] { return Steady() + rank * 750'000'000; },
        rank < 2 ? "one" : "host" + std::to_string(rank));
    if (rank == 0) offsets = found;
  });
  EXPECT_EQ(failure, "");
  ASSERT_EQ(offsets.size(), 4U);
  EXPECT_EQ(offsets[1].ahead_s, 0);
  for (std::size_t rank = 2; rank < 4; ++rank) {
    EXPECT_GT(offsets[rank].error_s, 0);
    EXPECT_LT(offsets[rank].error_s, 0.1);
    EXPECT_NEAR(offsets[rank].ahead_s, 0.75 * static_cast<double>(rank),
                offsets[rank].error_s + 1e-9);
  }
}

#ifdef ORRERY_HAS_MPI
TEST(Mpi, AGroupThatARankDoesNotJoinEndsAtTheDeadline) {
  const std::string mpirun = launch::FindMpirun();
  if (mpirun.empty()) GTEST_SKIP() << "no mpirun on PATH";
  const std::string program = std::string(ORRERY_BINARY_DIR) + "/bin/runtime_mpi_exercise";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(launch::RunMpirun(mpirun, 2, {program, "absent"}), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}
#endif

TEST(Local, RefusesDifferentCollectivesOfOneGroup) {
  const std::string failure = launch::RunLocalRanks(2, [](comm::Endpoint* endpoint) {
    const auto line = endpoint->Join(0, {0, 1});
    float x = 1;
    comm::Collective c{comm::CollectiveKind::kAllReduce, &x, &x, 1};
    c.tag = static_cast<int32_t>(endpoint->rank());
    comm::Wait(endpoint, line->Start(c).get(), 60, "test");
  });
  EXPECT_THAT(failure, HasSubstr("members of a group start different collectives"));
}

TEST(Local, RefusesMessagesOfDifferentSizes) {
  const std::string failure = launch::RunLocalRanks(2, [](comm::Endpoint* endpoint) {
    int64_t x[2] = {};
    const auto operation =
        endpoint->rank() == 0 ? endpoint->Send(1, 0, x, 8) : endpoint->Receive(0, 0, x, 16);
    comm::Wait(endpoint, operation.get(), 60, "test");
  });
  EXPECT_THAT(failure, HasSubstr("8 bytes sent from rank 0 where rank 1 expects 16"));
}

TEST(Local, AFailingRankEndsTheOthers) {
  const std::string failure = launch::RunLocalRanks(3, [](comm::Endpoint* endpoint) {
    if (endpoint->rank() == 2) throw std::runtime_error("planted");
    const auto line = endpoint->Join(0, {0, 1, 2});
    comm::Wait(endpoint, line->Start({}).get(), 60, "barrier");
  });
  EXPECT_THAT(failure, HasSubstr("rank 2 on "));
  EXPECT_THAT(failure, HasSubstr("planted"));
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(FromBf16(ToBf16(1.0f)), 1.0f);
  EXPECT_EQ(ToBf16(1.00390625f), ToBf16(1.0f));         // halfway, down to even
  EXPECT_EQ(FromBf16(ToBf16(1.01171875f)), 1.015625f);  // halfway, up to even
  EXPECT_TRUE(std::isnan(FromBf16(ToBf16(NAN))));
  EXPECT_EQ(FromF16(ToF16(0.333251953125f)), 0.333251953125f);
}

TEST(Half, SumsAreTakenInSinglePrecision) {
  uint16_t a[] = {ToBf16(1.0f), ToBf16(256.0f)};
  const uint16_t b[] = {ToBf16(0.0078125f), ToBf16(1.0f)};
  comm::ReduceInto(a, b, 2, ir::Dtype::kBf16, false);
  EXPECT_EQ(FromBf16(a[0]), 1.0078125f);
  EXPECT_EQ(FromBf16(a[1]), 256.0f);  // 257 lies halfway and goes to even
}

}  // namespace
}  // namespace orrery::runtime_test
