// SPDX-License-Identifier: Apache-2.0
// What is known of a machine before its sweep: topology, class constants, line rate, algorithm.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "calib/sweeps/machine.h"
#include "model/collectives/select.h"
#include "model/hardware/catalog.h"
#include "model/hardware/summary.h"

namespace orrery {
namespace {

// How far class constants are off, as standard deviations of logarithms: a node's links reach what
// they promise within a tenth, NICs do not.
constexpr double kLatencyDoubt = 0.7, kLinkDoubt = 0.12, kNicDoubt = 0.35, kLossDoubt = 0.3;
constexpr double kLatencyStepDoubt = 0.6, kBandwidthStepDoubt = 0.6;
// S over time of a large all-reduce, in line rates of a node: sockets reach a quarter to a third,
// RDMA half (a ring's 2 (n-1) / n) to all of it (a tree between two nodes).
constexpr double kSocketShare = 0.3, kRdmaShare = 0.7, kShareDoubt = 0.4;
constexpr int kSmallestPower = 3, kLargestPower = 33;

std::optional<Collective> ModelCollective(const std::string& name) {
  for (int i = 0; i < kCollectives; ++i) {
    if (name == Name(static_cast<Collective>(i))) return static_cast<Collective>(i);
  }
  if (name == "reduce") return Collective::kBroadcast;
  return std::nullopt;
}

std::optional<PreparedCollective> PrepareModel(const MeasuredRuns& sweep,
                                               const TopologySpec* topology) {
  const auto collective = ModelCollective(sweep.collective);
  if (topology == nullptr || !collective || sweep.nodes < 1 || sweep.ranks < 2 ||
      sweep.ranks % sweep.nodes != 0 || sweep.nodes > topology->max_nodes ||
      sweep.ranks_per_node() > topology->node.gpus || NodesPerDomain(*topology, sweep.nodes) == 0)
    return std::nullopt;
  const ClusterSummary cluster = Summarise(*topology, sweep.nodes, sweep.ranks_per_node());
  const GroupShape shape{sweep.ranks, cluster.domain_gpus(), 1};
  Network network = ViewNetwork(cluster, LoadGpuProfile(cluster.gpu),
                                LoadFabricProfile(cluster.fabric_profile), shape);
  network.nccl = {};  // curves are the least of two protocols, whatever a library takes
  const Algorithm* named = FindAlgorithm(sweep.algorithm);
  const bool known = named != nullptr && named->Cost(*collective, network);
  return Prepare(*collective, network, known ? sweep.algorithm : "");
}

CurvePrior StructuralPrior(const MeasuredRuns& sweep, const PreparedCollective& model) {
  std::vector<SweepPoint> points;
  for (int power = kSmallestPower; power <= kLargestPower; ++power)
    points.push_back({std::ldexp(1.0, power), model.Time(std::ldexp(1.0, power))});
  const SweepCurve curve = FitCurve(points, GenericPrior(sweep.nodes), {2, false}).curve;
  const SweepCurve::Protocol &fast = curve.protocols[0], &wide = curve.protocols[1];
  CurvePrior prior;
  prior.log_latency = {std::log(fast.latency), kLatencyDoubt};
  prior.log_bandwidth = {-std::log(wide.per_byte), sweep.nodes == 1 ? kLinkDoubt : kNicDoubt};
  prior.log_latency_step = {std::log(wide.latency / fast.latency), kLatencyStepDoubt};
  prior.log_bandwidth_step = {std::log(wide.per_byte / fast.per_byte), kBandwidthStepDoubt};
  prior.loss = {curve.per_root_byte / (2 * std::sqrt(wide.latency * wide.per_byte)), kLossDoubt};
  return prior;
}

// Chips whose switch adds by itself (in-switch reduction).
bool ReducesInSwitch(const std::string& machine) {
  return std::ranges::any_of(
      std::initializer_list<const char*>{"H100", "H200", "B200", "B300", "NVLS"},
      [&](const char* chip) { return machine.find(chip) != std::string::npos; });
}

}  // namespace

MachineTopologies::MachineTopologies(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    const std::size_t equals = text.rfind('=');
    const std::string part = equals == std::string::npos ? "" : text.substr(0, equals);
    by_text_[part] = LoadTopology(equals == std::string::npos ? text : text.substr(equals + 1));
  }
}

const TopologySpec* MachineTopologies::Find(const std::string& machine) const {
  const TopologySpec* best = nullptr;
  std::size_t longest = 0;
  for (const auto& [text, spec] : by_text_) {
    if (machine.find(text) == std::string::npos || (best != nullptr && text.size() <= longest))
      continue;
    best = &spec;
    longest = text.size();
  }
  return best;
}

double LineRateIn(const std::string& text) {
  static const std::regex kRate("(?:([0-9]{1,3})x)?([0-9]{1,5}) ?Gbps");
  double best = 0;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), kRate);
       at != std::sregex_iterator(); ++at) {
    const double count = (*at)[1].matched ? std::stod((*at)[1]) : 1;
    best = std::max(best, count * std::stod((*at)[2]) * 1e9 / 8);
  }
  return best;
}

void NameAlgorithm(const std::string& text, std::vector<MeasuredRuns>* sweeps) {
  const std::size_t equals = text.rfind('=');
  const std::string part = equals == std::string::npos ? "" : text.substr(0, equals);
  const std::string name = equals == std::string::npos ? text : text.substr(equals + 1);
  for (MeasuredRuns& sweep : *sweeps) {
    if (sweep.algorithm.empty() && sweep.machine.find(part) != std::string::npos)
      sweep.algorithm = name;
  }
}

std::string AlgorithmOf(const MeasuredRuns& sweep, const TopologySpec* topology) {
  if (!sweep.algorithm.empty()) return sweep.algorithm;
  if (const auto model = PrepareModel(sweep, topology)) {
    const std::string choice = model->Choice(64.0 * 1024 * 1024);
    return choice.substr(0, choice.find(' '));
  }
  if (sweep.collective == "all_to_all" || sweep.collective == "sendrecv") return "direct";
  if (sweep.collective != "all_reduce") return "ring";
  if (sweep.nodes != 1) return "";
  return sweep.ranks > 2 && ReducesInSwitch(sweep.machine) ? "nvls" : "ring";
}

int RingsOf(const TopologySpec* topology, int ranks) {
  if (topology == nullptr || topology->node.packed_rings.empty()) return 1;
  const std::vector<int>& rings = topology->node.packed_rings;
  const auto at = static_cast<std::size_t>(ranks);
  return at < rings.size() ? rings[at] : 0;
}

std::optional<double> ModelTime(const MeasuredRuns& sweep, const TopologySpec* topology,
                                double bytes) {
  const auto model = PrepareModel(sweep, topology);
  if (!model) return std::nullopt;
  return model->Time(bytes);
}

double ChainPipelining(const TopologySpec* topology, int nodes) {
  if (nodes > 1)
    return LoadFabricProfile(topology == nullptr ? "infiniband" : topology->fabric_profile)
        .chain_pipelining;
  return LoadGpuProfile(topology == nullptr ? "a100-sxm4-80gb" : topology->gpu).chain_pipelining;
}

CurvePrior PriorOf(const MeasuredRuns& sweep, const TopologySpec* topology) {
  if (const auto model = PrepareModel(sweep, topology)) return StructuralPrior(sweep, *model);
  CurvePrior prior = GenericPrior(sweep.nodes);
  const double line = LineRateIn(sweep.machine);
  const double wire = WireFactor(sweep.collective, sweep.ranks);
  if (sweep.nodes > 1 && line > 0 && wire > 0) {
    const bool sockets = std::regex_search(sweep.machine, std::regex("\\bTCP\\b"));
    const double share = sockets ? kSocketShare : kRdmaShare;
    const double all_reduce = WireFactor("all_reduce", sweep.ranks);
    prior.log_bandwidth = {std::log(share * line * all_reduce / wire), kShareDoubt};
  }
  return prior;
}

}  // namespace orrery
