// SPDX-License-Identifier: Apache-2.0
// Compares nodes and pairs with one another and with given bounds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "model/base/median.h"
#include "model/base/text.h"
#include "model/hardware/summary.h"
#include "runtime/health/health.h"

namespace orrery::check {
namespace {

constexpr std::size_t kFewestForMedian = 3;

// 0: too few to compare.
double MedianOfMany(std::vector<double> values) {
  std::erase_if(values, [](double value) { return value <= 0; });
  return values.size() < kFewestForMedian ? 0 : Median(std::move(values));
}

template <class Q>
void JudgeRates(const char* what, double NodeHealth::*rate, double given, double tolerance,
                Health* health) {
  std::vector<double> values;
  for (const NodeHealth& node : health->nodes) values.push_back(node.*rate);
  const double median = MedianOfMany(values), relative = median * (1 - tolerance);
  for (const NodeHealth& node : health->nodes) {
    const double value = node.*rate;
    if (value <= 0) continue;
    if (given > 0 && value < given)
      health->findings.push_back({what,
                                  {node.host},
                                  fmt::format("{}: {} of {}, at least {} expected", node.host, what,
                                              Format(Q(value)), Format(Q(given)))});
    else if (relative > 0 && value < relative)
      health->findings.push_back({what,
                                  {node.host},
                                  fmt::format("{}: {} of {}, the median of all is {}", node.host,
                                              what, Format(Q(value)), Format(Q(median)))});
  }
}

void JudgeClocks(const Bounds& bounds, Health* health) {
  // Against the median, so that a wrong clock of rank 0 is not everybody's.
  std::vector<double> ahead;
  for (const NodeHealth& node : health->nodes) ahead.push_back(node.skew);
  const double middle = ahead.size() < kFewestForMedian ? 0 : Median(std::move(ahead));
  for (const NodeHealth& node : health->nodes) {
    const double skew = node.skew - middle;
    if (std::abs(skew) - node.skew_error <= bounds.skew) continue;
    health->findings.push_back(
        {"clock",
         {node.host},
         fmt::format("{}: its clock is {} {} the others'", node.host,
                     Format(Seconds(std::abs(skew))), skew > 0 ? "ahead of" : "behind")});
  }
}

void JudgePairs(const Bounds& bounds, Health* health) {
  std::vector<double> rates;
  for (const PairHealth& pair : health->pairs) {
    const auto& a = health->nodes[static_cast<std::size_t>(pair.a)];
    const auto& b = health->nodes[static_cast<std::size_t>(pair.b)];
    if (a.host != b.host) rates.push_back(pair.rate);
  }
  // Ranks of one host exchange through memory: they are compared with one another only where all are.
  const bool between = !rates.empty();
  if (!between) {
    for (const PairHealth& pair : health->pairs) rates.push_back(pair.rate);
  }
  const double median = MedianOfMany(rates), relative = median * (1 - bounds.tolerance);
  for (const PairHealth& pair : health->pairs) {
    const std::string& a = health->nodes[static_cast<std::size_t>(pair.a)].host;
    const std::string& b = health->nodes[static_cast<std::size_t>(pair.b)].host;
    if (between && a == b) continue;
    const bool below_topology = a != b && bounds.network > 0 && pair.rate < bounds.network;
    if (!below_topology && !(relative > 0 && pair.rate < relative)) continue;
    health->findings.push_back(
        {"network",
         {a, b},
         fmt::format("{} to {} (ranks {} and {}): {}, {}", a, b, pair.a, pair.b,
                     Format(BytesPerSecond(pair.rate)),
                     below_topology ? fmt::format("{} expects at least {}", bounds.topology,
                                                  Format(BytesPerSecond(bounds.network)))
                                    : fmt::format("the median of all pairs is {}",
                                                  Format(BytesPerSecond(median))))});
  }
}

// Hosts of bad nodes; of bad pairs the host that is in more of them than both others' half.
void NameHosts(Health* health) {
  std::set<std::string> bad;
  std::map<std::string, int> in_pairs;
  for (const Finding& finding : health->findings) {
    if (finding.hosts.size() == 1) bad.insert(finding.hosts.front());
    for (const std::string& host : finding.hosts) {
      if (finding.hosts.size() == 2) ++in_pairs[host];
    }
  }
  int most = 0;
  for (const auto& [host, count] : in_pairs) most = std::max(most, count);
  for (const auto& [host, count] : in_pairs) {
    if (count == most) bad.insert(host);
  }
  health->bad_hosts.assign(bad.begin(), bad.end());
}

}  // namespace

BytesPerSecond LeastPairRate(const TopologySpec& spec, int64_t on_host) {
  // Of a rank's share of its node's NICs: what protocols and the host leave of it is no fault.
  constexpr double kLeastOfNetwork = 0.5;
  const ClusterSummary summary = Summarise(spec, spec.max_nodes > 1 ? 2 : 1);
  if (summary.nics_per_node == 0) return {};
  const double ranks_per_nic = std::max(1.0, static_cast<double>(on_host) / summary.nics_per_node);
  return std::min(spec.node.nic_rate, summary.pcie_rate) *
         (kLeastOfNetwork / summary.oversubscription / ranks_per_nic);
}

void Judge(const Bounds& bounds, Health* health) {
  for (const NodeHealth& node : health->nodes) {
    if (!node.problem.empty())
      health->findings.push_back({"disk", {node.host}, node.host + ": " + node.problem});
  }
  JudgeRates<FlopsPerSecond>("compute", &NodeHealth::compute, bounds.compute, bounds.tolerance,
                             health);
  JudgeRates<BytesPerSecond>("memory", &NodeHealth::memory, bounds.memory, bounds.tolerance,
                             health);
  JudgeRates<BytesPerSecond>("disk", &NodeHealth::disk, 0, bounds.tolerance, health);
  JudgeClocks(bounds, health);
  JudgePairs(bounds, health);
  NameHosts(health);
}

}  // namespace orrery::check
