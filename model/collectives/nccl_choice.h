// SPDX-License-Identifier: Apache-2.0
// What NCCL would choose for a message of this twin: its algorithm, protocol and channels.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "model/collectives/algorithm.h"
#include "model/collectives/nccl/setting.h"
#include "model/collectives/nccl/tuning.h"
#include "model/hardware/profile.h"
#include "model/hardware/summary.h"

namespace orrery {

// The communicator of one group: its ranks lie evenly over a node where it has several nodes, and are
// the first GPUs of it else. Null: NCCL does not run there, or the ranks do not fill their nodes evenly.
std::shared_ptr<const nccl::Communicator> NcclCommunicator(const nccl::Setting& setting,
                                                           const GroupShape& shape);
inline std::shared_ptr<const nccl::Communicator> NcclCommunicator(
    const ClusterSummary& cluster, const GpuProfile& gpu, const FabricProfile& fabric,
    const GroupShape& shape, nccl::Release release = nccl::kOwnRelease) {
  nccl::Setting setting = nccl::SettingOf(cluster, gpu, fabric);
  setting.release = release;
  return NcclCommunicator(setting, shape);
}

// nullopt: NCCL has no algorithms for it, only messages between pairs of ranks.
std::optional<nccl::Operation> NcclOperation(Collective collective);

// Its name in algorithms.cc; "": it has no price there (PAT, CollNet).
std::string_view NameHere(nccl::Algorithm algorithm);

// What NCCL takes for messages from so many bytes on.
struct NcclRange {
  double from = 0;
  const Algorithm* algorithm = nullptr;  // null: none that has a price here
  nccl::Protocol protocol = nccl::Protocol::kSimple;

  // Where LL128 has no price of its own (`line128` false), a message by it costs what the faster of LL and Simple does.
  bool Allows(const Algorithm& one, nccl::Protocol by, bool line128) const {
    if (&one != algorithm) return false;
    if (protocol == nccl::Protocol::kLl128 && !line128) return by != nccl::Protocol::kLl128;
    return by == protocol;
  }
};

// The choices for one operation of one group by size, ascending. Found once and kept; threads may ask at the same time.
// Null: as for NcclCommunicator and NcclOperation.
using NcclRanges = std::vector<NcclRange>;
std::shared_ptr<const NcclRanges> NcclRangesOf(const nccl::Setting& setting,
                                               const GroupShape& shape, Collective collective);
const NcclRange& RangeOf(const NcclRanges& ranges, double bytes);

}  // namespace orrery
