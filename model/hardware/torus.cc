// SPDX-License-Identifier: Apache-2.0
// Torus of any number of dimensions: one router per node, dimension-ordered routes the shorter way
// round. Half-way round, even channels go up and odd ones down. A dimension of two has one link.
#include "model/hardware/fabric.h"

namespace orrery {
namespace {

class Torus : public FabricRouting {
 public:
  Torus(const TopologySpec& spec, const std::vector<VertexId>& nics, FabricBuilder* builder)
      : dims_(spec.fabric.dims), nics_(static_cast<int64_t>(spec.node.nics.size())) {
    for (const int64_t extent : dims_) {
      strides_.push_back(routers_);
      routers_ *= extent;
    }
    const VertexId router = builder->AddSwitches(DeviceKind::kRouter, routers_);
    ports_ = ConnectPorts(builder, nics, spec.node,
                          [&](Port port) { return static_cast<VertexId>(router + port / nics_); });
    for (std::size_t d = 0; d < dims_.size(); ++d)
      AddDimension(d, router, spec.fabric.link_rate, builder);
  }

  void Append(Port from, Port to, int channel, std::vector<LinkId>* route) const override {
    route->push_back(static_cast<LinkId>(ports_ + 2 * from));
    int64_t at = from / nics_;
    const int64_t target = to / nics_;
    for (std::size_t d = 0; d < dims_.size(); ++d) {
      const int64_t ahead = (Coordinate(target, d) - Coordinate(at, d) + dims_[d]) % dims_[d];
      const bool up = 2 * ahead < dims_[d] || (2 * ahead == dims_[d] && channel % 2 == 0);
      for (int64_t hop = up ? ahead : dims_[d] - ahead; hop > 0 && ahead > 0; --hop) {
        at = Step(at, d, up, route);
      }
    }
    route->push_back(static_cast<LinkId>(ports_ + 2 * to + 1));
  }

 private:
  int64_t Coordinate(int64_t router, std::size_t d) const {
    return router / strides_[d] % dims_[d];
  }
  int64_t Neighbour(int64_t router, std::size_t d, bool up) const {
    const int64_t x = Coordinate(router, d);
    const int64_t moved = (x + (up ? 1 : dims_[d] - 1)) % dims_[d];
    return router + (moved - x) * strides_[d];
  }

  // Link id base + 2*r goes up from router r, the odd id after it comes back down. In a dimension
  // of two the routers at coordinate 1 have no link of their own: both ways are router 0's.
  int64_t Step(int64_t router, std::size_t d, bool up, std::vector<LinkId>* route) const {
    const int64_t next = Neighbour(router, d, up);
    const bool own = dims_[d] == 2 ? Coordinate(router, d) == 0 : up;
    const int64_t link = LinkIndex(own ? router : next, d);
    route->push_back(static_cast<LinkId>(first_link_[d] + 2 * link + (own ? 0 : 1)));
    return next;
  }

  int64_t LinkIndex(int64_t router, std::size_t d) const {
    if (dims_[d] != 2) return router;
    return router / (2 * strides_[d]) * strides_[d] + router % strides_[d];
  }

  void AddDimension(std::size_t d, VertexId router, BytesPerSecond rate, FabricBuilder* builder) {
    first_link_.push_back(builder->next_link());
    if (dims_[d] == 1) return;
    for (int64_t r = 0; r < routers_; ++r) {
      if (dims_[d] == 2 && Coordinate(r, d) == 1) continue;
      builder->Connect(static_cast<VertexId>(router + r),
                       static_cast<VertexId>(router + Neighbour(r, d, true)), rate,
                       LinkKind::kFabric);
    }
  }

  std::vector<int64_t> dims_;
  std::vector<int64_t> strides_;
  int64_t routers_ = 1;
  int64_t nics_;
  LinkId ports_ = 0;
  std::vector<LinkId> first_link_;  // by dimension
};

}  // namespace

std::shared_ptr<const FabricRouting> MakeTorus(const TopologySpec& spec,
                                               const std::vector<VertexId>& nics,
                                               FabricBuilder* builder) {
  return std::make_shared<Torus>(spec, nics, builder);
}

}  // namespace orrery
