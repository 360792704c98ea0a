// SPDX-License-Identifier: Apache-2.0
// Sweeps of one machine carried over to other numbers of nodes.
//
//   T(S, N) = M(S, N) exp(r(S)),  r(S) = ln(measured / M) at the nearest numbers of nodes below and
//   above, weighted by their distance in ln N; the nearest one where N lies outside
// M is the closed form with class constants: steps, loads and collisions between numbers of nodes are
// its own, what the machine makes of them is measured. r is that of the smallest or largest measured
// size beyond those. Two nodes exchange data otherwise than three and more (a tree's root has one
// child): these only speak for each other where nothing else was measured and the algorithm is known.
// First sweeps of the same collective, then of others that run the same ring.
// Messages between two ranks, from sendrecv sweeps, hold in every group whose members have NICs of
// their own; between numbers of nodes their times are interpolated as they are. Nothing within a node
// speaks for what crosses nodes, and the reverse.
// Large messages on published B200 sweeps of 2 to 67 nodes, each number of nodes left out: 3.4 %, class
// constants alone 5.2 %; 16 to 67 nodes from at most 8: 4.0 %.
#pragma once

#include <memory>
#include <string>

#include "model/collectives/measured.h"

namespace orrery {

// Null: no sweep on another number of nodes.
std::shared_ptr<const MeasuredTime> OfOtherNodes(Collective collective, const Network& network,
                                                 const std::string& algorithm);

// Messages between two ranks. Null: no sendrecv sweep applies.
std::shared_ptr<const MeasuredTime> OfMessages(const Network& network);

}  // namespace orrery
