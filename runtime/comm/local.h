// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process: for tests, debugging and machines without MPI.
//
// The last member to reach a collective does it for all of them. Every operation is checked against
// its partners': kind, size, type, tag.
#pragma once

#include "runtime/comm/communicator.h"

namespace orrery::comm {

class LocalWorldState;

class LocalWorld {
 public:
  explicit LocalWorld(int64_t ranks);
  ~LocalWorld();
  std::unique_ptr<Endpoint> Connect(int64_t rank);  // each rank once; the world outlives it
  // Why the first rank failed; "" while none has.
  std::string failure() const;

 private:
  std::shared_ptr<LocalWorldState> state_;
};

}  // namespace orrery::comm
