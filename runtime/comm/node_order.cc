// SPDX-License-Identifier: Apache-2.0
// Counts the processes of each host.
#include "runtime/comm/node_order.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::comm {

OrderedRanks RanksInOrder(const std::vector<std::string>& hosts, const NodeOrder& nodes) {
  std::vector<std::string> names;             // by node
  std::vector<std::vector<std::size_t>> own;  // processes, by node
  for (std::size_t process = 0; process < hosts.size(); ++process) {
    const auto node =
        static_cast<std::size_t>(std::ranges::find(names, hosts[process]) - names.begin());
    if (node == names.size()) {
      names.push_back(hosts[process]);
      own.emplace_back();
    }
    own[node].push_back(process);
  }
  if (nodes.empty() || names.size() == 1) return {};
  const std::size_t each = hosts.size() / nodes.size();
  const auto other =
      std::ranges::find_if(own, [&](const auto& list) { return list.size() != each; });
  if (names.size() != nodes.size() || other != own.end()) {
    std::string found = fmt::format("they are on {} hosts", names.size());
    if (names.size() == nodes.size())
      found = fmt::format("{} has {} of them", names[static_cast<std::size_t>(other - own.begin())],
                          other->size());
    return {{},
            fmt::format("the plan places {} ranks on each of {} nodes, and {}", each, nodes.size(),
                        found),
            fmt::format("as many on each host: mpirun --map-by ppr:{0}:node, srun "
                        "--ntasks-per-node={0}; or a placement without nodes",
                        each)};
  }
  OrderedRanks ordered;
  ordered.ranks.resize(hosts.size());
  for (std::size_t place = 0; place < nodes.size(); ++place) {
    const std::vector<std::size_t>& processes = own[static_cast<std::size_t>(nodes[place])];
    for (std::size_t i = 0; i < each; ++i)
      ordered.ranks[processes[i]] = static_cast<int64_t>(place * each + i);
  }
  return ordered;
}

}  // namespace orrery::comm
