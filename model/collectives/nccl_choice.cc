// SPDX-License-Identifier: Apache-2.0
// Groups and collectives of this twin in NCCL's terms.
#include "model/collectives/nccl_choice.h"

#include <algorithm>
#include <vector>

#include "model/collectives/nccl/machine.h"

namespace orrery {

std::shared_ptr<const nccl::Communicator> NcclCommunicator(const ClusterSummary& cluster,
                                                           const GpuProfile& gpu,
                                                           const FabricProfile& fabric,
                                                           const GroupShape& shape) {
  const int each = shape.ranks_per_node, nodes = shape.nodes();
  if (shape.ranks < 2 || shape.ranks != each * nodes || each > cluster.domain_gpus())
    return nullptr;
  const int stride = nodes > 1 ? cluster.domain_gpus() / each : 1;
  std::vector<int> gpus;
  for (int g = 0; g < each; ++g) gpus.push_back(g * stride);
  return nccl::CommunicatorOf(cluster, gpu, fabric, gpus, nodes);
}

std::optional<nccl::Operation> NcclOperation(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return nccl::Operation::kAllReduce;
    case Collective::kAllGather:
      return nccl::Operation::kAllGather;
    case Collective::kReduceScatter:
      return nccl::Operation::kReduceScatter;
    case Collective::kBroadcast:
      return nccl::Operation::kBroadcast;
    case Collective::kAllToAll:
    case Collective::kSendRecv:
      break;
  }
  return std::nullopt;
}

}  // namespace orrery
