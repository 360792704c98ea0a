// SPDX-License-Identifier: Apache-2.0
// Messages between pairs of ranks over NCCL, in the order in which they were posted to a stream.
//
// What is posted to a stream before its first Test() or Drive() is a batch; its members run at the
// same time, as the calls of an MPI exchange do. NCCL starts one kernel per communicator, also
// within a group: two of them on one stream run one after the other, and ranks in a ring that all
// receive first would wait for ever. So each link of a batch but the first runs on a stream beside,
// which waits for what stands before the batch and is waited for by what comes behind it.
//
// A batch is enqueued whole, once all its links are set up; half of it could hang the device, which
// then runs a receive whose send the host still holds back. Waiting cannot deadlock: a link is set
// up by posting and polling alone, on both sides, and every Drive() polls all links that the stream
// still needs. Posting depends on no link of the same batch, because the batch ends with the first
// Test(); it may depend on earlier batches, and those do not wait for later ones. Between ranks it
// follows that the batches need an order in which both ends of every link get to it. The executor
// posts one transfer to a stream at a time and ir::Verify proves that order for plans; there, a
// batch is one transfer and waits for nothing but its own link.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "runtime/comm/device_queue.h"
#include "runtime/comm/nccl_link.h"

namespace orrery::comm {

struct NcclTransfer {
  NcclLinkPtr link;
  bool sends = false;
  void* bytes = nullptr;
  int64_t n = 0;
};

class NcclTransfers {
 public:
  // `queue` may be null: then no batch may need two links.
  NcclTransfers(nccl::ApiPtr api, std::shared_ptr<DeviceQueue> queue);
  ~NcclTransfers();
  NcclTransfers(const NcclTransfers&) = delete;
  NcclTransfers& operator=(const NcclTransfers&) = delete;

  // Done once it is enqueued. The operation must not outlive this object.
  OperationPtr Post(NcclTransfer transfer, void* stream);
  // Ends the stream's open batch and enqueues what can be. Throws CommError.
  void Drive(void* stream);
  void DriveAll();

 private:
  struct Batch {
    std::vector<NcclTransfer> transfers;
    std::vector<NcclLink*> links;  // each once, in order
    bool closed = false, enqueued = false, done = false;
  };
  using BatchPtr = std::shared_ptr<Batch>;
  struct Beside {  // the stream of one more link
    void *stream = nullptr, *begin = nullptr, *end = nullptr;
  };
  class Posted;

  bool Advance(Batch* batch, void* stream, const std::map<NcclLink*, bool>& settled);
  void Enqueue(Batch* batch, void* stream);
  void* StreamOf(const Batch& batch, const NcclLink* link, void* stream);
  Beside& BesideOf(void* stream, std::size_t i);

  nccl::ApiPtr api_;
  std::shared_ptr<DeviceQueue> queue_;
  std::map<void*, std::deque<BatchPtr>> batches_;  // by stream
  std::map<void*, std::vector<Beside>> beside_;    // by stream
};

}  // namespace orrery::comm
