// SPDX-License-Identifier: Apache-2.0
// The endpoint over NCCL: collectives and transfers enqueued on streams.
#include "runtime/comm/nccl.h"

#include <fmt/format.h>

#include <future>
#include <map>
#include <thread>
#include <tuple>

#include "runtime/comm/nccl_link.h"
#include "runtime/comm/nccl_transfers.h"

namespace orrery::comm {
namespace {

constexpr int32_t kIdChannel = 32020;  // of the control endpoint: ids of groups

// Done once NCCL has enqueued it.
class Enqueued : public Operation {
 public:
  explicit Enqueued(NcclLinkPtr link) : link_(std::move(link)) {}
  bool Test() override { return link_->Settled(); }

 private:
  NcclLinkPtr link_;
};

int CallAllToAll(const nccl::Api& api, const Collective& c, nccl::Handle comm, int size) {
  const auto bytes = static_cast<size_t>(c.n * ir::DtypeBytes(c.dtype));
  const int type = nccl::TypeOf(c.dtype);
  for (int peer = 0; peer < size; ++peer) {
    const size_t at = static_cast<size_t>(peer) * bytes;
    const auto n = static_cast<size_t>(c.n);
    int result = api.Send(static_cast<const char*>(c.in) + at, n, type, peer, comm, c.stream);
    if (result == nccl::kSuccess || result == nccl::kInProgress)
      result = api.Recv(static_cast<char*>(c.out) + at, n, type, peer, comm, c.stream);
    if (result != nccl::kSuccess && result != nccl::kInProgress) return result;
  }
  return nccl::kSuccess;
}

int Call(const nccl::Api& api, const Collective& c, nccl::Handle comm, int size) {
  const auto n = static_cast<size_t>(c.n);
  const int type = nccl::TypeOf(c.dtype), op = c.maximum ? nccl::kMaximum : nccl::kSum;
  switch (c.kind) {
    case CollectiveKind::kAllReduce:
      return api.AllReduce(c.in, c.out, n, type, op, comm, c.stream);
    case CollectiveKind::kAllGather:
      return api.AllGather(c.in, c.out, n, type, comm, c.stream);
    case CollectiveKind::kReduceScatter:
      return api.ReduceScatter(c.in, c.out, n, type, op, comm, c.stream);
    case CollectiveKind::kBroadcast:
      return api.Broadcast(c.in, c.out, n, type, c.root, comm, c.stream);
    case CollectiveKind::kAllToAll:
      return CallAllToAll(api, c, comm, size);
    case CollectiveKind::kBarrier:
      break;
  }
  return nccl::kInvalidUsage;  // refused before
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(nccl::ApiPtr api, Endpoint* endpoint, double deadline_s, NcclLinkPtr link,
                   CommunicatorPtr host)
      : api_(std::move(api)),
        endpoint_(endpoint),
        deadline_s_(deadline_s),
        link_(std::move(link)),
        host_(std::move(host)) {}

  OperationPtr Start(const Collective& c) override {
    if (c.stream == nullptr) return host_->Start(c);
    if (c.kind == CollectiveKind::kBarrier) throw CommError("NCCL has no barrier on a stream");
    Enqueued before(link_);  // the call before this one
    if (!before.Test()) Wait(endpoint_, &before, deadline_s_, link_->what());
    link_->Group([&](nccl::Handle comm) { return Call(*api_, c, comm, link_->size()); });
    return std::make_unique<Enqueued>(link_);
  }

 private:
  nccl::ApiPtr api_;
  Endpoint* endpoint_;
  double deadline_s_;
  NcclLinkPtr link_;
  CommunicatorPtr host_;
};

class NcclEndpoint : public Endpoint {
 public:
  NcclEndpoint(nccl::ApiPtr api, std::unique_ptr<Endpoint> control, const NcclOptions& options)
      : api_(std::move(api)),
        control_(std::move(control)),
        options_(options),
        transfers_(api_, options.queue) {}

  int64_t rank() const override { return control_->rank(); }
  int64_t size() const override { return control_->size(); }
  std::string host() const override { return control_->host(); }
  void SetStream(void* stream) override { stream_ = stream; }
  OperationPtr Barrier() override { return control_->Barrier(); }
  std::string Silent() override { return control_->Silent(); }

  CommunicatorPtr Join(int32_t key, const std::vector<int64_t>& members) override {
    CommunicatorPtr host = control_->Join(key, members);
    const NcclLinkPtr link = MakeLink(members, kIdChannel);
    Enqueued setting_up(link);
    try {
      Wait(this, &setting_up, options_.deadline_s, link->what());
    } catch (const CommError&) {
      AbortAll();
      throw;
    }
    return std::make_unique<NcclCommunicator>(api_, this, options_.deadline_s, link,
                                              std::move(host));
  }

  OperationPtr Send(int64_t peer, int32_t channel, const void* bytes, int64_t n) override {
    if (stream_ == nullptr) return control_->Send(peer, channel, bytes, n);
    return Post(true, peer, channel, const_cast<void*>(bytes), n);
  }
  OperationPtr Receive(int64_t peer, int32_t channel, void* bytes, int64_t n) override {
    if (stream_ == nullptr) return control_->Receive(peer, channel, bytes, n);
    return Post(false, peer, channel, bytes, n);
  }

  void Idle() override {
    try {
      control_->Idle();
      for (const NcclLinkPtr& link : Links()) link->Check();
      transfers_.DriveAll();
    } catch (const CommError&) {
      AbortAll();
      throw;
    }
  }

  void Abort(const std::string& why) override {
    AbortAll();
    control_->Abort(why);
  }

 private:
  class Nothing : public Operation {
   public:
    bool Test() override { return true; }
  };

  using Members = std::vector<int64_t>;
  NcclLinkPtr MakeLink(Members members, int32_t channel) {
    auto link = std::make_shared<NcclLink>(api_, control_.get(), std::move(members), channel);
    links_.push_back(link);
    return link;
  }

  std::vector<NcclLinkPtr> Links() {
    std::vector<NcclLinkPtr> alive;
    std::erase_if(links_, [&](const std::weak_ptr<NcclLink>& weak) {
      NcclLinkPtr link = weak.lock();
      if (link) alive.push_back(std::move(link));
      return weak.expired();
    });
    return alive;
  }

  OperationPtr Post(bool sends, int64_t peer, int32_t channel, void* bytes, int64_t n) {
    const int64_t from = sends ? rank() : peer, to = sends ? peer : rank();
    NcclLinkPtr& link = transfer_links_[{from, to, channel}];
    if (!link) link = MakeLink(from == to ? Members{from} : Members{from, to}, channel);
    if (n == 0) return std::make_unique<Nothing>();
    return transfers_.Post({link, sends, bytes, n}, stream_);
  }

  // In a thread of its own: what hangs there must not hang this one.
  void AbortAll() {
    if (aborted_) return;
    aborted_ = true;
    auto links = std::make_shared<std::vector<NcclLinkPtr>>(Links());
    auto done = std::make_shared<std::promise<void>>();
    std::future<void> ended = done->get_future();
    std::thread([links, done] {
      for (const NcclLinkPtr& link : *links) link->Abort();
      done->set_value();
    }).detach();
    if (ended.wait_for(std::chrono::duration<double>(options_.abort_deadline_s)) !=
        std::future_status::ready) {
      fmt::print(stderr, "rank {} on {}: NCCL did not abort within {:.3g} s\n", rank(), host(),
                 options_.abort_deadline_s);
    }
  }

  nccl::ApiPtr api_;
  std::unique_ptr<Endpoint> control_;
  NcclOptions options_;
  void* stream_ = nullptr;
  bool aborted_ = false;
  std::vector<std::weak_ptr<NcclLink>> links_;
  std::map<std::tuple<int64_t, int64_t, int32_t>, NcclLinkPtr> transfer_links_;
  NcclTransfers transfers_;
};

}  // namespace

std::unique_ptr<Endpoint> ConnectNccl(nccl::ApiPtr api, std::unique_ptr<Endpoint> control,
                                      const NcclOptions& options) {
  return std::make_unique<NcclEndpoint>(std::move(api), std::move(control), options);
}

}  // namespace orrery::comm
