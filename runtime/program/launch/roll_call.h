// SPDX-License-Identifier: Apache-2.0
// The main node's side until it is decided who takes part.
#pragma once

#include <future>
#include <string>
#include <vector>

#include "runtime/comm/tcp_door.h"
#include "runtime/program/launch/channel.h"
#include "runtime/program/launch/launch.h"
#include "runtime/program/launch/probe.h"

namespace orrery::launch {

class Caller {
 public:
  explicit Caller(const Settings& settings);

  // Waits, tests and probes until all is known or the deadline is near; hosts are the good ones. Returns early when this process is
  // asked to stop: TellStopped() then.
  const RollCall& Gather();
  void TellStopped();
  // False: too few, or the main node is bad.
  bool Enough() const;

  // Waits a moment. A node that has come since then is told that it is too late, and named. True: it is
  // one that was missing.
  bool TurnAwayLate();
  Channel& channel(std::size_t node) { return channels_[node]; }
  const RollCall& call() const { return call_; }

 private:
  void AddMain();
  void Collect(Clock::time_point until);
  void Welcome(comm::Admitted admitted);
  void Hear(std::size_t node);
  void HearHello(Node* node, const nlohmann::json& hello);
  void HearTested(std::size_t node, const TestResult& result);
  void Mark(Node* node, Node::State state, const std::string& why = "");
  void RequireInterface();
  void ChooseInterface(Clock::time_point until);
  // Pairs of places in `good` that do not reach each other on it.
  std::vector<std::pair<std::size_t, std::size_t>> FailedPairs(const std::vector<std::size_t>& good,
                                                               const std::string& interface,
                                                               double seconds);
  bool AllKnown() const;
  void SayProgress();
  double Elapsed() const;

  const Settings& settings_;
  Clock::time_point start_ = Clock::now(), said_ = start_;
  comm::Door door_;
  ProbeDoors probes_;
  RollCall call_;
  std::vector<Channel> channels_;                         // by node; the main one's is closed
  std::vector<std::optional<check::NodeHealth>> health_;  // by node
  std::vector<std::optional<std::vector<bool>>> probed_;  // by node
  std::future<TestResult> own_test_;
};

nlohmann::json TestJson(const TestResult& result);
TestResult ReadTest(const nlohmann::json& json);

}  // namespace orrery::launch
