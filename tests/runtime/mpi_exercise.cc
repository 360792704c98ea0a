// SPDX-License-Identifier: Apache-2.0
// A program for comm_test: the exercises on ranks that mpirun has started.
#include <chrono>
#include <cstdio>
#include <thread>

#include "runtime/comm/mpi.h"
#include "tests/runtime/exercise.h"

namespace {

// One rank stays away from a group: the others must not wait for ever.
int StayAway() {
  const auto endpoint = orrery::comm::ConnectMpi(3);
  if (endpoint->rank() == 1) {
    std::this_thread::sleep_for(std::chrono::seconds(60));
    return 0;
  }
  endpoint->Join(0, {0, 1});
  return 0;
}

}  // namespace

int main(int argc, char**) {
  if (argc > 1) return StayAway();
  const auto endpoint = orrery::comm::ConnectMpi();
  const std::string fault = orrery::runtime_test::ExerciseEndpoint(endpoint.get());
  if (!fault.empty()) std::printf("%s\n", fault.c_str());
  return fault.empty() ? 0 : 1;
}
