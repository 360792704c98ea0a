// SPDX-License-Identifier: Apache-2.0
// The SimGrid backend, the reference for the fluid one. Written against SimGrid 3.32.
//
// No actors: communications between two fixed hosts are created when they start, a completion
// signal and kernel timers call back. The route of each communication is handed over by a zone of
// our own, a link that is named w times counts with weight w. Model CM02 with latency 0, without
// cross-traffic and TCP window, is plain max-min sharing. The engine's clock is global and never
// reset, signals are global and add up: one network at a time, callbacks registered once.
#include <fmt/format.h>

#include <cmath>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/kernel/routing/NetZoneImpl.hpp>
#include <simgrid/s4u.hpp>
#include <unordered_map>

#include "model/base/check.h"
#include "model/base/diagnostics.h"
#include "model/engine/network/backends.h"

namespace orrery::net {
namespace {

namespace s4u = simgrid::s4u;
namespace routing = simgrid::kernel::routing;
using SimGridLink = simgrid::kernel::resource::StandardLinkImpl;

// Private links for rate caps must exist before the platform is sealed.
constexpr int kSpareLinks = 4096;

// Sizes are whole numbers there: count in 1/1024 of a byte.
constexpr double kUnits = 1024;

// Answers every route request with the route of the job that is about to start.
class HandedOverRoutes : public routing::NetZoneImpl {
 public:
  explicit HandedOverRoutes(const std::string& name) : NetZoneImpl(name) {}
  const std::vector<SimGridLink*>* next = nullptr;

 private:
  void get_local_route(const routing::NetPoint*, const routing::NetPoint*, routing::Route* into,
                       double* latency) override {
    if (next != nullptr) into->link_list_ = *next;
    if (latency != nullptr) *latency += 0.0;
  }
};

class SimGridNetwork : public Network {
 public:
  explicit SimGridNetwork(Wires wires);
  ~SimGridNetwork() override;

  void Start(PathId path, Bytes bytes, Done done) override;
  void After(Seconds delay, Done done) override;
  void Run() override { engine_->run(); }
  Seconds Now() const override { return Seconds(s4u::Engine::get_clock() - started_at_); }

 private:
  struct Job {
    s4u::CommPtr comm;
    PathId path = 0;
    double bytes = 0;
    Done done;
  };
  struct Route {
    std::vector<SimGridLink*> links;
    s4u::Link* cap_link = nullptr;  // while jobs of a capped path run
    int jobs = 0;
  };

  void CreateLinks();
  Route& RouteOf(PathId path);
  void AddJobToCap(PathId path, int change);
  void OnCompletion(const s4u::Activity& activity);

  static SimGridNetwork* current_;
  std::unique_ptr<s4u::Engine> engine_;
  HandedOverRoutes* zone_ = nullptr;  // owned by the engine
  s4u::Host* from_ = nullptr;
  s4u::Host* to_ = nullptr;
  std::vector<s4u::Link*> links_;
  std::vector<s4u::Link*> spare_;
  std::unordered_map<PathId, Route> routes_;
  std::unordered_map<const s4u::Activity*, Job> running_;
  s4u::CommPtr last_;  // must outlive its own completion signal
  double started_at_ = 0;
};

SimGridNetwork* SimGridNetwork::current_ = nullptr;

// Settings outlive the engine, and the model cannot be set twice.
void Configure() {
  static bool configured = false;
  if (std::exchange(configured, true)) return;
  s4u::Engine::set_config("network/model:CM02");
  s4u::Engine::set_config("network/crosstraffic:0");
  s4u::Engine::set_config("network/TCP-gamma:1e18");
}

std::unique_ptr<s4u::Engine> MakeEngine() {
  static char name[] = "plan", quiet[] = "--log=root.thres:error";
  char* argv[] = {name, quiet, nullptr};
  int argc = 2;
  auto engine = std::make_unique<s4u::Engine>(&argc, argv);
  Configure();
  return engine;
}

SimGridNetwork::SimGridNetwork(Wires wires) : Network(std::move(wires)) {
  current_ = this;
  engine_ = MakeEngine();
  zone_ = new HandedOverRoutes("orrery");  // the first zone becomes the root
  from_ = zone_->create_host("from", {1.0})->seal();
  to_ = zone_->create_host("to", {1.0})->seal();
  CreateLinks();
  zone_->get_iface()->seal();
  started_at_ = s4u::Engine::get_clock();
  static bool registered = false;
  if (!std::exchange(registered, true)) {
    s4u::Activity::on_completion_cb([](const s4u::Activity& activity) {
      if (current_ != nullptr) current_->OnCompletion(activity);
    });
  }
}

SimGridNetwork::~SimGridNetwork() {
  current_ = nullptr;
  running_.clear();
  last_.reset();
  engine_.reset();
}

void SimGridNetwork::CreateLinks() {
  for (std::size_t i = 0; i < capacity_.size(); ++i) {
    // A link that is down is never on a path.
    const double capacity = capacity_[i] > 0 ? capacity_[i] * kUnits : 1.0;
    links_.push_back(zone_->create_link(fmt::format("link{}", i), {capacity})->seal());
  }
  for (int i = 0; i < kSpareLinks; ++i)
    spare_.push_back(zone_->create_link(fmt::format("cap{}", i), {1.0})->seal());
}

SimGridNetwork::Route& SimGridNetwork::RouteOf(PathId path) {
  Route& route = routes_[path];
  if (!route.links.empty()) return route;
  for (const LinkUse& use : UsesOf(path)) {
    const double times = std::round(use.weight);
    if (times != use.weight || times < 1) {
      throw InputError(
          fmt::format("the SimGrid backend takes whole weights only, not {}", use.weight),
          "use the fluid backend");
    }
    SimGridLink* link = links_[static_cast<std::size_t>(use.link)]->get_impl();
    for (int i = 0; i < static_cast<int>(times); ++i) route.links.push_back(link);
  }
  return route;
}

// All jobs of a capped path run at one rate, so that n jobs under n times the cap are each capped.
void SimGridNetwork::AddJobToCap(PathId path, int change) {
  Route& route = routes_[path];
  route.jobs += change;
  if (std::isinf(paths_[At(path)].cap)) return;
  if (route.jobs == 0) {
    spare_.push_back(std::exchange(route.cap_link, nullptr));
    route.links.pop_back();
    return;
  }
  if (route.cap_link == nullptr) {
    ORRERY_CHECK(!spare_.empty(), "more than {} capped paths at once", kSpareLinks);
    route.cap_link = spare_.back();
    spare_.pop_back();
    route.links.push_back(route.cap_link->get_impl());
  }
  route.cap_link->set_bandwidth(route.jobs * paths_[At(path)].cap * kUnits);
}

void SimGridNetwork::Start(PathId path, Bytes bytes, Done done) {
  CheckBytes(bytes);
  if (bytes.value == 0) return After(Seconds(0), std::move(done));
  Route& route = RouteOf(path);
  AddJobToCap(path, 1);
  zone_->next = &route.links;
  s4u::CommPtr comm = s4u::Comm::sendto_init(from_, to_);
  comm->set_payload_size(static_cast<uint64_t>(std::llround(bytes.value * kUnits)));
  running_[comm.get()] = {comm, path, bytes.value, std::move(done)};
  comm->vetoable_start();
  zone_->next = nullptr;
}

void SimGridNetwork::After(Seconds delay, Done done) {
  simgrid::kernel::timer::Timer::set(s4u::Engine::get_clock() + delay.value, std::move(done));
}

void SimGridNetwork::OnCompletion(const s4u::Activity& activity) {
  const auto found = running_.find(&activity);
  if (found == running_.end()) return;
  Job job = std::move(found->second);
  running_.erase(found);
  paths_[At(job.path)].finished += job.bytes;
  AddJobToCap(job.path, -1);
  last_ = std::move(job.comm);
  job.done();
}

std::unique_ptr<Network> MakeSimGridNetwork(Wires wires) {
  if (s4u::Engine::has_instance()) {
    throw InputError("SimGrid runs one simulation per process at a time",
                     "end the other one first, or use the fluid backend");
  }
  return std::make_unique<SimGridNetwork>(std::move(wires));
}

[[maybe_unused]] const bool kOffered = OfferSimGrid(MakeSimGridNetwork);

}  // namespace
}  // namespace orrery::net
