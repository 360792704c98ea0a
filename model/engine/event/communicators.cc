// SPDX-License-Identifier: Apache-2.0
// Finds the members of every communicator and routes what they exchange.
#include "model/engine/event/communicators.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "model/base/check.h"
#include "model/base/diagnostics.h"
#include "model/collectives/routing.h"
#include "model/engine/event/index.h"
#include "model/engine/event/line_shapes.h"
#include "model/engine/event/line_stretches.h"
#include "model/engine/event/path_table.h"
#include "model/hardware/faults.h"

namespace orrery::sim {
namespace {

class TableBuilder {
 public:
  TableBuilder(const ir::Plan& plan, const PlanTasks& tasks, const Cluster& cluster,
               const net::Wires& wires, const MessagePrices& prices,
               const CommunicatorOptions& options)
      : plan_(plan),
        tasks_(tasks),
        cluster_(cluster),
        prices_(prices),
        capacity_(wires.capacity),
        options_(options),
        router_(cluster),
        shapes_(plan, tasks, cluster),
        stretches_(plan, tasks, cluster),
        paths_(cluster, wires.capacity) {}

  CommunicatorTable Build(const net::Wires& wires) {
    CheckMesh();
    FindRanks();
    table_.cores = static_cast<double>(cluster_.summary.cores) *
                   static_cast<double>(table_.ranks.size()) /
                   static_cast<double>(plan_.mesh.ranks());
    MarkUses();
    table_.of.assign(2 * tasks_.lines.size(), std::vector<int32_t>(table_.ranks.size(), -1));
    for (std::size_t line = 0; line < tasks_.lines.size(); ++line) {
      for (std::size_t r = 0; r < table_.ranks.size(); ++r) Join(line, r);
    }
    for (std::size_t m = 0; m < table_.communicators.size(); ++m)
      AddExchanges(static_cast<int32_t>(m));
    table_.contention = options_.contention;
    table_.network = net::MakeNetwork(options_.backend, wires);
    if (options_.log_rates) {
      table_.rates = std::make_unique<std::vector<net::RateChange>>();
      table_.rates_logged = table_.network->LogRates(table_.rates.get());
    }
    if (options_.contention) {
      table_.routes = paths_.Register(table_.network.get(), options_.set_apart,
                                      options_.log_rates ? &table_.path_uses : nullptr);
    }
    if (options_.keep_links) table_.link_shares = paths_.TakeLinkShares();
    return std::move(table_);
  }

 private:
  void CheckMesh() const {
    if (cluster_.ranks() < plan_.mesh.ranks()) {
      throw InputError(fmt::format("the plan wants {} ranks, the cluster has {}",
                                   plan_.mesh.ranks(), cluster_.ranks()));
    }
    for (const LineMessages& line : tasks_.lines) {
      if (line.line.axis >= 0 && (options_.merged >> line.line.axis & 1) != 0) {
        throw InputError(fmt::format("ranks along '{}' send to each other and cannot be merged",
                                     plan_.mesh.axes[At(line.line.axis)].name));
      }
    }
  }

  void FindRanks() {
    index_of_.assign(At(plan_.mesh.ranks()), -1);
    for (int64_t rank = 0; rank < plan_.mesh.ranks(); ++rank) {
      const std::vector<int> coords = plan_.mesh.Coords(rank);
      bool executed = true;
      for (std::size_t a = 0; a < coords.size(); ++a)
        executed &= (options_.merged >> a & 1) == 0 || coords[a] == 0;
      if (!executed) continue;
      index_of_[At(rank)] = static_cast<int32_t>(table_.ranks.size());
      table_.ranks.push_back(rank);
    }
  }

  void MarkUses() {
    uses_.assign(tasks_.stages.size(), std::vector<char>(2 * tasks_.lines.size(), 0));
    for (std::size_t s = 0; s < tasks_.stages.size(); ++s) {
      for (const Task& task : tasks_.stages[s].tasks) {
        if (task.line >= 0) uses_[s][At(2 * task.line + task.receives)] = 1;
      }
    }
  }

  void Join(std::size_t line, std::size_t r) {
    const int64_t rank = table_.ranks[r];
    const auto stage = At(plan_.mesh.Coords(rank)[At(plan_.mesh.program_axis)]);
    const Line& key = tasks_.lines[line].line;
    if (key.axis < 0) {
      if (uses_[stage][2 * line] && table_.of[2 * line][r] < 0) AddGroup(line, rank);
      return;
    }
    if (uses_[stage][2 * line]) table_.of[2 * line][r] = Pair(line, rank);
    if (uses_[stage][2 * line + 1])
      table_.of[2 * line + 1][r] = Pair(line, NeighbourOf(plan_.mesh, rank, key.axis, -key.delta));
  }

  void AddGroup(std::size_t line, int64_t rank) {
    const ir::Group& group = plan_.groups[At(tasks_.lines[line].line.group)];
    const std::vector<int64_t> members = ir::GroupMembers(plan_.mesh, group, rank);
    const int32_t communicator = AddCommunicator(line, members);
    for (const int64_t member : members) {
      const int32_t r = index_of_[At(member)];
      if (r < 0) continue;
      table_.of[2 * line][At(r)] = communicator;
      ++table_.communicators.back().needed;
    }
    table_.arrivals += table_.communicators.back().needed;
    table_.communicators.back().queue = QueueOf(group, members.front());
  }

  // The same for all groups with the same members.
  int32_t QueueOf(const ir::Group& group, int64_t first) {
    AxisMask axes = 0;
    for (std::size_t a = 0; a < plan_.mesh.axes.size(); ++a) {
      if ((group.axes >> a & 1) != 0 && plan_.mesh.axes[a].size > 1)
        axes = static_cast<AxisMask>(axes | 1 << a);
    }
    return queues_.try_emplace({axes, group.restricted_axis, first}, table_.queues).second
               ? table_.queues++
               : queues_.at({axes, group.restricted_axis, first});
  }

  int32_t Pair(std::size_t line, int64_t sender) {
    const auto [at, added] =
        pairs_.try_emplace({line, sender}, static_cast<int32_t>(table_.communicators.size()));
    if (added) {
      const Line& key = tasks_.lines[line].line;
      AddCommunicator(line, {sender, NeighbourOf(plan_.mesh, sender, key.axis, key.delta)});
      table_.communicators.back().needed = 2;
      table_.arrivals += 2;
    }
    return at->second;
  }

  int32_t AddCommunicator(std::size_t line, const std::vector<int64_t>& members) {
    Communicator communicator;
    communicator.line = static_cast<int32_t>(line);
    communicator.first_member = static_cast<int32_t>(table_.members.size());
    communicator.members = static_cast<int32_t>(members.size());
    communicator.first_arrival = table_.arrivals;
    table_.members.insert(table_.members.end(), members.begin(), members.end());
    table_.communicators.push_back(communicator);
    return static_cast<int32_t>(table_.communicators.size()) - 1;
  }

  void AddExchanges(int32_t m) {
    Communicator& communicator = table_.communicators[At(m)];
    communicator.first_exchange = static_cast<int32_t>(table_.exchanges.size());
    const std::span<const int64_t> members(table_.members.data() + communicator.first_member,
                                           At(communicator.members));
    const std::vector<GroupShape> shapes = ShapesOf(communicator.line, members);
    const UplinkStretch stretch = StretchOf(communicator.line, members);
    known_routes_.clear();
    const std::vector<Message>& messages = tasks_.lines[At(communicator.line)].messages;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      Exchange exchange;
      exchange.bytes = messages[i].bytes;
      if (communicator.members > 1 && exchange.bytes * messages[i].share > 0) {
        const GroupShape shape = SlowestOf(shapes, communicator.line, i, messages[i], stretch);
        const MessagePrice& time = TimeOf(communicator.line, i, messages[i], shape, stretch);
        exchange.latency = messages[i].share * time.latency;
        exchange.bytes *= messages[i].share;
        const MessageTerms terms = prices_.With(stretch).TermsOf(
            messages[i].role, messages[i].collective, shape, messages[i].backward);
        exchange.slowdown = SlowdownOf(messages[i], terms, time);
        exchange.hidden = terms.hidden;
        exchange.price = exchange.latency + exchange.bytes * time.seconds_per_byte;
        exchange.route = options_.contention ? RouteOf(m, members, messages[i].collective, time)
                                             : AloneRoute(time.seconds_per_byte);
      }
      table_.exchanges.push_back(exchange);
    }
  }

  // Copies that are not executed run in step with the executed one, which is as slow as the slowest of them.
  template <class Visit>
  void EachCopy(int32_t line, std::span<const int64_t> members, const Visit& visit) const {
    const Line& key = tasks_.lines[At(line)].line;
    const AxisMask own = key.axis >= 0 ? 0 : plan_.groups[At(key.group)].axes;
    std::vector<int64_t> image(members.size());
    for (const int64_t shift : Shifts(plan_.mesh, static_cast<AxisMask>(options_.merged & ~own))) {
      for (std::size_t i = 0; i < members.size(); ++i) image[i] = members[i] + shift;
      visit(std::span<const int64_t>(image));
    }
  }

  UplinkStretch StretchOf(int32_t line, std::span<const int64_t> members) {
    UplinkStretch most = stretches_.Of(line, members);
    if (!stretches_.narrow()) return most;
    EachCopy(line, members, [&](std::span<const int64_t> copy) {
      const UplinkStretch of = stretches_.Of(line, copy);
      most = {std::max(most.ring, of.ring), std::max(most.tree, of.tree)};
    });
    return most;
  }

  // Its own first, and those of its copies.
  std::vector<GroupShape> ShapesOf(int32_t line, std::span<const int64_t> members) {
    std::vector<GroupShape> shapes = {shapes_.Of(line, members)};
    if (!shapes_.Uneven(line)) return shapes;
    EachCopy(line, members, [&](std::span<const int64_t> copy) {
      const GroupShape of = shapes_.Of(line, copy);
      if (std::ranges::find(shapes, of) == shapes.end()) shapes.push_back(of);
    });
    return shapes;
  }

  // By what the message takes: two GPUs of a node without a switch may have less between them than their NICs.
  GroupShape SlowestOf(const std::vector<GroupShape>& shapes, int32_t line, std::size_t i,
                       const Message& message, const UplinkStretch& stretch) {
    const auto seconds = [&](const GroupShape& shape) {
      const MessagePrice& price = TimeOf(line, i, message, shape, stretch);
      return price.latency + message.bytes * price.seconds_per_byte;
    };
    if (shapes.size() == 1) return shapes.front();
    return *std::ranges::max_element(shapes, {}, seconds);
  }

  // Of a message in two parts, compute stands still for the awaited one, and the other costs it nothing.
  static double SlowdownOf(const Message& message, const MessageTerms& terms,
                           const MessagePrice& price) {
    switch (message.part) {
      case Part::kWhole: {
        const double seconds = price.latency + message.bytes * price.seconds_per_byte;
        return seconds > 0 ? terms.Lost(message.bytes, seconds) / seconds : 0.0;
      }
      case Part::kBeside:
        return 0;
      case Part::kAwaited:
        return 1;
    }
    return 0;
  }

  // Frameworks send what belongs to a whole step in buckets: small messages share the latency of one, large ones pay that
  // of several.
  MessagePrice InItsBucket(int32_t line, const Message& message, const GroupShape& shape,
                           const UplinkStretch& stretch) {
    double bytes = message.bytes;
    const MessagePrices prices = prices_.With(stretch);
    const MessageTerms terms =
        prices.TermsOf(message.role, message.collective, shape, message.backward);
    const double bucket = terms.Bucket(message.element);
    if (bucket > 0) bytes = std::min(bucket, StepBytes(line, message));
    MessagePrice price = prices.Price(message.role, message.collective, shape, bytes);
    price.latency *= message.bytes / bytes;
    return price;
  }

  // What messages of a kind carry over a line in a step, on the stage that sends most.
  double StepBytes(int32_t line, const Message& kind) const {
    double most = 0;
    const std::vector<Message>& messages = tasks_.lines[At(line)].messages;
    for (const StageTasks& stage : tasks_.stages) {
      double sum = 0;
      for (const Task& task : stage.tasks) {
        if (task.line != line || task.other_part()) continue;
        const Message& message = messages[At(task.message)];
        if (message.collective == kind.collective && message.role == kind.role)
          sum += message.bytes;
      }
      most = std::max(most, sum);
    }
    return most;
  }

  const MessagePrice& TimeOf(int32_t line, std::size_t i, const Message& message,
                             const GroupShape& shape, const UplinkStretch& stretch) {
    const auto [at, added] = times_.try_emplace({line, i, shape, stretch});
    if (added) at->second = InItsBucket(line, message, shape, stretch);
    return at->second;
  }

  // Without contention: numbered like the routes of the path table, which stays empty.
  int32_t AloneRoute(double seconds_per_byte) {
    const auto [at, added] =
        alone_.try_emplace(seconds_per_byte, static_cast<int32_t>(table_.routes.size()));
    if (added) {
      table_.routes.emplace_back();
      table_.routes.back().alone = seconds_per_byte;
    }
    return at->second;
  }

  int32_t RouteOf(int32_t m, std::span<const int64_t> members, Collective collective,
                  const MessagePrice& time) {
    const auto [at, added] = known_routes_.try_emplace(
        {time.algorithm, collective, time.Bounding(time.share), time.seconds_per_byte});
    if (!added) return at->second;
    const ir::Mesh& mesh = plan_.mesh;
    const Line& key = tasks_.lines[At(table_.communicators[At(m)].line)].line;
    const std::string what =
        key.axis >= 0
            ? fmt::format("send from rank {} to rank {}", members[0], members[1])
            : fmt::format("{} of group {} with ranks {} to {}", Name(collective),
                          plan_.groups[At(key.group)].name, members.front(), members.back());
    net::Traffic traffic;
    try {
      traffic = router_.Route(time.algorithm->name(), collective, members);
    } catch (const NoRoute& gap) {
      throw gap.Of(what);
    }
    const bool whole = options_.whole_weights || options_.backend == net::Backend::kSimGrid;
    const Occupation occupation = Occupy(time, cluster_, capacity_, whole, traffic);
    const AxisMask own = key.axis >= 0 ? 0 : plan_.groups[At(key.group)].axes;
    std::vector<int64_t> image(members.size());
    for (const int64_t shift : Shifts(mesh, static_cast<AxisMask>(options_.merged & ~own))) {
      for (std::size_t i = 0; i < members.size(); ++i) image[i] = members[i] + shift;
      Couple(router_.Route(time.algorithm->name(), collective, image), &traffic);
    }
    Weigh(time, cluster_, occupation, &traffic);
    return at->second = paths_.Add(m, std::move(traffic), occupation, what);
  }

  // What to add to a rank with coordinate 0 on these axes to get its copies, itself left out.
  static std::vector<int64_t> Shifts(const ir::Mesh& mesh, AxisMask axes) {
    std::vector<int64_t> shifts = {0};
    for (std::size_t place = mesh.plain(); place-- > 0;) {
      const std::size_t a = mesh.At(place);
      if ((axes >> a & 1) == 0) continue;
      const int64_t stride = mesh.Stride(a);
      const std::size_t before = shifts.size();
      for (int i = 1; i < mesh.axes[a].size; ++i) {
        for (std::size_t k = 0; k < before; ++k) shifts.push_back(shifts[k] + i * stride);
      }
    }
    shifts.erase(shifts.begin());
    return shifts;
  }

  // Copies run in step with the executed one: one job per channel. On a mesh they may have other
  // rings than it has, with other shares; then those run beside it.
  static void Couple(const net::Traffic& copy, net::Traffic* traffic) {
    ORRERY_CHECK(copy.size() == traffic->size(), "{} phases, copy has {}", traffic->size(),
                 copy.size());
    for (std::size_t phase = 0; phase < copy.size(); ++phase) {
      net::TrafficPhase& own = (*traffic)[phase];
      for (std::size_t c = 0; c < copy[phase].size(); ++c) {
        const net::Channel& channel = copy[phase][c];
        if (c < own.size() && own[c].share == channel.share) {
          own[c].uses.insert(own[c].uses.end(), channel.uses.begin(), channel.uses.end());
        } else {
          own.push_back(channel);
        }
      }
    }
  }

  const ir::Plan& plan_;
  const PlanTasks& tasks_;
  const Cluster& cluster_;
  const MessagePrices& prices_;
  const std::vector<BytesPerSecond>& capacity_;
  const CommunicatorOptions& options_;
  net::TrafficRouter router_;
  LineShapes shapes_;
  LineStretches stretches_;
  PathTable paths_;
  CommunicatorTable table_;
  std::vector<int32_t> index_of_;                             // by rank, -1: not executed
  std::vector<std::vector<char>> uses_;                       // by stage, 2 * line + receives
  std::map<std::pair<std::size_t, int64_t>, int32_t> pairs_;  // (line, sender)
  std::map<std::tuple<int32_t, std::size_t, GroupShape, UplinkStretch>, MessagePrice> times_;
  std::map<std::tuple<const Algorithm*, Collective, double, double>, int32_t>
      known_routes_;                 // of one communicator
  std::map<double, int32_t> alone_;  // by seconds per byte
  std::map<std::tuple<AxisMask, int, int64_t>, int32_t> queues_;
};

}  // namespace

CommunicatorTable MakeCommunicators(const ir::Plan& plan, const PlanTasks& tasks,
                                    const Cluster& cluster, net::Wires wires,
                                    const MessagePrices& prices,
                                    const CommunicatorOptions& options) {
  return TableBuilder(plan, tasks, cluster, wires, prices, options).Build(wires);
}

CommunicatorTable WithoutContention(const CommunicatorTable& communicators, net::Wires wires) {
  CommunicatorTable free;
  free.communicators = communicators.communicators;
  free.members = communicators.members;
  free.exchanges = communicators.exchanges;
  free.ranks = communicators.ranks;
  free.stands_for = communicators.stands_for;
  free.of = communicators.of;
  free.cores = communicators.cores;
  free.arrivals = communicators.arrivals;
  free.queues = communicators.queues;
  free.contention = false;
  free.network = net::MakeNetwork(net::Backend::kFluid, std::move(wires));
  std::map<double, int32_t> routes;  // by seconds per byte
  for (Exchange& exchange : free.exchanges) {
    if (exchange.route < 0) continue;
    const double per_byte = (exchange.price - exchange.latency) / exchange.bytes;
    const auto [at, added] = routes.try_emplace(per_byte, static_cast<int32_t>(routes.size()));
    if (added) free.routes.emplace_back().alone = per_byte;
    exchange.route = at->second;
  }
  return free;
}

std::vector<LinkTraffic> TrafficOnLinks(const ir::Plan& plan, const PlanTasks& tasks,
                                        const CommunicatorTable& communicators, std::size_t links) {
  if (communicators.whole) return TrafficOnLinks(plan, tasks, *communicators.whole, links);
  std::vector<std::vector<MessageCount>> counts;
  for (const StageTasks& stage : tasks.stages) counts.push_back(CountMessages(stage));
  std::vector<double> through(communicators.routes.size(), 0.0);  // sum of S
  for (std::size_t r = 0; r < communicators.ranks.size(); ++r) {
    const auto stage = At(plan.mesh.Coords(communicators.ranks[r])[At(plan.mesh.program_axis)]);
    for (const MessageCount& count : counts[stage]) {
      const Communicator& communicator =
          communicators.communicators[At(communicators.of[At(2 * count.line + count.receives)][r])];
      const Exchange& exchange =
          communicators.exchanges[At(communicator.first_exchange + count.message)];
      if (exchange.route >= 0)
        through[At(exchange.route)] += count.times * exchange.bytes / communicator.needed;
    }
  }
  std::vector<LinkTraffic> traffic(links);
  for (std::size_t link = 0; link < links; ++link) traffic[link].link = static_cast<LinkId>(link);
  for (std::size_t route = 0; route < communicators.link_shares.size(); ++route) {
    communicators.link_shares[route]->Each([&](const LinkTraffic& share) {
      LinkTraffic& on_link = traffic[At(share.link)];
      on_link.bytes += share.bytes * through[route];
      on_link.occupied += share.occupied * through[route];
      on_link.alone += share.alone * through[route];
    });
  }
  return traffic;
}

}  // namespace orrery::sim
