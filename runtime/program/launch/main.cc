// SPDX-License-Identifier: Apache-2.0
// The program behind `plan launch`.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>

#include "model/program/common/launch_flags.h"
#include "model/program/common/launcher_guard.h"
#include "model/program/common/program.h"
#include "model/program/common/wait_flags.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/secret.h"
#include "runtime/comm/tcp_socket.h"
#include "runtime/launch/launchers.h"
#include "runtime/launch/place.h"
#include "runtime/launch/stop_request.h"
#include "runtime/program/launch/launch.h"
#include "runtime/program/launch/over_ssh.h"

namespace orrery::launch {
namespace {

using cli::Answer;
using cli::ExitCode;
using cli::Flag;

constexpr std::size_t kBehindLaunch = 2;  // plan launch
constexpr const char* kSpeaker = "plan launch";
constexpr int64_t kMostNodes = 65536, kMostSlots = 4096;
constexpr double kShortestDeadline = 0.5;  // seconds

double ReadSeconds(const Flag& flag, double otherwise, Diagnostics* diagnostics, double least = 0) {
  const auto time = cli::ReadWait(flag, diagnostics);
  if (!time || *time >= least) return time.value_or(otherwise);
  diagnostics->Error(flag.where, fmt::format("{} is too short for a node to come", flag.name),
                     fmt::format("{} takes {}s to 366d, such as 90s or 5min", flag.name, least));
  return otherwise;
}

// A node per line: of two with one name the second would be waited for in vain.
void CheckOnce(const std::string& file, const std::vector<HostSlots>& hosts) {
  std::set<std::string> names;
  for (const HostSlots& host : hosts) {
    if (!names.insert(host.host).second)
      throw InputError(fmt::format("the hostfile '{}' has {} twice", file, host.host),
                       "one line per node, with all its ranks: NAME slots=N");
  }
}

void ReadPlace(const cli::LaunchFlags& flags, Settings* settings, Diagnostics* diagnostics) {
  NodePlace& place = settings->place;
  if (flags.hosts.given) {
    cli::AtFlag(flags.hosts, [&] {
      const std::vector<HostSlots> hosts = ReadHostfile(flags.hosts.text);
      CheckOnce(flags.hosts.text, hosts);
      place = NodeOfHosts(hosts);
    });
  } else {
    place = FindNode(flags.nodes.given);
  }
  if (const auto n = cli::ReadInteger(flags.nodes, 1, kMostNodes, diagnostics)) place.nodes = *n;
  if (const auto n = cli::ReadInteger(flags.index, 0, kMostNodes - 1, diagnostics)) {
    place.index = *n;
    place.first = 0;
  }
  if (const auto n = cli::ReadInteger(flags.port, 1, 65535, diagnostics))
    place.port = static_cast<int>(*n);
  if (place.port == 0) place.port = 29500;
  if (flags.main.given) place.main = flags.main.text;
  if (place.nodes == 1 && place.index < 0) place.index = 0;
  if (place.nodes == 1 && place.main.empty()) place.main = "127.0.0.1";
  const auto index = static_cast<std::size_t>(std::max<int64_t>(place.index, 0));
  if (place.slots == 0 && index < place.slots_by_host.size())
    place.slots = place.slots_by_host[index];
  if (place.slots == 0) place.slots = std::max<int64_t>(CountGpus(), 1);
  place.slots = cli::ReadInteger(flags.slots, 1, kMostSlots, diagnostics).value_or(place.slots);
}

// What can be no place, whatever is missing of it. False: an error says so.
bool CheckNumbers(const cli::LaunchFlags& flags, const NodePlace& place, Diagnostics* diagnostics) {
  const std::string unread = UnreadPlace();
  if ((place.nodes <= 0 || place.index < 0) && !unread.empty()) {
    diagnostics->Error({}, fmt::format("{}, which is no number from 0 up", unread));
    return false;
  }
  if (place.nodes <= 0 || place.index < place.nodes) return true;
  diagnostics->Error(flags.index.where,
                     fmt::format("index {} is not below {} nodes", place.index, place.nodes));
  return false;
}

// What is missing of it. A main node that listens everywhere needs no address of its own.
void CheckPlace(const cli::LaunchFlags& flags, const Settings& settings, Diagnostics* diagnostics) {
  const NodePlace& place = settings.place;
  if (place.nodes <= 0 && flags.nodes.given) return;  // its own error says why
  if (place.nodes <= 0) {
    diagnostics->Error(flags.nodes.where,
                       place.of_list.empty() ? "no launcher says how many nodes there are"
                                             : "no launcher has started this: " + place.of_list,
                       place.of_list.empty()
                           ? "--nodes N, or --hosts FILE"
                           : "pbsdsh -u starts it on each of them; or --nodes N, or --hosts FILE");
  } else if (place.index < 0) {
    diagnostics->Error(
        flags.index.where,
        flags.hosts.given       ? fmt::format("no line of '{}' is {} or one of its addresses",
                                              flags.hosts.text, place.name)
        : place.of_list.empty() ? "no launcher says which node this is"
                                : "no launcher says which node this is: " + place.of_list,
        "--index N");
  } else if (place.main.empty() && place.rank() > 0) {
    diagnostics->Error(flags.main.where,
                       fmt::format("{} does not say where the main node is",
                                   place.launched_by.empty() ? "nothing" : place.launched_by),
                       "--main HOST");
  }
  if (place.local > 0)
    diagnostics->Error({}, "this is one of several processes of plan launch on this node",
                       "one per node: srun --ntasks-per-node=1, mpirun --map-by ppr:1:node, "
                       "torchrun --nproc-per-node 1");
  if (!place.main.empty()) {
    if (comm::AddressOf(place.main).empty()) {
      const bool first = flags.hosts.given && !flags.main.given;
      diagnostics->Error(
          first ? flags.hosts.where : flags.main.where,
          fmt::format("'{}'{} is no address that can be found", place.main,
                      first ? fmt::format(", the first host of '{}',", flags.hosts.text) : ""),
          "--main HOST: a name or address of the main node");
      return;  // whether it needs a secret is not known
    }
  }
  const bool alone = place.nodes == 1 || comm::IsLoopback(place.main);
  if (settings.secret.empty() && !alone)
    diagnostics->Error(
        {}, "nodes that meet over TCP need a secret: whoever reaches the port could be one of them",
        "export ORRERY_SECRET=$(openssl rand -hex 16), or ORRERY_SECRET_FILE; the same "
        "for all");
}

void ReadTests(const cli::LaunchFlags& flags, Settings* settings, Diagnostics* diagnostics) {
  settings->check = flags.check.given;
  settings->test = flags.test.text;
  settings->disk = flags.disk.text;
  // Of one node the flag is wrong, of several the node may be.
  std::error_code ignored;
  if (flags.disk.given && flags.check.given && settings->place.nodes == 1 &&
      !std::filesystem::is_directory(settings->disk, ignored))
    diagnostics->Error(flags.disk.where, fmt::format("there is no folder '{}'", settings->disk),
                       "");
  if (flags.tolerance.given) {
    char* end = nullptr;
    const double share = std::strtod(flags.tolerance.text.c_str(), &end);
    if (end == flags.tolerance.text.c_str() || *end != '\0' || !(share > 0 && share < 1))
      diagnostics->Error(flags.tolerance.where,
                         fmt::format("'{}' is no share", flags.tolerance.text),
                         "above 0, below 1: 0.3");
    settings->bounds.tolerance = share;
  }
  if (const auto rate = cli::ReadQuantity<FlopsPerSecond>(flags.compute, diagnostics))
    settings->bounds.compute = rate->value;
  if (const auto rate = cli::ReadQuantity<BytesPerSecond>(flags.memory, diagnostics))
    settings->bounds.memory = rate->value;
  for (const Flag* flag : {&flags.tolerance, &flags.compute, &flags.memory, &flags.disk}) {
    if (flag->given && !flags.check.given)
      diagnostics->Error(flag->where, flag->name + " needs --check", "");
  }
}

Settings ReadSettings(const cli::LaunchFlags& flags, std::vector<std::string> command) {
  Settings settings;
  Diagnostics diagnostics;
  ReadPlace(flags, &settings, &diagnostics);
  settings.secret = FindSecret();
  settings.listen = Variable("ORRERY_LISTEN");
  settings.least =
      cli::ReadInteger(flags.least, 1, std::max<int64_t>(settings.place.nodes, 1), &diagnostics)
          .value_or(settings.place.nodes);
  settings.deadline_s = ReadSeconds(flags.deadline, 300, &diagnostics, kShortestDeadline);
  settings.late_s = ReadSeconds(flags.late, settings.deadline_s / 2, &diagnostics);
  settings.interface = flags.interface.text;
  settings.names = flags.names.given;
  // The nodes meet first: a folder that is missing would be found after that.
  flags.set.CheckOutput(flags.hostfile, &diagnostics);
  settings.hostfile = flags.hostfile.text;
  settings.command = std::move(command);
  const auto start = cli::ReadName(flags.start, {"main", "node", "rank"}, &diagnostics);
  if (start) settings.start = static_cast<StartAt>(*start);
  if (flags.start.given && settings.command.empty())
    diagnostics.Error(flags.start.where, "--start needs a command", "-- COMMAND at the end");
  ReadTests(flags, &settings, &diagnostics);
  if (CheckNumbers(flags, settings.place, &diagnostics) && !flags.show.given)
    CheckPlace(flags, settings, &diagnostics);
  diagnostics.ThrowIfAny();
  return settings;
}

// The words without flags that say which node this is, and without --json, which is the main node's.
std::vector<std::string> WordsForNodes(const std::vector<std::string>& words,
                                       const cli::LaunchFlags& flags) {
  std::vector<std::string> left;
  for (std::size_t i = kBehindLaunch; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    const bool joined = name.size() < words[i].size();
    const auto is = [&](std::initializer_list<const char*> names) {
      return std::ranges::any_of(names, [&](const char* one) { return name == one; });
    };
    if (is({"--hosts", "--main", "--port"})) {
      i += joined ? 0 : 1;
    } else if (is({"--json"})) {
      i += !joined && !flags.json.text.empty() ? 1 : 0;
    } else if (!is({"--ssh"})) {
      left.push_back(words[i]);
    }
  }
  return left;
}

Answer LaunchOverSsh(const cli::LaunchFlags& flags, const cli::CommandLine& own,
                     const std::vector<std::string>& command) {
  Diagnostics diagnostics;
  SshJob job;
  if (!flags.hosts.given) {
    diagnostics.Error(flags.ssh.where, "--ssh starts the nodes of a hostfile", "--hosts FILE");
  } else {
    cli::AtFlag(flags.hosts, [&] { job.hosts = ReadHostfile(flags.hosts.text); });
  }
  for (const Flag* flag : {&flags.nodes, &flags.index, &flags.slots}) {
    if (flag->given)
      diagnostics.Error(flag->where, flag->name + " is that of one node, and --ssh starts all",
                        "lines NAME slots=N in --hosts");
  }
  job.deadline_s = ReadSeconds(flags.deadline, 300, &diagnostics, kShortestDeadline);
  const auto port = cli::ReadInteger(flags.port, 1, 65535, &diagnostics);
  diagnostics.ThrowIfAny();
  job.secret = FindSecret();
  job.main = flags.main.given ? flags.main.text : job.hosts.front().host;
  job.port = port ? static_cast<int>(*port)
                  : PortIn("MASTER_PORT")
                        .value_or(PortOfJob(fmt::format("{} {}", getpid(),
                                                        Clock::now().time_since_epoch().count())));
  job.words = WordsForNodes(own.words(), flags);
  if (!command.empty()) {
    job.words.emplace_back("--");
    job.words.insert(job.words.end(), command.begin(), command.end());
  }
  if (flags.json.given)
    job.main_words = {flags.json.text.empty() ? "--json" : "--json=" + flags.json.text};
  return {ExitCode{RunOverSsh(job)}, ""};
}

Answer LaunchCommand(const cli::CommandLine& line) {
  const std::vector<std::string>& words = line.words();
  const auto split = std::find(words.begin(), words.end(), "--");
  std::vector<std::string> command(split == words.end() ? split : split + 1, words.end());
  const cli::CommandLine own(std::vector<std::string>(words.begin(), split));
  cli::LaunchFlags flags;
  if (flags.set.Parse(own, kBehindLaunch, false))
    return {ExitCode::kOk, cli::DescribeLaunch().help};
  WatchSignals(kSpeaker);
  if (flags.ssh.given && !flags.show.given) return LaunchOverSsh(flags, own, command);
  std::optional<WhileJoining> joining(std::in_place);  // names without an answer last
  const Settings settings = ReadSettings(flags, std::move(command));
  joining.reset();
  if (settings.place.rank() == 0) flags.set.CheckOutputs();
  if (flags.show.given) {
    Answer answer = cli::Deliver(ExitCode::kOk, ShowText(settings), ShowJson(settings), flags.json);
    answer.brief = ShowBrief(settings);
    return answer;
  }
  // The command's own output follows: what is found out stands on standard error then.
  bool written = false;
  const auto report = [&](const RollCall& call) {
    const bool again = std::exchange(written, true);
    if (again && flags.json.text.empty()) return;
    const Answer answer = cli::Deliver(ExitCode::kOk, RollCallText(call, settings),
                                       RollCallJson(call, settings), flags.json);
    if (again) return;
    const bool json_only = flags.json.given && flags.json.text.empty();
    fmt::print(settings.command.empty() || json_only ? stdout : stderr, "{}", answer.text);
    std::fflush(nullptr);
  };
  try {
    const int code = settings.place.rank() == 0 ? RunMain(settings, report) : RunAgent(settings);
    return {ExitCode{code}, ""};
  } catch (const comm::CommError& error) {
    Say(fmt::format("error: {}", error.what()));
    if (!written && settings.place.rank() == 0)
      cli::DeliverFailure(error.what(), ExitCode::kFailure);
    return {ExitCode::kFailure, ""};
  }
}

}  // namespace
}  // namespace orrery::launch

int main(int argc, char** argv) {
  orrery::cli::HoldStopRequests();
  return orrery::cli::ProgramMain("launch", argc, argv, orrery::launch::LaunchCommand);
}
