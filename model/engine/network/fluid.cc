// SPDX-License-Identifier: Apache-2.0
// Events, components and the clock of the fluid backend.
#include "model/engine/network/fluid.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "model/base/check.h"

namespace orrery::net {
namespace {

constexpr double kInstant = 1e-12;   // of the clock
constexpr double kTogether = 1e-12;  // of the bytes that a path has served

constexpr auto kEndsLater = [](const auto& a, const auto& b) {
  return a.end != b.end ? a.end > b.end : a.order > b.order;
};

}  // namespace

FluidNetwork::FluidNetwork(Wires wires) : Network(std::move(wires)), solver_(capacity_) {}

void FluidNetwork::OnNewPath(PathId path) {
  std::vector<LinkId> links;
  std::vector<double> weights;
  for (const LinkUse& use : UsesOf(path)) {
    links.push_back(use.link);
    weights.push_back(use.weight);
  }
  solver_.AddPath(links, weights, paths_[At(path)].cap);
  traffic_.emplace_back();
}

void FluidNetwork::After(Seconds delay, Done done) {
  ORRERY_CHECK(delay.value >= 0 && std::isfinite(delay.value), "a timer of {} s", delay.value);
  events_.AddTimer(now_ + delay.value, std::move(done));
}

void FluidNetwork::Start(PathId path, Bytes bytes, Done done) {
  CheckBytes(bytes);
  if (bytes.value == 0) return After(Seconds(0), std::move(done));
  Traffic& traffic = traffic_[At(path)];
  if (traffic.jobs.empty()) traffic.served = 0;
  traffic.served += traffic.rate * (now_ - traffic.since);
  traffic.since = now_;
  traffic.jobs.push_back({traffic.served + bytes.value, ++started_, bytes.value, std::move(done)});
  std::ranges::push_heap(traffic.jobs, kEndsLater);
  traffic.first_end = traffic.jobs.front().end;
  solver_.SetJobs(path, static_cast<int32_t>(traffic.jobs.size()));
  if (traffic.component >= 0) {
    Touch(traffic.component);
  } else if (!std::exchange(traffic.fresh, true)) {
    fresh_.push_back(path);
  }
}

void FluidNetwork::Touch(int32_t component) {
  if (!std::exchange(components_[At(component)].touched, true)) touched_.push_back(component);
}

// Ends the jobs of a component whose time has come, then runs their callbacks.
void FluidNetwork::Finish(int32_t component) {
  for (const PathId path : components_[At(component)].paths) {
    if (traffic_[At(path)].next_end <= instant_end_) FinishJobs(path);
  }
  Touch(component);
  for (Done& done : ended_) done();
  ended_.clear();
}

void FluidNetwork::FinishJobs(PathId path) {
  Traffic& traffic = traffic_[At(path)];
  if (traffic.jobs.empty()) return;
  traffic.served = traffic.jobs.front().end;  // by definition of next_end
  traffic.since = now_;
  const double enough = traffic.served * (1 + kTogether);
  while (!traffic.jobs.empty() && traffic.jobs.front().end <= enough) {
    std::ranges::pop_heap(traffic.jobs, kEndsLater);
    paths_[At(path)].finished += traffic.jobs.back().bytes;
    ended_.push_back(std::move(traffic.jobs.back().done));
    traffic.jobs.pop_back();
  }
  if (!traffic.jobs.empty()) traffic.first_end = traffic.jobs.front().end;
  solver_.SetJobs(path, static_cast<int32_t>(traffic.jobs.size()));
  traffic.next_end = std::numeric_limits<double>::infinity();
}

// Solves again what this instant has touched.
void FluidNetwork::Settle() {
  if (touched_.empty() && fresh_.empty()) return;
  seeds_.swap(fresh_);
  fresh_.clear();
  for (const int32_t component : touched_) {
    const std::vector<PathId>& paths = components_[At(component)].paths;
    seeds_.insert(seeds_.end(), paths.begin(), paths.end());
    Dissolve(component);
  }
  touched_.clear();
  solver_.NewPass();
  for (const PathId seed : seeds_) {
    Traffic& traffic = traffic_[At(seed)];
    traffic.fresh = false;
    if (traffic.jobs.empty()) {
      traffic.rate = 0;
      if (log_ != nullptr) Log(seed, 0);
    }
    SettleFrom(seed);
  }
  seeds_.clear();
}

void FluidNetwork::SettleFrom(PathId seed) {
  members_.clear();
  if (!solver_.Collect(seed, &members_)) return;
  solver_.Solve(members_);
  ++solves_;
  for (const PathId path : members_) {
    if (traffic_[At(path)].component >= 0) Dissolve(traffic_[At(path)].component);
  }
  const int32_t id = NewComponent();
  Component& component = components_[At(id)];
  component.paths.assign(members_.begin(), members_.end());
  double next = std::numeric_limits<double>::infinity();
  for (const PathId path : members_) {
    traffic_[At(path)].component = id;
    next = std::min(next, Retime(path));
  }
  events_.Add(next, id, component.version);
}

double FluidNetwork::Retime(PathId path) {
  Traffic& traffic = traffic_[At(path)];
  traffic.served += traffic.rate * (now_ - traffic.since);
  traffic.since = now_;
  traffic.rate = solver_.rate(path);
  if (log_ != nullptr) Log(path, traffic.rate * static_cast<double>(traffic.jobs.size()));
  const double left = std::max(0.0, traffic.first_end - traffic.served);
  traffic.next_end = now_ + left / traffic.rate;
  return traffic.next_end;
}

bool FluidNetwork::LogRates(std::vector<RateChange>* log) {
  log_ = log;
  return true;
}

void FluidNetwork::Log(PathId path, double rate) {
  if (At(path) >= logged_.size()) logged_.resize(traffic_.size(), 0.0);
  if (logged_[At(path)] == rate) return;
  logged_[At(path)] = rate;
  log_->push_back({now_, path, rate});
}

int32_t FluidNetwork::NewComponent() {
  int32_t id = 0;
  if (free_components_.empty()) {
    id = static_cast<int32_t>(components_.size());
    components_.emplace_back();
  } else {
    id = free_components_.back();
    free_components_.pop_back();
  }
  ++components_[At(id)].version;
  return id;
}

// Its pending event becomes void and its paths belong to no component.
void FluidNetwork::Dissolve(int32_t id) {
  Component& component = components_[At(id)];
  for (const PathId path : component.paths) traffic_[At(path)].component = -1;
  component.paths.clear();
  component.touched = false;
  ++component.version;
  free_components_.push_back(id);
}

// One event; false when nothing is left.
bool FluidNetwork::Step() {
  while (!events_.empty()) {
    const Event event = events_.top();
    const bool timer = event.version == 0;
    if (!timer && components_[At(event.subject)].version != event.version) {
      events_.Pop();
      continue;
    }
    if (event.time > instant_end_) {
      if (!touched_.empty() || !fresh_.empty()) break;
      now_ = event.time;
      instant_end_ = now_ * (1 + kInstant);
    }
    events_.Pop();
    if (timer) {
      events_.Take(event)();
    } else {
      Finish(event.subject);
    }
    return true;
  }
  if (touched_.empty() && fresh_.empty()) return false;
  Settle();
  return true;
}

void FluidNetwork::Run() {
  while (!paused_ && Step()) {
  }
  if (paused_) Settle();
}

bool FluidNetwork::Split(std::size_t parts) {
  events_.Split(parts);
  Select(0);
  return true;
}

void FluidNetwork::Select(std::size_t part) {
  events_.Select(part);
  now_ = instant_end_ = 0;
  paused_ = false;
}

void FluidNetwork::Join() {
  events_.Join();
  now_ = instant_end_ = 0;
  paused_ = false;
}

BytesPerSecond FluidNetwork::Rate(PathId path) {
  Settle();
  return BytesPerSecond(solver_.rate(path));
}

std::vector<BytesPerSecond> FluidNetwork::Load() {
  Settle();
  std::vector<BytesPerSecond> load(capacity_.size());
  for (std::size_t p = 0; p < paths_.size(); ++p) {
    const auto path = static_cast<PathId>(p);
    const double rate = solver_.rate(path) * solver_.jobs(path);
    for (const LinkUse& use : UsesOf(path)) load[At(use.link)] += BytesPerSecond(rate * use.weight);
  }
  return load;
}

}  // namespace orrery::net
