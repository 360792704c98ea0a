// SPDX-License-Identifier: Apache-2.0
// Who reads and writes what, between two points where the streams wait for each other: nobody reads what another writes.
#include "runtime/comm/device_collectives.h"

namespace orrery::comm {
namespace {

std::byte* At(void* base, int64_t bytes) { return static_cast<std::byte*>(base) + bytes; }
const std::byte* At(const void* base, int64_t bytes) {
  return static_cast<const std::byte*>(base) + bytes;
}

class Group {
 public:
  Group(std::span<const Collective> parts, DeviceQueue* queue, EventPool* pool)
      : parts_(parts),
        queue_(queue),
        pool_(pool),
        width_(ir::DtypeBytes(parts[0].dtype)),
        size_(static_cast<int64_t>(parts.size())) {
    for (const Collective& part : parts) streams_.push_back(part.stream);
  }

  void Meet() { MeetStreams(streams_, queue_, pool_); }

  // Each member sums its piece, then takes the others' pieces.
  void AllReduce() {
    const int64_t n = parts_[0].n;
    const auto begin = [&](int64_t c) { return PieceBegin(n, c, size_); };
    for (int64_t c = 0; c < size_; ++c)
      SumPiece(c, begin(c), begin(c + 1) - begin(c), Member(c).out, begin(c));
    Meet();
    for (int64_t c = 0; c < size_; ++c) {
      for (int64_t k = 0; k < size_; ++k) {
        if (k != c)
          Copy(c, At(Member(c).out, begin(k) * width_), At(Member(k).out, begin(k) * width_),
               begin(k + 1) - begin(k));
      }
    }
  }

  void ReduceScatter() {
    const int64_t n = parts_[0].n;
    for (int64_t c = 0; c < size_; ++c) SumPiece(c, c * n, n, Member(c).out, 0);
  }

  void AllGather() {
    const int64_t n = parts_[0].n;
    for (int64_t c = 0; c < size_; ++c) {
      for (int64_t k = 0; k < size_; ++k)
        Copy(c, At(Member(c).out, k * n * width_), Member(k).in, n);
    }
  }

  void AllToAll() {
    const int64_t n = parts_[0].n;
    for (int64_t c = 0; c < size_; ++c) {
      for (int64_t k = 0; k < size_; ++k)
        Copy(c, At(Member(c).out, k * n * width_), At(Member(k).in, c * n * width_), n);
    }
  }

  void Broadcast() {
    for (int64_t c = 0; c < size_; ++c)
      Copy(c, Member(c).out, Member(parts_[0].root).in, parts_[0].n);
  }

 private:
  const Collective& Member(int64_t c) const { return parts_[static_cast<std::size_t>(c)]; }

  void Copy(int64_t c, void* to, const void* from, int64_t n) {
    if (n > 0 && to != from) queue_->Copy(to, from, n * width_, Member(c).stream);
  }

  // Elements [at, at + n) of all inputs, from member c + 1 round to c, to element `to_at` of `to`.
  void SumPiece(int64_t c, int64_t at, int64_t n, void* to, int64_t to_at) {
    if (n == 0) return;
    std::vector<const void*> from;
    for (int64_t k = 1; k <= size_; ++k)
      from.push_back(At(Member((c + k) % size_).in, at * width_));
    queue_->Sum(At(to, to_at * width_), from, n, parts_[0].dtype, parts_[0].maximum,
                Member(c).stream);
  }

  std::span<const Collective> parts_;
  DeviceQueue* queue_;
  EventPool* pool_;
  int64_t width_, size_;
  std::vector<void*> streams_;
};

}  // namespace

EventPool::~EventPool() {
  for (void* event : free_) queue_->FreeEvent(event);
}

void* EventPool::Take() {
  if (free_.empty()) return queue_->MakeEvent();
  void* event = free_.back();
  free_.pop_back();
  return event;
}

void MeetStreams(std::span<void* const> streams, DeviceQueue* queue, EventPool* pool) {
  std::vector<void*> events;
  for (void* stream : streams) {
    events.push_back(pool->Take());
    queue->Record(events.back(), stream);
  }
  for (std::size_t s = 0; s < streams.size(); ++s) {
    for (std::size_t other = 0; other < streams.size(); ++other) {
      if (other != s) queue->Await(events[other], streams[s]);
    }
  }
  for (void* event : events) pool->Give(event);
}

void EnqueueCollective(std::span<const Collective> parts, DeviceQueue* queue, EventPool* pool) {
  Group group(parts, queue, pool);
  group.Meet();
  switch (parts[0].kind) {
    case CollectiveKind::kAllReduce:
      group.AllReduce();
      break;
    case CollectiveKind::kReduceScatter:
      group.ReduceScatter();
      break;
    case CollectiveKind::kAllGather:
      group.AllGather();
      break;
    case CollectiveKind::kAllToAll:
      group.AllToAll();
      break;
    case CollectiveKind::kBroadcast:
      group.Broadcast();
      break;
    case CollectiveKind::kBarrier:
      return;
  }
  group.Meet();
}

}  // namespace orrery::comm
