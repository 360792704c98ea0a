// SPDX-License-Identifier: Apache-2.0
// Puts perturbations on a cluster and its ranks, and refuses what does not exist there.
#include <fmt/format.h>

#include <algorithm>

#include "model/hardware/faults.h"
#include "model/program/simulate/perturbation_flags.h"

namespace orrery::cli {
namespace {

std::string UpTo(const char* what, int64_t count) {
  return count == 1 ? fmt::format("{} 0 is the only one", what)
                    : fmt::format("{}s are 0 to {}", what, count - 1);
}

void SlowDown(const std::vector<SlowGpu>& gpus, int64_t ranks, std::vector<double>* slowdown,
              Diagnostics* diagnostics) {
  if (!gpus.empty()) slowdown->assign(static_cast<std::size_t>(ranks), 1.0);
  for (const SlowGpu& gpu : gpus) {
    if (gpu.last < ranks) {
      std::fill(slowdown->begin() + gpu.first, slowdown->begin() + gpu.last + 1, gpu.factor);
    } else {
      diagnostics->Error(gpu.where, fmt::format("there is no rank {} to slow down", gpu.last),
                         UpTo("rank", ranks));
    }
  }
}

// Of several that name the same link the last one counts.
void SlowLinks(std::vector<SlowLink>* slow, Cluster* cluster, Diagnostics* diagnostics) {
  if (slow->empty()) return;
  std::vector<double> shares(cluster->links.size(), 1.0);
  for (SlowLink& link : *slow) {
    const std::vector<LinkId> found = MatchLinks(*cluster, link.name);
    link.links = found.size();
    for (const LinkId id : found) shares[static_cast<std::size_t>(id)] = link.share;
    if (found.empty()) {
      diagnostics->Error(
          link.where,
          fmt::format("there is no link '{}' among {} node{} of {}", link.name, cluster->nodes,
                      cluster->nodes == 1 ? "" : "s", cluster->spec.name),
          SuggestLink(*cluster, link.name));
    }
  }
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const auto id = static_cast<LinkId>(i);
    if (shares[i] < 1) DegradeLinks({&id, 1}, shares[i], cluster);
  }
}

void Fail(const std::vector<DeadNic>& dead, Cluster* cluster, Diagnostics* diagnostics) {
  const auto per_node = static_cast<int64_t>(cluster->spec.node.nics.size());
  std::vector<NicOfNode> nics;
  for (const DeadNic& nic : dead) {
    if (nic.node >= cluster->nodes) {
      diagnostics->Error(nic.where, fmt::format("there is no node {} with a NIC to fail", nic.node),
                         UpTo("node", cluster->nodes));
    } else if (nic.nic >= per_node) {
      diagnostics->Error(nic.where,
                         fmt::format("nodes of {} have no nic{}", cluster->spec.name, nic.nic),
                         per_node == 0 ? "they have no NICs at all"
                                       : fmt::format("{}; `plan topo {}` shows them",
                                                     UpTo("NIC", per_node), cluster->spec.name));
    } else {
      nics.push_back({nic.node, static_cast<int>(nic.nic)});
    }
  }
  if (!nics.empty()) FailNics(nics, cluster);
}

}  // namespace

sim::Perturbation Disturb(Perturbations* perturbations, int64_t ranks, Cluster* cluster) {
  Diagnostics diagnostics;
  sim::Perturbation of_ranks;
  of_ranks.jitter = perturbations->jitter;
  of_ranks.seed = perturbations->seed;
  SlowDown(perturbations->slow_gpus, ranks, &of_ranks.slowdown, &diagnostics);
  SlowLinks(&perturbations->slow_links, cluster, &diagnostics);
  Fail(perturbations->dead_nics, cluster, &diagnostics);
  diagnostics.ThrowIfAny();
  return of_ranks;
}

}  // namespace orrery::cli
