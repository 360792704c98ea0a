// SPDX-License-Identifier: Apache-2.0
// A network of links in simulated time: what leaves a node arrives at another one, later.
//
// A frame crosses the sender's link, with racks the trunks of both racks, and the receiver's link.
// Each link carries one frame at a time at its rate, in order of arrival; the next link may begin as
// soon as the first one has begun (cut-through), so that a lone frame of S bytes takes
// latency + S / rate. Queues in front of trunks and receivers drop what exceeds their limit; the
// sender's own queue is the node's memory and drops only beyond kSenderQueue. Small frames
// (acknowledgements, address resolution) pass the queues, unless Settings::fifo: they still use up
// the links' rate. Bytes on the wire include kFrameOverhead.
//
// Nothing here reads a clock: times are nanoseconds that the caller gives, never falling.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <vector>

#include "runtime/lab/settings.h"

namespace orrery::lab {

inline constexpr int64_t kSmallFrame = 128;                                  // bytes, at most
inline constexpr int64_t kSenderQueue = int64_t{64} << 20;                   // bytes
inline constexpr int64_t kLargestFrame = (int64_t{1} << 16) + kFrameHeader;  // bytes: 64 KiB of IP

using Nanoseconds = int64_t;

struct Frame {
  std::array<std::byte, kLargestFrame> bytes;
  int64_t size = 0;
  // A train of frames that the sender's network card would cut (TCP segmentation offload): so many
  // frames, each with a copy of the first one's headers. They cross a link as one.
  int64_t segments = 1;
  int64_t headers = 0;  // bytes in front of the payload; told apart only where segments > 1
  std::array<std::byte, 10> offload = {};  // what the device says of it (virtio_net_hdr)
  int from = 0, to = 0;                    // nodes
  int hop = 0;                             // links already crossed
  Nanoseconds tail = 0;                    // when its last byte has crossed them

  int64_t on_wire() const { return size + (segments - 1) * headers + segments * kFrameOverhead; }
};
using FramePtr = std::unique_ptr<Frame>;

// What has happened to frames that were sent to or from a node. Plain numbers: lies in shared memory.
struct PortCounters {
  int64_t frames = 0, bytes = 0;  // delivered to this node
  int64_t dropped = 0;            // on their way to this node
  int64_t deepest_queue = 0;      // bytes waiting for this node's link at most
};

class Switch {
 public:
  // `counters`: one per node. `deliver` is called in order of time.
  Switch(const Settings& settings, PortCounters* counters,
         std::function<void(const Frame& frame, Nanoseconds when)> deliver);

  ~Switch();
  Switch(const Switch&) = delete;
  Switch& operator=(const Switch&) = delete;

  FramePtr MakeFrame();  // recycled ones first
  void Recycle(FramePtr frame) { spare_.push_back(std::move(frame)); }

  // A frame leaves node `from` for `to` (0 <= both < nodes). Everything up to `now` happens first.
  void Accept(FramePtr frame, Nanoseconds now);
  // Everything up to `now` happens.
  void Advance(Nanoseconds now);
  // Until when there is nothing to do, unless frames come; nullopt: for ever. Links that become free
  // by then need no call: what follows from that is seen a latency later at the earliest, and
  // Advance() reckons with the time at which it happened.
  std::optional<Nanoseconds> NextEvent() const;

 private:
  struct Link {
    double ns_per_byte = 0;
    int64_t limit = 0;    // bytes waiting
    int64_t waiting = 0;  // bytes
    Nanoseconds busy_until = 0;
    bool event_set = false;  // it will be looked at when it becomes free
    std::deque<FramePtr> queue;
  };
  struct Event {
    Nanoseconds when;
    int64_t order;  // of equal times, the first one first
    int link;       // becomes free, or
    Frame* frame;   // arrives; owned by the event, see ~Switch
    bool operator>(const Event& o) const {
      return when != o.when ? when > o.when : order > o.order;
    }
  };

  int LinkAt(const Frame& frame) const;  // the one it must cross next; -1: it is through
  void Move(FramePtr frame, Nanoseconds now);
  void Pass(FramePtr frame, Nanoseconds now);
  void Begin(int link, Nanoseconds now);
  void Wake(int link, Nanoseconds when);
  void Arrive(FramePtr frame);
  void Drop(FramePtr frame);
  void Deliver();   // the first of arrivals_
  void FreeLink();  // the first of free_links_
  static Nanoseconds Duration(const Link& link, const Frame& frame);

  Settings settings_;
  PortCounters* counters_;
  std::function<void(const Frame&, Nanoseconds)> deliver_;
  Nanoseconds latency_;
  std::vector<Link> links_;  // up of each node, down of each node, up and down of each rack
  using EventQueue = std::priority_queue<Event, std::vector<Event>, std::greater<>>;
  EventQueue arrivals_, free_links_;
  int64_t order_ = 0;
  std::vector<FramePtr> spare_;
};

}  // namespace orrery::lab
