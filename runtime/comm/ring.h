// SPDX-License-Identifier: Apache-2.0
// Ring collectives over point-to-point messages, in segments, driven forward by Test().
//
// Each rank receives from its predecessor and sends to its successor only. Every segment is passed
// on as soon as it is there; a few receives are posted ahead. Wire bytes per rank: 2 (g - 1) / g *
// S for all_reduce, (g - 1) / g * S for all_gather and reduce_scatter of S bytes in all (Patarasuk
// and Yuan 2009).
#pragma once

#include <deque>
#include <vector>

#include "runtime/comm/communicator.h"

namespace orrery::comm {

inline constexpr int64_t kSegmentBytes = int64_t{128} << 10;
inline constexpr int64_t kHostSegmentBytes = int64_t{256} << 10;  // where all members share memory
inline constexpr std::size_t kWindow = 4;  // receives posted, and sends under way

// A message under way, as its transport knows it.
struct RingRequest {
  std::uintptr_t bits = 0;
  bool open = false;
};

// First in, first out, in both directions. Outlives the operations that use it.
class RingTransport {
 public:
  virtual ~RingTransport() = default;
  virtual RingRequest Send(const void* bytes, int64_t n) = 0;  // to the successor
  virtual RingRequest Receive(void* bytes, int64_t n) = 0;     // from the predecessor
  virtual bool Done(RingRequest* request) = 0;                 // true: no longer open
  virtual void Drop(RingRequest* request) = 0;
};

// One segment that comes in, in the order of arrival.
struct RingUnit {
  std::byte* to = nullptr;            // where it ends up
  const std::byte* addend = nullptr;  // reduce: to = received + addend; null: received as it is
  int64_t n = 0;                      // elements
  bool forward = false;               // goes on to the successor, from `to`
  int64_t sent_before = 0;            // sends that must be complete before `to` is written
};
struct RingSend {
  const std::byte* from;
  int64_t bytes;
};

class RingOperation : public Operation {
 public:
  RingOperation(RingTransport* transport, int rank, int size, int64_t segment_bytes,
                const Collective& collective);
  ~RingOperation() override;
  bool Test() override;

 private:
  struct Incoming {
    RingRequest request;
    int slot = -1;  // -1: straight into its place
  };

  void PlanAllReduce();
  void PlanReduceScatter();
  void PlanAllGather();
  void PlanBroadcast();
  void AddSends(const std::byte* from, int64_t n);
  void AddUnits(std::byte* to, const std::byte* addend, int64_t n, bool forward,
                int64_t sent_before);
  int64_t Segments(int64_t n) const;

  bool PostReceives();
  bool TakeArrived();
  bool MoveSends();

  RingTransport* transport_;
  int rank_, size_, next_;
  Collective c_;
  int64_t width_, segment_;  // bytes of an element, elements of a segment

  std::vector<RingUnit> units_;
  std::size_t posted_ = 0, taken_ = 0;
  std::deque<Incoming> incoming_;
  std::deque<RingSend> queued_;
  std::deque<RingRequest> sending_;
  int64_t sent_ = 0;
  std::vector<std::byte> slots_, partial_;
  std::vector<int> free_slots_;
};

}  // namespace orrery::comm
