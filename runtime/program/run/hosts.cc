// SPDX-License-Identifier: Apache-2.0
// A child per host and question.
#include "runtime/program/run/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <thread>

#include "runtime/comm/tcp_socket.h"
#include "runtime/launch/child.h"
#include "runtime/launch/launchers.h"
#include "runtime/launch/mpirun.h"
#include "runtime/launch/remote.h"

namespace orrery::cli {
namespace {

using Clock = std::chrono::steady_clock;

Clock::duration Length(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Why it is lost; empty: it is not.
LostHost Ask(const std::string& host, const std::string& command, double limit_s) {
  const launch::ChildEnd end =
      launch::RunChild(launch::OnHost(host, command), Clock::now() + Length(limit_s), nullptr);
  if (end.timed_out) return {host, fmt::format("no answer in {:.3g} s", limit_s), true};
  if (end.code == 0) return {host, ""};
  return {host, fmt::format("'{}' ended with exit code {}{}", command, end.code,
                            end.last_line.empty() ? "" : ": " + end.last_line.substr(0, 200))};
}

// mpirun of an allocation goes by the scheduler's own way: what an agent reaches says nothing of it.
bool MpirunUsesAgent() {
  if (const std::string how = launch::Variable("OMPI_MCA_plm"); !how.empty())
    return how.find("rsh") != std::string::npos;
  return std::ranges::all_of(std::array{"SLURM_JOB_ID", "SLURM_JOBID", "PBS_JOBID", "LSB_JOBID"},
                             [](const char* job) { return launch::Variable(job).empty(); });
}

}  // namespace

HostWatch::HostWatch(std::string command, double limit_s)
    : command_(std::move(command)), limit_s_(limit_s), next_(Clock::now() + Length(limit_s)) {}

std::vector<LostHost> HostWatch::Lost(const std::vector<launch::HostSlots>& hosts) const {
  std::vector<LostHost> lost(hosts.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    threads.emplace_back([&, i] { lost[i] = Ask(hosts[i].host, command_, limit_s_); });
  for (std::thread& thread : threads) thread.join();
  std::erase_if(lost, [](const LostHost& one) { return one.why.empty(); });
  return lost;
}

std::optional<std::vector<LostHost>> HostWatch::Answers(
    const std::vector<launch::HostSlots>& hosts) {
  if (!asked_.valid()) {
    if (Clock::now() >= next_)
      asked_ = std::async(std::launch::async, [this, hosts] { return Lost(hosts); });
    return {};
  }
  if (asked_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return {};
  next_ = Clock::now() + Length(limit_s_);
  return asked_.get();
}

std::vector<LostHost> HostWatch::Look(const std::vector<launch::HostSlots>& hosts) {
  std::optional<std::vector<LostHost>> now = Answers(hosts);
  std::vector<LostHost> twice;
  if (!now) return twice;
  for (const LostHost& one : *now) {
    if (std::ranges::find(before_, one.host, &LostHost::host) != before_.end())
      twice.push_back(one);
  }
  before_ = std::move(*now);
  return twice;
}

std::vector<std::string> HostWatch::LookForReturn(const std::vector<launch::HostSlots>& hosts) {
  const std::optional<std::vector<LostHost>> lost = Answers(hosts);
  std::vector<std::string> now, twice;
  if (!lost) return twice;
  for (const launch::HostSlots& host : hosts) {
    if (std::ranges::find(*lost, host.host, &LostHost::host) != lost->end()) continue;
    now.push_back(host.host);
    if (std::ranges::find(back_before_, host.host) != back_before_.end())
      twice.push_back(host.host);
  }
  back_before_ = std::move(now);
  return twice;
}

bool AnyHost::Answers(const std::vector<LostHost>& lost) {
  std::vector<launch::HostSlots> hosts;
  for (const LostHost& one : lost) hosts.push_back({one.host, 1, ""});
  lost_ = HostWatch("true", kLongestAnswer).Lost(hosts);
  return lost_.size() < lost.size();
}

std::string AnyHost::Evidence(const std::string& host, const std::string& said) {
  const auto found = std::ranges::find(lost_, host, &LostHost::host);
  const std::string agent = std::filesystem::path(launch::AgentProgram()).filename();
  if (found == lost_.end() || agent.empty()) return "";
  const bool own_way = !MpirunUsesAgent();
  const bool failed = said.starts_with(launch::kNoDaemons);
  if (failed && (!own_way || said.find(host) != std::string::npos)) unreached_.insert(host);
  // Others than these (kubectl exec) may have names of their own.
  const bool by_name = agent == "ssh" || agent == "rsh";
  if (found->silent && !own_way) return found->why;
  if (by_name && !own_way && comm::AddressOf(host).empty())
    return "its name does not resolve on this host";
  return unreached_.count(host) > 0 ? "mpirun has not reached it, either" : "";
}

}  // namespace orrery::cli
