// SPDX-License-Identifier: Apache-2.0
// Messages beside the training: who is alive, and who has failed.
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace orrery::comm {

void CheckMpi(int code, const char* what);  // throws CommError

class MpiControl {
 public:
  MpiControl(MPI_Comm world, int rank, int size);
  ~MpiControl();

  // Answers who asked, notes who failed.
  void Poll();
  bool peer_failed() const { return lowest_failed_ >= 0; }
  // The ranks that do not answer within a second.
  std::vector<int> Silent();
  // Tells all others that this rank has failed, and waits for those that fail at the same time.
  // True: this rank is the one to report it.
  bool ClaimFailure();

 private:
  enum Word : int { kAsk, kAnswer, kFailed };
  void Say(int peer, Word word);

  MPI_Comm comm_;
  int rank_, size_;
  int heard_ = 0;  // the word that comes next
  MPI_Request listening_ = MPI_REQUEST_NULL;
  std::array<int, 3> words_{kAsk, kAnswer, kFailed};
  std::vector<bool> answered_;
  int lowest_failed_ = -1;
};

}  // namespace orrery::comm
