// SPDX-License-Identifier: Apache-2.0
// A program for comm_test: the exercises on ranks that mpirun has started.
#include <cstdio>

#include "runtime/comm/mpi.h"
#include "tests/runtime/exercise.h"

int main() {
  const auto endpoint = orrery::comm::ConnectMpi();
  const std::string fault = orrery::runtime_test::ExerciseEndpoint(endpoint.get());
  if (!fault.empty()) std::printf("%s\n", fault.c_str());
  return fault.empty() ? 0 : 1;
}
