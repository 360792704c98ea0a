// SPDX-License-Identifier: Apache-2.0
// Text from all ranks to rank 0, and clocks laid side by side: for records and traces.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace orrery::comm {

// Every rank calls it; rank 0 gets everybody's text by rank, the others an empty list.
std::vector<std::string> GatherText(Endpoint* endpoint, const std::string& text, double deadline_s);

// Every rank calls it and gets rank 0's text.
std::string TextToAll(Endpoint* endpoint, std::string text, double deadline_s);

// Every rank calls it and gets the largest of all their numbers; it is a barrier too.
int64_t LargestOf(Endpoint* endpoint, int64_t mine, double deadline_s);

// How far the monotonic clock of a rank is ahead of rank 0's, with the error it may have.
struct ClockOffset {
  double ahead_s = 0;
  double error_s = 0;
};
// Every rank calls it; rank 0 gets one offset per rank. Half the shortest round trip of 16 bounds
// the error (Cristian 1989). Ranks on rank 0's host share its clock.
std::vector<ClockOffset> CompareClocks(Endpoint* endpoint, double deadline_s);

// Likewise with clocks (nanoseconds) and names of hosts that the caller says.
std::vector<ClockOffset> CompareClocks(Endpoint* endpoint, double deadline_s,
                                       const std::function<int64_t()>& clock,
                                       const std::string& host);

}  // namespace orrery::comm
