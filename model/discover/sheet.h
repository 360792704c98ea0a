// SPDX-License-Identifier: Apache-2.0
// The figures of a topology, each decided from what was observed, with its source.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/discover/topology_text.h"

namespace orrery::discover {

// A value and how it is known: a place, or why it is assumed.
template <class T>
struct Known {
  T value{};
  std::string from;  // "topo.xml:3"
  bool assumed = false;
};

// A NIC below the rate of the others.
struct Degraded {
  int nic = 0;  // nic3
  std::string name;
  BytesPerSecond rate;
  std::string from;
};

// Decides; the writer of the file reads the figures.
class Sheet {
 public:
  Sheet(const Observed& seen, const Choices& choices) : seen_(seen), choices_(choices) {}
  void Resolve();

 protected:
  template <class T>
  static Known<T> From(const Fact<T>& fact) {
    return {fact.value, PlaceText(fact.where), false};
  }
  std::string AsNearest() const { return "as " + nearest_->name; }
  bool IsCpuMachine() const { return seen_.cores && !seen_.gpus && choices_.gpu.empty(); }

  Observed seen_;  // completed: devices without a class find theirs
  const Choices& choices_;
  std::optional<TopologySpec> nearest_;
  std::vector<std::string> named_;  // NamedTopologies()
  std::vector<std::string> notes_;
  Known<std::string> gpu_, profile_;
  Known<int64_t> gpus_, nics_, nodes_, max_nodes_;
  Known<BytesPerSecond> nic_rate_;  // of most
  std::vector<Degraded> degraded_;

 private:
  void EraseHosts(const std::function<bool(const std::string&)>& bare);
  void LeaveOutOfService();
  void LeaveOutHosts();
  void NameNetworks();
  bool HaveTrainedDown(int64_t fast, int64_t slow) const;
  std::vector<const IbDevice*> PortsOfTraining();
  void CheckInUse(const std::vector<const IbDevice*>& used);
  void FindDegraded(const std::vector<const IbDevice*>& used);
  void SayLeftOut();
  void LeaveOutPorts();
  void FindGpu();
  void FindGpuOfType(const Fact<GpuType>& type);
  void NameDevices();
  void FindCounts();
  Location FirstPlace() const;
  std::string HostsPlace() const;
  void FindNodes();
  void FindNics();
  void FindNicRate(const std::vector<const IbDevice*>& used);
  void FindProfile();
  bool NearestKnowsNics() const;
  std::string OtherGpus() const;
};

std::string Gbps(BytesPerSecond rate);  // "400Gbps"
std::string GBps(BytesPerSecond rate);  // "31.5GB/s"
// Only what a YAML string in quotes takes as it is.
std::string Plain(std::string_view text);

}  // namespace orrery::discover
