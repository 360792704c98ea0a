// SPDX-License-Identifier: Apache-2.0
// The segments of a ring collective: which come, where they go, and how they move.
#include "runtime/comm/ring.h"

#include <algorithm>
#include <cstring>

namespace orrery::comm {
namespace {

std::byte* ByteAt(void* base, int64_t bytes) { return static_cast<std::byte*>(base) + bytes; }
const std::byte* ByteAt(const void* base, int64_t bytes) {
  return static_cast<const std::byte*>(base) + bytes;
}
// Buffers of operations that are over: fresh memory costs a third of a ring of 1 MiB in page faults.
class SpareBuffers {
 public:
  std::vector<std::byte> Take(int64_t bytes) {
    std::vector<std::byte> buffer;
    if (!spare_.empty()) {
      buffer = std::move(spare_.back());
      spare_.pop_back();
    }
    if (buffer.size() < static_cast<std::size_t>(bytes))
      buffer.resize(static_cast<std::size_t>(bytes));
    return buffer;
  }
  void Give(std::vector<std::byte> buffer) {
    constexpr std::size_t kMost = 8, kLargest = std::size_t{16} << 20;
    if (!buffer.empty() && buffer.size() <= kLargest && spare_.size() < kMost)
      spare_.push_back(std::move(buffer));
  }

 private:
  std::vector<std::vector<std::byte>> spare_;
};

thread_local SpareBuffers spare_buffers;

void Move(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memmove(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace

RingOperation::RingOperation(RingTransport* transport, int rank, int size, int64_t segment_bytes,
                             const Collective& collective)
    : transport_(transport),
      rank_(rank),
      size_(size),
      next_((rank + 1) % size),
      c_(collective),
      width_(ir::DtypeBytes(collective.dtype)),
      segment_(segment_bytes / width_) {
  switch (c_.kind) {
    case CollectiveKind::kAllReduce:
      PlanAllReduce();
      break;
    case CollectiveKind::kReduceScatter:
      PlanReduceScatter();
      break;
    case CollectiveKind::kAllGather:
      PlanAllGather();
      break;
    case CollectiveKind::kBroadcast:
      PlanBroadcast();
      break;
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kBarrier:
      throw CommError("no ring does this collective");
  }
  Test();
}

// An operation that fails leaves its messages behind: the job ends anyway.
RingOperation::~RingOperation() {
  for (Incoming& in : incoming_) {
    if (in.request.open) transport_->Drop(&in.request);
  }
  bool idle = incoming_.empty();
  for (RingRequest& request : sending_) {
    idle &= !request.open;
    if (request.open) transport_->Drop(&request);
  }
  if (!idle) return;
  spare_buffers.Give(std::move(slots_));
  spare_buffers.Give(std::move(partial_));
}

int64_t RingOperation::Segments(int64_t n) const { return (n + segment_ - 1) / segment_; }

void RingOperation::AddSends(const std::byte* from, int64_t n) {
  for (int64_t at = 0; at < n; at += segment_)
    queued_.push_back({from + at * width_, std::min(segment_, n - at) * width_});
}

void RingOperation::AddUnits(std::byte* to, const std::byte* addend, int64_t n, bool forward,
                             int64_t sent_before) {
  for (int64_t at = 0; at < n; at += segment_) {
    units_.push_back({to + at * width_, addend == nullptr ? nullptr : addend + at * width_,
                      std::min(segment_, n - at), forward, sent_before});
    if (sent_before > 0 && c_.kind == CollectiveKind::kReduceScatter) ++sent_before;
  }
}

// Piece c of the sum starts at rank c + 1 and ends at rank c, from where it is handed round.
void RingOperation::PlanAllReduce() {
  if (size_ == 1) {
    Move(c_.out, c_.in, c_.n * width_);
    return;
  }
  int64_t sends = 0;
  const auto piece = [&](int back) { return (rank_ - back % size_ + size_) % size_; };
  const auto begin = [&](int p) { return ByteAt(c_.out, PieceBegin(c_.n, p, size_) * width_); };
  const auto input = [&](int p) { return ByteAt(c_.in, PieceBegin(c_.n, p, size_) * width_); };
  const auto length = [&](int p) {
    return PieceBegin(c_.n, p + 1, size_) - PieceBegin(c_.n, p, size_);
  };
  AddSends(input(piece(1)), length(piece(1)));
  sends += Segments(length(piece(1)));
  for (int step = 0; step + 1 < size_; ++step) {
    const int p = piece(2 + step);
    AddUnits(begin(p), input(p), length(p), true, 0);
    if (step + 2 < size_) sends += Segments(length(p));
  }
  for (int step = 0; step + 1 < size_; ++step) {
    const int p = piece(1 + step);
    AddUnits(begin(p), nullptr, length(p), step + 2 < size_, sends);
  }
}

// Partial sums wait in `partial_` until they are sent; the input stays as it is.
void RingOperation::PlanReduceScatter() {
  if (size_ == 1) {
    Move(c_.out, c_.in, c_.n * width_);
    return;
  }
  const auto piece = [&](int back) { return (rank_ - back % size_ + size_) % size_; };
  const auto input = [&](int p) { return ByteAt(c_.in, p * c_.n * width_); };
  if (size_ > 2) partial_ = spare_buffers.Take(c_.n * width_);
  AddSends(input(piece(1)), c_.n);
  const int64_t segments = Segments(c_.n);
  for (int step = 0; step + 1 < size_; ++step) {
    const bool last = step + 2 == size_;
    AddUnits(last ? ByteAt(c_.out, 0) : partial_.data(), input(piece(2 + step)), c_.n, !last,
             last || step == 0 ? 0 : step * segments + 1);
  }
}

void RingOperation::PlanAllGather() {
  const int64_t bytes = c_.n * width_;
  Move(ByteAt(c_.out, rank_ * bytes), c_.in, bytes);
  if (size_ == 1) return;
  AddSends(ByteAt(c_.out, rank_ * bytes), c_.n);
  for (int step = 0; step + 1 < size_; ++step) {
    const int p = (rank_ - 1 - step + 2 * size_) % size_;
    AddUnits(ByteAt(c_.out, p * bytes), nullptr, c_.n, step + 2 < size_, 0);
  }
}

void RingOperation::PlanBroadcast() {
  if (rank_ == c_.root) {
    Move(c_.out, c_.in, c_.n * width_);
    if (size_ > 1) AddSends(ByteAt(c_.out, 0), c_.n);
  } else {
    AddUnits(ByteAt(c_.out, 0), nullptr, c_.n, next_ != c_.root, 0);
  }
}

bool RingOperation::Test() {
  for (bool moved = true; moved;) {
    moved = MoveSends();
    moved |= PostReceives();
    moved |= TakeArrived();
  }
  return taken_ == units_.size() && queued_.empty() && sending_.empty();
}

bool RingOperation::PostReceives() {
  bool moved = false;
  while (posted_ < units_.size() && incoming_.size() < kWindow) {
    const RingUnit& unit = units_[posted_];
    Incoming in;
    std::byte* to = unit.to;
    if (unit.addend != nullptr) {
      if (slots_.empty()) {
        slots_ = spare_buffers.Take(static_cast<int64_t>(kWindow) * segment_ * width_);
        for (std::size_t s = 0; s < kWindow; ++s) free_slots_.push_back(static_cast<int>(s));
      }
      in.slot = free_slots_.back();  // as many as receives are posted at most
      free_slots_.pop_back();
      to = slots_.data() + in.slot * segment_ * width_;
    } else if (sent_ < unit.sent_before) {
      return moved;
    }
    in.request = transport_->Receive(to, unit.n * width_);
    incoming_.push_back(in);
    ++posted_;
    moved = true;
  }
  return moved;
}

bool RingOperation::TakeArrived() {
  bool moved = false;
  while (!incoming_.empty()) {
    Incoming& in = incoming_.front();
    const RingUnit& unit = units_[taken_];
    if (in.request.open && !transport_->Done(&in.request)) return moved;
    if (unit.addend != nullptr) {
      if (sent_ < unit.sent_before) return moved;
      Reduce(unit.to, slots_.data() + in.slot * segment_ * width_, unit.addend, unit.n, c_.dtype,
             c_.maximum);
      free_slots_.push_back(in.slot);
    }
    if (unit.forward) queued_.push_back({unit.to, unit.n * width_});
    incoming_.pop_front();
    ++taken_;
    moved = true;
  }
  return moved;
}

bool RingOperation::MoveSends() {
  bool moved = false;
  while (!sending_.empty()) {
    if (!transport_->Done(&sending_.front())) break;
    sending_.pop_front();
    ++sent_;
    moved = true;
  }
  while (!queued_.empty() && sending_.size() < kWindow) {
    const RingSend& send = queued_.front();
    sending_.push_back(transport_->Send(send.from, send.bytes));
    queued_.pop_front();
    moved = true;
  }
  return moved;
}

}  // namespace orrery::comm
