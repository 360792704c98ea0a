// SPDX-License-Identifier: Apache-2.0
// One word per message on a communicator of its own.
#include "runtime/comm/mpi_control.h"

#include <chrono>
#include <thread>

#include "runtime/comm/communicator.h"

namespace orrery::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kAnswerTime = std::chrono::milliseconds(1000);
constexpr auto kClaimTime = std::chrono::milliseconds(300);

}  // namespace

void CheckMpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommError(std::string(what) + ": " + text);
}

MpiControl::MpiControl(MPI_Comm world, int rank, int size)
    : rank_(rank), size_(size), answered_(static_cast<std::size_t>(size)) {
  CheckMpi(MPI_Comm_dup(world, &comm_), "MPI_Comm_dup");
  CheckMpi(MPI_Irecv(&heard_, 1, MPI_INT, MPI_ANY_SOURCE, 0, comm_, &listening_), "MPI_Irecv");
}

MpiControl::~MpiControl() {
  MPI_Cancel(&listening_);
  MPI_Wait(&listening_, MPI_STATUS_IGNORE);
  MPI_Comm_free(&comm_);
}

void MpiControl::Poll() {
  for (;;) {
    int arrived = 0;
    MPI_Status status;
    CheckMpi(MPI_Test(&listening_, &arrived, &status), "control message");
    if (arrived == 0) return;
    if (heard_ == kAsk) Say(status.MPI_SOURCE, kAnswer);
    if (heard_ == kAnswer) answered_[static_cast<std::size_t>(status.MPI_SOURCE)] = true;
    if (heard_ == kFailed && (lowest_failed_ < 0 || status.MPI_SOURCE < lowest_failed_))
      lowest_failed_ = status.MPI_SOURCE;
    CheckMpi(MPI_Irecv(&heard_, 1, MPI_INT, MPI_ANY_SOURCE, 0, comm_, &listening_), "MPI_Irecv");
  }
}

void MpiControl::Say(int peer, Word word) {
  MPI_Request request = MPI_REQUEST_NULL;
  CheckMpi(MPI_Isend(&words_[static_cast<std::size_t>(word)], 1, MPI_INT, peer, 0, comm_, &request),
           "MPI_Isend");
  MPI_Request_free(&request);  // one word fits into the eager buffers
}

std::vector<int> MpiControl::Silent() {
  answered_.assign(answered_.size(), false);
  answered_[static_cast<std::size_t>(rank_)] = true;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) Say(peer, kAsk);
  }
  for (const auto until = Clock::now() + kAnswerTime; Clock::now() < until && !peer_failed();) {
    Poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::vector<int> silent;
  for (int peer = 0; peer < size_; ++peer) {
    if (!answered_[static_cast<std::size_t>(peer)]) silent.push_back(peer);
  }
  return silent;
}

bool MpiControl::ClaimFailure() {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) Say(peer, kFailed);
  }
  for (const auto until = Clock::now() + kClaimTime; Clock::now() < until;) {
    Poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return lowest_failed_ < 0 || rank_ < lowest_failed_;
}

}  // namespace orrery::comm
