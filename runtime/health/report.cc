// SPDX-License-Identifier: Apache-2.0
// Health as text and JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/base/text.h"
#include "runtime/health/health.h"

namespace orrery::check {
namespace {

// Their messages do not cross the network.
std::ptrdiff_t PairsOfOneHost(const Health& health) {
  const auto host = [&](int64_t rank) -> const std::string& {
    return health.nodes[static_cast<std::size_t>(rank)].host;
  };
  return std::ranges::count_if(health.pairs, [&](const PairHealth& pair) {
    return std::max(pair.a, pair.b) < static_cast<int64_t>(health.nodes.size()) &&
           host(pair.a) == host(pair.b);
  });
}

}  // namespace

std::string HealthText(const Health& health, const Bounds& bounds) {
  std::string text = fmt::format(
      "{} rank{}, {} pair{}{}\n", health.nodes.size(), health.nodes.size() == 1 ? "" : "s",
      health.pairs.size(), health.pairs.size() == 1 ? "" : "s",
      bounds.network > 0 ? fmt::format("; {} expects at least {} per pair", bounds.topology,
                                       Format(BytesPerSecond(bounds.network)))
                         : "");
  text += fmt::format("  {:<5} {:<20} {:>14} {:>12} {:>12} {:>12}\n", "rank", "host", "compute",
                      "memory", "disk", "clock");
  for (std::size_t rank = 0; rank < health.nodes.size(); ++rank) {
    const NodeHealth& node = health.nodes[rank];
    text += fmt::format("  {:<5} {:<20} {:>14} {:>12} {:>12} {:>12}\n", rank, node.host,
                        Format(FlopsPerSecond(node.compute)), Format(BytesPerSecond(node.memory)),
                        node.disk > 0 ? Format(BytesPerSecond(node.disk)) : "-",
                        fmt::format("{:+.2g} ms", node.skew * 1e3));
  }
  if (!health.pairs.empty()) {
    const auto [low, high] = std::ranges::minmax(health.pairs, {}, &PairHealth::rate);
    text += fmt::format("  network {} (ranks {} and {}) to {} (ranks {} and {})\n",
                        Format(BytesPerSecond(low.rate)), low.a, low.b,
                        Format(BytesPerSecond(high.rate)), high.a, high.b);
  }
  if (const auto inside = PairsOfOneHost(health); bounds.network > 0 && inside > 0)
    text +=
        fmt::format("  {} pair{} of ranks on one host: not compared with the topology's network\n",
                    inside, inside == 1 ? "" : "s");
  for (const Finding& finding : health.findings) text += "  outside " + finding.text + "\n";
  return text + (health.findings.empty()
                     ? "all inside\n"
                     : fmt::format("bad: {}\n", fmt::join(health.bad_hosts, ", ")));
}

nlohmann::ordered_json HealthJson(const Health& health, const Bounds& bounds) {
  nlohmann::ordered_json nodes = nlohmann::ordered_json::array(), pairs = nodes, findings = nodes;
  for (const NodeHealth& node : health.nodes) {
    nodes.push_back({{"host", node.host},
                     {"compute_flops_per_s", node.compute},
                     {"memory_bytes_per_s", node.memory},
                     {"disk_bytes_per_s", node.disk},
                     {"clock_ahead_s", node.skew},
                     {"clock_error_s", node.skew_error},
                     {"problem", node.problem}});
  }
  for (const PairHealth& pair : health.pairs) {
    pairs.push_back(
        {{"ranks", {pair.a, pair.b}}, {"bytes_per_s", pair.rate}, {"latency_s", pair.latency}});
  }
  for (const Finding& finding : health.findings)
    findings.push_back({{"what", finding.what}, {"hosts", finding.hosts}, {"text", finding.text}});
  return {{"schema", "orrery.check/1"},
          {"healthy", health.findings.empty()},
          {"bad_hosts", health.bad_hosts},
          {"topology", bounds.topology},
          {"least_network_bytes_per_s", bounds.network},
          {"tolerance", bounds.tolerance},
          {"pairs_of_one_host", PairsOfOneHost(health)},
          {"nodes", nodes},
          {"pairs", pairs},
          {"findings", findings}};
}

}  // namespace orrery::check
