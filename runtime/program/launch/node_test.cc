// SPDX-License-Identifier: Apache-2.0
// Tests of one node, and the comparison of all.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "model/program/common/program.h"
#include "runtime/launch/child.h"
#include "runtime/program/launch/launch.h"

namespace orrery::launch {
namespace {

std::string Failure(const std::string& what, const ChildEnd& end) {
  const std::string said = end.last_line.empty() ? "" : ": " + end.last_line.substr(0, 200);
  if (end.timed_out) return fmt::format("{} has not ended in time{}", what, said);
  return fmt::format("{} ended with exit code {}{}", what, end.code, said);
}

// "HOST: what is wrong".
std::string WithoutHost(const std::string& text) { return text.substr(text.find(": ") + 2); }

TestResult RunCheck(const Settings& settings, Clock::time_point until) {
  constexpr int kOutside = 4;
  const std::string program = cli::PathBeside("check");
  if (program.empty()) return {false, "the program plan-check is not beside plan-launch", {}};
  std::vector<std::string> words = {program, "--json"};
  if (!settings.disk.empty()) words.insert(words.end(), {"--disk", settings.disk});
  const check::Bounds& bounds = settings.bounds;
  if (bounds.compute > 0)
    words.insert(words.end(), {"--compute", fmt::format("{:.0f}FLOP/s", bounds.compute)});
  if (bounds.memory > 0)
    words.insert(words.end(), {"--memory", fmt::format("{:.0f}B/s", bounds.memory)});
  const ChildEnd end = RunChild(words, until, ForgetLauncher);
  const Json answer = Json::parse(end.output, nullptr, false);
  if (end.timed_out || (end.code != 0 && end.code != kOutside) || !answer.is_object())
    return {false, Failure("plan check", end), {}};
  TestResult result;
  const Json& node = answer.at("nodes").at(0);
  result.health = check::NodeHealth{"",
                                    node.at("compute_flops_per_s"),
                                    node.at("memory_bytes_per_s"),
                                    node.at("disk_bytes_per_s"),
                                    0,
                                    0,
                                    node.at("problem")};
  result.good = end.code == 0;
  for (const Json& finding : answer.at("findings")) {
    result.why += (result.why.empty() ? "" : "; ") + WithoutHost(finding.at("text"));
  }
  return result;
}

}  // namespace

TestResult RunTests(const Settings& settings, Clock::time_point until) {
  TestResult result;
  if (settings.check) result = RunCheck(settings, until);
  if (!result.good || settings.test.empty()) return result;
  const ChildEnd end = RunChild({"/bin/sh", "-c", settings.test}, until, nullptr);
  if (end.code != 0 || end.timed_out) {
    result.good = false;
    result.why = Failure("the test command", end);
  }
  return result;
}

void CompareNodes(const check::Bounds& bounds, std::vector<Node>* nodes,
                  const std::vector<std::optional<check::NodeHealth>>& health) {
  check::Health all;
  for (std::size_t i = 0; i < nodes->size(); ++i) {
    if ((*nodes)[i].state != Node::State::kGood || !health[i]) continue;
    all.nodes.push_back(*health[i]);
    all.nodes.back().host = std::to_string(i);  // names need not differ
  }
  check::Judge(bounds, &all);
  for (const check::Finding& finding : all.findings) {
    for (const std::string& host : finding.hosts) {
      Node& node = (*nodes)[std::stoul(host)];
      node.state = Node::State::kBad;
      node.why += (node.why.empty() ? "" : "; ") + WithoutHost(finding.text);
    }
  }
}

}  // namespace orrery::launch
