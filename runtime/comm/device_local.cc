// SPDX-License-Identifier: Apache-2.0
// Rendezvous of threads whose memory lies on one device.
#include "runtime/comm/device_local.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>

#include "runtime/comm/device_collectives.h"
#include "runtime/comm/local_collectives.h"

namespace orrery::comm {

// One collective of one communicator, or one transfer, until it is enqueued.
struct DeviceRendezvous {
  std::vector<Collective> parts;
  std::size_t arrived = 0;
  std::atomic<bool> enqueued = false;
};
using DeviceRendezvousPtr = std::shared_ptr<DeviceRendezvous>;

class DeviceWorldState {
 public:
  explicit DeviceWorldState(std::unique_ptr<DeviceQueue> device)
      : queue_(std::move(device)), pool_(queue_.get()) {}

  struct Room {
    std::vector<int64_t> begun;  // by member: collectives that it has started
    int64_t first = 0;           // number of open.front()
    std::deque<DeviceRendezvousPtr> open;
  };
  std::shared_ptr<Room> Enter(int32_t key, const std::vector<int64_t>& members) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Room>& room = rooms_[{key, members}];
    if (!room) room = std::make_shared<Room>();
    room->begun.resize(members.size());
    return room;
  }

  DeviceRendezvousPtr Arrive(Room* room, std::size_t index, const Collective& part) {
    const std::lock_guard lock(mutex_);
    const auto at = static_cast<std::size_t>(room->begun[index]++ - room->first);
    while (room->open.size() <= at) {
      room->open.push_back(std::make_shared<DeviceRendezvous>());
      room->open.back()->parts.resize(room->begun.size());
    }
    DeviceRendezvousPtr rendezvous = room->open[at];
    rendezvous->parts[index] = part;
    if (++rendezvous->arrived < rendezvous->parts.size()) return rendezvous;
    CheckAlike(rendezvous->parts);
    EnqueueCollective(rendezvous->parts, queue_.get(), &pool_);
    rendezvous->enqueued.store(true, std::memory_order_release);
    while (!room->open.empty() && room->open.front()->enqueued) {
      room->open.pop_front();
      ++room->first;
    }
    return rendezvous;
  }

  // Key: sender, receiver, channel. `part.n` bytes from `part.in`, or to `part.out`.
  DeviceRendezvousPtr Transfer(const std::array<int64_t, 3>& key, bool sends,
                               const Collective& part) {
    const std::lock_guard lock(mutex_);
    std::deque<DeviceRendezvousPtr>* mail = &mail_[key][sends ? 0 : 1];
    std::deque<DeviceRendezvousPtr>* partners = &mail_[key][sends ? 1 : 0];
    if (partners->empty()) {
      mail->push_back(std::make_shared<DeviceRendezvous>());
      mail->back()->parts = {part};
      return mail->back();
    }
    DeviceRendezvousPtr rendezvous = partners->front();
    partners->pop_front();
    const Collective& other = rendezvous->parts[0];
    if (other.n != part.n) {
      throw CommError(fmt::format("{} bytes sent from rank {} where rank {} expects {}",
                                  sends ? part.n : other.n, key[0], key[1],
                                  sends ? other.n : part.n));
    }
    Move(sends ? part : other, sends ? other : part);
    rendezvous->enqueued.store(true, std::memory_order_release);
    return rendezvous;
  }

 private:
  void Move(const Collective& from, const Collective& to) {
    void* const streams[] = {from.stream, to.stream};
    MeetStreams(streams, queue_.get(), &pool_);
    if (from.n > 0) queue_->Copy(to.out, from.in, from.n, to.stream);
    MeetStreams(streams, queue_.get(), &pool_);
  }

  std::unique_ptr<DeviceQueue> queue_;
  EventPool pool_;
  std::mutex mutex_;
  std::map<std::pair<int32_t, std::vector<int64_t>>, std::shared_ptr<Room>> rooms_;
  std::map<std::array<int64_t, 3>, std::array<std::deque<DeviceRendezvousPtr>, 2>> mail_;
};

namespace {

using DeviceStatePtr = std::shared_ptr<DeviceWorldState>;

class AwaitEnqueued : public Operation {
 public:
  explicit AwaitEnqueued(DeviceRendezvousPtr rendezvous) : rendezvous_(std::move(rendezvous)) {}
  bool Test() override { return rendezvous_->enqueued.load(std::memory_order_acquire); }

 private:
  DeviceRendezvousPtr rendezvous_;
};

class DeviceCommunicator : public Communicator {
 public:
  DeviceCommunicator(DeviceStatePtr state, std::shared_ptr<DeviceWorldState::Room> room,
                     std::size_t index, CommunicatorPtr host)
      : state_(std::move(state)), room_(std::move(room)), index_(index), host_(std::move(host)) {}

  OperationPtr Start(const Collective& c) override {
    if (c.stream == nullptr) return host_->Start(c);
    return std::make_unique<AwaitEnqueued>(state_->Arrive(room_.get(), index_, c));
  }

 private:
  DeviceStatePtr state_;
  std::shared_ptr<DeviceWorldState::Room> room_;
  std::size_t index_;
  CommunicatorPtr host_;
};

class DeviceEndpoint : public Endpoint {
 public:
  DeviceEndpoint(DeviceStatePtr state, Endpoint* control, std::unique_ptr<Endpoint> owned)
      : state_(std::move(state)), owned_(std::move(owned)), control_(control) {}

  int64_t rank() const override { return control_->rank(); }
  int64_t size() const override { return control_->size(); }
  std::string host() const override { return control_->host(); }
  void SetStream(void* stream) override { stream_ = stream; }

  CommunicatorPtr Join(int32_t key, const std::vector<int64_t>& members) override {
    CommunicatorPtr host = control_->Join(key, members);
    std::size_t index = 0;
    while (members[index] != rank()) ++index;
    return std::make_unique<DeviceCommunicator>(state_, state_->Enter(key, members), index,
                                                std::move(host));
  }

  OperationPtr Send(int64_t peer, int32_t channel, const void* bytes, int64_t n) override {
    if (stream_ == nullptr) return control_->Send(peer, channel, bytes, n);
    return Post({rank(), peer, channel}, true, bytes, nullptr, n);
  }
  OperationPtr Receive(int64_t peer, int32_t channel, void* bytes, int64_t n) override {
    if (stream_ == nullptr) return control_->Receive(peer, channel, bytes, n);
    return Post({peer, rank(), channel}, false, nullptr, bytes, n);
  }

  OperationPtr Barrier() override { return control_->Barrier(); }
  void Idle() override { control_->Idle(); }
  std::string Silent() override { return control_->Silent(); }
  void Abort(const std::string& why) override { control_->Abort(why); }

 private:
  OperationPtr Post(const std::array<int64_t, 3>& key, bool sends, const void* in, void* out,
                    int64_t n) {
    Collective part;
    part.in = in;
    part.out = out;
    part.n = n;
    part.stream = stream_;
    return std::make_unique<AwaitEnqueued>(state_->Transfer(key, sends, part));
  }

  DeviceStatePtr state_;
  std::unique_ptr<Endpoint> owned_;
  Endpoint* control_;
  void* stream_ = nullptr;
};

}  // namespace

DeviceWorld::DeviceWorld(std::unique_ptr<DeviceQueue> queue)
    : state_(std::make_shared<DeviceWorldState>(std::move(queue))) {}
DeviceWorld::~DeviceWorld() = default;

std::unique_ptr<Endpoint> DeviceWorld::Connect(std::unique_ptr<Endpoint> control) {
  Endpoint* endpoint = control.get();
  return std::make_unique<DeviceEndpoint>(state_, endpoint, std::move(control));
}
std::unique_ptr<Endpoint> DeviceWorld::Connect(Endpoint* control) {
  return std::make_unique<DeviceEndpoint>(state_, control, nullptr);
}

}  // namespace orrery::comm
