// SPDX-License-Identifier: Apache-2.0
// One thread serves the door and all nodes; what takes long runs in others.
#include "runtime/program/launch/roll_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "runtime/comm/communicator.h"
#include "runtime/comm/secret.h"
#include "runtime/launch/stop_request.h"

namespace orrery::launch {
namespace {

constexpr auto kSayEvery = std::chrono::seconds(10);
// Of the deadline, for probes behind the roll call; they are over in milliseconds where all answer.
constexpr double kReserveShare = 0.2, kLongestReserve = 10;
constexpr double kProbesInReserve = 3;

Clock::duration Length(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

bool IsOwn(const std::string& address) {
  return std::ranges::any_of(OwnAddresses(),
                             [&](const auto& own) { return own.address == address; });
}

// Where the others will come: an address that is known to be this machine's, else all.
comm::Socket Listener(const Settings& settings) {
  const NodePlace& place = settings.place;
  if (!settings.listen.empty()) return comm::ListenAt(settings.listen, place.port);
  if (comm::IsLoopback(place.main)) return comm::Listen(place.port, true);
  if (const std::string address = comm::AddressOf(place.main); IsOwn(address))
    return comm::ListenAt(address, place.port);
  return comm::Listen(place.port, false);
}

// A name that means loopback here may mean an address elsewhere: the others will show.
Loopback LoopbackOf(const Settings& settings) {
  const std::string& main = settings.place.main;
  if (comm::IsLoopback(main)) return Loopback::kAlone;
  return comm::IsLoopback(comm::AddressOf(main)) ? Loopback::kToo : Loopback::kNo;
}

}  // namespace

double ProbeReserve(double deadline_s) {
  return std::min(kReserveShare * deadline_s, kLongestReserve);
}

nlohmann::json TestJson(const TestResult& result) {
  nlohmann::json json = {{"good", result.good}, {"why", result.why}};
  if (const auto& h = result.health) json["health"] = {h->compute, h->memory, h->disk, h->problem};
  return json;
}

TestResult ReadTest(const nlohmann::json& json) {
  TestResult result{json.at("good"), json.at("why"), {}};
  if (json.contains("health")) {
    const auto& h = json["health"];
    result.health = check::NodeHealth{"", h.at(0), h.at(1), h.at(2), 0, 0, h.at(3)};
  }
  return result;
}

Caller::Caller(const Settings& settings)
    : settings_(settings),
      door_(Listener(settings), settings.secret, 0),
      probes_(LoopbackOf(settings), settings.secret, 0) {
  const NodePlace& place = settings.place;
  call_.least = settings.least;
  for (int64_t rank = 0; rank < place.nodes; ++rank) {
    Node node;
    node.index = (rank + place.first) % place.nodes;
    const auto index = static_cast<std::size_t>(node.index);
    if (index < place.hosts.size()) node.expected = place.hosts[index];
    call_.nodes.push_back(std::move(node));
  }
  const std::size_t n = call_.nodes.size();
  channels_.resize(n);
  health_.resize(n);
  probed_.resize(n);
  AddMain();
}

void Caller::AddMain() {
  Node& own = call_.nodes.front();
  own.host = settings_.place.name;
  own.came_s = 0;
  own.state = Node::State::kTesting;
  own.slots = std::max<int64_t>(settings_.place.slots, 1);
  own.addresses = probes_.addresses();
  if (!own.addresses.empty()) own.control = own.addresses.front().interface;
  const auto until = start_ + Length(settings_.deadline_s - ProbeReserve(settings_.deadline_s));
  own_test_ = std::async(std::launch::async, [this, until] { return RunTests(settings_, until); });
}

double Caller::Elapsed() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

const RollCall& Caller::Gather() {
  const double reserve = ProbeReserve(settings_.deadline_s);
  Collect(start_ + Length(settings_.deadline_s - reserve));
  if (launch::SignalSeen() != 0) return call_;
  for (Node& node : call_.nodes) {
    if (node.state == Node::State::kTesting)
      Mark(&node, Node::State::kBad, "its test has not ended in time");
  }
  CompareNodes(settings_.bounds, &call_.nodes, health_);
  RequireInterface();
  ChooseInterface(start_ + Length(settings_.deadline_s));
  call_.closed_s = Elapsed();
  for (const std::size_t i : call_.Good()) {
    Node& node = call_.nodes[i];
    const NodeAddress* at = AddressOn(node, call_.interface);
    node.address = at == nullptr ? "" : at->address;
    call_.hosts.push_back({settings_.names ? node.host : node.address, node.slots, node.Name()});
  }
  return call_;
}

void Caller::TellStopped() {
  const std::string why =
      fmt::format("the main node was stopped by {}", launch::SignalName(launch::SignalSeen()));
  for (Channel& channel : channels_)
    if (channel.open()) channel.Send({{"out", {{"why", why}, {"code", launch::kStoppedCode}}}});
}

bool Caller::Enough() const {
  return call_.nodes.front().state == Node::State::kGood &&
         static_cast<int64_t>(call_.Good().size()) >= call_.least;
}

bool Caller::AllKnown() const {
  return std::ranges::none_of(call_.nodes, [](const Node& node) {
    return node.state == Node::State::kMissing || node.state == Node::State::kTesting;
  });
}

void Caller::Collect(Clock::time_point until) {
  while (!AllKnown() && Clock::now() < until && launch::SignalSeen() == 0) {
    if (auto admitted = door_.Await(std::min(until, Clock::now() + kLook)))
      Welcome(std::move(*admitted));
    for (std::size_t i = 1; i < channels_.size(); ++i) Hear(i);
    if (own_test_.valid() &&
        own_test_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
      HearTested(0, own_test_.get());
    SayProgress();
  }
}

void Caller::SayProgress() {
  if (Clock::now() - said_ < kSayEvery) return;
  said_ = Clock::now();
  std::vector<std::string> missing, testing;
  for (const Node& node : call_.nodes) {
    if (node.state == Node::State::kMissing) missing.push_back(node.Name());
    if (node.state == Node::State::kTesting) testing.push_back(node.Name());
  }
  Say(fmt::format("{} of {} nodes have come after {:.0f} s{}{}{}{}",
                  call_.nodes.size() - missing.size(), call_.nodes.size(), Elapsed(),
                  missing.empty() ? "" : "; not there: ", fmt::join(missing, ", "),
                  testing.empty() ? "" : "; being tested: ", fmt::join(testing, ", ")));
}

void Caller::Welcome(comm::Admitted admitted) {
  const auto& [rank, size, port, host] = admitted.caller;
  Channel channel(std::move(admitted.socket));
  std::string wrong;
  if (size != settings_.place.nodes) {
    wrong = fmt::format("{} counts {} nodes, the main one {}", host, size, settings_.place.nodes);
  } else if (rank < 1 || rank >= size) {
    wrong = fmt::format("{} is no other node of the job", host);
  } else if (channels_[static_cast<std::size_t>(rank)].open()) {
    wrong = fmt::format("{} and {} both say that they are index {}",
                        call_.nodes[static_cast<std::size_t>(rank)].host, host,
                        call_.nodes[static_cast<std::size_t>(rank)].index);
  }
  if (!wrong.empty()) {
    Say(wrong + "; the second is turned away");
    channel.Send({{"out", {{"why", wrong}, {"code", kTooFewCode}}}});
    return;
  }
  const auto i = static_cast<std::size_t>(rank);
  Node& node = call_.nodes[i];
  node.host = host;
  node.came_s = Elapsed();
  node.late = node.came_s > settings_.late_s;
  // Of this end, where the others come to.
  const std::string here = comm::OwnAddress(channel.socket());
  for (const NodeAddress& own : call_.nodes.front().addresses)
    if (own.address == here) call_.nodes.front().control = own.interface;
  channels_[i] = std::move(channel);
  Mark(&node, Node::State::kTesting);
}

void Caller::Mark(Node* node, Node::State state, const std::string& why) {
  node->state = state;
  node->why = why;
}

void Caller::Hear(std::size_t i) {
  Node& node = call_.nodes[i];
  if (!channels_[i].open()) return;
  try {
    for (const nlohmann::json& message : channels_[i].Read()) {
      if (message.contains("hello")) HearHello(&node, message["hello"]);
      if (message.contains("tested")) HearTested(i, ReadTest(message["tested"]));
      if (message.contains("probed")) probed_[i] = message["probed"].get<std::vector<bool>>();
    }
  } catch (const nlohmann::json::exception&) {
    channels_[i].Close();
  }
  const bool counted = node.state == Node::State::kTesting || node.state == Node::State::kGood;
  if (!channels_[i].open() && counted) Mark(&node, Node::State::kBad, "its connection was lost");
}

void Caller::HearHello(Node* node, const nlohmann::json& hello) {
  node->slots = std::clamp<int64_t>(hello.at("slots"), 1, 4096);
  node->addresses = ReadAddresses(hello.at("addresses"));
  node->control = hello.at("control");
  node->host = comm::PlainHost(hello.at("name").get<std::string>());
  const std::string version = hello.at("version");
  if (version != ORRERY_VERSION)
    Mark(node, Node::State::kBad,
         fmt::format("it has version {} of this program, the main node {}", version,
                     ORRERY_VERSION));
}

void Caller::HearTested(std::size_t i, const TestResult& result) {
  Node& node = call_.nodes[i];
  if (node.state != Node::State::kTesting) return;
  health_[i] = result.health;
  Mark(&node, result.good ? Node::State::kGood : Node::State::kBad, result.why);
}

void Caller::RequireInterface() {
  for (Node& node : call_.nodes) {
    const bool other = !settings_.interface.empty();
    if (node.state != Node::State::kGood || AddressOn(node, settings_.interface) != nullptr)
      continue;
    const std::vector<std::string> has = InterfacesOf(node);
    Mark(&node, Node::State::kBad,
         fmt::format("it has no {} that is up: {}",
                     other ? "interface " + settings_.interface : "interface to the main node",
                     has.empty() ? "none is" : fmt::format("{}", fmt::join(has, ", "))));
  }
}

void Caller::ChooseInterface(Clock::time_point until) {
  const std::vector<std::size_t> good = call_.Good();
  std::vector<const Node*> nodes;
  for (const std::size_t i : good) nodes.push_back(&call_.nodes[i]);
  std::vector<std::string> names = {settings_.interface};
  if (settings_.interface.empty()) names = InterfacesToTry(nodes);
  call_.interface = names.front();
  std::vector<std::pair<std::size_t, std::size_t>> fewest;
  const double seconds = ProbeReserve(settings_.deadline_s) / kProbesInReserve;
  for (const std::string& name : names) {
    if (name != names.front() && Clock::now() + Length(seconds) > until) break;
    const auto failed = FailedPairs(good, name, seconds);
    if (name == names.front() || failed.size() < fewest.size()) {
      fewest = failed;
      call_.interface = name;
    }
    if (fewest.empty()) break;
  }
  for (const std::size_t place : LeaveOut(good.size(), fewest)) {
    std::vector<std::string> from;
    for (const auto& [a, b] : fewest) {
      if (a == place) from.push_back(nodes[b]->host);
      if (b == place) from.push_back(nodes[a]->host);
    }
    std::ranges::sort(from);
    from.erase(std::unique(from.begin(), from.end()), from.end());
    Node& node = call_.nodes[good[place]];
    const NodeAddress* at = AddressOn(node, call_.interface);
    Mark(&node, Node::State::kBad,
         fmt::format("no connection at {} ({}) with {}", at == nullptr ? "?" : at->address,
                     at == nullptr ? "?" : at->interface, fmt::join(from, ", ")));
  }
  if (call_.interface.empty()) {
    const Node& first = call_.nodes.front();
    const bool same =
        std::ranges::all_of(nodes, [&](const Node* n) { return n->control == first.control; });
    if (same) call_.interface = first.control;
  }
}

std::vector<std::pair<std::size_t, std::size_t>> Caller::FailedPairs(
    const std::vector<std::size_t>& good, const std::string& interface, double seconds) {
  std::vector<std::vector<std::size_t>> partners(good.size());
  std::future<std::vector<bool>> own;
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::vector<ProbeTarget> targets;
    for (const std::size_t to : ProbePartners(i, good.size())) {
      const NodeAddress* at = AddressOn(call_.nodes[good[to]], interface);
      if (at == nullptr) continue;
      partners[i].push_back(to);
      targets.push_back({static_cast<int64_t>(good[to]), at->address, at->port});
    }
    probed_[good[i]].reset();
    if (good[i] == 0) {
      own = std::async(std::launch::async, [this, targets, seconds] {
        return Probe(targets, 0, settings_.secret, seconds);
      });
    } else {
      channels_[good[i]].Send({{"probe", TargetsJson(targets)}, {"seconds", seconds}});
    }
  }
  // An answer takes a little longer than the attempts.
  const auto until = Clock::now() + Length(1.2 * seconds);
  const auto silent = [&](std::size_t i) { return i != 0 && !probed_[i] && channels_[i].open(); };
  while (std::ranges::any_of(good, silent) && Clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (const std::size_t i : good)
      if (i != 0) Hear(i);
  }
  if (own.valid()) probed_[0] = own.get();
  std::vector<std::pair<std::size_t, std::size_t>> failed;
  for (std::size_t i = 0; i < good.size(); ++i) {
    const auto& answer = probed_[good[i]];
    for (std::size_t k = 0; k < partners[i].size(); ++k) {
      const bool reached = answer && k < answer->size() && (*answer)[k];
      if (!reached) failed.emplace_back(i, partners[i][k]);
    }
  }
  return failed;
}

bool Caller::TurnAwayLate() {
  auto admitted = door_.Await(Clock::now() + kLook);
  if (!admitted) return false;
  Channel channel(std::move(admitted->socket));
  const std::string host = admitted->caller.host;
  const double came = Elapsed();
  channel.Send({{"out",
                 {{"why", fmt::format("it came after {:.3g} s, and it was decided after {:.3g} s{}",
                                      came, call_.closed_s,
                                      came < settings_.deadline_s
                                          ? fmt::format(": the last {:.3g} s of --deadline are for "
                                                        "probes",
                                                        ProbeReserve(settings_.deadline_s))
                                          : "")},
                  {"code", kTooFewCode}}}});
  const auto rank = static_cast<std::size_t>(std::max<int64_t>(admitted->caller.rank, 0));
  Say(fmt::format("{} came after {:.3g} s: too late", host, came));
  if (rank == 0 || rank >= call_.nodes.size() || call_.nodes[rank].state != Node::State::kMissing)
    return false;
  Node& node = call_.nodes[rank];
  node.host = host;
  node.came_s = came;
  node.late = true;
  Mark(&node, Node::State::kTooLate, "");
  return true;
}

}  // namespace orrery::launch
