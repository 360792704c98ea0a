// SPDX-License-Identifier: Apache-2.0
// Decides the figures of a topology.
#include "model/discover/sheet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "model/discover/fabric_text.h"
#include "model/hardware/catalog.h"

namespace orrery::discover {
namespace {

constexpr int64_t kMostInNode = 64;

// Of switches that have any, in order; empty where one lies on no switch.
std::vector<std::size_t> NicsPerSwitch(const std::vector<PcieDevice>& devices) {
  std::vector<std::size_t> counts;
  std::string last;
  for (const PcieDevice& device : devices) {
    if (device.group.empty()) return {};
    if (counts.empty() || device.group != last) counts.push_back(0);
    ++counts.back();
    last = device.group;
  }
  return counts;
}

std::vector<std::size_t> NicsPerSwitch(const NodeSpec& node) {
  std::vector<std::size_t> counts;
  for (const auto& one : node.pcie) {
    if (!one.nics.empty()) counts.push_back(one.nics.size());
  }
  return counts;
}

}  // namespace

std::string Gbps(BytesPerSecond rate) { return fmt::format("{:.6g}Gbps", rate.value * 8 / 1e9); }
std::string GBps(BytesPerSecond rate) { return fmt::format("{:.4g}GB/s", rate.value / 1e9); }

// Only what a YAML string in quotes takes as it is.
std::string Plain(std::string_view text) {
  std::string plain;
  for (const char c : text.substr(0, 200)) {
    if (c >= ' ' && c < 127 && c != '"' && c != '\\') plain += c;
  }
  return plain;
}

void Sheet::Resolve() {
  notes_ = seen_.notes;
  CheckSwitches(seen_);
  LeaveOutHosts();
  NameNetworks();
  named_ = NamedTopologies(seen_);
  FindGpu();
  nearest_ = NearestTopology(seen_, gpu_.value == kUnknownGpu ? "" : gpu_.value);
  if (!seen_.unnamed.empty()) NameDevices();
  LeaveOutPorts();
  if (gpu_.value.empty() && IsCpuMachine())
    gpu_ = {"localhost-cpu", "no GPU here; `plan bench --calibrate DIR` measures the cores", true};
  FindCounts();
  FindProfile();
  SayLeftOut();
}

void Sheet::SayLeftOut() {
  constexpr std::size_t kNamed = 16;
  std::size_t said = 0;
  for (const LeftOut& one : seen_.left_out) {
    if (++said > kNamed) continue;
    notes_.push_back(fmt::format("ignored {}: {}, not one of training ({})", one.name, one.why,
                                 PlaceText(one.where)));
  }
  if (said > kNamed) notes_.push_back(fmt::format("ignored {} more NICs", said - kNamed));
}

void Sheet::EraseHosts(const std::function<bool(const std::string&)>& bare) {
  std::erase_if(seen_.hosts, [&](const NamedNode& host) { return bare(host.name); });
  std::erase_if(seen_.launched, [&](const NamedNode& host) { return bare(host.name); });
  for (SwitchFact& one : seen_.switches) std::erase_if(one.hosts, bare);
  // Switches that are left without a host, from the leaves up.
  const auto empty = [](const SwitchFact& one) { return one.hosts.empty() && one.below.empty(); };
  for (auto at = std::ranges::find_if(seen_.switches, empty); at != seen_.switches.end();
       at = std::ranges::find_if(seen_.switches, empty)) {
    const std::string name = at->name;
    seen_.switches.erase(at);
    for (SwitchFact& one : seen_.switches) std::erase(one.below, name);
  }
}

// Nodes that no job gets, unless a hostfile lists them, or no other is there.
void Sheet::LeaveOutOfService() {
  constexpr std::size_t kNamed = 8;
  const auto listed = [&](const std::string& host) {
    return std::ranges::any_of(seen_.launched, [&](const auto& one) { return one.name == host; });
  };
  const auto out = [&](const std::string& host) {
    return seen_.out_of_service.contains(host) && !listed(host);
  };
  const auto left = std::ranges::count_if(seen_.hosts, [&](const NamedNode& host) {
    return !seen_.out_of_service.contains(host.name);
  });
  std::size_t said = 0;
  for (const auto& [host, why] : seen_.out_of_service) {
    if (++said > kNamed) continue;
    const bool stays = left == 0 || listed(host);
    notes_.push_back(listed(host) ? fmt::format("{} stays, as a hostfile lists it: {}", host, why)
                     : stays      ? fmt::format("{} is {}", host, why)
                             : fmt::format("ignored {}, where Slurm starts no job: {}", host, why));
  }
  if (said > kNamed)
    notes_.push_back(fmt::format("{} more nodes are down or drained", said - kNamed));
  if (left > 0 && said > 0) EraseHosts(out);
}

// Slurm lists login and CPU nodes, too, and nodes of other kinds.
void Sheet::LeaveOutHosts() {
  LeaveOutOfService();
  if (!seen_.gpus || (seen_.without_gpus.empty() && seen_.unlike.empty())) return;
  const auto bare = [&](const std::string& host) {
    return seen_.without_gpus.contains(host) || seen_.unlike.contains(host);
  };
  for (const NamedNode& host : seen_.launched) {
    if (!bare(host.name)) continue;
    const auto unlike = seen_.unlike.find(host.name);
    throw InputError(
        {{host.where,
          fmt::format("{} has {}, other nodes {} GPUs", host.name,
                      unlike == seen_.unlike.end() ? "no GPUs" : unlike->second, seen_.gpus->value),
          "nodes of a topology are equal: write a file for each kind"}});
  }
  EraseHosts(bare);
  if (const std::size_t left_out = seen_.without_gpus.size(); left_out > 0) {
    const std::string& one = *seen_.without_gpus.begin();
    notes_.push_back(left_out == 1
                         ? fmt::format("ignored {}: it has no GPUs", one)
                         : fmt::format("ignored {} nodes without GPUs, such as {}", left_out, one));
  }
  if (const std::size_t left_out = seen_.unlike.size(); left_out > 0) {
    const auto& [one, gpus] = *seen_.unlike.begin();
    notes_.push_back(
        fmt::format("ignored {} whose GPUs differ from those of most nodes: {} has {}; run plan "
                    "discover for such nodes separately",
                    left_out == 1 ? "a node" : fmt::format("{} nodes", left_out), one, gpus));
  }
}

// Machines with the same GPUs differ in their network: only the vendor's name of the machine, or
// NICs that were seen, tell which.
bool Sheet::NearestKnowsNics() const {
  if (!nearest_) return false;
  return !named_.empty() || (seen_.tree && !NicsOf(seen_.tree->value).empty()) || seen_.nic_rate;
}

// Behind a GPU taken from the machine's name: what else machines of that name have.
std::string Sheet::OtherGpus() const {
  std::string text;
  for (const std::string& name : named_) {
    if (name != nearest_->name)
      text += fmt::format("; {} may be {}, too: --gpu {}", seen_.machine->value, name,
                          LoadTopology(name).gpu);
  }
  return text;
}

// One of several: that of the named machine, else the first.
void Sheet::FindGpuOfType(const Fact<GpuType>& type) {
  const std::vector<std::string>& gpus = type.value.gpus;
  const std::string place = PlaceText(type.where);
  for (const std::string& name : named_) {
    const std::string gpu = LoadTopology(name).gpu;
    if (std::ranges::find(gpus, gpu) == gpus.end()) continue;
    gpu_ = {gpu, fmt::format("'{}' ({}), as in {}", Plain(type.value.name), place, name), true};
    return;
  }
  gpu_ = {gpus.front(),
          fmt::format("'{}' ({}) may also be {}: --gpu NAME", Plain(type.value.name), place,
                      fmt::join(gpus.begin() + 1, gpus.end(), " or ")),
          true};
}

void Sheet::FindGpu() {
  if (seen_.gpu_type) {
    const auto& [type, where] = *seen_.gpu_type;
    const std::string family = type.gpus[0].substr(0, type.gpus[0].find('-'));
    const std::string& said = !choices_.gpu.empty() ? choices_.gpu
                              : seen_.gpu           ? seen_.gpu->value
                                                    : type.gpus[0];
    if (!said.starts_with(family + "-"))
      Refuse(where,
             fmt::format("the GPU is '{}' here, but {} says {}", type.name,
                         choices_.gpu.empty() ? PlaceText(seen_.gpu->where) : "--gpu", said),
             "leave out the file that is not of this cluster");
  }
  if (!choices_.gpu.empty()) {
    if (seen_.gpu && seen_.gpu->value != choices_.gpu)
      Refuse(seen_.gpu->where,
             fmt::format("the GPU is {} here, but --gpu says {}", seen_.gpu->value, choices_.gpu));
    const bool named = std::ranges::any_of(
        named_, [&](const std::string& name) { return LoadTopology(name).gpu == choices_.gpu; });
    if (!seen_.gpu && !named_.empty() && !named)
      Refuse(
          seen_.machine->where,
          fmt::format("the machine is {} here, which has {}, but --gpu says {}",
                      Plain(seen_.machine->value), LoadTopology(named_.front()).gpu, choices_.gpu));
    gpu_ = {choices_.gpu, "--gpu", false};
  } else if (seen_.gpu) {
    gpu_ = From(*seen_.gpu);
  } else if (seen_.gpu_type) {
    FindGpuOfType(*seen_.gpu_type);
  } else if (seen_.unknown_gpu) {
    gpu_ = {kUnknownGpu,
            fmt::format("'{}' ({}) is not in the catalogue: --gpu NAME, `plan list gpus`",
                        Plain(seen_.unknown_gpu->value), PlaceText(seen_.unknown_gpu->where)),
            true};
  }
}

// Devices without a class: as many as the machine of the vendor's name has, GPUs first; or its NICs
// alone, which some providers list without the GPUs.
void Sheet::NameDevices() {
  const std::size_t gpus = nearest_ ? static_cast<std::size_t>(nearest_->node.gpus) : 0;
  const bool known = nearest_ && !named_.empty() && seen_.tree->value.devices.empty();
  const bool nics_alone = known && NicsPerSwitch(seen_.unnamed) == NicsPerSwitch(nearest_->node);
  if (!nics_alone && (!known || seen_.unnamed.size() != gpus + nearest_->node.nics.size()))
    Refuse(seen_.unnamed.front().where,
           fmt::format("{} PCI devices whose class is not said", seen_.unnamed.size()),
           "add the output of lspci -nn of the machine");
  notes_.push_back(nics_alone ? fmt::format("{} devices without a class: taken for the NICs of {}",
                                            seen_.unnamed.size(), nearest_->name)
                              : fmt::format("{} devices without a class: taken for the {} GPUs and "
                                            "{} NICs of {}",
                                            seen_.unnamed.size(), gpus, nearest_->node.nics.size(),
                                            nearest_->name));
  for (std::size_t i = 0; i < seen_.unnamed.size(); ++i) {
    seen_.unnamed[i].nic = nics_alone || i >= gpus;
    seen_.tree->value.devices.push_back(seen_.unnamed[i]);
  }
  seen_.gpus = Fact<int64_t>{nearest_->node.gpus, seen_.tree->where};
}

void Sheet::FindCounts() {
  const bool cpus = IsCpuMachine();
  if (gpu_.value.empty()) {
    if (nearest_)
      gpu_ = {nearest_->gpu, AsNearest() + OtherGpus(), true};
    else
      gpu_ = {kUnknownGpu, "no source names it: --gpu NAME, `plan list gpus`", true};
  }
  if (cpus)
    gpus_ = {std::min(seen_.cores->value, kMostInNode), PlaceText(seen_.cores->where), false};
  else if (seen_.gpus)
    gpus_ = From(*seen_.gpus);
  else if (nearest_)
    gpus_ = {nearest_->node.gpus, AsNearest(), true};
  else
    Refuse(FirstPlace(), "no source says how many GPUs a node has",
           "add nvidia-smi topo -m, lspci -nn or NCCL's topology of a node");
  if (gpus_.value < 1 || gpus_.value > kMostInNode)
    Refuse(FirstPlace(), fmt::format("{} GPUs in a node", gpus_.value), "1 to 64");
  FindNodes();
  if (!cpus || nodes_.value > 1) FindNics();
}

Location Sheet::FirstPlace() const {
  if (seen_.tree) return seen_.tree->where;
  if (!seen_.hosts.empty()) return seen_.hosts.front().where;
  if (seen_.gpus) return seen_.gpus->where;
  return {};
}

// Lines that name them: of a hostfile, and of what names more.
std::string Sheet::HostsPlace() const {
  if (seen_.hosts.empty()) return PlaceText({});
  if (seen_.launched.empty()) return PlaceText(seen_.hosts.front().where);
  std::set<std::string> listed;
  for (const NamedNode& host : seen_.launched) listed.insert(host.name);
  const auto more = std::ranges::find_if(
      seen_.hosts, [&](const NamedNode& host) { return !listed.contains(host.name); });
  const std::string text = PlaceText(seen_.launched.front().where);
  return more == seen_.hosts.end() ? text : text + ", " + PlaceText(more->where);
}

void Sheet::FindNodes() {
  const auto hosts = static_cast<int64_t>(seen_.hosts.size());
  const int64_t ranks = seen_.ranks && !seen_.nodes ? seen_.ranks->value : 0;
  if (ranks > 0 && ranks % gpus_.value == 0)
    seen_.nodes = Fact<int64_t>{ranks / gpus_.value, seen_.ranks->where};
  if (!seen_.switches.empty() || seen_.hosts_listed)
    nodes_ = {hosts, HostsPlace(), false};
  else if (ranks > 0 && seen_.nodes && seen_.nodes->value >= hosts)
    nodes_ = {seen_.nodes->value,
              fmt::format("{} ranks of {}, {} on a node", ranks, PlaceText(seen_.nodes->where),
                          gpus_.value),
              gpus_.assumed};
  else if (seen_.nodes && seen_.nodes->value >= hosts)
    nodes_ = From(*seen_.nodes);
  else if (hosts > 0 && (seen_.cut || ranks > hosts * gpus_.value))
    nodes_ = {hosts, "no source counts the nodes: more hosts than the log shows may take part",
              true};
  else if (hosts > 0)
    nodes_ = {hosts, HostsPlace(), false};
  else
    nodes_ = {1, "no source counts the nodes", true};
  max_nodes_ = nodes_;
  if (choices_.nodes) {
    if (!nodes_.assumed && *choices_.nodes > nodes_.value)
      throw InputError(
          {{choices_.nodes_where,
            fmt::format("--nodes {}, but {} node{} found ({})", *choices_.nodes, nodes_.value,
                        nodes_.value == 1 ? " was" : "s were", nodes_.from),
            "no --nodes, at most as many, or no file that counts the nodes"}});
    nodes_ = {*choices_.nodes, "--nodes", false};
  }
}

void Sheet::FindNics() {
  const std::size_t in_tree = seen_.tree ? NicsOf(seen_.tree->value).size() : 0;
  const std::vector<const IbDevice*> used = PortsOfTraining();
  FindNicRate(used);
  if (in_tree > 0) {
    nics_ = {static_cast<int64_t>(in_tree), PlaceText(seen_.tree->where), false};
  } else if (!seen_.ib.empty() && std::ranges::none_of(seen_.ib, &IbDevice::active)) {
    nics_ = {0, PlaceText(seen_.ib.front().where), false};
  } else if (const int64_t active =
                 std::ranges::count_if(used, [](const IbDevice* one) { return one->active(); });
             active > 0) {
    nics_ = {active, PlaceText(used.front()->where), false};
  } else if (seen_.nics_used && seen_.nics_used->value > 0) {
    nics_ = From(*seen_.nics_used);
  } else if (NearestKnowsNics()) {
    nics_ = {static_cast<int64_t>(nearest_->node.nics.size()), AsNearest(), true};
  } else if (seen_.cut) {
    nics_ = {1, "the log is cut before NICs: add ibstat or lspci -nn of a node", true};
  } else if (std::max(max_nodes_.value, nodes_.value) > 1) {
    nics_ = {1, "no source shows NICs: add ibstat or lspci -nn of a node", true};
  }
  CheckInUse(used);
  FindDegraded(used);
  if (nics_.value > kMostInNode)
    Refuse(FirstPlace(), fmt::format("{} NICs in a node", nics_.value), "at most 64");
}

void Sheet::FindNicRate(const std::vector<const IbDevice*>& used) {
  std::map<double, int> counts;
  for (const IbDevice* one : used) {
    if (one->active() && one->rate.value > 0) ++counts[one->rate.value];
  }
  const auto most =
      std::ranges::max_element(counts, {}, [](const auto& row) { return row.second; });
  if (most != counts.end()) {
    const auto first = std::ranges::find_if(
        used, [&](const IbDevice* one) { return one->active() && one->rate.value == most->first; });
    if (seen_.nic_rate && seen_.nic_rate->value.value != most->first)
      Refuse((*first)->where,
             fmt::format("{} runs at {} here, but {} says {}", (*first)->name, Gbps((*first)->rate),
                         PlaceText(seen_.nic_rate->where), Gbps(seen_.nic_rate->value)));
    nic_rate_ = {BytesPerSecond(most->first), PlaceText((*first)->where), false};
    for (const IbDevice* one : used) {
      if (one->active() && one->rate.value != most->first)
        notes_.push_back(fmt::format("{} runs at {}, {} at {} ({})", one->name, Gbps(one->rate),
                                     counts[one->rate.value] < most->second ? "most" : "others",
                                     Gbps(nic_rate_.value), PlaceText(one->where)));
    }
  } else if (seen_.nic_rate) {
    nic_rate_ = From(*seen_.nic_rate);
  } else if (NearestKnowsNics() && !nearest_->node.nics.empty()) {
    nic_rate_ = {nearest_->node.nic_rate, AsNearest(), true};
  } else {
    nic_rate_ = {BytesPerSecond(12.5e9), "not given by any source", true};
  }
}

void Sheet::FindProfile() {
  const std::vector<const IbDevice*> ports = PortsOfTraining();
  const auto ib = std::ranges::find_if(
      ports, [](const IbDevice* one) { return one->active() && !one->network.empty(); });
  if (IsCpuMachine() && nodes_.value == 1)
    profile_ = {"localhost", "messages through memory", true};
  else if (nics_.value == 0)
    profile_ = {"nvlink-only", "no NIC", true};
  else if (seen_.network)
    profile_ = From(*seen_.network);
  else if (ib != ports.end())
    profile_ = {(*ib)->network, PlaceText((*ib)->where), false};
  else if (NearestKnowsNics())
    profile_ = {nearest_->fabric_profile, AsNearest(), true};
  else
    profile_ = {"tcp", "no source names the network", true};
  // Sources name the kind of network alone: EFA of p5 has a profile of its own.
  if (nearest_ && nearest_->fabric_profile.starts_with(profile_.value + "-"))
    profile_ = {nearest_->fabric_profile, profile_.from + ", " + AsNearest(), profile_.assumed};
}

}  // namespace orrery::discover
