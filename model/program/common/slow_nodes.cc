// SPDX-License-Identifier: Apache-2.0
// Reads --slow-node and prices mixed clusters.
#include "model/program/common/slow_nodes.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/plain_text.h"
#include "model/base/text.h"
#include "model/hardware/host_order.h"
#include "model/twin/other_nodes.h"

namespace orrery::cli {
namespace {

constexpr double kMostSlower = 100;

bool ReadOne(std::string_view item, NamedNodes* reader, OtherNodes* slow) {
  const std::size_t colon = std::min(item.find(':'), item.size());
  return colon < item.size() && reader->Read(item.substr(0, colon), &slow->first, &slow->last) &&
         ParseNumber(item.substr(colon + 1), &slow->slower) == NumberFault::kNone &&
         slow->first <= slow->last && slow->slower >= 1 && slow->slower <= kMostSlower;
}

// "node 3 (gpu-b07)", with the host where it has a name.
std::string NodesText(const OtherNodes& nodes, const TopologySpec& topology) {
  return (nodes.first == nodes.last ? fmt::format("node {}", nodes.first)
                                    : fmt::format("nodes {} to {}", nodes.first, nodes.last)) +
         HostsText(topology.fabric, nodes.first, nodes.last);
}

}  // namespace

std::vector<OtherNodes> ReadSlowNodes(const Flag& flag, const FabricSpec& fabric,
                                      Diagnostics* diagnostics) {
  std::vector<OtherNodes> all;
  NamedNodes reader(fabric);
  const std::string_view text = flag.text;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    begin = end + 1;
    OtherNodes slow;
    reader.why.clear();
    if (ReadOne(item, &reader, &slow)) {
      const auto again = std::ranges::find_if(all, [&](const OtherNodes& other) {
        return slow.first <= other.last && other.first <= slow.last;
      });
      const int64_t both = again == all.end() ? 0 : std::max(slow.first, again->first);
      if (again != all.end())
        diagnostics->Error(flag.where,
                           fmt::format("--slow-node: node {}{} stands there twice", both,
                                       HostsText(fabric, both, both)),
                           "each node once, with the factor of all that slows it down");
      all.push_back(slow);
    } else if (!reader.why.empty()) {
      diagnostics->Error(flag.where, "--slow-node: " + reader.why, reader.hint);
    } else if (slow.slower > 0 && slow.slower < 1) {
      diagnostics->Error(
          flag.where, fmt::format("--slow-node: '{}' makes the node faster than the others", item),
          "a factor from 1 on; where a node is faster, name the others as slower");
    } else {
      diagnostics->Error(flag.where, fmt::format("--slow-node: '{}' is no node and factor", item),
                         fmt::format("write NODE:FACTOR with a factor from 1 to {}, such as 3:1.2 "
                                     "or 4..7:1.1",
                                     kMostSlower));
    }
  }
  return all;
}

void PriceNodes(const JobFlags& flags, const std::vector<OtherNodes>& slow, report::Job* job) {
  SearchRequest& request = job->request;
  TopologySpec& topology = request.topology;
  const int64_t nodes = *std::ranges::max_element(request.nodes);
  if (!topology.other_nodes.empty()) {
    if (!job->plan.empty()) {
      throw InputError(
          {{flags.topology.where, "a plan text has no model to compare the cluster's GPUs with",
            "--model and a layout, or a topology without other_nodes"}});
    }
    AtFlag(flags.topology, [&] {
      PriceOtherNodes(request.model, request.work, request.flash_attention, request.framework,
                      &topology);
      // Where nodes are not named (plan provision), those that compute limit what is tried.
      if (flags.cluster) CheckNodesCompute(topology, nodes);
    });
    bool others = false, other_gpus = false;
    for (OtherNodes other : topology.other_nodes) {
      if (other.first >= nodes) continue;
      other.last = std::min(other.last, nodes - 1);
      others = true;
      other_gpus |= !other.gpu.empty();
      job->notes.push_back(fmt::format(
          "{}{}: kernels take {:.3g} times as long as on {}", NodesText(other, topology),
          other.gpu.empty() ? "" : fmt::format(", {}", other.gpu),
          topology.slowdown[static_cast<std::size_t>(other.first)], topology.gpu));
    }
    if (others)
      job->notes.push_back(
          "layers: a search finds shares for the GPUs of each stage; one layout has equal shares "
          "unless --layout or --placement search says otherwise");
    if (other_gpus && !topology.gpu_memory.empty())
      job->notes.push_back("memory of a stage is compared with that of the GPUs that hold it");
  }
  for (const OtherNodes& one : slow) {
    if (one.last >= nodes)
      throw InputError(
          {{flags.slow_node.where,
            fmt::format("there is no node {}{} to slow down", one.last,
                        HostsText(topology.fabric, one.last, one.last)),
            (nodes == 1 ? "there is node 0 alone" : fmt::format("nodes 0 to {}", nodes - 1)) +
                HostsText(topology.fabric, 0, nodes - 1)}});
    if (one.slower == 1) {
      job->notes.push_back(
          fmt::format("{}: a factor of 1 changes nothing", NodesText(one, topology)));
      continue;
    }
    const auto end = static_cast<std::size_t>(one.last) + 1;
    if (topology.slowdown.size() < end) topology.slowdown.resize(end, 1.0);
    bool again = false;
    for (auto node = static_cast<std::size_t>(one.first); node < end; ++node) {
      again |= topology.slowdown[node] != 1;
      topology.slowdown[node] *= one.slower;
    }
    job->notes.push_back(fmt::format("{}: kernels take {:.3g} times as long{}",
                                     NodesText(one, topology), one.slower,
                                     again ? ", on top of what its file says of it" : ""));
  }
}

}  // namespace orrery::cli
