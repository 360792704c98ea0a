// SPDX-License-Identifier: Apache-2.0
// The roll call as text and JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "runtime/launch/stop_request.h"
#include "runtime/program/launch/launch.h"

namespace orrery::launch {
namespace {

const char* NameOf(Node::State state) {
  switch (state) {
    case Node::State::kMissing:
      return "missing";
    case Node::State::kTesting:
      return "being tested";
    case Node::State::kGood:
      return "good";
    case Node::State::kBad:
      return "bad";
    case Node::State::kTooLate:
      return "too late";
  }
  return "";
}

std::string Plural(std::size_t n, const char* what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

}  // namespace

std::string Node::Name() const {
  const std::string name = host.empty() ? expected : host;
  return name.empty() ? fmt::format("index {}", index) : fmt::format("{} (index {})", name, index);
}

std::vector<std::size_t> RollCall::Good() const {
  std::vector<std::size_t> good;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].state == Node::State::kGood) good.push_back(i);
  return good;
}

std::string RollCallText(const RollCall& call, const Settings& settings) {
  const std::size_t good = call.hosts.size();
  std::string text = fmt::format(
      "{} of {} good after {:.3g} s ({}; at least {}, deadline {:.4g} s, its last {:.3g} s for "
      "probes){}\n",
      good, Plural(call.nodes.size(), "node"), call.closed_s,
      settings.place.launched_by.empty() ? "flags" : settings.place.launched_by, call.least,
      settings.deadline_s, ProbeReserve(settings.deadline_s),
      call.interface.empty() ? "" : ", over " + call.interface);
  text += fmt::format("  {:<6} {:<24} {:<16} {:>5} {:>9}  {}\n", "index", "host", "address",
                      "slots", "came", "is");
  for (const Node& node : call.nodes) {
    const bool came = node.came_s >= 0;
    const std::string host = node.host.empty() ? node.expected : node.host;
    text += fmt::format("  {:<6} {:<24} {:<16} {:>5} {:>9}  {}{}{}\n", node.index,
                        host.empty() ? "-" : host, node.address.empty() ? "-" : node.address,
                        came ? std::to_string(node.slots) : "-",
                        came ? fmt::format("{:.3g} s", node.came_s) : "never", NameOf(node.state),
                        node.state == Node::State::kGood && node.late ? ", late" : "",
                        node.why.empty() ? "" : ": " + node.why);
  }
  if (static_cast<int64_t>(good) < call.least) {
    return text +
           fmt::format("too few: {} good, at least {} needed{}\n", good, call.least,
                       good > 0 ? fmt::format("; --at-least {} goes on with them", good) : "");
  }
  if (call.nodes.front().state != Node::State::kGood) return text + "the main node is bad\n";
  const std::string lines = HostfileText(call.hosts);
  if (settings.hostfile.empty()) return text + lines;
  return text + fmt::format("hostfile {}: {}, {}\n", settings.hostfile, Plural(good, "host"),
                            Plural(static_cast<std::size_t>(SlotsOf(call.hosts)), "slot"));
}

Json RollCallJson(const RollCall& call, const Settings& settings) {
  Json nodes = Json::array(), hosts = Json::array();
  for (const Node& node : call.nodes) {
    nodes.push_back({{"index", node.index},
                     {"host", node.host.empty() ? node.expected : node.host},
                     {"state", NameOf(node.state)},
                     {"late", node.late},
                     {"why", node.why},
                     {"came_s", node.came_s < 0 ? Json() : Json(node.came_s)},
                     {"address", node.address},
                     {"slots", node.slots}});
  }
  for (const HostSlots& host : call.hosts)
    hosts.push_back({{"host", host.host}, {"slots", host.slots}});
  const bool enough = static_cast<int64_t>(call.hosts.size()) >= call.least &&
                      call.nodes.front().state == Node::State::kGood;
  return {{"schema", "orrery.launch/1"},
          {"launcher", settings.place.launched_by},
          {"enough", enough},
          {"at_least", call.least},
          {"deadline_s", settings.deadline_s},
          {"nodes_until_s", settings.deadline_s - ProbeReserve(settings.deadline_s)},
          {"decided_after_s", call.closed_s},
          {"interface", call.interface},
          {"nodes", nodes},
          {"hosts", hosts},
          {"hostfile", settings.hostfile}};
}

std::string ShowText(const Settings& settings) {
  const NodePlace& place = settings.place;
  const auto number = [](int64_t n) { return n < 0 ? std::string("unknown") : std::to_string(n); };
  std::string text = fmt::format(
      "launcher   {}\nthis node  {}, index {} of {}{}\nmain node  {}, port {}\nslots      {}\n",
      place.launched_by.empty() ? "none is known" : place.launched_by, place.name,
      number(place.index), place.nodes > 0 ? std::to_string(place.nodes) : "unknown",
      place.index >= 0 && place.rank() == 0 ? ", the main one" : "",
      place.main.empty() ? "unknown" : place.main, place.port, place.slots);
  if (!place.of_list.empty()) text += fmt::format("list       {}\n", place.of_list);
  if (!place.hosts.empty()) text += fmt::format("hosts      {}\n", fmt::join(place.hosts, ", "));
  std::vector<std::string> addresses;
  for (const InterfaceAddress& at : OwnAddresses())
    addresses.push_back(fmt::format("{} {}", at.interface, at.address));
  return text + fmt::format("addresses  {}\nsecret     {}\n", fmt::join(addresses, ", "),
                            settings.secret.empty() ? "none" : "set");
}

std::string ShowBrief(const Settings& settings) {
  const NodePlace& place = settings.place;
  const auto known = [](bool is, std::string text) {
    return is ? std::move(text) : std::string("unknown");
  };
  return fmt::format("{}: node {} of {}, main node {}, port {}", place.name,
                     known(place.index >= 0, std::to_string(place.index)),
                     known(place.nodes > 0, std::to_string(place.nodes)),
                     known(!place.main.empty(), place.main), place.port);
}

// As the text: what is unknown is null.
Json ShowJson(const Settings& settings) {
  const NodePlace& place = settings.place;
  Json addresses = Json::array();
  for (const InterfaceAddress& at : OwnAddresses())
    addresses.push_back({{"interface", at.interface}, {"address", at.address}});
  const auto known = [](bool is, Json value) { return is ? std::move(value) : Json(); };
  return {{"schema", "orrery.launch-place/1"},
          {"launcher", known(!place.launched_by.empty(), place.launched_by)},
          {"node", place.name},
          {"index", known(place.index >= 0, place.index)},
          {"nodes", known(place.nodes > 0, place.nodes)},
          {"main", known(!place.main.empty(), place.main)},
          {"port", place.port},
          {"slots", known(place.slots > 0, place.slots)},
          {"hosts", place.hosts},
          {"addresses", addresses},
          {"secret", !settings.secret.empty()}};
}

void Say(const std::string& text) {
  fmt::print(stderr, "plan launch: {}\n", text);
  std::fflush(stderr);
}

int SayStopped() {
  Say(fmt::format("stopped by {} before the command began", SignalName(SignalSeen())));
  return kStoppedCode;
}

}  // namespace orrery::launch
