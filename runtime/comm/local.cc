// SPDX-License-Identifier: Apache-2.0
// Communication through the memory that all ranks share.
#include "runtime/comm/local.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "runtime/comm/local_collectives.h"
#include "runtime/comm/secret.h"

namespace orrery::comm {

// One collective of one communicator, from the first member that starts it to the last.
struct LocalRendezvous {
  explicit LocalRendezvous(std::size_t members) : parts(members) {}
  std::vector<Collective> parts;
  std::size_t arrived = 0;
  std::atomic<bool> done = false;
};

struct LocalTransfer {
  void* bytes = nullptr;
  int64_t n = 0;
  std::atomic<bool> done = false;
};
using LocalTransferPtr = std::shared_ptr<LocalTransfer>;

class LocalWorldState {
 public:
  explicit LocalWorldState(int64_t ranks) : beats(static_cast<std::size_t>(ranks)) {}

  void Fail(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (failed.load()) return;
    failure_ = why;
    failed.store(true);
  }
  std::string failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  void ThrowIfFailed() const {
    if (failed.load(std::memory_order_relaxed)) throw CommError(failure(), true);
  }

  struct Room {  // of one communicator
    explicit Room(std::size_t count) : members(count) {}
    const std::size_t members;  // ranks that are in it already read it while others enter
    std::mutex mutex;
    int64_t first = 0;  // number of open.front()
    std::deque<std::shared_ptr<LocalRendezvous>> open;
  };
  std::shared_ptr<Room> Enter(int32_t key, const std::vector<int64_t>& members) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Room>& room = rooms_[{key, members}];
    if (!room) room = std::make_shared<Room>(members.size());
    return room;
  }

  struct Mailbox {
    std::deque<LocalTransferPtr> sends, receives;
  };
  std::mutex mail_mutex;
  std::map<std::array<int64_t, 3>, Mailbox> mail;  // by sender, receiver, channel

  std::vector<std::atomic<uint64_t>> beats;  // by rank: counts its calls of Idle() and Test()
  std::atomic<bool> failed = false;

 private:
  mutable std::mutex mutex_;
  std::string failure_;
  std::map<std::pair<int32_t, std::vector<int64_t>>, std::shared_ptr<Room>> rooms_;
};

namespace {

using State = std::shared_ptr<LocalWorldState>;

// Waits for a flag that another thread sets; `owner` keeps the flag alive.
class Flagged : public Operation {
 public:
  Flagged(State state, std::shared_ptr<void> owner, const std::atomic<bool>* flag, int64_t rank)
      : state_(std::move(state)), owner_(std::move(owner)), flag_(flag), rank_(rank) {}

  bool Test() override {
    state_->beats[static_cast<std::size_t>(rank_)].fetch_add(1, std::memory_order_relaxed);
    if (flag_->load(std::memory_order_acquire)) return true;
    state_->ThrowIfFailed();
    return false;
  }

 private:
  State state_;
  std::shared_ptr<void> owner_;
  const std::atomic<bool>* flag_;
  int64_t rank_;
};

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(State state, std::shared_ptr<LocalWorldState::Room> room, std::size_t index,
                    int64_t rank)
      : state_(std::move(state)), room_(std::move(room)), index_(index), rank_(rank) {}

  OperationPtr Start(const Collective& collective) override {
    state_->ThrowIfFailed();
    const auto [rendezvous, last] = Arrive(collective);
    if (last) {
      CheckAlike(rendezvous->parts);
      Perform(rendezvous->parts);
      rendezvous->done.store(true, std::memory_order_release);
    }
    return std::make_unique<Flagged>(state_, rendezvous, &rendezvous->done, rank_);
  }

 private:
  std::pair<std::shared_ptr<LocalRendezvous>, bool> Arrive(const Collective& collective) {
    const std::lock_guard lock(room_->mutex);
    const auto at = static_cast<std::size_t>(next_++ - room_->first);
    while (room_->open.size() <= at)
      room_->open.push_back(std::make_shared<LocalRendezvous>(room_->members));
    std::shared_ptr<LocalRendezvous> rendezvous = room_->open[at];
    rendezvous->parts[index_] = collective;
    const bool last = ++rendezvous->arrived == room_->members;
    while (!room_->open.empty() && room_->open.front()->arrived == room_->members) {
      room_->open.pop_front();
      ++room_->first;
    }
    return {rendezvous, last};
  }

  State state_;
  std::shared_ptr<LocalWorldState::Room> room_;
  std::size_t index_;
  int64_t rank_;
  int64_t next_ = 0;
};

class LocalEndpoint : public Endpoint {
 public:
  LocalEndpoint(State state, int64_t rank) : state_(std::move(state)), rank_(rank) {}

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return static_cast<int64_t>(state_->beats.size()); }
  std::string host() const override { return OwnHost(); }

  CommunicatorPtr Join(int32_t key, const std::vector<int64_t>& members) override {
    std::size_t index = 0;
    while (index < members.size() && members[index] != rank_) ++index;
    if (index == members.size()) throw CommError("this rank is no member of the group");
    return std::make_unique<LocalCommunicator>(state_, state_->Enter(key, members), index, rank_);
  }

  OperationPtr Send(int64_t peer, int32_t channel, const void* bytes, int64_t n) override {
    return Post({rank_, peer, channel}, const_cast<void*>(bytes), n, true);
  }
  OperationPtr Receive(int64_t peer, int32_t channel, void* bytes, int64_t n) override {
    return Post({peer, rank_, channel}, bytes, n, false);
  }

  OperationPtr Barrier() override {
    if (!everybody_) {
      std::vector<int64_t> all(static_cast<std::size_t>(size()));
      std::iota(all.begin(), all.end(), 0);
      everybody_ = Join(-1, all);
    }
    return everybody_->Start({});
  }

  void Idle() override {
    state_->beats[static_cast<std::size_t>(rank_)].fetch_add(1, std::memory_order_relaxed);
    state_->ThrowIfFailed();
  }

  std::string Silent() override {
    std::vector<uint64_t> before;
    for (const auto& beat : state_->beats) before.push_back(beat.load());
    // Others may be listening too: who listens is not silent.
    for (int i = 0; i < 20; ++i) {
      ++state_->beats[static_cast<std::size_t>(rank_)];
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    state_->ThrowIfFailed();
    std::string silent;
    for (std::size_t r = 0; r < before.size(); ++r) {
      if (static_cast<int64_t>(r) == rank_ || state_->beats[r].load() != before[r]) continue;
      silent += fmt::format("{}rank {} on {}", silent.empty() ? "" : ", ", r, host());
    }
    return silent;
  }

  void Abort(const std::string& why) override { state_->Fail(why); }

 private:
  OperationPtr Post(std::array<int64_t, 3> key, void* bytes, int64_t n, bool sends) {
    state_->ThrowIfFailed();
    auto mine = std::make_shared<LocalTransfer>();
    mine->bytes = bytes;
    mine->n = n;
    if (const LocalTransferPtr other = Match(key, mine, sends)) {
      if (other->n != n) {
        throw CommError(fmt::format("{} bytes sent from rank {} where rank {} expects {}",
                                    sends ? n : other->n, key[0], key[1], sends ? other->n : n));
      }
      if (n > 0) {
        std::memcpy(sends ? other->bytes : bytes, sends ? bytes : other->bytes,
                    static_cast<std::size_t>(n));
      }
      mine->done.store(true, std::memory_order_release);
      other->done.store(true, std::memory_order_release);
    }
    return std::make_unique<Flagged>(state_, mine, &mine->done, rank_);
  }

  // The partner that waits already, else null: then `mine` waits.
  LocalTransferPtr Match(const std::array<int64_t, 3>& key, const LocalTransferPtr& mine,
                         bool sends) {
    const std::lock_guard lock(state_->mail_mutex);
    LocalWorldState::Mailbox& box = state_->mail[key];
    auto& partners = sends ? box.receives : box.sends;
    if (partners.empty()) {
      (sends ? box.sends : box.receives).push_back(mine);
      return nullptr;
    }
    LocalTransferPtr other = partners.front();
    partners.pop_front();
    return other;
  }

  State state_;
  int64_t rank_;
  CommunicatorPtr everybody_;
};

}  // namespace

LocalWorld::LocalWorld(int64_t ranks) : state_(std::make_shared<LocalWorldState>(ranks)) {}
LocalWorld::~LocalWorld() = default;

std::unique_ptr<Endpoint> LocalWorld::Connect(int64_t rank) {
  return std::make_unique<LocalEndpoint>(state_, rank);
}

std::string LocalWorld::failure() const { return state_->failure(); }

}  // namespace orrery::comm
