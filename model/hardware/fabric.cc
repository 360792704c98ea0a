// SPDX-License-Identifier: Apache-2.0
// Picks the fabric; the ideal single switch.
#include "model/hardware/fabric.h"

#include "model/base/check.h"

namespace orrery {
namespace {

class SingleSwitch : public FabricRouting {
 public:
  SingleSwitch(const TopologySpec& spec, const std::vector<VertexId>& nics,
               FabricBuilder* builder) {
    const VertexId hub = builder->AddSwitches(DeviceKind::kSwitch, 1);
    ports_ = ConnectPorts(builder, nics, spec.node, [hub](Port) { return hub; });
  }

  void Append(Port from, Port to, int /*channel*/, std::vector<LinkId>* route) const override {
    route->push_back(static_cast<LinkId>(ports_ + 2 * from));
    route->push_back(static_cast<LinkId>(ports_ + 2 * to + 1));
  }

 private:
  LinkId ports_ = 0;
};

}  // namespace

VertexId FabricBuilder::AddSwitches(DeviceKind kind, int64_t count) {
  const auto first = static_cast<VertexId>(devices_->size());
  for (int64_t i = 0; i < count; ++i) devices_->push_back({kind, -1, static_cast<int32_t>(i)});
  return first;
}

LinkId FabricBuilder::Connect(VertexId a, VertexId b, BytesPerSecond capacity, LinkKind kind) {
  const LinkId id = next_link();
  links_->push_back({a, b, capacity, kind});
  links_->push_back({b, a, capacity, kind});
  return id;
}

std::shared_ptr<const FabricRouting> MakeSingleSwitch(const TopologySpec& spec,
                                                      const std::vector<VertexId>& nics,
                                                      FabricBuilder* builder) {
  return std::make_shared<SingleSwitch>(spec, nics, builder);
}

std::shared_ptr<const FabricRouting> AddFabric(const TopologySpec& spec, int64_t nodes,
                                               const std::vector<VertexId>& nic_vertices,
                                               std::vector<Device>* devices,
                                               std::vector<Link>* links) {
  FabricBuilder builder(devices, links);
  switch (spec.fabric.kind) {
    case FabricKind::kNone:
      ORRERY_CHECK(nodes == 1, "{} nodes without a fabric", nodes);
      return nullptr;
    case FabricKind::kSingleSwitch:
      return MakeSingleSwitch(spec, nic_vertices, &builder);
    case FabricKind::kFatTree:
    case FabricKind::kRailOptimised:
      return MakeFatTree(spec, nic_vertices, &builder);
    case FabricKind::kDragonfly:
      return MakeDragonfly(spec, nic_vertices, &builder);
    case FabricKind::kTorus:
      return MakeTorus(spec, nic_vertices, &builder);
    case FabricKind::kNamed:
      return MakeNamed(spec, nic_vertices, &builder);
  }
  return nullptr;
}

}  // namespace orrery
