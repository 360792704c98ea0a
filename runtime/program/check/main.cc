// SPDX-License-Identifier: Apache-2.0
// The program behind `plan check`: a rank on each node, or this node alone.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/hardware/catalog.h"
#include "model/program/common/check_flags.h"
#include "model/program/common/program.h"
#include "runtime/health/health.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/launch/place.h"
#include "runtime/program/common/rank_flags.h"

namespace orrery::check {
namespace {

constexpr const char* kSpeaker = "plan check";
constexpr std::size_t kBehindCheck = 2;  // plan check

struct Settings {
  Bounds bounds;
  std::string disk;
  double timeout_s = 120;
  launch::Place place;
  cli::Comm comm = cli::Comm::kLocal;
};

void ReadTopologyBound(const cli::CheckFlags& flags, int64_t on_host, Bounds* bounds) {
  if (!flags.topology.given) return;
  cli::AtFlag(flags.topology, [&] {
    const TopologySpec spec = LoadTopology(flags.topology.text);
    bounds->topology = spec.name;
    bounds->network = LeastPairRate(spec, on_host).value;
    if (bounds->network <= 0)
      throw InputError(fmt::format("topology '{}' has no network between nodes", spec.name));
  });
}

Settings ReadSettings(const cli::CheckFlags& flags) {
  Settings settings;
  Diagnostics diagnostics;
  Bounds& bounds = settings.bounds;
  settings.place = launch::FindPlace();
  if (flags.tolerance.given) {
    char* end = nullptr;
    bounds.tolerance = std::strtod(flags.tolerance.text.c_str(), &end);
    if (*end != '\0' || end == flags.tolerance.text.c_str() ||
        !(bounds.tolerance > 0 && bounds.tolerance < 1))
      diagnostics.Error(flags.tolerance.where,
                        fmt::format("'{}' is no share", flags.tolerance.text),
                        "above 0, below 1: 0.3");
  }
  if (const auto rate = cli::ReadQuantity<FlopsPerSecond>(flags.compute, &diagnostics))
    bounds.compute = rate->value;
  if (const auto rate = cli::ReadQuantity<BytesPerSecond>(flags.memory, &diagnostics))
    bounds.memory = rate->value;
  if (const auto time = cli::ReadQuantity<Seconds>(flags.skew, &diagnostics))
    bounds.skew = time->value;
  settings.timeout_s = cli::ReadTimeout(flags.timeout, &diagnostics);
  settings.comm = cli::ReadComm(flags.comm, settings.place,
                                std::max<int64_t>(1, settings.place.size), &diagnostics);
  const char* scratch = std::getenv("TMPDIR");
  settings.disk = flags.disk.given ? flags.disk.text : scratch != nullptr ? scratch : "/tmp";
  std::error_code error;
  if (flags.disk.given && !std::filesystem::is_directory(settings.disk, error))
    diagnostics.Error(flags.disk.where, fmt::format("'{}' is no folder", settings.disk));
  diagnostics.ThrowIfAny();
  ReadTopologyBound(flags, settings.place.on_host, &bounds);
  return settings;
}

void MeasureRank(const Settings& settings, comm::Endpoint* endpoint, Health* health) {
  // Ranks of a node share its memory and disk: all at once, as in training.
  const NodeHealth own = MeasureNode(settings.disk);
  std::vector<NodeHealth> nodes = GatherNodes(endpoint, own, settings.timeout_s);
  std::vector<PairHealth> pairs = MeasurePairs(endpoint, settings.timeout_s);
  if (endpoint->rank() != 0) return;
  health->nodes = std::move(nodes);
  health->pairs = std::move(pairs);
}

// False: it was said why.
bool MeasureProcess(const Settings& settings, Health* health) {
  const std::unique_ptr<comm::Endpoint> endpoint =
      cli::ConnectProcess(settings.comm, settings.place, settings.timeout_s, kSpeaker);
  if (endpoint == nullptr) return false;
  try {
    MeasureRank(settings, endpoint.get(), health);
    return true;
  } catch (const comm::CommError& error) {
    if (!error.peer_failed)
      endpoint->Abort(
          fmt::format("rank {} on {}: {}", endpoint->rank(), endpoint->host(), error.what()));
  } catch (const std::exception& error) {
    endpoint->Abort(
        fmt::format("rank {} on {}: {}", endpoint->rank(), endpoint->host(), error.what()));
  }
  return false;
}

std::string Verdict(const Health& health) {
  if (health.findings.empty())
    return fmt::format("all inside: {} rank{}", health.nodes.size(),
                       health.nodes.size() == 1 ? "" : "s");
  const std::size_t others = health.findings.size() - 1;
  return fmt::format("bad: {}; {}{}", fmt::join(health.bad_hosts, ", "),
                     health.findings.front().text,
                     others == 0 ? "" : fmt::format(" and {} more", others));
}

cli::Answer CheckCommand(const cli::CommandLine& line) {
  cli::CheckFlags flags;
  if (flags.set.Parse(line, kBehindCheck, false))
    return {cli::ExitCode::kOk, cli::DescribeCheck().help};
  const launch::Place place = launch::FindPlace();
  Settings settings;
  try {
    settings = ReadSettings(flags);
    if (place.rank == 0) flags.set.CheckOutputs();
  } catch (const InputError&) {
    if (place.rank == 0) throw;
    return {cli::ExitCode::kInputError, ""};  // rank 0 says what is wrong
  }
  Health health;
  if (place.size > 1) {
    if (!MeasureProcess(settings, &health)) {
      if (place.rank == 0)
        cli::DeliverFailure("a rank has failed: standard error says why", cli::ExitCode::kFailure);
      return {cli::ExitCode::kFailure, ""};
    }
  } else {
    const std::string failure = launch::RunLocalRanks(
        1, [&](comm::Endpoint* endpoint) { MeasureRank(settings, endpoint, &health); });
    if (!failure.empty()) throw std::runtime_error(failure);
  }
  if (place.rank != 0) return {};
  Judge(settings.bounds, &health);
  const cli::ExitCode code =
      health.findings.empty() ? cli::ExitCode::kOk : cli::ExitCode::kCheckFailed;
  cli::Answer answer = cli::Deliver(code, HealthText(health, settings.bounds),
                                    HealthJson(health, settings.bounds), flags.json);
  answer.brief = Verdict(health);
  return answer;
}

}  // namespace
}  // namespace orrery::check

int main(int argc, char** argv) {
  return orrery::cli::ProgramMain("check", argc, argv, orrery::check::CheckCommand);
}
