// SPDX-License-Identifier: Apache-2.0
// A child per host and question.
#include "runtime/program/run/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "runtime/launch/child.h"
#include "runtime/launch/remote.h"

namespace orrery::cli {
namespace {

using Clock = std::chrono::steady_clock;

Clock::duration Length(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Why it is lost; empty: it is not.
std::string Ask(const std::string& host, const std::string& command, double limit_s) {
  const launch::ChildEnd end =
      launch::RunChild(launch::OnHost(host, command), Clock::now() + Length(limit_s), nullptr);
  if (end.timed_out) return fmt::format("no answer in {:.3g} s", limit_s);
  if (end.code == 0) return "";
  return fmt::format("'{}' ended with exit code {}{}", command, end.code,
                     end.last_line.empty() ? "" : ": " + end.last_line.substr(0, 200));
}

}  // namespace

HostWatch::HostWatch(std::string command, double limit_s)
    : command_(std::move(command)), limit_s_(limit_s), next_(Clock::now() + Length(limit_s)) {}

std::vector<LostHost> HostWatch::Lost(const std::vector<launch::HostSlots>& hosts) const {
  std::vector<std::string> why(hosts.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    threads.emplace_back([&, i] { why[i] = Ask(hosts[i].host, command_, limit_s_); });
  for (std::thread& thread : threads) thread.join();
  std::vector<LostHost> lost;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    if (!why[i].empty()) lost.push_back({hosts[i].host, why[i]});
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

}  // namespace orrery::cli
