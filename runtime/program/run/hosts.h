// SPDX-License-Identifier: Apache-2.0
// Hosts of a hostfile: those that answer, and those that are lost.
#pragma once

#include <chrono>
#include <future>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/launch/hostfile.h"

namespace orrery::cli {

struct LostHost {
  std::string host, why;
  bool silent = false;  // no answer in time
};

// Asks hosts in the way in which mpirun reaches them: its agent (OMPI_MCA_plm_rsh_agent, else ssh), then
// the host and a command. This machine is asked without an agent.
class HostWatch {
 public:
  // `command`: of a shell; a host where it fails is lost. A host has `limit_s` to answer.
  HostWatch(std::string command, double limit_s);

  // Asks all at once and waits.
  std::vector<LostHost> Lost(const std::vector<launch::HostSlots>& hosts) const;

  // While a run goes on: asks again every `limit_s`, without waiting. Those that have not answered twice
  // in a row.
  std::vector<LostHost> Look(const std::vector<launch::HostSlots>& hosts);
  // Likewise those that have answered twice in a row.
  std::vector<std::string> LookForReturn(const std::vector<launch::HostSlots>& hosts);

 private:
  // None: no answers have come since the last call.
  std::optional<std::vector<LostHost>> Answers(const std::vector<launch::HostSlots>& hosts);

  std::string command_;
  double limit_s_;
  std::vector<LostHost> before_;
  std::vector<std::string> back_before_;
  std::future<std::vector<LostHost>> asked_;
  std::chrono::steady_clock::time_point next_{};
};

// What is known where no other host answers: the way to them may be at fault, and not they.
class AnyHost {
 public:
  // Asks `lost`, all hosts that are not this one, for a bare answer. True: one answers, so that the way is open.
  bool Answers(const std::vector<LostHost>& lost);
  // After Answers(): why a host that does not answer is lost, by something else than the way to it: it is silent for
  // kLongestAnswer, its name does not resolve, or mpirun has not reached it either (`said`: what its last attempt failed of).
  // "": nothing is known of it.
  std::string Evidence(const std::string& host, const std::string& said);

  static constexpr double kLongestAnswer = 20;  // seconds that a host has

 private:
  std::vector<LostHost> lost_;
  std::set<std::string> unreached_;  // by mpirun
};

}  // namespace orrery::cli
