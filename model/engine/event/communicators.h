// SPDX-License-Identifier: Apache-2.0
// All communicators of a plan on a cluster: who meets whom, over which links, at what cost.
//
// A communicator here is one on a stream of its ranks (a channel), or a pair of ranks. Streams are
// FIFO, so that it has at most one exchange under way: one counter is enough for a rendezvous.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "model/collectives/algorithm.h"
#include "model/engine/event/tasks.h"
#include "model/engine/network/network.h"
#include "model/hardware/traffic.h"
#include "model/plan/ir/plan.h"
#include "model/price/message_prices.h"

namespace orrery::sim {

// Mesh axes along which all ranks do the same at the same time: only coordinate 0 is executed. The
// traffic of the other ranks stays, coupled with that of the executed one.
using AxisMask = uint16_t;

struct Exchange {  // of one message of one communicator
  double latency = 0;
  double bytes = 0;    // S
  int32_t route = -1;  // into CommunicatorTable::routes
  // Share of its rate that compute on its members loses while it is under way, 0 to 1. Of several
  // exchanges at a time the largest counts; at 1 compute stands still.
  double slowdown = 0;
  // Share that nobody waits for: it is moved when the rest has arrived, beside whatever follows.
  double hidden = 0;
  double price = 0;  // seconds of all of it without contention
};

struct Route {
  struct Job {
    net::PathId path = 0;
    double bytes = 0;  // per byte of S
  };
  std::vector<std::vector<Job>> phases;
  double alone = -1;  // >= 0: seconds per byte of S, on links that nobody else uses
};

// What crosses a link, and how long that takes: links seldom run at their nominal rate.
struct LinkTraffic {
  LinkId link = 0;
  double bytes = 0;     // that cross it
  double occupied = 0;  // bytes at the full rate that leave as much room to others
  double alone = 0;     // bytes at the full rate that would take as long, were nothing else on it

  double efficiency() const { return alone > 0 ? bytes / alone : 1; }
};

// What a route's traffic puts on links per byte of S, worked out where it is asked for: with the traffic of 131,072 GPUs it is
// the most that a step holds.
class RouteLinks {
 public:
  // Channels that run together or one after the other.
  struct Part {
    std::vector<net::LinkUse> uses;
    double bytes = 0;  // that occupy links of weight 1
    LineShare wire, share;
  };
  using Kinds = std::shared_ptr<const std::vector<LinkKind>>;  // by link

  RouteLinks() = default;
  RouteLinks(std::vector<Part> parts, Kinds kinds)
      : parts_(std::move(parts)), kinds_(std::move(kinds)) {}

  // Of each link of each part, in order.
  template <class Visit>
  void Each(const Visit& visit) const {
    for (const Part& part : parts_) {
      std::array<double, kLinkKinds> wire, share;
      for (std::size_t kind = 0; kind < kLinkKinds; ++kind) {
        wire[kind] = part.wire.On(static_cast<LinkKind>(kind));
        share[kind] = part.share.On(static_cast<LinkKind>(kind));
      }
      for (const net::LinkUse& use : part.uses) {
        const auto kind = static_cast<std::size_t>((*kinds_)[static_cast<std::size_t>(use.link)]);
        const double occupied = use.weight * part.bytes, bytes = occupied * wire[kind];
        visit(LinkTraffic{use.link, bytes, occupied, bytes / share[kind]});
      }
    }
  }
  bool Uses(LinkId link) const {
    return std::ranges::any_of(parts_, [&](const Part& part) {
      return std::ranges::count(part.uses, link, &net::LinkUse::link) > 0;
    });
  }

 private:
  std::vector<Part> parts_;
  Kinds kinds_;
};

// Of a route. Tables of the same ranks share them.
using LinkShares = std::shared_ptr<const RouteLinks>;

struct Communicator {
  int32_t line = 0;
  int32_t needed = 0;          // executed members
  int32_t first_member = 0;    // into CommunicatorTable::members
  int32_t members = 0;         // executed or not, of the executed copy
  int32_t first_exchange = 0;  // exchange of message m: first_exchange + m
  int32_t first_arrival = 0;   // `needed` places for the executor
  // Collectives of the same ranks run one at a time, whatever their streams: number of their queue;
  // -1: a transfer.
  int32_t queue = -1;
};

struct CommunicatorTable {
  std::vector<Communicator> communicators;
  std::vector<int64_t> members;
  std::vector<Exchange> exchanges;
  std::vector<Route> routes;
  // By route, per byte of S, see CommunicatorOptions::keep_links.
  std::vector<LinkShares> link_shares;
  std::vector<int64_t> ranks;  // executed, ascending
  std::vector<int32_t>
      stands_for;  // by executed rank: ranks that it is one of (alike.h); empty: itself
  std::vector<std::vector<int32_t>> of;  // [2 * line + receives][index into ranks]; -1: none
  std::vector<std::vector<net::LinkUse>> path_uses;  // by path, see CommunicatorOptions::log_rates
  double cores = 0;           // that the executed ranks share for compute; 0: each has its own
  bool rates_logged = false;  // the network can tell them
  // While the step runs; not on the table itself, so that it may be moved.
  std::unique_ptr<std::vector<net::RateChange>> rates;
  std::unique_ptr<net::Network> network;
  int32_t arrivals = 0;
  int32_t queues = 0;
  bool contention = true;  // as CommunicatorOptions
  // Where ranks stand for others: the table of all of them, without its network, if it was to be kept.
  std::shared_ptr<const CommunicatorTable> whole;
};

struct CommunicatorOptions {
  AxisMask merged = 0;
  net::Backend backend = net::Backend::kFluid;
  bool contention = true;  // false: every message takes its price, whatever else is under way
  bool set_apart = true;   // traffic on links of its own becomes a timer
  // What SimGrid wants: links inside a node carry the overhead of the network between nodes too.
  bool whole_weights = false;
  bool keep_links = false;  // fills CommunicatorTable::link_shares, for TrafficOnLinks()
  bool log_rates = false;   // the network notes every rate, for LinkTracks() of link_track.h
};

// `wires` may be degraded; routes are those of `cluster`. Throws InputError: a cluster smaller than
// the mesh, links without bandwidth, point-to-point along a merged axis. Throws NoRoute
// (model/hardware/faults.h), which names the operation.
CommunicatorTable MakeCommunicators(const ir::Plan& plan, const PlanTasks& tasks,
                                    const Cluster& cluster, net::Wires wires,
                                    const MessagePrices& prices,
                                    const CommunicatorOptions& options);

// The same communicators where every message takes its price, whatever else is under way; without
// links and rates.
CommunicatorTable WithoutContention(const CommunicatorTable& communicators, net::Wires wires);

// What the plan's exchanges put on every link, by LinkId: all ranks, executed or not. The table must
// have been made with keep_links.
std::vector<LinkTraffic> TrafficOnLinks(const ir::Plan& plan, const PlanTasks& tasks,
                                        const CommunicatorTable& communicators, std::size_t links);

}  // namespace orrery::sim
