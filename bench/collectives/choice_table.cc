// SPDX-License-Identifier: Apache-2.0
// Reads the rows and asks both selectors.
#include "bench/collectives/choice_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "model/base/csv.h"
#include "model/base/diagnostics.h"
#include "model/collectives/nccl_choice.h"
#include "model/collectives/select.h"
#include "model/hardware/catalog.h"
#include "model/hardware/measured_collectives.h"

namespace orrery {
namespace {

std::vector<NcclRow> ReadRows(const std::string& file) {
  Diagnostics diagnostics;
  const CsvTable table =
      CsvTable::Parse(ReadSource(file),
                      {"topology", "gpus_per_node", "nodes", "collective", "bytes",
                       "chosen_algorithm", "chosen_protocol", "channels", "threads"},
                      &diagnostics);
  diagnostics.ThrowIfAny();
  std::vector<NcclRow> rows;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const auto number = [&](const char* column) {
      constexpr int64_t kMost = 1'000'000;
      return static_cast<int>(table.Integer(i, column, 1, kMost).value_or(1));
    };
    NcclRow row;
    row.machine = table.Text(i, "topology");
    row.collective = table.Text(i, "collective");
    row.algorithm = table.Text(i, "chosen_algorithm");
    row.protocol = table.Text(i, "chosen_protocol");
    row.gpus_per_node = number("gpus_per_node");
    row.nodes = number("nodes");
    row.channels = number("channels");
    row.threads = number("threads");
    row.bytes = table.Number(i, "bytes", 1, 1e15).value_or(1);
    rows.push_back(std::move(row));
  }
  diagnostics.ThrowIfAny();
  return rows;
}

struct Machine {
  TopologySpec spec;
  GpuProfile gpu;
  FabricProfile fabric;
};

Machine ReadMachine(const std::string& name, const std::string& folder) {
  const std::string own = folder + "/" + name + ".yaml";
  Machine machine;
  machine.spec = LoadTopology(std::filesystem::exists(own) ? own : name);
  machine.gpu = LoadGpuProfile(machine.spec.gpu);
  machine.fabric = LoadFabricProfile(machine.spec.fabric_profile);
  return machine;
}

// A node of the table is a scale-up domain of as many machines as its GPUs fill.
ClusterSummary ClusterOf(TopologySpec spec, int nodes, int gpus) {
  if (spec.node.domain_nodes == 1) return Summarise(spec, nodes, gpus);
  const int machines = (gpus + spec.node.gpus - 1) / spec.node.gpus;
  spec.node.domain_nodes = machines;
  spec.max_nodes = std::max<int64_t>(spec.max_nodes, int64_t{nodes} * machines);
  return Summarise(spec, int64_t{nodes} * machines, gpus / machines);
}

struct Group {
  std::shared_ptr<const nccl::Communicator> nccl;
  Network network;
};

// Where the twin knows no reduce to one rank, a broadcast is its mirror image.
Collective TwinCollective(nccl::Operation operation) {
  switch (operation) {
    case nccl::Operation::kAllReduce:
      return Collective::kAllReduce;
    case nccl::Operation::kAllGather:
      return Collective::kAllGather;
    case nccl::Operation::kReduceScatter:
      return Collective::kReduceScatter;
    case nccl::Operation::kBroadcast:
    case nccl::Operation::kReduce:
      break;
  }
  return Collective::kBroadcast;
}

nccl::Operation OperationNamed(const std::string& name) {
  for (int o = 0; o < nccl::kOperations; ++o) {
    const auto operation = static_cast<nccl::Operation>(o);
    if (name == nccl::Name(operation)) return operation;
  }
  throw InputError(fmt::format("no collective '{}'", name),
                   "all_reduce, all_gather, reduce_scatter, broadcast or reduce");
}

}  // namespace

std::vector<ChoiceAgreement> CompareChoices(const std::string& file, const std::string& folder) {
  std::map<std::string, Machine> machines;
  std::map<std::tuple<std::string, int, int>, Group> groups;
  std::vector<ChoiceAgreement> compared;
  for (NcclRow& row : ReadRows(file)) {
    auto machine = machines.find(row.machine);
    if (machine == machines.end())
      machine = machines.emplace(row.machine, ReadMachine(row.machine, folder)).first;
    const auto [group, added] = groups.try_emplace({row.machine, row.gpus_per_node, row.nodes});
    if (added) {
      const auto& [spec, gpu, fabric] = machine->second;
      const ClusterSummary cluster = ClusterOf(spec, row.nodes, row.gpus_per_node);
      const GroupShape shape{row.gpus_per_node * row.nodes, row.gpus_per_node, 1};
      group->second.nccl = NcclCommunicator(cluster, gpu, fabric, shape);
      group->second.network = ViewNetwork(cluster, gpu, fabric, shape);
      group->second.network.nccl = {};  // the fastest
    }
    const nccl::Operation operation = OperationNamed(row.collective);
    ChoiceAgreement one;
    const MessagePrice fastest =
        PriceMessage(TwinCollective(operation), group->second.network, row.bytes);
    std::string name = fastest.algorithm->name();
    if (name == "nvls-tree") name = "nvls_tree";
    one.fastest_algorithm = name == row.algorithm;
    one.fastest_protocol =
        (fastest.protocol != nccl::Protocol::kSimple) == (row.protocol != "simple");
    const auto choice = group->second.nccl == nullptr
                            ? std::nullopt
                            : group->second.nccl->Choose(operation, row.bytes);
    if (choice) {
      one.algorithm = row.algorithm == nccl::Name(choice->algorithm);
      one.protocol = row.protocol == nccl::Name(choice->protocol);
      one.channels = row.channels == choice->channels;
      one.threads = row.threads == choice->threads;
      one.choice = fmt::format("{} {} {}x{}", nccl::Name(choice->algorithm),
                               nccl::Name(choice->protocol), choice->channels, choice->threads);
    }
    one.row = std::move(row);
    compared.push_back(std::move(one));
  }
  return compared;
}

}  // namespace orrery
