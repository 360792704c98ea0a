// SPDX-License-Identifier: Apache-2.0
// Sets NCCL communicators up without blocking, and takes them down with a deadline.
#include "runtime/comm/nccl_link.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <thread>

namespace orrery::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kEnding = std::chrono::seconds(5);

// Polls until it is no longer in progress, or gives up.
int Settle(const nccl::Api& api, nccl::Handle comm) {
  int error = nccl::kInProgress;
  for (const auto until = Clock::now() + kEnding; Clock::now() < until;) {
    if (api.CommGetAsyncError(comm, &error) != nccl::kSuccess) return nccl::kInternalError;
    if (error != nccl::kInProgress) return error;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return nccl::kInProgress;
}

}  // namespace

NcclLink::NcclLink(nccl::ApiPtr api, Endpoint* control, std::vector<int64_t> members,
                   int32_t channel)
    : api_(std::move(api)),
      members_(std::move(members)),
      what_(fmt::format("NCCL communicator of rank{} {}", members_.size() == 1 ? "" : "s",
                        fmt::join(members_, ", "))) {
  while (members_[static_cast<std::size_t>(index_)] != control->rank()) ++index_;
  if (index_ > 0) {
    exchange_.push_back(control->Receive(members_[0], channel, &id_, sizeof id_));
    return;
  }
  if (const int result = api_->GetUniqueId(&id_); result != nccl::kSuccess)
    Fail(result, "making its id");
  for (std::size_t i = 1; i < members_.size(); ++i)
    exchange_.push_back(control->Send(members_[i], channel, &id_, sizeof id_));
}

NcclLink::~NcclLink() {
  if (comm_ == nullptr || state_ == State::kAborted) return;
  const bool idle = state_ == State::kReady && !pending_ && !broken_;
  const int result = idle ? api_->CommFinalize(comm_) : nccl::kInternalError;
  const bool ended = result == nccl::kSuccess ||
                     (result == nccl::kInProgress && Settle(*api_, comm_) == nccl::kSuccess);
  if (ended) {
    api_->CommDestroy(comm_);
  } else {
    Abort();
  }
}

bool NcclLink::Exchanged() {
  while (!exchange_.empty()) {
    if (!exchange_.back()->Test()) return false;
    exchange_.pop_back();
  }
  return true;
}

bool NcclLink::Settled() {
  if (state_ == State::kAborted) throw CommError(what_ + " was aborted");
  if (state_ == State::kExchanging) {
    if (!Exchanged()) return false;
    nccl::Config config;
    state_ = State::kInitialising;
    pending_ =
        !Finished(api_->CommInitRankConfig(&comm_, size(), id_, index_, &config), "setting it up");
  }
  if (pending_) {
    int error = nccl::kSuccess;
    if (const int asked = api_->CommGetAsyncError(comm_, &error); asked != nccl::kSuccess)
      Fail(asked, "asking for its state");
    pending_ = !Finished(error, state_ == State::kReady ? "enqueueing" : "setting it up");
  }
  if (pending_) return false;
  state_ = State::kReady;
  return true;
}

void NcclLink::Group(const std::function<int(nccl::Handle)>& call) {
  Finished(api_->GroupStart(), "beginning a group");
  const int inner = call(comm_);
  const int outer = api_->GroupEnd();
  pending_ = !Finished(inner == nccl::kInProgress ? nccl::kSuccess : inner, "enqueueing");
  pending_ = !Finished(outer, "enqueueing");
}

void NcclLink::Check() {
  if (state_ != State::kReady) return;
  int error = nccl::kSuccess;
  if (const int asked = api_->CommGetAsyncError(comm_, &error); asked != nccl::kSuccess)
    Fail(asked, "asking for its state");
  Finished(error, "running");
}

void NcclLink::Abort() {
  if (state_ == State::kAborted) return;
  state_ = State::kAborted;
  if (comm_ != nullptr) api_->CommAbort(comm_);
  comm_ = nullptr;
}

bool NcclLink::Finished(int result, const char* doing) {
  if (result == nccl::kInProgress) return false;
  if (result != nccl::kSuccess) Fail(result, doing);
  return true;
}

void NcclLink::Fail(int result, const char* doing) {
  broken_ = true;
  const char* last = comm_ == nullptr ? nullptr : api_->GetLastError(comm_);
  const std::string detail = last == nullptr || *last == '\0' ? "" : fmt::format(" ({})", last);
  throw CommError(fmt::format("{}, {}: {}{}", what_, doing, api_->GetErrorString(result), detail));
}

}  // namespace orrery::comm
