// SPDX-License-Identifier: Apache-2.0
// One thread, one epoll: TAP devices, a timer for the simulated network, signals.
//
// Devices are level-triggered. The timer is edge-triggered, so that it need not be read, and is armed
// anew, in absolute time, after each round in which it has fired or has something else to wait for:
// neither a frame nor a wake-up can be lost between two rounds.
#include "runtime/lab/switch_loop.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <ctime>

#include "runtime/lab/error.h"

namespace orrery::lab {
namespace {

constexpr int kMostPerRound = 64;  // frames of one device before the others get their turn
constexpr Nanoseconds kSecond = 1'000'000'000;
constexpr uint8_t kDataNet = 1, kControlNet = 2;
constexpr std::size_t kNodeByte = 5;

Nanoseconds Now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

// The node that a frame is for; -1: all, or nobody here.
int Destination(const std::byte* frame, uint8_t net) {
  const MacAddress wanted = MacOf(net == kControlNet, 0);
  if (std::memcmp(frame, wanted.data(), kNodeByte) != 0) return -1;
  return std::to_integer<int>(frame[kNodeByte]) - 1;
}

// virtio_net_hdr of the kernel's interface, whose own header is no C++.
struct OffloadHeader {
  uint8_t flags, gso_type;  // gso_type 0: one frame
  uint16_t hdr_len, gso_size, csum_start, csum_offset;
};

// Ethernet, IPv4 and TCP headers of a train's first frame.
int64_t HeadersOf(const Frame& frame) {
  constexpr std::size_t kTcpLength = 12;  // where it stands in the TCP header
  const auto words = [&](std::size_t at, int shift) {
    return at < frame.bytes.size() ? (std::to_integer<int64_t>(frame.bytes[at]) >> shift & 0xf) * 4
                                   : 0;
  };
  const int64_t ip = words(kFrameHeader, 0);
  return kFrameHeader + ip + words(static_cast<std::size_t>(kFrameHeader + ip) + kTcpLength, 4);
}

bool IsBroadcast(const std::byte* frame) { return (std::to_integer<int>(frame[0]) & 1) != 0; }

class Loop {
 public:
  Loop(const Settings& settings, const Wiring& wiring, PortCounters* counters)
      : wiring_(wiring),
        switch_(settings, counters,
                [this](const Frame& frame, Nanoseconds) { Deliver(DataTap(frame.to), frame); }),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
        nodes_(settings.nodes) {
    sigset_t ends;
    sigemptyset(&ends);
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&ends, number);
    signals_ = Descriptor(signalfd(-1, &ends, SFD_CLOEXEC));
    Watch(timer_.get(), kTimer);
    Watch(signals_.get(), kSignal);
    for (int node = 0; node < nodes_; ++node) Watch(DataTap(node), node);
    for (int node = 0; node <= nodes_; ++node) Watch(ControlTap(node), kControl + node);
  }

  void Run() {
    epoll_event ready[2 * kMostNodes + 8];
    for (;;) {
      const int count = epoll_wait(epoll_.get(), ready, std::size(ready), -1);
      for (int i = 0; i < count; ++i) {
        const int what = ready[i].data.fd;
        if (what == kSignal) return;
        if (what == kTimer) {
          armed_.reset();
        } else if (what >= kControl) {
          ForwardControl(what - kControl);
        } else {
          TakeFrames(what);
        }
      }
      switch_.Advance(Now());
      ArmTimer();
    }
  }

 private:
  static constexpr int kControl = 1000, kTimer = 2000, kSignal = 2001;

  int DataTap(int node) const { return wiring_.data[static_cast<std::size_t>(node)].get(); }
  int ControlTap(int node) const { return wiring_.control[static_cast<std::size_t>(node)].get(); }

  void Watch(int fd, int what) {
    epoll_event event = {};
    event.events = what == kTimer ? EPOLLIN | EPOLLET : EPOLLIN;
    event.data.fd = what;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw LabError("epoll fails");
  }

  // A full receiver loses the frame, as a real one would.
  static void Write(int tap, const Frame& frame) {
    if (write(tap, frame.bytes.data(), static_cast<std::size_t>(frame.size)) < 0) return;
  }

  static void Deliver(int tap, const Frame& frame) {
    const iovec parts[] = {
        {const_cast<std::byte*>(frame.offload.data()), frame.offload.size()},
        {const_cast<std::byte*>(frame.bytes.data()), static_cast<std::size_t>(frame.size)}};
    if (writev(tap, parts, 2) < 0) return;
  }

  // From a device that speaks of offloads: perhaps a train of frames.
  static bool ReadTrain(int tap, Frame* frame) {
    const iovec parts[] = {{frame->offload.data(), frame->offload.size()},
                           {frame->bytes.data(), frame->bytes.size()}};
    frame->size = readv(tap, parts, 2) - static_cast<ssize_t>(frame->offload.size());
    if (frame->size < kFrameHeader) return false;
    OffloadHeader header;
    static_assert(sizeof header == sizeof frame->offload);
    std::memcpy(&header, frame->offload.data(), sizeof header);
    frame->segments = 1;
    frame->headers = HeadersOf(*frame);
    if (header.gso_type == 0 || header.gso_size == 0) return true;
    const int64_t payload = frame->size - frame->headers;
    frame->segments = std::max<int64_t>(1, (payload + header.gso_size - 1) / header.gso_size);
    return true;
  }

  bool Read(int tap, Frame* frame) {
    const ssize_t got = read(tap, frame->bytes.data(), frame->bytes.size());
    frame->size = got;
    return got >= kFrameHeader;
  }

  void TakeFrames(int node) {
    for (int i = 0; i < kMostPerRound; ++i) {
      FramePtr frame = switch_.MakeFrame();
      if (!ReadTrain(DataTap(node), frame.get())) {
        switch_.Recycle(std::move(frame));
        return;
      }
      frame->from = node;
      if (IsBroadcast(frame->bytes.data())) {
        Broadcast(*frame);
        switch_.Recycle(std::move(frame));
        continue;
      }
      frame->to = Destination(frame->bytes.data(), kDataNet);
      if (frame->to >= 0 && frame->to < nodes_) {
        switch_.Accept(std::move(frame), Now());
      } else {
        switch_.Recycle(std::move(frame));
      }
    }
  }

  void Broadcast(const Frame& frame) {
    for (int node = 0; node < nodes_; ++node) {
      if (node == frame.from) continue;
      FramePtr copy = switch_.MakeFrame();
      *copy = frame;
      copy->to = node;
      switch_.Accept(std::move(copy), Now());
    }
  }

  void ForwardControl(int from) {
    for (int i = 0; i < kMostPerRound && Read(ControlTap(from), &control_frame_); ++i) {
      int to = Destination(control_frame_.bytes.data(), kControlNet);
      if (to == kMostNodes) to = nodes_;
      for (int node = 0; node <= nodes_; ++node) {
        const bool meant = node == to || (to < 0 && IsBroadcast(control_frame_.bytes.data()));
        if (meant && node != from) Write(ControlTap(node), control_frame_);
      }
    }
  }

  void ArmTimer() {
    const std::optional<Nanoseconds> next = switch_.NextEvent();
    if (next == armed_) return;
    armed_ = next;
    itimerspec when = {};
    if (next) {
      when.it_value.tv_sec = *next / kSecond;
      when.it_value.tv_nsec = *next % kSecond;
    }
    timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
  }

  const Wiring& wiring_;
  Switch switch_;
  Descriptor epoll_, timer_, signals_;
  int nodes_;
  std::optional<Nanoseconds> armed_;
  Frame control_frame_;
};

}  // namespace

MacAddress MacOf(bool control, int node) {
  return {2, 0x6f, 0x72, 0, control ? kControlNet : kDataNet, static_cast<uint8_t>(node + 1)};
}

void RunSwitch(const Settings& settings, const Wiring& wiring, PortCounters* counters) {
  sched_param priority = {};
  priority.sched_priority = 1;
  sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &priority);  // better, not necessary
  Loop(settings, wiring, counters).Run();
}

}  // namespace orrery::lab
