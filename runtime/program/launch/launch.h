// SPDX-License-Identifier: Apache-2.0
// The nodes of a job: who has come, who is good, and what they are started with.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/health/health.h"
#include "runtime/launch/node_place.h"

namespace orrery::launch {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

enum class StartAt { kMain, kNode, kRank };

struct Settings {
  NodePlace place;
  int64_t least = 1;  // good nodes that are enough
  double deadline_s = 300, late_s = 150;
  std::string secret, listen;  // listen: ORRERY_LISTEN
  std::string interface;       // empty: found
  bool names = false;          // in the hostfile
  bool check = false;
  check::Bounds bounds;
  std::string disk, test;
  std::string hostfile;  // empty: none is written
  StartAt start = StartAt::kMain;
  std::vector<std::string> command;  // empty: none
};

// The end of the deadline, seconds: nodes that come in it are too late, for those that have come probe each other.
double ProbeReserve(double deadline_s);

inline constexpr auto kLook = std::chrono::milliseconds(20);  // between two looks at all

// Exit codes beside those of the command; plan's own are 0, 1 and 2.
inline constexpr int kTooFewCode = 3;  // or this node came too late
inline constexpr int kBadNodeCode = 4;

struct NodeAddress {
  std::string interface, address;
  int port = 0;  // where it answers probes
};

// Of --check and --test on one node.
struct TestResult {
  bool good = true;
  std::string why;  // where it is not
  std::optional<check::NodeHealth> health;
};

struct Node {
  enum class State { kMissing, kTesting, kGood, kBad, kTooLate };
  int64_t index = 0;     // as the launcher counts
  std::string expected;  // name that the launcher has for it; may be empty
  std::string host;      // its own, once it has come
  State state = State::kMissing;
  std::string why;     // of a bad one
  double came_s = -1;  // after the main node's start; -1: never
  bool late = false;
  int64_t slots = 1;
  std::vector<NodeAddress> addresses;
  std::string control;  // interface that leads to the main node
  std::string address;  // chosen

  std::string Name() const;  // "ip-10-0-0-2 (index 1)"
};

// What the main node found out.
struct RollCall {
  std::vector<Node> nodes;  // the main one first
  std::string interface;    // chosen
  double closed_s = 0;      // when it was decided
  int64_t least = 1;
  std::vector<HostSlots> hosts;  // of the hostfile

  std::vector<std::size_t> Good() const;
};

// --- node_test.cc
// Runs `plan check` and the test command; ends by `until`.
TestResult RunTests(const Settings& settings, Clock::time_point until);
// Compares the good ones that have figures (check::Judge); those outside become bad.
void CompareNodes(const check::Bounds& bounds, std::vector<Node>* nodes,
                  const std::vector<std::optional<check::NodeHealth>>& health);

// --- choose.cc
// Whom the node at place i of n good ones probes: all where they are few, else those 1, 2, 4, ... on.
std::vector<std::size_t> ProbePartners(std::size_t i, std::size_t n);
// The address of a node on an interface; "": the one that leads to the main node. Null: it has none.
const NodeAddress* AddressOn(const Node& node, const std::string& interface);
// Its interfaces, each once however many addresses it has.
std::vector<std::string> InterfacesOf(const Node& node);
// Interfaces to try, the one that leads to the main node ("") first, then those that all have.
std::vector<std::string> InterfacesToTry(const std::vector<const Node*>& nodes);
// From pairs (by place) that do not reach each other: the places to leave out, so that none is left;
// of equals the later one, never place 0.
std::vector<std::size_t> LeaveOut(std::size_t n,
                                  std::vector<std::pair<std::size_t, std::size_t>> failed);

// --- report.cc
std::string RollCallText(const RollCall& call, const Settings& settings);
Json RollCallJson(const RollCall& call, const Settings& settings);
std::string ShowText(const Settings& settings);
std::string ShowBrief(const Settings& settings);  // in one line
nlohmann::ordered_json ShowJson(const Settings& settings);
// On standard error: "plan launch: TEXT".
void Say(const std::string& text);
int SayStopped();  // before the command began; the exit code

// --- main_node.cc, agent.cc: the exit code. `report`: gets the roll call as soon as it is decided,
// and again when it changes. Throw InputError and comm::CommError.
int RunMain(const Settings& settings, const std::function<void(const RollCall&)>& report);
int RunAgent(const Settings& settings);

}  // namespace orrery::launch
