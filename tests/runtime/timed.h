// SPDX-License-Identifier: Apache-2.0
// Every collective of `plan bench`, timed and checked.
#pragma once

#include <gtest/gtest.h>

#include "runtime/timing/time_collective.h"

namespace orrery::runtime_test {

// Of `count` elements, of few and of none, out of place and in place.
inline void ExpectTimed(bench::CollectiveTimer* timer, int ranks, int64_t count) {
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
        Collective::kBroadcast, Collective::kAllToAll, Collective::kSendRecv}) {
    for (const int64_t n : {count, int64_t{3}, int64_t{0}}) {
      const bench::CallTime time = timer->Measure({collective, ir::Dtype::kF32, false, ranks, n});
      EXPECT_EQ(time.out_of_place.wrong, 0) << Name(collective) << ' ' << n;
      EXPECT_EQ(time.in_place.wrong, 0) << Name(collective) << ' ' << n;
      EXPECT_GT(time.out_of_place.us, 0) << Name(collective) << ' ' << n;
    }
  }
}

}  // namespace orrery::runtime_test
