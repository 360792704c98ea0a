// SPDX-License-Identifier: Apache-2.0
// Runs benchmarks in the lab and fits lines to them.
#include "runtime/lab/measure.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/base/text.h"
#include "runtime/lab/error.h"
#include "runtime/lab/launch.h"

namespace orrery::lab {
namespace {

constexpr const char* kFabricFile = "fabric.yaml";

// The table of the benchmark is not asked for.
int RunQuietly(const State& state, const std::string& self, const std::vector<std::string>& words) {
  const pid_t child = fork();
  if (child == 0) {
    if (freopen("/dev/null", "w", stdout) == nullptr) _exit(1);
    try {
      ExecRanks(state, state.settings.nodes, self, words);
    } catch (const LabError&) {
      _exit(1);
    }
  }
  int status = 1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

// Weighted least squares in alpha and 1 / rate.
Line FitLine(const std::vector<MessageTime>& times, double steps, double parts) {
  double aa = 0, ab = 0, bb = 0, at = 0, bt = 0;
  for (const MessageTime& time : times) {
    const double a = steps / time.seconds, b = steps * time.bytes / parts / time.seconds;
    aa += a * a, ab += a * b, bb += b * b, at += a, bt += b;
  }
  const double determinant = aa * bb - ab * ab;
  Line line;
  line.alpha = std::max(0.0, (at * bb - bt * ab) / determinant);
  line.rate = bb / (bt - line.alpha * ab);
  for (const MessageTime& time : times) {
    const double fitted = steps * (line.alpha + time.bytes / parts / line.rate);
    line.error += std::abs(fitted / time.seconds - 1) / static_cast<double>(times.size());
  }
  return line;
}

std::vector<MessageTime> MeasureMessages(const State& state, const std::string& self,
                                         const std::string& collective) {
  const std::string file = FolderOf(state.settings.name) + "/tmp/" + collective + ".json";
  std::filesystem::remove(file);
  const int code = RunQuietly(state, self,
                              {"plan-bench", collective, "-b", "64K", "-e", "4M", "-f", "4", "-n",
                               "10", "-w", "2", "-c", "0", "--json", file});
  std::ifstream text(file);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (code != 0 || json.is_discarded())
    throw LabError(
        fmt::format("`plan bench {}` fails in lab '{}'", collective, state.settings.name));
  std::vector<MessageTime> times;
  for (const auto& row : json.at("rows"))
    times.push_back({row.at("size"), row.at("out_of_place").at("time_us").get<double>() * 1e-6});
  std::filesystem::remove(file);
  return times;
}

std::string FabricYaml(const Settings& s, const Line& ring, const Line& direct) {
  const double hop = std::max(0.0, ring.alpha - s.latency.value);
  const auto share = [&](const Line& line) { return std::min(1.0, line.rate / s.rate.value); };
  const auto source = [](const char* what, const Line& line) {
    return fmt::format("plan lab measure: {}, 64 KiB to 4 MiB, mean deviation {:.1f} %", what,
                       100 * line.error);
  };
  return fmt::format(
      "# SPDX-License-Identifier: Apache-2.0\n"
      "# Written by `plan lab measure`.\n"
      "title: \"TCP between the nodes of lab {}\"\n"
      "inherits: lab\n"
      "constants:\n"
      "  hop: {{value: {:.4g}us, points: 4, source: \"{}\"}}\n"
      "  nic_ring_efficiency: {{value: {:.4f}, unit: \"of the NIC rate\", points: 4, source: "
      "\"{}\"}}\n"
      "  point_to_point_efficiency: {{value: {:.4f}, unit: \"of the NIC rate\", points: 4, source: "
      "\"{}\"}}\n",
      s.name, hop * 1e6, source("ring all-reduce", ring), share(ring),
      source("ring all-reduce", ring), share(direct), source("sends around a ring", direct));
}

std::string MeasureLab(const State& state, const std::string& self) {
  const Settings& s = state.settings;
  if (s.nodes < 2) throw LabError("one node sends nothing", "plan lab up --nodes 2");
  const double p = s.nodes;
  const Line ring = FitLine(MeasureMessages(state, self, "all_reduce"), 2 * (p - 1), p);
  const Line direct = FitLine(MeasureMessages(state, self, "sendrecv"), 1, 1);
  std::ofstream(FolderOf(s.name) + "/" + kFabricFile) << FabricYaml(s, ring, direct);
  Settings measured = s;
  measured.fabric = std::string("./") + kFabricFile;
  std::ofstream(TopologyFile(s)) << TopologyYaml(measured);
  return fmt::format(
      "lab '{}': ring all-reduce: {} a step, {} ({:.1f} % of a link's payload rate), deviation "
      "{:.1f} %\n"
      "  sends around a ring: {}, {}, deviation {:.1f} %\n  topology  {}\n",
      s.name, Format(Seconds(ring.alpha)), BitRate(BytesPerSecond(ring.rate)),
      100 * ring.rate / s.PayloadRate().value, 100 * ring.error, Format(Seconds(direct.alpha)),
      BitRate(BytesPerSecond(direct.rate)), 100 * direct.error, TopologyFile(s));
}

}  // namespace orrery::lab
