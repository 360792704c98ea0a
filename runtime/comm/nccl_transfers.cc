// SPDX-License-Identifier: Apache-2.0
// Batches of messages.
#include "runtime/comm/nccl_transfers.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::comm {

class NcclTransfers::Posted : public Operation {
 public:
  Posted(NcclTransfers* all, BatchPtr batch, void* stream)
      : all_(all), batch_(std::move(batch)), stream_(stream) {}
  bool Test() override {
    if (!batch_->done) all_->Drive(stream_);
    return batch_->done;
  }

 private:
  NcclTransfers* all_;
  BatchPtr batch_;
  void* stream_;
};

NcclTransfers::NcclTransfers(nccl::ApiPtr api, std::shared_ptr<DeviceQueue> queue)
    : api_(std::move(api)), queue_(std::move(queue)) {}

NcclTransfers::~NcclTransfers() {
  for (const auto& [stream, list] : beside_) {
    for (const Beside& beside : list) {
      queue_->FreeEvent(beside.begin);
      queue_->FreeEvent(beside.end);
      queue_->FreeStream(beside.stream);
    }
  }
}

OperationPtr NcclTransfers::Post(NcclTransfer transfer, void* stream) {
  std::deque<BatchPtr>& batches = batches_[stream];
  if (batches.empty() || batches.back()->closed) batches.push_back(std::make_shared<Batch>());
  Batch& batch = *batches.back();
  NcclLink* link = transfer.link.get();
  if (std::find(batch.links.begin(), batch.links.end(), link) == batch.links.end())
    batch.links.push_back(link);
  batch.transfers.push_back(std::move(transfer));
  return std::make_unique<Posted>(this, batches.back(), stream);
}

void NcclTransfers::DriveAll() {
  for (auto& [stream, batches] : batches_) {
    if (!batches.empty()) Drive(stream);
  }
}

void NcclTransfers::Drive(void* stream) {
  std::deque<BatchPtr>& batches = batches_[stream];
  if (batches.empty()) return;
  batches.back()->closed = true;
  std::map<NcclLink*, bool> settled;  // all of them: their other ends may need it
  for (const BatchPtr& batch : batches) {
    for (NcclLink* link : batch->links) {
      if (!settled.contains(link)) settled[link] = link->Settled();
    }
  }
  while (!batches.empty() && Advance(batches.front().get(), stream, settled)) batches.pop_front();
}

// True: it stands on the stream, in front of what comes next.
bool NcclTransfers::Advance(Batch* batch, void* stream, const std::map<NcclLink*, bool>& settled) {
  if (!batch->enqueued) {
    for (const NcclLink* link : batch->links) {
      if (!settled.at(const_cast<NcclLink*>(link))) return false;
    }
    Enqueue(batch, stream);
  }
  bool placed = true;  // NCCL starts kernels from threads of its own
  for (NcclLink* link : batch->links) placed &= link->Settled();
  if (!placed) return false;
  for (std::size_t i = 1; i < batch->links.size(); ++i) {
    const Beside& beside = BesideOf(stream, i);
    queue_->Record(beside.end, beside.stream);
    queue_->Await(beside.end, stream);
  }
  return batch->done = true;
}

// Groups nest: each communicator's own group stands inside one around all.
void NcclTransfers::Enqueue(Batch* batch, void* stream) {
  for (std::size_t i = 1; i < batch->links.size(); ++i) {
    const Beside& beside = BesideOf(stream, i);
    queue_->Record(beside.begin, stream);
    queue_->Await(beside.begin, beside.stream);
  }
  if (const int result = api_->GroupStart(); result != nccl::kSuccess)
    throw CommError(fmt::format("NCCL: {}", api_->GetErrorString(result)));
  for (const NcclTransfer& t : batch->transfers) {
    void* on = StreamOf(*batch, t.link.get(), stream);
    t.link->Group([&](nccl::Handle comm) {
      const int type = nccl::TypeOf(ir::Dtype::kU8);
      const auto n = static_cast<size_t>(t.n);
      const int receiver = t.link->size() - 1;  // 0: this rank itself
      return t.sends ? api_->Send(t.bytes, n, type, receiver, comm, on)
                     : api_->Recv(t.bytes, n, type, 0, comm, on);
    });
  }
  const int result = api_->GroupEnd();
  if (result != nccl::kSuccess && result != nccl::kInProgress)
    throw CommError(
        fmt::format("{}: {}", batch->links.front()->what(), api_->GetErrorString(result)));
  for (NcclLink* link : batch->links) link->AwaitSettling();
  batch->enqueued = true;
}

void* NcclTransfers::StreamOf(const Batch& batch, const NcclLink* link, void* stream) {
  const auto at = std::find(batch.links.begin(), batch.links.end(), link) - batch.links.begin();
  return at == 0 ? stream : BesideOf(stream, static_cast<std::size_t>(at)).stream;
}

NcclTransfers::Beside& NcclTransfers::BesideOf(void* stream, std::size_t i) {
  if (queue_ == nullptr)
    throw CommError("several messages at once on one stream need streams beside it");
  std::vector<Beside>& list = beside_[stream];
  while (list.size() < i)
    list.push_back({queue_->MakeStream(), queue_->MakeEvent(), queue_->MakeEvent()});
  return list[i - 1];
}

}  // namespace orrery::comm
