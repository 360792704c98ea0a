// SPDX-License-Identifier: Apache-2.0
// Progressive filling on link and bound heaps.
#include "model/engine/network/max_min.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "model/base/check.h"

namespace orrery::net {
namespace {
std::size_t At(int32_t index) { return static_cast<std::size_t>(index); }
}  // namespace

MaxMin::MaxMin(std::vector<double> capacity)
    : capacity_(std::move(capacity)), state_of_(capacity_.size()) {}

int32_t MaxMin::StateOf(LinkId link) {
  int32_t& number = state_of_[At(link)];
  if (number == 0) {
    states_.push_back({link, capacity_[At(link)], {}});
    number = static_cast<int32_t>(states_.size());
  }
  return number - 1;
}

void MaxMin::AddPath(std::span<const LinkId> links, std::span<const double> weights, double cap) {
  Path path;
  path.first = static_cast<uint32_t>(uses_.size());
  path.count = static_cast<uint32_t>(links.size());
  path.cap = cap;
  for (std::size_t i = 0; i < links.size(); ++i) {
    uses_.push_back({StateOf(links[i]), static_cast<int32_t>(paths_.size()), weights[i],
                     capacity_[At(links[i])] / weights[i], 0});
  }
  paths_.push_back(path);
}

void MaxMin::SetJobs(int32_t path, int32_t jobs) {
  Path& at = paths_[At(path)];
  const int32_t before = std::exchange(at.jobs, jobs);
  if (before == 0 && jobs > 0) Enlist(path);
  if (before > 0 && jobs == 0) Delist(path);
}

void MaxMin::Enlist(int32_t path) {
  const Path& at = paths_[At(path)];
  for (uint32_t u = at.first; u < at.first + at.count; ++u) {
    std::vector<uint32_t>& users = states_[At(uses_[u].link)].users;
    uses_[u].place = static_cast<uint32_t>(users.size());
    users.push_back(u);
  }
}

void MaxMin::Delist(int32_t path) {
  Path& at = paths_[At(path)];
  at.rate = 0;
  for (uint32_t u = at.first; u < at.first + at.count; ++u) {
    std::vector<uint32_t>& users = states_[At(uses_[u].link)].users;
    users[uses_[u].place] = users.back();
    uses_[users.back()].place = uses_[u].place;
    users.pop_back();
  }
}

bool MaxMin::Collect(int32_t seed, std::vector<int32_t>* component) {
  Path& first = paths_[At(seed)];
  if (first.seen == pass_ || first.jobs == 0) return false;
  links_.clear();
  first.seen = pass_;
  first.bound = std::numeric_limits<double>::infinity();
  std::size_t next = component->size();
  component->push_back(seed);
  for (; next < component->size(); ++next) {
    const Path& path = paths_[At((*component)[next])];
    double bound = path.bound;
    for (uint32_t u = path.first; u < path.first + path.count; ++u) {
      const Use& use = uses_[u];
      if (states_[At(use.link)].users.size() == 1) {
        bound = std::min(bound, use.alone);
      } else if (states_[At(use.link)].seen != pass_) {
        VisitLink(use.link, component);
      }
    }
    paths_[At((*component)[next])].bound = bound;
  }
  return true;
}

void MaxMin::VisitLink(int32_t number, std::vector<int32_t>* component) {
  LinkState& state = states_[At(number)];
  const std::vector<uint32_t>& users = state.users;
  state.seen = pass_;
  state.open = static_cast<int32_t>(users.size());
  state.left = state.capacity;
  state.demand = 0;
  for (const uint32_t u : users) {
    Path& path = paths_[At(uses_[u].path)];
    state.demand += path.jobs * uses_[u].weight;
    if (path.seen == pass_) continue;
    path.seen = pass_;
    path.bound = std::numeric_limits<double>::infinity();
    component->push_back(uses_[u].path);
  }
  links_.push_back(number);
}

void MaxMin::PrepareLevels(std::span<const int32_t> component) {
  link_levels_.clear();
  for (const int32_t link : links_) {
    const LinkState& state = states_[At(link)];
    link_levels_.emplace_back(state.left / state.demand, state.link);
  }
  path_levels_.clear();
  least_bound_ = std::numeric_limits<double>::infinity();
  bounds_sorted_ = false;
  for (const int32_t id : component) {
    Path& path = paths_[At(id)];
    path.open = true;
    if (path.jobs > 1) path.bound /= path.jobs;
    path.bound = std::min(path.bound, path.cap);
    least_bound_ = std::min(least_bound_, path.bound);
    if (path.bound < std::numeric_limits<double>::infinity())
      path_levels_.emplace_back(path.bound, id);
  }
  std::ranges::make_heap(link_levels_, std::greater<>());
}

// The level of a link only rises while paths below it are given their rates, so that a stale entry
// at the top is pushed down to its present level.
const MaxMin::Level* MaxMin::NextLink() {
  while (!link_levels_.empty()) {
    const Level top = link_levels_.front();
    const LinkState& state = OfCluster(top.second);
    const double level = state.open == 0 ? 0.0 : std::max(top.first, state.left / state.demand);
    if (state.open > 0 && level <= top.first) return &link_levels_.front();
    std::ranges::pop_heap(link_levels_, std::greater<>());
    link_levels_.pop_back();
    if (state.open == 0) continue;
    link_levels_.emplace_back(level, top.second);
    std::ranges::push_heap(link_levels_, std::greater<>());
  }
  return nullptr;
}

// The lowest bound of an open path, nullptr if `link` stops before any bound does. Where links fill
// up first, the bounds are never put in order.
const MaxMin::Level* MaxMin::NextBound(const Level* link) {
  if (!bounds_sorted_) {
    if (link != nullptr && link->first < least_bound_) return nullptr;
    std::ranges::make_heap(path_levels_, std::greater<>());
    bounds_sorted_ = true;
  }
  while (!path_levels_.empty() && !paths_[At(path_levels_.front().second)].open) {
    std::ranges::pop_heap(path_levels_, std::greater<>());
    path_levels_.pop_back();
  }
  return path_levels_.empty() ? nullptr : &path_levels_.front();
}

int MaxMin::Fix(int32_t id, double rate) {
  Path& path = paths_[At(id)];
  path.rate = rate;
  path.open = false;
  for (uint32_t u = path.first; u < path.first + path.count; ++u) {
    LinkState& state = states_[At(uses_[u].link)];
    if (state.seen != pass_) continue;  // no other path uses it
    const double demand = path.jobs * uses_[u].weight;
    state.left -= demand * rate;
    state.demand -= demand;
    --state.open;
  }
  return 1;
}

int MaxMin::Fill(LinkId link, double rate) {
  int fixed = 0;
  for (const uint32_t u : OfCluster(link).users) {
    if (paths_[At(uses_[u].path)].open) fixed += Fix(uses_[u].path, rate);
  }
  return fixed;
}

void MaxMin::Solve(std::span<const int32_t> component) {
  PrepareLevels(component);
  for (int open = static_cast<int>(component.size()); open > 0;) {
    const Level* link = NextLink();
    const Level* bound = NextBound(link);
    ORRERY_CHECK(link != nullptr || bound != nullptr, "{} paths without a limit", open);
    const bool by_bound = bound != nullptr && (link == nullptr || bound->first <= link->first);
    open -= by_bound ? Fix(bound->second, bound->first) : Fill(link->second, link->first);
  }
}

}  // namespace orrery::net
