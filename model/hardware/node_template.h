// SPDX-License-Identifier: Apache-2.0
// One node: its devices and directed links with local ids, and the routes inside it.
//
// Routes are found once by Dijkstra: fewest hops, then widest links, then lowest link ids. GPU to
// GPU over scale-up links where they connect the two, else through PCIe; GPU to NIC through PCIe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/hardware/cluster.h"

namespace orrery {

class NodeTemplate {
 public:
  explicit NodeTemplate(const NodeSpec& spec);

  // Local vertices, in order: GPUs, NVSwitch (if any), PCIe switches, hosts, NICs.
  const std::vector<Device>& devices() const { return devices_; }
  const std::vector<Link>& links() const { return links_; }
  VertexId NicVertex(int nic) const { return first_nic_ + nic; }

  std::span<const LinkId> GpuToGpu(int from, int to) const { return Stored(from * gpus_ + to); }
  std::span<const LinkId> GpuToNic(int gpu, int nic) const {
    return Stored(gpus_ * gpus_ + gpu * nics_ + nic);
  }
  std::span<const LinkId> NicToGpu(int nic, int gpu) const {
    return Stored(gpus_ * gpus_ + gpus_ * nics_ + gpu * nics_ + nic);
  }

  // The NICs nearest to a GPU (same switch, else same host, else all), its own first: GPUs that
  // share them start at different ones.
  const std::vector<int>& NearestNics(int gpu) const {
    return nearest_nics_[static_cast<std::size_t>(gpu)];
  }
  int NicOf(int gpu, int channel) const;

 private:
  std::span<const LinkId> Stored(int route) const;
  void AddDevices(const NodeSpec& spec);
  void AddLinks(const NodeSpec& spec);
  void AddBoth(VertexId a, VertexId b, BytesPerSecond capacity, LinkKind kind);
  void FindRoutes();

  int gpus_ = 0;
  int nics_ = 0;
  VertexId first_switch_ = 0, first_host_ = 0, first_nic_ = 0;
  std::vector<Device> devices_;
  std::vector<Link> links_;
  std::vector<LinkId> route_links_;  // all routes one after the other
  std::vector<std::size_t> route_begin_ = {0};
  std::vector<std::vector<int>> nearest_nics_;
};

// By GPU: the nearest of the NICs that work (`works`, by NIC), ascending. Empty lists when none
// works.
std::vector<std::vector<int>> NearestNics(const NodeSpec& spec, const std::vector<char>& works);
// GPUs with equal lists start at different NICs, spread evenly.
void TurnApart(std::vector<std::vector<int>>* nics);

// How near a NIC is to a GPU: 0 same PCIe switch, 1 same host, 2 across hosts. Also between GPUs.
int PcieDistance(const PcieGroup& a, const PcieGroup& b);
const PcieGroup& GroupOfGpu(const NodeSpec& spec, int gpu);
const PcieGroup& GroupOfNic(const NodeSpec& spec, int nic);

}  // namespace orrery
