// SPDX-License-Identifier: Apache-2.0
// Any node but the main one.
#include <fmt/format.h>

#include <csignal>
#include <optional>
#include <thread>

#include "runtime/comm/communicator.h"
#include "runtime/comm/secret.h"
#include "runtime/comm/tcp_door.h"
#include "runtime/launch/stop_request.h"
#include "runtime/program/launch/channel.h"
#include "runtime/program/launch/node_run.h"
#include "runtime/program/launch/probe.h"
#include "runtime/program/launch/roll_call.h"

namespace orrery::launch {
namespace {

class Agent {
 public:
  explicit Agent(const Settings& settings)
      : settings_(settings),
        until_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(settings.deadline_s))) {}

  int Run() {
    std::optional<WhileJoining> joining(std::in_place);
    if (!Come()) return kTooFewCode;
    const ProbeDoors doors(loopback_ ? Loopback::kAlone : Loopback::kNo, settings_.secret,
                           settings_.place.rank());
    std::string control;
    for (const NodeAddress& at : doors.addresses())
      if (at.address == own_address_) control = at.interface;
    main_.Send({{"hello",
                 {{"version", ORRERY_VERSION},
                  {"name", settings_.place.name},
                  {"slots", std::max<int64_t>(settings_.place.slots, 1)},
                  {"addresses", AddressesJson(doors.addresses())},
                  {"control", control}}}});
    // Those that do not reach the deadline are bad all the same; the main node decides when.
    main_.Send({{"tested", TestJson(RunTests(settings_, until_))}});
    joining.reset();
    return Listen();
  }

 private:
  bool Come() {
    const NodePlace& place = settings_.place;
    const std::string where = fmt::format("{}:{}", place.main, place.port);
    const comm::Caller self{place.rank(), place.nodes, 0, place.name};
    try {
      main_ = Channel(comm::EnterDoor(place.main, place.port, 0, self, settings_.secret, until_));
    } catch (const comm::CommError& error) {
      Say(fmt::format(
          "error: the main node does not answer at {} until the deadline of {:.3g} s: {}", where,
          settings_.deadline_s, error.what()));
      return false;
    }
    own_address_ = comm::OwnAddress(main_.socket());
    loopback_ = comm::IsLoopback(own_address_);
    return true;
  }

  int Listen() {
    for (;;) {
      for (const nlohmann::json& message : main_.Read()) {
        if (const auto code = Obey(message)) return *code;
      }
      if (run_ && !ended_) {
        ended_ = run_->Poll();
        if (ended_ && settings_.start != StartAt::kMain) main_.Send({{"ended", *ended_}});
      }
      if (const int signal = SignalSeen(); signal != 0 && !passed_) {
        if (!run_) return SayStopped();
        passed_ = true;
        run_->Pass(signal);
      }
      if (!main_.open()) return MainIsGone();
      std::this_thread::sleep_for(kLook);
    }
  }

  // The exit code, where this is the end.
  std::optional<int> Obey(const nlohmann::json& message) {
    if (message.contains("probe")) {
      const std::vector<bool> reached = Probe(ReadTargets(message["probe"]), settings_.place.rank(),
                                              settings_.secret, message.value("seconds", 1.0));
      main_.Send({{"probed", reached}});
    } else if (message.contains("out")) {
      const int code = message["out"].value("code", kTooFewCode);
      const char* what =
          message["out"].value("good", false) ? "good, but no job begins" : "excluded";
      Say(fmt::format("{} is {}: {}", settings_.place.name, what, message["out"].value("why", "")));
      return code;
    } else if (message.contains("go")) {
      const Assignment job = ReadAssignment(message["go"]);
      if (!settings_.hostfile.empty()) WriteHostfile(settings_.hostfile, job.hostfile_text);
      if (settings_.command.empty()) return 0;
      run_.emplace(settings_, job);
    } else if (message.contains("stop") && run_) {
      const int came = message["stop"].get<int>();
      const int signal = came == SIGUSR1 || came == SIGINT ? came : SIGTERM;
      message.contains("failed") ? run_->Stop() : run_->Pass(signal);
    } else if (message.contains("end")) {
      return settings_.start == StartAt::kMain ? 0 : ended_.value_or(1);
    }
    return {};
  }

  int MainIsGone() {
    Say(fmt::format("error: the main node {} is gone", settings_.place.main));
    if (!run_) return 1;
    run_->Stop();
    while (!run_->Poll()) std::this_thread::sleep_for(kLook);
    return 1;
  }

  const Settings& settings_;
  Clock::time_point until_;
  Channel main_;
  std::string own_address_;
  bool loopback_ = false, passed_ = false;
  std::optional<NodeRun> run_;
  std::optional<int> ended_;
};

}  // namespace

int RunAgent(const Settings& settings) {
  try {
    return Agent(settings).Run();
  } catch (const nlohmann::json::exception&) {
    throw comm::CommError("the main node sends what this version does not know");
  }
}

}  // namespace orrery::launch
