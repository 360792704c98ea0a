// SPDX-License-Identifier: Apache-2.0
// Processes with the variables that say who they are.
#include "runtime/program/launch/node_run.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "runtime/launch/child.h"
#include "runtime/launch/stop_request.h"

namespace orrery::launch {
namespace {

constexpr auto kTermTime = std::chrono::seconds(10);

void Set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

void SetVariables(const Settings& settings, const Assignment& job, int64_t local) {
  ForgetLauncher();
  Set("MASTER_ADDR", job.main_address);
  Set("MASTER_PORT", std::to_string(job.port));
  Set("NNODES", std::to_string(job.nodes));
  Set("NODE_RANK", std::to_string(job.node));
  Set("GPUS_PER_NODE", std::to_string(job.slots));
  std::error_code error;
  if (!settings.hostfile.empty())
    Set("ORRERY_HOSTFILE", std::filesystem::absolute(settings.hostfile, error).string());
  if (settings.start != StartAt::kRank) return;
  Set("RANK", std::to_string(job.first_rank + local));
  Set("WORLD_SIZE", std::to_string(job.ranks));
  Set("LOCAL_RANK", std::to_string(local));
  Set("LOCAL_WORLD_SIZE", std::to_string(job.slots));
}

}  // namespace

nlohmann::json AssignmentJson(const Assignment& job) {
  return {{"node", job.node},   {"nodes", job.nodes},           {"first_rank", job.first_rank},
          {"slots", job.slots}, {"ranks", job.ranks},           {"main", job.main_address},
          {"port", job.port},   {"hostfile", job.hostfile_text}};
}

Assignment ReadAssignment(const nlohmann::json& json) {
  return {json.at("node"),  json.at("nodes"), json.at("first_rank"), json.at("slots"),
          json.at("ranks"), json.at("main"),  json.at("port"),       json.at("hostfile")};
}

NodeRun::NodeRun(const Settings& settings, const Assignment& job) {
  if (settings.command.empty() || (settings.start == StartAt::kMain && job.node > 0)) return;
  const int64_t processes = settings.start == StartAt::kRank ? job.slots : 1;
  for (int64_t local = 0; local < processes; ++local) {
    children_.push_back(StartChild(settings.command, [&] { SetVariables(settings, job, local); }));
  }
}

NodeRun::~NodeRun() {
  for (const pid_t child : children_) SignalChild(child, SIGKILL);
}

std::optional<int> NodeRun::Poll() {
  std::erase_if(children_, [&](pid_t child) {
    const std::optional<ChildEnd> end = PollChild(child);
    // Who ends because of another one is not the cause.
    if (end && (code_ == 0 || code_ == kPeerFailedCode) && end->code != 0) code_ = end->code;
    return end.has_value();
  });
  if (children_.empty()) return code_;
  if (code_ != 0 && code_ != kStoppedCode) Stop();
  if (Clock::now() > kill_at_) {
    for (const pid_t child : children_) SignalChild(child, SIGKILL);
  }
  return {};
}

void NodeRun::Pass(int signal) {
  // Twice the same would end at once what is writing its snapshot (stop_request.h).
  if (passed_ == SIGTERM || passed_ == signal) return;
  passed_ = signal;
  for (const pid_t child : children_) SignalChild(child, signal);
}

void NodeRun::Stop() {
  Pass(SIGTERM);
  if (kill_at_ == Clock::time_point::max()) kill_at_ = Clock::now() + kTermTime;
}

}  // namespace orrery::launch
