// SPDX-License-Identifier: Apache-2.0
// Class constants of a network from sweeps, through the closed form.
#include "calib/sweeps/fabric_fit.h"

#include <fmt/format.h>

#include <cmath>

#include "model/collectives/select.h"

namespace orrery {
namespace {

constexpr double kFactorE = 1.0;
constexpr const char* kKeys[] = {"nic_ring_efficiency",
                                 "nic_tree_efficiency",
                                 "nic_nvls_tree_efficiency",
                                 "point_to_point_efficiency",
                                 "socket_stream",
                                 "large_ring_loss",
                                 "hop",
                                 "low_latency_hop",
                                 "low_latency_bandwidth",
                                 "pipelining"};

std::optional<Collective> ByName(const std::string& name) {
  for (int i = 0; i < kCollectives; ++i) {
    if (name == Name(static_cast<Collective>(i))) return static_cast<Collective>(i);
  }
  return std::nullopt;
}

bool Belongs(const MeasuredRuns& sweep, const TopologySpec* topology, const std::string& fabric) {
  return topology != nullptr && topology->fabric_profile == fabric && sweep.nodes > 1 &&
         sweep.ranks % sweep.nodes == 0 && ByName(sweep.collective).has_value() &&
         sweep.nodes <= topology->max_nodes && sweep.ranks_per_node() <= topology->node.gpus;
}

}  // namespace

CollectiveSource::CollectiveSource(const std::vector<MeasuredRuns>& sweeps,
                                   const MachineTopologies& topologies, const std::string& fabric,
                                   ProfileStore* store) {
  for (const MeasuredRuns& sweep : sweeps) {
    const TopologySpec* topology = topologies.Find(sweep.machine);
    if (!Belongs(sweep, topology, fabric)) continue;
    const int index = static_cast<int>(sweeps_.size());
    sweeps_.push_back(sweep);
    clusters_.push_back(Summarise(*topology, sweep.nodes, sweep.ranks_per_node()));
    for (const SweepPoint& point : sweep.points) {
      Observation seen;
      seen.name = fmt::format("{} {:.0f} B", sweep.name, point.bytes);
      seen.source = seen.group = sweep.name;
      seen.model = fmt::format("{:.0f} B", point.bytes);
      seen.topology = topology->name;
      seen.measured = point.seconds;
      seen.gpu = store->Gpu(topology->gpu);
      seen.fabric = store->Fabric(fabric);
      observations_.push_back(std::move(seen));
      points_.push_back({index, point.bytes});
    }
  }
  if (!observations_.empty()) return;
  throw InputError(
      fmt::format("no sweep over several nodes of a topology with the fabric '{}'", fabric),
      "--topology NAME says where the sweeps ran");
}

void CollectiveSource::Predict(const ProfileStore& store, const std::vector<int>& which,
                               std::vector<double>* values) const {
  std::map<int, PreparedCollective> prepared;
  values->clear();
  for (int index : which) {
    const Point& point = points_[static_cast<std::size_t>(index)];
    const Observation& seen = observations_[static_cast<std::size_t>(index)];
    auto found = prepared.find(point.sweep);
    if (found == prepared.end()) {
      const MeasuredRuns& sweep = sweeps_[static_cast<std::size_t>(point.sweep)];
      const ClusterSummary& cluster = clusters_[static_cast<std::size_t>(point.sweep)];
      const GroupShape shape{sweep.ranks, cluster.domain_gpus(), 1};
      const Network network =
          ViewNetwork(cluster, store.gpu(seen.gpu), store.fabric(seen.fabric), shape);
      found =
          prepared
              .emplace(point.sweep, Prepare(*ByName(sweep.collective), network, sweep.algorithm))
              .first;
    }
    values->push_back(found->second.Time(point.bytes));
  }
}

std::vector<ParameterRequest> FabricRequests(const std::string& fabric, const ProfileStore& store) {
  const std::string parent = store.Parent(ProfileLayer::kFabric, fabric);
  const FabricProfile prior = LoadFabricProfile(parent.empty() ? fabric : parent);
  std::vector<ParameterRequest> requests;
  for (const char* key : kKeys) {
    const auto constant = prior.header.constants.find(key);
    if (constant == prior.header.constants.end()) continue;  // socket_stream where there are none
    const ConstantName name{ProfileLayer::kFabric, fabric, key};
    const double value = ParseConstant(constant->second.value, RangeOf(name).kind, name.Text());
    if (value > 0) requests.push_back({{name}, value, kFactorE});
  }
  return requests;
}

FabricFit FitFabric(const Evidence& evidence, const CollectiveSource& source,
                    std::vector<FitParameter> parameters) {
  Fitter fitter(evidence, std::move(parameters), {});
  FabricFit fit;
  fit.result = fitter.Fit();
  fit.left_out = LeaveGroupsOut(evidence, Holdout::kModel, &fitter).error;
  for (const Observation& seen : source.observations())
    fit.bytes.push_back(std::strtod(seen.model.c_str(), nullptr));
  return fit;
}

}  // namespace orrery
