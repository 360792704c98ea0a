// SPDX-License-Identifier: Apache-2.0
// The selector: NCCL's choice, or the smallest of all candidate times.
#include "model/collectives/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "model/base/check.h"
#include "model/base/diagnostics.h"
#include "model/hardware/cache.h"

namespace orrery {

void PreparedCollective::Add(const Candidate& candidate) {
  ORRERY_CHECK(count_ < kMost, "more than {} candidates", kMost);
  candidates_[count_++] = candidate;
}

double PreparedCollective::Time(double bytes) const {
  if (count_ == 0 || bytes <= 0) return 0.0;
  if (sweep_) return sweep_->curve.Time(bytes);
  if (measured_ != nullptr) {
    if (const auto time = measured_->MeasuredCollective(Name(collective_), ranks_, bytes))
      return *time;
  }
  return Taken(bytes).line.At(bytes, std::sqrt(bytes));
}

const PreparedCollective::Candidate& PreparedCollective::Taken(double bytes) const {
  const double root = std::sqrt(bytes);
  const Candidate* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  const auto consider = [&](const NcclRange* range) {
    for (int i = 0; i < count_; ++i) {
      const Candidate& one = candidates_[i];
      if (range == nullptr ? one.protocol == nccl::Protocol::kLl128
                           : !range->Allows(*one.algorithm, one.protocol, line128_))
        continue;
      const double time = one.line.At(bytes, root);
      if (best != nullptr && time >= least) continue;
      least = time;
      best = &one;
    }
  };
  if (nccl_ != nullptr) consider(&RangeOf(*nccl_, bytes));
  if (best == nullptr) consider(nullptr);
  return *best;
}

std::string PreparedCollective::Choice(double bytes) const {
  if (count_ == 0) return "none";
  const Candidate& choice = Taken(bytes);
  const std::string& name = choice.algorithm->name();
  if (sweep_) return fmt::format("{} ({})", name, Words(sweep_->rule));
  return choice.protocol == nccl::Protocol::kSimple
             ? name
             : fmt::format("{} ({})", name,
                           choice.protocol == nccl::Protocol::kLl ? "LL" : "LL128");
}

PreparedCollective Prepare(Collective collective, const Network& network,
                           const std::string& algorithm) {
  PreparedCollective prepared;
  if (network.shape.ranks < 2) return prepared;
  if (algorithm.empty()) prepared.measured_ = network.measured;
  prepared.collective_ = collective;
  prepared.ranks_ = network.shape.ranks;
  prepared.line128_ = network.line128_bandwidth > 0;
  for (const Algorithm* candidate : Algorithms()) {
    if (!IsCandidate(*candidate, algorithm, network.use)) continue;
    const std::optional<AlgorithmCost> cost = candidate->Cost(collective, network);
    if (!cost) continue;
    prepared.Add({cost->bandwidth.line, candidate, nccl::Protocol::kSimple});
    if (cost->latency) prepared.Add({cost->latency->line, candidate, nccl::Protocol::kLl});
    if (cost->line128) prepared.Add({cost->line128->line, candidate, nccl::Protocol::kLl128});
  }
  if (prepared.count_ == 0) {
    throw InputError(fmt::format("algorithm '{}' cannot run {} on this group of {} ranks",
                                 algorithm, Name(collective), network.shape.ranks),
                     SuggestName(algorithm, AlgorithmNames()));
  }
  if (algorithm.empty()) prepared.nccl_ = NcclRangesOf(network.nccl, network.shape, collective);
  prepared.sweep_ = FindMeasuredTime(collective, network, algorithm);
  return prepared;
}

namespace {

// Times that were measured size by size hold everything: on the links there is next to nothing left.
MessagePrice Timed(Collective collective, const Network& network, double seconds) {
  constexpr double kNextToNothing = 1e-6;  // of the line's time
  const auto serves = [&](const Algorithm* one) {
    return one->Cost(collective, network).has_value();
  };
  MessagePrice time;
  time.algorithm = *std::ranges::find_if(Algorithms(), serves);
  time.latency = seconds;
  time.share.scale_up = time.share.pcie = time.share.network = 1 / kNextToNothing;
  time.wire = time.share;
  return time;
}

// Makes a message alone take what was measured: `wire` seconds of S / b are the closed form's.
void FollowMeasured(double bytes, double wire, MessagePrice* time) {
  if (time->measured == nullptr || bytes <= 0 || wire <= 0) return;
  const SweepCurve::Parts parts = time->measured->curve.Split(bytes);
  const double longer = parts.wire / wire;
  time->latency = parts.latency;
  time->share.scale_up /= longer;
  time->share.network /= longer;
  if (!time->crosses) time->share.pcie /= longer;
  time->seconds_per_byte *= longer;
}

// Of a benchmark's messages: what training leaves of their rates leaves room for other messages.
LineShare WireShare(const Network& network, const LineShare& own) {
  Network benchmark = network;
  benchmark.use = {};
  benchmark.sockets = {};  // of each message; the NIC carries those of others
  LineShare most = own;
  for (const Algorithm* one : Algorithms()) {
    bool serves = false;
    for (int c = 0; c < kCollectives; ++c)
      serves = serves || one->Serves(static_cast<Collective>(c), network.shape);
    if (!serves || !one->Possible(network)) continue;
    const InsideAndBetween<double> share = one->Efficiency(benchmark);
    most.scale_up = std::max(most.scale_up, share.inside);
    if (network.shape.nodes() > 1) most.network = std::max(most.network, share.between);
  }
  return most;
}

}  // namespace

MessagePrice PriceMessage(Collective collective, const Network& network, double bytes,
                          std::string_view algorithm) {
  MessagePrice best;
  best.measured = FindMeasuredTime(collective, network, std::string(algorithm));
  const int ranks = network.shape.ranks;
  if (algorithm.empty() && best.measured == nullptr && network.measured != nullptr) {
    if (const auto time = network.measured->MeasuredCollective(Name(collective), ranks, bytes))
      return Timed(collective, network, *time);
  }
  best.crosses = network.shape.nodes() > 1;
  const double root = std::sqrt(bytes);
  double least = std::numeric_limits<double>::infinity(), wire = 0;
  const auto nccl =
      algorithm.empty() ? NcclRangesOf(network.nccl, network.shape, collective) : nullptr;
  const NcclRange* range = nccl == nullptr ? nullptr : &RangeOf(*nccl, bytes);
  const auto consider = [&](const Algorithm& one, const Protocol& protocol, nccl::Protocol by) {
    if (range == nullptr ? by == nccl::Protocol::kLl128
                         : !range->Allows(one, by, network.line128_bandwidth > 0))
      return;
    const double time = protocol.line.At(bytes, root);
    if (time >= least) return;
    least = time;
    best.algorithm = &one;
    best.protocol = by;
    best.latency = protocol.line.latency + protocol.line.Loss(bytes, root);
    best.share = protocol.share;
    best.seconds_per_byte = protocol.line.per_byte;
    wire = bytes * protocol.line.per_byte;
  };
  const auto consider_all = [&] {
    for (const Algorithm* one : Algorithms()) {
      if (!IsCandidate(*one, algorithm, network.use)) continue;
      const std::optional<AlgorithmCost> cost = one->Cost(collective, network);
      if (!cost) continue;
      consider(*one, cost->bandwidth, nccl::Protocol::kSimple);
      if (cost->latency) consider(*one, *cost->latency, nccl::Protocol::kLl);
      if (cost->line128) consider(*one, *cost->line128, nccl::Protocol::kLl128);
    }
  };
  consider_all();
  if (best.algorithm == nullptr && std::exchange(range, nullptr) != nullptr) consider_all();
  if (best.algorithm == nullptr && !algorithm.empty()) {
    const int nodes = network.shape.nodes();
    throw InputError(fmt::format("algorithm '{}' cannot run {} among {} ranks on {} node{}",
                                 algorithm, Name(collective), ranks, nodes, nodes == 1 ? "" : "s"),
                     "leave it out: the fastest is taken");
  }
  ORRERY_CHECK(best.algorithm != nullptr, "no algorithm for {} among {} ranks", Name(collective),
               ranks);
  FollowMeasured(bytes, wire, &best);
  best.wire = WireShare(network, best.share);
  return best;
}

Occupation Occupy(const MessagePrice& price, const Cluster& cluster,
                  std::span<const BytesPerSecond> capacity, bool whole_weights,
                  const net::Traffic& own) {
  Occupation occupation{price.share, price.wire, {}};
  LineShare& share = occupation.share;
  const auto level = [&](LineShare* shares) {
    if (whole_weights)
      *shares = {price.Bounding(*shares), price.Bounding(*shares), price.Bounding(*shares)};
  };
  level(&share);
  level(&occupation.wire);
  // Seconds of the fullest link, phase by phase: at the links' own rates, and at those that faults leave.
  double healthy = 0;
  // A place for each link of the cluster: groups of thousands of ranks use most of them.
  thread_local std::vector<double> load;
  load.resize(std::max(load.size(), cluster.links.size()), 0.0);
  std::vector<std::size_t> used;
  for (const net::TrafficPhase& phase : own) {
    used.clear();
    for (const net::Channel& channel : phase) {
      for (const net::LinkUse& use : channel.uses) {
        double& bytes = load[static_cast<std::size_t>(use.link)];
        if (bytes == 0) used.push_back(static_cast<std::size_t>(use.link));
        bytes += channel.share * use.weight;
      }
    }
    double least = 0, most = 0;
    for (const std::size_t at : used) {
      const double bytes = std::exchange(load[at], 0.0);
      const double crossing = bytes / share.On(cluster.links[at].kind);
      const Link& known = cluster.links[at];
      least = std::max(least, crossing * known.left / known.capacity.value);
      most = std::max(most, crossing / capacity[at].value);
    }
    healthy += least;
    occupation.least.push_back(most);
  }
  if (healthy <= 0 || price.seconds_per_byte <= 0) return occupation;
  // Where routes are worse than the price knows the message gets through all the same, unless failed NICs are why.
  double scale = price.seconds_per_byte / healthy;
  if (cluster.faults != nullptr) scale = std::max(scale, 1.0);
  for (double& seconds : occupation.least) seconds *= scale;
  const double better = std::max(1.0, 1.0 / scale);
  share = {better * share.scale_up, better * share.pcie, better * share.network};
  LineShare& wire = occupation.wire;
  wire = {std::max(wire.scale_up, share.scale_up), std::max(wire.pcie, share.pcie),
          std::max(wire.network, share.network)};
  return occupation;
}

void Weigh(const MessagePrice& price, const Cluster& cluster, const Occupation& occupation,
           net::Traffic* traffic) {
  const double bounding = price.Bounding(occupation.wire);
  for (net::TrafficPhase& phase : *traffic) {
    for (net::Channel& channel : phase) {
      channel.share /= bounding;
      for (net::LinkUse& use : channel.uses)
        use.weight *=
            bounding / occupation.wire.On(cluster.links[static_cast<std::size_t>(use.link)].kind);
    }
  }
}

Seconds CopyTime(const Network& network, const GpuProfile& gpu, Bytes size) {
  return network.launch + 2.0 * size / (gpu.StreamRate() * CacheFactor(gpu, size.value));
}

}  // namespace orrery
