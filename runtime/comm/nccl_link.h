// SPDX-License-Identifier: Apache-2.0
// One NCCL communicator from its unique id to its end. Everything that NCCL may wait for is polled.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/nccl_api.h"

namespace orrery::comm {

class NcclLink {
 public:
  // The first of `members` (world ranks) makes the id and sends it to the others over `control`.
  NcclLink(nccl::ApiPtr api, Endpoint* control, std::vector<int64_t> members, int32_t channel);
  ~NcclLink();  // ends an idle communicator in order, within a few seconds; else aborts it
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  // Drives the set-up and what NCCL has not finished enqueueing; true: nothing is left of it.
  // Throws CommError with NCCL's reason.
  bool Settled();
  // Enqueues calls as one group. `call` returns a result of NCCL's. Settled() comes first.
  void Group(const std::function<int(nccl::Handle)>& call);
  void AwaitSettling() { pending_ = true; }  // its group was a part of a larger one
  // Throws when NCCL has noticed that something went wrong since.
  void Check();
  // Ends it whatever hangs there; kernels on the device return. Safe to call twice.
  void Abort();

  const std::string& what() const { return what_; }  // "NCCL communicator of ranks 0, 1"
  int index() const { return index_; }               // of this rank among the members
  int size() const { return static_cast<int>(members_.size()); }

 private:
  enum class State { kExchanging, kInitialising, kReady, kAborted };
  bool Exchanged();
  bool Finished(int result, const char* doing);  // false: in progress
  [[noreturn]] void Fail(int result, const char* doing);

  nccl::ApiPtr api_;
  std::vector<int64_t> members_;
  int index_ = 0;
  std::string what_;
  std::atomic<State> state_ = State::kExchanging;  // another thread may abort
  nccl::UniqueId id_{};
  std::vector<OperationPtr> exchange_;
  nccl::Handle comm_ = nullptr;
  bool pending_ = false;  // NCCL said "in progress"
  bool broken_ = false;   // NCCL said an error
};
using NcclLinkPtr = std::shared_ptr<NcclLink>;

}  // namespace orrery::comm
