// SPDX-License-Identifier: Apache-2.0
// Adds up changes of rate per link.
#include "model/engine/event/link_track.h"

#include <algorithm>
#include <unordered_map>

#include "model/engine/event/index.h"

namespace orrery::sim {
namespace {

constexpr double kRounding = 1e-9;  // of the bandwidth: sums of rates that cancelled

struct UseChange {
  double time = 0;
  double bytes_per_second = 0;  // more, or less
};

class TrackBuilder {
 public:
  TrackBuilder(const ir::Plan& plan, const PlanTasks& tasks, const CommunicatorTable& communicators,
               const Timeline& timeline, const std::vector<LinkId>& links)
      : plan_(plan), tasks_(tasks), communicators_(communicators), timeline_(timeline) {
    for (const LinkId link : links) number_.try_emplace(link, number_.size());
    changes_.resize(links.size());
  }

  std::vector<std::vector<UseChange>> Build() {
    AddLogged();
    for (std::size_t r = 0; r < timeline_.size(); ++r) AddTimers(r);
    for (std::vector<UseChange>& changes : changes_)
      std::ranges::stable_sort(changes, {}, &UseChange::time);
    return std::move(changes_);
  }

 private:
  void Add(LinkId link, double time, double rate) {
    const auto found = number_.find(link);
    if (found != number_.end()) changes_[found->second].push_back({time, rate});
  }

  void AddLogged() {
    std::vector<double> rate(communicators_.path_uses.size(), 0.0);
    for (const net::RateChange& change : *communicators_.rates) {
      double& before = rate[At(change.path)];
      for (const net::LinkUse& use : communicators_.path_uses[At(change.path)])
        Add(use.link, change.time, use.weight * (change.rate - before));
      before = change.rate;
    }
  }

  // Each communicator counts once: with its first executed member.
  void AddTimers(std::size_t r) {
    const auto stage = At(plan_.mesh.Coords(communicators_.ranks[r])[At(plan_.mesh.program_axis)]);
    const std::vector<Task>& tasks = tasks_.stages[stage].tasks;
    for (std::size_t t = 0; t < tasks.size(); ++t) {
      if (tasks[t].line < 0) continue;
      const Communicator& communicator =
          communicators_
              .communicators[At(communicators_.of[At(2 * tasks[t].line + tasks[t].receives)][r])];
      const Exchange& exchange =
          communicators_.exchanges[At(communicator.first_exchange + tasks[t].message)];
      if (exchange.route < 0 || communicators_.routes[At(exchange.route)].alone < 0) continue;
      if (FirstExecuted(communicator) != communicators_.ranks[r]) continue;
      const TaskSpan& span = timeline_[r][t];
      const double begin = std::min(span.end, span.met + exchange.latency);
      if (span.end <= begin) continue;
      const double rate = exchange.bytes / (span.end - begin);
      communicators_.link_shares[At(exchange.route)]->Each([&](const LinkTraffic& share) {
        Add(share.link, begin, share.occupied * rate);
        Add(share.link, span.end, -share.occupied * rate);
      });
    }
  }

  int64_t FirstExecuted(const Communicator& communicator) const {
    for (int32_t i = 0; i < communicator.members; ++i) {
      const int64_t member = communicators_.members[At(communicator.first_member + i)];
      if (std::ranges::binary_search(communicators_.ranks, member)) return member;
    }
    return -1;
  }

  const ir::Plan& plan_;
  const PlanTasks& tasks_;
  const CommunicatorTable& communicators_;
  const Timeline& timeline_;
  std::unordered_map<LinkId, std::size_t> number_;
  std::vector<std::vector<UseChange>> changes_;  // by link
};

std::vector<LinkPoint> Points(const std::vector<UseChange>& changes, double capacity) {
  std::vector<LinkPoint> points = {{0, 0}};
  double used = 0;
  for (std::size_t i = 0; i < changes.size();) {
    const double time = changes[i].time;
    for (; i < changes.size() && changes[i].time == time; ++i) used += changes[i].bytes_per_second;
    if (used < kRounding * capacity) used = 0;
    const double share = used / capacity;
    if (share == points.back().share) continue;
    if (points.back().time == time) points.pop_back();
    points.push_back({time, share});
  }
  return points;
}

}  // namespace

std::vector<std::vector<LinkPoint>> LinkTracks(const ir::Plan& plan, const PlanTasks& tasks,
                                               const CommunicatorTable& communicators,
                                               const Timeline& timeline,
                                               const std::vector<LinkId>& links,
                                               const std::vector<BytesPerSecond>& capacity) {
  std::vector<std::vector<LinkPoint>> tracks;
  const auto changes = TrackBuilder(plan, tasks, communicators, timeline, links).Build();
  for (std::size_t i = 0; i < links.size(); ++i)
    tracks.push_back(Points(changes[i], capacity[At(links[i])].value));
  return tracks;
}

}  // namespace orrery::sim
