// SPDX-License-Identifier: Apache-2.0
// The main node: the roll call, and then the command until it ends.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <optional>

#include "runtime/comm/communicator.h"
#include "runtime/launch/stop_request.h"
#include "runtime/program/launch/node_run.h"
#include "runtime/program/launch/roll_call.h"

namespace orrery::launch {
namespace {

constexpr auto kGrace = std::chrono::seconds(15);  // for the other nodes to end after a failure

class Command {
 public:
  Command(const Settings& settings, Caller* caller) : settings_(settings), caller_(*caller) {}

  // Tells all nodes what became of the roll call; starts.
  void Begin() {
    const RollCall& call = caller_.call();
    Assignment job;
    job.nodes = static_cast<int64_t>(call.hosts.size());
    job.ranks = SlotsOf(call.hosts);
    job.main_address = call.nodes.front().address;
    job.port = comm::PortOf(comm::Listen(0, comm::IsLoopback(job.main_address)));
    job.hostfile_text = HostfileText(call.hosts);
    good_ = call.Good();
    for (const std::size_t i : good_) {
      job.slots = call.nodes[i].slots;
      if (i == 0) {
        own_ = job;
      } else {
        caller_.channel(i).Send({{"go", AssignmentJson(job)}});
      }
      ++job.node;
      job.first_rank += job.slots;
    }
    if (!settings_.hostfile.empty()) WriteHostfile(settings_.hostfile, own_.hostfile_text);
  }

  // The exit code.
  int Await(const std::function<void()>& changed) {
    NodeRun run(settings_, own_);
    ends_.assign(caller_.call().nodes.size(), std::nullopt);
    auto until = Clock::time_point::max();
    int passed = 0;
    while (!Done() && Clock::now() < until) {
      if (!ends_[0]) {
        ends_[0] = run.Poll();
        if (ends_[0]) Ended(0, *ends_[0]);
      }
      for (const std::size_t i : good_)
        if (i != 0) Hear(i);
      if (const int signal = SignalSeen(); signal != 0 && passed == 0) {
        passed = signal;
        run.Pass(signal);
        ToOthers({{"stop", signal}});
      }
      if (code_ != 0 && until == Clock::time_point::max()) {
        until = Clock::now() + kGrace;
        // Ranks that stop in order do it together: no signal is to meet one that is still writing.
        if (settings_.start != StartAt::kMain && code_ != kStoppedCode) {
          run.Stop();
          ToOthers({{"stop", SIGTERM}, {"failed", true}});
        }
      }
      if (caller_.TurnAwayLate()) changed();
    }
    ToOthers({{"end", code_}});
    return code_;
  }

 private:
  bool Done() const {
    if (settings_.start == StartAt::kMain) return ends_[0].has_value();
    return std::ranges::all_of(good_, [&](std::size_t i) { return ends_[i].has_value(); });
  }

  void ToOthers(const nlohmann::json& message) {
    for (const std::size_t i : good_)
      if (i != 0) caller_.channel(i).Send(message);
  }

  void Hear(std::size_t i) {
    Channel& channel = caller_.channel(i);
    if (!channel.open()) return;
    for (const nlohmann::json& message : channel.Read()) {
      if (message.contains("ended") && message["ended"].is_number_integer() && !ends_[i])
        Ended(i, message["ended"].get<int>());
    }
    if (channel.open() || ends_[i]) return;
    // Beside a command on the main node alone it is that command's matter.
    Say(fmt::format("the connection to {} was lost", caller_.call().nodes[i].Name()));
    ends_[i] = 1;
    if (settings_.start != StartAt::kMain) Note(1);
  }

  void Ended(std::size_t i, int code) {
    ends_[i] = code;
    if (code == 0) return;
    const bool first = code_ == 0 || code_ == kPeerFailedCode;
    if (first && settings_.start != StartAt::kMain)
      Say(fmt::format("{} ended with exit code {}", caller_.call().nodes[i].Name(), code));
    Note(code);
  }

  void Note(int code) {
    if (code_ == 0 || code_ == kPeerFailedCode) code_ = code;
  }

  const Settings& settings_;
  Caller& caller_;
  std::vector<std::size_t> good_;
  std::vector<std::optional<int>> ends_;  // by node
  Assignment own_;
  int code_ = 0;
};

void TellThoseLeftOut(Caller* caller, bool enough) {
  const auto& nodes = caller->call().nodes;
  const Node& main = nodes.front();
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    if (node.state == Node::State::kBad) {
      caller->channel(i).Send({{"out", {{"why", node.why}, {"code", kBadNodeCode}}}});
    } else if (!enough) {
      const std::string why = main.state != Node::State::kGood
                                  ? fmt::format("the main node is bad: {}", main.why)
                                  : fmt::format("only {} of {} nodes are good",
                                                caller->call().Good().size(), nodes.size());
      caller->channel(i).Send(
          {{"out",
            {{"why", why}, {"code", kTooFewCode}, {"good", node.state == Node::State::kGood}}}});
    }
  }
}

}  // namespace

int RunMain(const Settings& settings, const std::function<void(const RollCall&)>& report) {
  std::optional<WhileJoining> joining(
      std::in_place);  // outlives the caller, whose test may take long
  Caller caller(settings);
  const RollCall& call = caller.Gather();
  if (SignalSeen() != 0) {
    caller.TellStopped();
    return SayStopped();
  }
  joining.reset();
  const bool enough = caller.Enough();
  TellThoseLeftOut(&caller, enough);
  if (!enough) {
    report(call);
    return call.nodes.front().state == Node::State::kBad ? kBadNodeCode : kTooFewCode;
  }
  Command command(settings, &caller);
  command.Begin();
  report(call);
  if (settings.command.empty()) return 0;
  return command.Await([&] { report(call); });
}

}  // namespace orrery::launch
