// SPDX-License-Identifier: Apache-2.0
// Which measured sweep says how long a collective takes on a group, and by which rule.
//
// In this order, each only on the machine that was measured:
// 1. a sweep of this collective among as many ranks on as many nodes;
// 2. of another collective of the same algorithm there, by wire volume: T_c(S) = T_o(S f_c / f_o),
//    the pipelining loss by the ratio of the two patterns (chain_pipelining of the profiles). Which
//    algorithm a sweep ran says the sweep, or else the closed form for the software's own choice;
// 3. all-reduce and what shares its ring among another number of ranks of one node: the form over
//    ranks (NodeRingForm), with what it leaves at the measured numbers on both sides;
// 4. on another number of nodes (measured_nodes.h): the closed form times what sweeps on the nearest
//    numbers of nodes left of it. Messages between two ranks likewise, also where other groups send
//    beside them through NICs of their own.
// Left-out errors on published sweeps, below 64 KiB / to 16 MiB / above: 1. 1.5 / 5 / 2 %, 2. 2 / 11
// / 2 %, 3. - / 7 / 2 %, 4. - / - / 3.4 %. Groups that share NICs with others keep the closed
// form.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "model/collectives/algorithm.h"
#include "model/hardware/sweep_curve.h"

namespace orrery {

enum class MeasuredRule { kSweep, kOtherCollective, kOtherRanks, kOtherNodes };

struct MeasuredTime {
  SweepCurve curve;
  MeasuredRule rule = MeasuredRule::kSweep;
  std::string origin;  // "all_reduce among 8 ranks on 1 node"
};

// `algorithm`: "" as the library chooses. Null: nothing that was measured applies.
std::shared_ptr<const MeasuredTime> FindMeasuredTime(Collective collective, const Network& network,
                                                     const std::string& algorithm);

const char* Words(MeasuredRule rule);  // "measured", "by wire volume", "by ranks", "by nodes"

// The curve of `to` from one of `from`, both names of collectives (also "reduce"), same group.
// `chain_pipelining`: loss of all but all-reduces over that of an all-reduce.
SweepCurve ForCollective(const SweepCurve& curve, const std::string& from, const std::string& to,
                         int ranks, double chain_pipelining);

// nullopt: the model does not have it. "reduce" is a broadcast backwards.
std::optional<Collective> CollectiveNamed(const std::string& name);
// The algorithm that the closed form prefers for large messages, among those that the software runs.
std::string LikelyAlgorithm(Collective collective, const Network& network);

// 2 (n-1) / n, (n-1) / n or 1; 0: no such collective.
double WireFactor(const std::string& collective, int ranks);

}  // namespace orrery
