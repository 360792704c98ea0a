// SPDX-License-Identifier: Apache-2.0
// Many strategies on threads against one rank, fp32, 20 steps.
#include "tests/parity/grid.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/runtime/single.h"

namespace orrery::runtime_test {
namespace {

class Grid : public testing::TestWithParam<int> {};

TEST_P(Grid, TrainsLikeOneRank) {
  for (const bool tied : {false, true}) {
    const parity::Job job = InPrecision(
        GetParam() == 3 ? parity::ThreeWayGpt(tied) : parity::TinyGpt(tied), Precision::kFp32);
    for (const parity::Case& c : parity::Sample(parity::Grid(job, GetParam(), 41), 30, 43)) {
      SCOPED_TRACE(parity::Describe(c));
      ExpectLikeOneRank(job, c.strategy, 1e-5);
    }
  }
  fmt::print("worst so far: loss {:.1e}, gradient norm {:.1e}\n", worst_deviation.loss,
             worst_deviation.norm);
}

TEST_P(Grid, TrainsAdaptersLikeOneRank) {
  if (GetParam() == 3) GTEST_SKIP() << "8 heads on three ranks";
  parity::Job job = InPrecision(parity::TinyLlama(), Precision::kFp32);
  job.key += " lora";
  job.work.lora = {8, 8, kLoraAll};  // divides by tensor ranks: some plans cut both matrices
  for (const parity::Case& c : parity::Sample(parity::Grid(job, GetParam(), 41), 10, 43)) {
    SCOPED_TRACE(parity::Describe(c));
    ExpectLikeOneRank(job, c.strategy, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Grid, testing::Values(1, 2, 3, 4, 8));

}  // namespace
}  // namespace orrery::runtime_test
