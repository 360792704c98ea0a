// SPDX-License-Identifier: Apache-2.0
// Endpoint and communicators over TCP.
#include "runtime/comm/tcp.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>

#include "runtime/comm/ring.h"
#include "runtime/comm/tcp_mesh.h"

namespace orrery::comm {
namespace {

// Numbers of messages: channels, then the groups' rings and exchanges, by key.
constexpr uint64_t kRings = uint64_t{1} << 32, kExchanges = uint64_t{2} << 32;
constexpr int32_t kEverybody = 1 << 20;  // a key that no plan has
constexpr int kPeerFailed = 86;          // exit code: runtime/launch/stop_request.h

using MeshPtr = std::shared_ptr<TcpMesh>;

void ThrowIfFailed(const TcpMesh& mesh) {
  if (mesh.peer_failed()) throw CommError(mesh.FirstCause(), true);
  if (const int64_t lost = mesh.Lost(); lost >= 0) {
    throw CommError(
        fmt::format("rank {} on {} has ended, or its connection is lost", lost, mesh.host(lost)));
  }
}

class Messages : public Operation {
 public:
  explicit Messages(MeshPtr mesh) : mesh_(std::move(mesh)) {}
  ~Messages() override {
    for (const auto& [message, sends] : list_) TcpMesh::Abandon(message.get(), sends);
  }
  void Add(TcpMessagePtr message, bool sends) { list_.emplace_back(std::move(message), sends); }
  bool Test() override {
    if (Done()) return true;
    mesh_->Drive();
    if (Done()) return true;
    ThrowIfFailed(*mesh_);
    return false;
  }

 private:
  bool Done() {
    while (!list_.empty() && list_.back().first->done) list_.pop_back();
    return list_.empty();
  }
  MeshPtr mesh_;
  std::vector<std::pair<TcpMessagePtr, bool>> list_;
};

class TcpRing : public RingTransport {
 public:
  TcpRing(MeshPtr mesh, int64_t next, int64_t previous, uint64_t number)
      : mesh_(std::move(mesh)), next_(next), previous_(previous), number_(number) {}

  RingRequest Send(const void* bytes, int64_t n) override {
    return Pack(mesh_->Send(next_, number_, bytes, n), 1);
  }
  RingRequest Receive(void* bytes, int64_t n) override {
    return Pack(mesh_->Receive(previous_, number_, bytes, n), 0);
  }
  bool Done(RingRequest* request) override {
    if (!Unpack(*request)->message->done) return false;
    delete Unpack(*request);
    request->open = false;
    return true;
  }
  void Drop(RingRequest* request) override {
    TcpMesh::Abandon(Unpack(*request)->message.get(), Unpack(*request)->sends);
    delete Unpack(*request);
    request->open = false;
  }

 private:
  struct Held {
    TcpMessagePtr message;
    bool sends;
  };
  static RingRequest Pack(TcpMessagePtr message, bool sends) {
    return {reinterpret_cast<std::uintptr_t>(new Held{std::move(message), sends}), true};
  }
  static Held* Unpack(const RingRequest& request) { return reinterpret_cast<Held*>(request.bits); }

  MeshPtr mesh_;
  int64_t next_, previous_;
  uint64_t number_;
};

// A ring's operation, with the connections driven in front of each look.
class Driven : public Operation {
 public:
  Driven(MeshPtr mesh, RingTransport* ring, int rank, int size, const Collective& c)
      : mesh_(std::move(mesh)) {
    Collective asked = c;
    if (c.kind == CollectiveKind::kBarrier) {
      asked = {CollectiveKind::kAllReduce, &word_, &word_, 1, ir::Dtype::kF32};
    }
    operation_ = std::make_unique<RingOperation>(ring, rank, size, kSegmentBytes, asked);
  }
  bool Test() override {
    mesh_->Drive();
    if (operation_->Test()) return true;
    ThrowIfFailed(*mesh_);
    return false;
  }

 private:
  MeshPtr mesh_;
  float word_ = 0;
  OperationPtr operation_;
};

class TcpCommunicator : public Communicator {
 public:
  TcpCommunicator(MeshPtr mesh, std::vector<int64_t> members, int64_t rank, int32_t key)
      : mesh_(std::move(mesh)), members_(std::move(members)), key_(static_cast<uint64_t>(key)) {
    while (members_.at(static_cast<std::size_t>(index_)) != rank) ++index_;
    ring_ = std::make_unique<TcpRing>(mesh_, Member(index_ + 1), Member(index_ + size() - 1),
                                      kRings + key_);
  }

  OperationPtr Start(const Collective& c) override {
    if (c.kind == CollectiveKind::kAllToAll) return Exchange(c);
    return std::make_unique<Driven>(mesh_, ring_.get(), index_, size(), c);
  }

 private:
  int size() const { return static_cast<int>(members_.size()); }
  int64_t Member(int index) const { return members_[static_cast<std::size_t>(index % size())]; }

  OperationPtr Exchange(const Collective& c) {
    const int64_t bytes = c.n * ir::DtypeBytes(c.dtype);
    auto all = std::make_unique<Messages>(mesh_);
    for (int i = 0; i < size(); ++i) {
      auto* to = static_cast<std::byte*>(c.out) + i * bytes;
      const auto* from = static_cast<const std::byte*>(c.in) + i * bytes;
      if (i == index_) {
        if (bytes > 0) std::memmove(to, from, static_cast<std::size_t>(bytes));
        continue;
      }
      all->Add(mesh_->Receive(Member(i), kExchanges + key_, to, bytes), false);
      all->Add(mesh_->Send(Member(i), kExchanges + key_, from, bytes), true);
    }
    return all;
  }

  MeshPtr mesh_;
  std::vector<int64_t> members_;
  uint64_t key_;
  int index_ = 0;
  std::unique_ptr<TcpRing> ring_;
};

// Peers, and the own rank, as the plan places ranks on nodes.
std::vector<TcpPeer> InOrder(std::vector<TcpPeer> peers, const NodeOrder& nodes,
                             const std::string& speaker, int64_t* rank) {
  std::vector<std::string> hosts;
  for (const TcpPeer& peer : peers) hosts.push_back(peer.host);
  const OrderedRanks ordered = RanksInOrder(hosts, nodes);
  if (!ordered.refusal.empty()) {
    if (*rank == 0)
      fmt::print(stderr, "{}: error: {}\n  hint: {}\n", speaker, ordered.refusal, ordered.hint);
    std::fflush(stderr);
    throw CommError(ordered.refusal, true);
  }
  if (ordered.ranks.empty()) return peers;
  std::vector<TcpPeer> placed(peers.size());
  for (std::size_t r = 0; r < peers.size(); ++r)
    placed[static_cast<std::size_t>(ordered.ranks[r])] = std::move(peers[r]);
  *rank = ordered.ranks[static_cast<std::size_t>(*rank)];
  return placed;
}

class TcpEndpoint : public Endpoint {
 public:
  TcpEndpoint(const TcpPlace& place, double deadline_s, std::string speaker, const NodeOrder& nodes)
      : rank_(place.rank), speaker_(std::move(speaker)) {
    std::vector<TcpPeer> peers = InOrder(MeetOverTcp(place, deadline_s), nodes, speaker_, &rank_);
    mesh_ = std::make_shared<TcpMesh>(std::move(peers), rank_);
  }

  // Without farewell the others take this rank for lost, which they should after an exception.
  ~TcpEndpoint() override {
    if (std::uncaught_exceptions() > 0) return;
    mesh_->Leave(!failed_ && !mesh_->peer_failed() && mesh_->Lost() < 0);
  }

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return mesh_->size(); }
  std::string host() const override { return mesh_->host(rank_); }

  CommunicatorPtr Join(int32_t key, const std::vector<int64_t>& members) override {
    return std::make_unique<TcpCommunicator>(mesh_, members, rank_, key);
  }
  OperationPtr Send(int64_t peer, int32_t channel, const void* bytes, int64_t n) override {
    auto one = std::make_unique<Messages>(mesh_);
    one->Add(mesh_->Send(peer, static_cast<uint64_t>(channel), bytes, n), true);
    return one;
  }
  OperationPtr Receive(int64_t peer, int32_t channel, void* bytes, int64_t n) override {
    auto one = std::make_unique<Messages>(mesh_);
    one->Add(mesh_->Receive(peer, static_cast<uint64_t>(channel), bytes, n), false);
    return one;
  }

  OperationPtr Barrier() override {
    if (!everybody_) {
      std::vector<int64_t> all(static_cast<std::size_t>(size()));
      std::iota(all.begin(), all.end(), 0);
      everybody_ = Join(kEverybody, all);
    }
    return everybody_->Start({});
  }

  void Idle() override {
    mesh_->Drive();
    ThrowIfFailed(*mesh_);
  }

  std::string Silent() override {
    std::string text;
    const std::vector<int64_t> silent = mesh_->Silent();
    silent_ = silent.empty() ? -1 : silent.front();
    for (const int64_t peer : silent)
      text += fmt::format("{}rank {} on {}", text.empty() ? "" : ", ", peer, mesh_->host(peer));
    if (mesh_->peer_failed()) throw CommError(mesh_->FirstCause(), true);
    return text;
  }

  // Nobody ends processes that something else has started: each does it when it hears of it. Those that
  // end because of another have an exit code of their own, and end last: a launcher that looks for the
  // first failure finds the cause.
  void Abort(const std::string& why) override {
    failed_ = true;
    const int64_t lost = mesh_->Lost();
    const bool first = mesh_->ClaimFailure(lost >= 0 ? lost : silent_);
    if (first) {
      fmt::print(stderr, "{}: error: {}\n", speaker_, why);
    } else {
      const std::string cause =
          lost >= 0 ? fmt::format("rank {} on {} has failed", lost, mesh_->host(lost))
                    : mesh_->FirstCause();
      fmt::print(stderr, "{}: rank {} on {} ends because {}\n", speaker_, rank_, host(), cause);
    }
    std::fflush(nullptr);
    std::_Exit(lost >= 0 || !first ? kPeerFailed : 1);
  }

 private:
  int64_t rank_;
  std::string speaker_;
  bool failed_ = false;
  int64_t silent_ = -1;  // the lowest rank that did not answer when it was asked last
  MeshPtr mesh_;
  CommunicatorPtr everybody_;
};

}  // namespace

std::unique_ptr<Endpoint> ConnectTcp(const TcpPlace& place, double deadline_s,
                                     const std::string& speaker, const NodeOrder& nodes) {
  return std::make_unique<TcpEndpoint>(place, deadline_s, speaker, nodes);
}

}  // namespace orrery::comm
