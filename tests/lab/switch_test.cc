// SPDX-License-Identifier: Apache-2.0
// The switch on simulated time: rates, latency, trunks, queues, small frames.
#include "runtime/lab/switch.h"

#include <gtest/gtest.h>

#include <map>

namespace orrery::lab {
namespace {

constexpr Nanoseconds kUs = 1000;
constexpr int64_t kBulk = 8976;  // 9000 on the wire: 360 us at 200 Mbit/s
constexpr Nanoseconds kBulkTime = 360 * kUs, kLatency = 100 * kUs;

Settings Nodes(int nodes) {
  Settings settings;
  settings.nodes = nodes;
  return settings;
}

struct Arrival {
  int from, to;
  int64_t size;
  Nanoseconds when;
};

// A switch that notes what arrives and when.
class Lab {
 public:
  explicit Lab(const Settings& settings)
      : counters(static_cast<std::size_t>(settings.nodes)),
        net(settings, counters.data(), [this](const Frame& frame, Nanoseconds when) {
          arrivals.push_back({frame.from, frame.to, frame.size, when});
        }) {}

  void Send(int from, int to, int64_t size, Nanoseconds now) {
    FramePtr frame = net.MakeFrame();
    frame->from = from;
    frame->to = to;
    frame->size = size;
    net.Accept(std::move(frame), now);
  }

  // As the real loop does: awake only when the switch asks for it.
  void Finish() {
    while (const auto next = net.NextEvent()) net.Advance(*next);
  }

  std::vector<PortCounters> counters;
  std::vector<Arrival> arrivals;
  Switch net;
};

TEST(Switch, TrainTakesTheTimeOfItsFrames) {
  Lab lab(Nodes(2));
  FramePtr frame = lab.net.MakeFrame();
  frame->from = 0, frame->to = 1;
  frame->headers = 66;
  frame->segments = 3;
  frame->size = 66 + 3 * (kBulk - 66);
  lab.net.Accept(std::move(frame), 0);
  lab.Finish();
  ASSERT_EQ(lab.arrivals.size(), 1U);
  EXPECT_EQ(lab.arrivals[0].when, 3 * kBulkTime + kLatency);
  EXPECT_EQ(lab.counters[1].frames, 3);
}

TEST(Switch, LoneFrameTakesLatencyAndItsTimeAtTheRate) {
  Lab lab(Nodes(2));
  lab.Send(0, 1, kBulk, 5 * kUs);
  lab.Finish();
  ASSERT_EQ(lab.arrivals.size(), 1U);
  EXPECT_EQ(lab.arrivals[0].when, 5 * kUs + kBulkTime + kLatency);
}

TEST(Switch, NothingArrivesEarly) {
  Lab lab(Nodes(2));
  lab.Send(0, 1, kBulk, 0);
  lab.net.Advance(kBulkTime + kLatency - 1);
  EXPECT_TRUE(lab.arrivals.empty());
  lab.net.Advance(kBulkTime + kLatency);
  EXPECT_EQ(lab.arrivals.size(), 1U);
}

TEST(Switch, BulkIsPacedAtTheLinksRateInOrder) {
  Lab lab(Nodes(2));
  for (int i = 0; i < 100; ++i) lab.Send(0, 1, kBulk - i, 0);
  lab.Finish();
  ASSERT_EQ(lab.arrivals.size(), 100U);
  Nanoseconds due = kLatency;
  for (int i = 0; i < 100; ++i) {
    due += (kBulk - i + kFrameOverhead) * 40;  // 40 ns a byte
    EXPECT_EQ(lab.arrivals[static_cast<std::size_t>(i)].size, kBulk - i);
    EXPECT_EQ(lab.arrivals[static_cast<std::size_t>(i)].when, due);
  }
}

TEST(Switch, DirectionsAndPairsDoNotDisturbEachOther) {
  Lab lab(Nodes(4));
  for (int i = 0; i < 10; ++i)
    for (int node = 0; node < 4; ++node) lab.Send(node, node ^ 1, kBulk, 0);
  lab.Finish();
  EXPECT_EQ(lab.arrivals.back().when, 10 * kBulkTime + kLatency);
}

TEST(Switch, ManyToOneShareTheReceiversLink) {
  Lab lab(Nodes(4));
  for (int i = 0; i < 10; ++i)
    for (int node = 1; node < 4; ++node) lab.Send(node, 0, kBulk, 0);
  lab.Finish();
  ASSERT_EQ(lab.arrivals.size(), 30U);
  EXPECT_EQ(lab.arrivals.back().when, 30 * kBulkTime + kLatency);
  std::map<int, int> first_half;
  for (int i = 0; i < 15; ++i) ++first_half[lab.arrivals[static_cast<std::size_t>(i)].from];
  for (int node = 1; node < 4; ++node) EXPECT_EQ(first_half[node], 5) << "node " << node;
}

TEST(Switch, OversubscribedTrunkIsTheNarrowest) {
  Settings settings = Nodes(4);
  settings.racks = 2;
  settings.oversubscription = 4;  // two nodes behind half a link
  Lab inside(settings), across(settings);
  for (int i = 0; i < 10; ++i) inside.Send(0, 1, kBulk, 0);
  for (int i = 0; i < 10; ++i) across.Send(0, 2, kBulk, 0);
  inside.Finish();
  across.Finish();
  EXPECT_EQ(inside.arrivals.back().when, 10 * kBulkTime + kLatency);
  EXPECT_EQ(across.arrivals.back().when, 20 * kBulkTime + kLatency);
}

TEST(Switch, TrunkWithoutOversubscriptionCarriesAllNodesOfItsRack) {
  Settings settings = Nodes(4);
  settings.racks = 2;
  Lab lab(settings);
  for (int i = 0; i < 10; ++i) {
    lab.Send(0, 2, kBulk, 0);
    lab.Send(1, 3, kBulk, 0);
  }
  lab.Finish();
  EXPECT_NEAR(static_cast<double>(lab.arrivals.back().when),
              static_cast<double>(10 * kBulkTime + kLatency), static_cast<double>(kBulkTime));
}

TEST(Switch, QueueOfTheReceiverDropsWhatExceedsIt) {
  Settings settings = Nodes(3);
  settings.queue = Bytes(20 * kBulk);
  Lab lab(settings);
  for (int i = 0; i < 100; ++i) {
    lab.Send(1, 0, kBulk, 0);
    lab.Send(2, 0, kBulk, 0);
  }
  lab.Finish();
  const PortCounters& port = lab.counters[0];
  EXPECT_EQ(port.frames + port.dropped, 200);
  EXPECT_EQ(port.frames, static_cast<int64_t>(lab.arrivals.size()));
  // Of the second sender, half of what comes finds no place once the queue is full.
  EXPECT_NEAR(static_cast<double>(port.dropped), 80, 3);
  EXPECT_LE(port.deepest_queue, 20 * kBulk);
}

TEST(Switch, SendersOwnQueueDropsNothing) {
  Settings settings = Nodes(2);
  settings.queue = Bytes(2 * kBulk);
  Lab lab(settings);
  for (int i = 0; i < 1000; ++i) lab.Send(0, 1, kBulk, 0);
  lab.Finish();
  EXPECT_EQ(lab.arrivals.size(), 1000U);
  EXPECT_EQ(lab.counters[1].dropped, 0);
}

TEST(Switch, SmallFramesPassBulkUnlessFifo) {
  for (const bool fifo : {false, true}) {
    Settings settings = Nodes(2);
    settings.fifo = fifo;
    Lab lab(settings);
    for (int i = 0; i < 10; ++i) lab.Send(0, 1, kBulk, 0);
    lab.Send(0, 1, 66, 0);
    lab.Finish();
    const Arrival& small = fifo ? lab.arrivals.back() : lab.arrivals.front();
    EXPECT_EQ(small.size, 66);
    const Nanoseconds own = (66 + kFrameOverhead) * 40;
    EXPECT_EQ(small.when, kLatency + own + (fifo ? 10 * kBulkTime : 0)) << "fifo " << fifo;
  }
}

TEST(Switch, SmallFramesUseUpTheRate) {
  Lab lab(Nodes(2));
  lab.Send(0, 1, kBulk, 0);
  for (int i = 0; i < 100; ++i) lab.Send(0, 1, 101, 0);  // 125 bytes on the wire: 5 us
  lab.Send(0, 1, kBulk, 0);
  lab.Finish();
  EXPECT_EQ(lab.arrivals.back().when, 2 * kBulkTime + 500 * kUs + kLatency);
}

// Frames come while others are under way, at odd moments: a caller that is called only when
// NextEvent() says so sees the same dates as one that looks every microsecond.
TEST(Switch, WakingOnlyWhenAskedChangesNoDate) {
  Settings settings = Nodes(4);
  settings.racks = 2;
  settings.oversubscription = 2;
  Lab lazy(settings), busy(settings);
  uint32_t random = 1;
  Nanoseconds now = 0;
  for (int i = 0; i < 2000; ++i) {
    random = random * 1664525 + 1013904223;
    const Nanoseconds next = now + random % 400'000;
    const int from = static_cast<int>(random >> 8 & 3);
    const int64_t size = (random >> 12 & 1) != 0 ? 66 : 200 + (random >> 16 & 4095);
    for (; now < next; now += kUs) busy.net.Advance(now);
    for (auto due = lazy.net.NextEvent(); due && *due <= next; due = lazy.net.NextEvent())
      lazy.net.Advance(*due);
    now = next;
    for (Lab* lab : {&lazy, &busy}) lab->Send(from, (from + 1 + i % 3) % 4, size, now);
  }
  lazy.Finish();
  busy.Finish();
  ASSERT_EQ(lazy.arrivals.size(), 2000U);
  ASSERT_EQ(busy.arrivals.size(), 2000U);
  for (std::size_t i = 0; i < lazy.arrivals.size(); ++i) {
    ASSERT_EQ(lazy.arrivals[i].when, busy.arrivals[i].when) << i;
    ASSERT_EQ(lazy.arrivals[i].from, busy.arrivals[i].from) << i;
  }
}

TEST(Switch, EndsCleanlyWithFramesUnderWay) {
  Lab lab(Nodes(2));
  for (int i = 0; i < 10; ++i) lab.Send(0, 1, i % 2 == 0 ? kBulk : 66, 0);
  EXPECT_TRUE(lab.net.NextEvent().has_value());
}

}  // namespace
}  // namespace orrery::lab
