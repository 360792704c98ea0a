// SPDX-License-Identifier: Apache-2.0
// Dragonfly: groups of routers, all-to-all inside a group, global links between all groups.
//
// With g groups of a routers with h global links each, two groups are joined by floor(a*h / (g-1))
// parallel links. Link copy c from group x to its j-th other group leaves at router
// (c*(g-1) + j) / h. Routes are minimal: at most local, global, local (Kim et al. 2008); the
// destination's router and the channel pick the parallel link.
#include "model/hardware/dragonfly.h"

#include <algorithm>

#include "model/hardware/fabric.h"

namespace orrery {
namespace {

class Dragonfly : public FabricRouting {
 public:
  Dragonfly(const TopologySpec& spec, const std::vector<VertexId>& nics, FabricBuilder* builder)
      : routers_(spec.fabric.routers_per_group),
        router_ports_(spec.fabric.ports_per_router),
        router_globals_(spec.fabric.global_links) {
    const int64_t group_ports = routers_ * router_ports_;
    groups_ = (static_cast<int64_t>(nics.size()) + group_ports - 1) / group_ports;
    if (groups_ > 1) copies_ = std::max<int64_t>(1, routers_ * router_globals_ / (groups_ - 1));
    const VertexId router = builder->AddSwitches(DeviceKind::kRouter, groups_ * routers_);
    ports_ = ConnectPorts(builder, nics, spec.node, [&](Port port) {
      return static_cast<VertexId>(router + RouterOf(port));
    });
    AddLocal(router, spec.fabric.link_rate, builder);
    AddGlobal(router, spec.fabric.link_rate, builder);
  }

  void Append(Port from, Port to, int channel, std::vector<LinkId>* route) const override {
    route->push_back(static_cast<LinkId>(ports_ + 2 * from));
    const int64_t a = RouterOf(from), b = RouterOf(to);
    const int64_t group_a = a / routers_, group_b = b / routers_;
    if (group_a == group_b) {
      AppendLocal(a, b, route);
    } else {
      const int64_t copy = (b + to % router_ports_ + channel) % copies_;
      AppendLocal(a, GlobalRouter(group_a, group_b, copy), route);
      route->push_back(GlobalLink(group_a, group_b, copy));
      AppendLocal(GlobalRouter(group_b, group_a, copy), b, route);
    }
    route->push_back(static_cast<LinkId>(ports_ + 2 * to + 1));
  }

 private:
  int64_t RouterOf(Port port) const { return port / router_ports_; }
  // The router of group `from` that holds link copy `copy` to group `to`.
  int64_t GlobalRouter(int64_t from, int64_t to, int64_t copy) const {
    const int64_t j = (to - from - 1 + groups_) % groups_;
    return from * routers_ + std::min((copy * (groups_ - 1) + j) / router_globals_, routers_ - 1);
  }

  // Pairs a < b in order (0,1), (0,2) .. (1,2) ..; the direction b to a is the id after.
  static int64_t Pair(int64_t a, int64_t b, int64_t count) {
    return a * (2 * count - a - 1) / 2 + b - a - 1;
  }
  static LinkId Directed(int64_t base, int64_t pair, bool forward) {
    return static_cast<LinkId>(base + 2 * pair + (forward ? 0 : 1));
  }
  LinkId GlobalLink(int64_t from, int64_t to, int64_t copy) const {
    const int64_t pair = Pair(std::min(from, to), std::max(from, to), groups_);
    return Directed(global_links_, pair * copies_ + copy, from < to);
  }
  void AppendLocal(int64_t from, int64_t to, std::vector<LinkId>* route) const {
    if (from == to) return;
    const int64_t a = from % routers_, b = to % routers_;
    const int64_t group_pairs = routers_ * (routers_ - 1) / 2;
    route->push_back(Directed(
        local_links_,
        from / routers_ * group_pairs + Pair(std::min(a, b), std::max(a, b), routers_), a < b));
  }

  void AddLocal(VertexId router, BytesPerSecond rate, FabricBuilder* builder) {
    local_links_ = builder->next_link();
    for (int64_t g = 0; g < groups_; ++g) {
      for (int64_t a = 0; a < routers_; ++a) {
        for (int64_t b = a + 1; b < routers_; ++b) {
          builder->Connect(static_cast<VertexId>(router + g * routers_ + a),
                           static_cast<VertexId>(router + g * routers_ + b), rate,
                           LinkKind::kFabric);
        }
      }
    }
  }

  void AddGlobal(VertexId router, BytesPerSecond rate, FabricBuilder* builder) {
    global_links_ = builder->next_link();
    for (int64_t x = 0; x < groups_; ++x) {
      for (int64_t y = x + 1; y < groups_; ++y) {
        for (int64_t copy = 0; copy < copies_; ++copy) {
          builder->Connect(static_cast<VertexId>(router + GlobalRouter(x, y, copy)),
                           static_cast<VertexId>(router + GlobalRouter(y, x, copy)), rate,
                           LinkKind::kFabric);
        }
      }
    }
  }

  int64_t routers_;  // per group
  int64_t router_ports_;
  int64_t router_globals_;
  int64_t groups_ = 1;
  int64_t copies_ = 1;  // links between two groups
  LinkId ports_ = 0, local_links_ = 0, global_links_ = 0;
};

}  // namespace

int64_t DragonflyMaxNodes(const FabricSpec& fabric, int64_t nics_per_node) {
  const int64_t groups = fabric.routers_per_group * fabric.global_links + 1;
  return groups * fabric.routers_per_group * fabric.ports_per_router / nics_per_node;
}

std::shared_ptr<const FabricRouting> MakeDragonfly(const TopologySpec& spec,
                                                   const std::vector<VertexId>& nics,
                                                   FabricBuilder* builder) {
  return std::make_shared<Dragonfly>(spec, nics, builder);
}

}  // namespace orrery
