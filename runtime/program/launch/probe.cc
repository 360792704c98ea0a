// SPDX-License-Identifier: Apache-2.0
// A thread per door, and one per attempt.
#include "runtime/program/launch/probe.h"

#include <exception>

#include "runtime/comm/communicator.h"
#include "runtime/comm/secret.h"
#include "runtime/comm/tcp_door.h"

namespace orrery::launch {

ProbeDoors::ProbeDoors(Loopback loopback, const std::string& secret, int64_t rank) {
  std::vector<InterfaceAddress> own = OwnAddresses();
  if (loopback == Loopback::kAlone) own.clear();
  if (loopback != Loopback::kNo) own.push_back({"lo", "127.0.0.1"});
  for (const InterfaceAddress& at : own) {
    try {
      comm::Socket listener = comm::ListenAt(at.address, 0);
      addresses_.push_back({at.interface, at.address, comm::PortOf(listener)});
      threads_.emplace_back([this, secret, rank, listener = std::move(listener)]() mutable {
        comm::Door door(std::move(listener), secret, rank);
        while (!done_) door.Await(Clock::now() + std::chrono::milliseconds(100));
      });
    } catch (const comm::CommError&) {
      // An address that nobody can listen at is none to be found at.
    }
  }
}

ProbeDoors::~ProbeDoors() {
  done_ = true;
  for (std::thread& thread : threads_) thread.join();
}

std::vector<bool> Probe(const std::vector<ProbeTarget>& targets, int64_t own_rank,
                        const std::string& secret, double seconds) {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(seconds));
  std::vector<char> reached(targets.size(), 0);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        const ProbeTarget& to = targets[i];
        const comm::Caller self{own_rank, 1, 0, comm::OwnHost()};
        comm::EnterDoor(to.address, to.port, to.rank, self, secret, until);
        reached[i] = 1;
      } catch (const std::exception&) {
        // Not reached.
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return {reached.begin(), reached.end()};
}

nlohmann::json AddressesJson(const std::vector<NodeAddress>& addresses) {
  nlohmann::json list = nlohmann::json::array();
  for (const NodeAddress& at : addresses) list.push_back({at.interface, at.address, at.port});
  return list;
}

std::vector<NodeAddress> ReadAddresses(const nlohmann::json& list) {
  std::vector<NodeAddress> addresses;
  for (const auto& at : list) addresses.push_back({at.at(0), at.at(1), at.at(2)});
  return addresses;
}

nlohmann::json TargetsJson(const std::vector<ProbeTarget>& targets) {
  nlohmann::json list = nlohmann::json::array();
  for (const ProbeTarget& to : targets) list.push_back({to.rank, to.address, to.port});
  return list;
}

std::vector<ProbeTarget> ReadTargets(const nlohmann::json& list) {
  std::vector<ProbeTarget> targets;
  for (const auto& to : list) targets.push_back({to.at(0), to.at(1), to.at(2)});
  return targets;
}

}  // namespace orrery::launch
