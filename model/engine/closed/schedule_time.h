// SPDX-License-Identifier: Apache-2.0
// Time of a pipeline's schedule where no formula is exact: transfers that take as long as passes, hosts that wait.
//
// A recurrence over the passes k of each stage, in the order of the schedule:
//   C(k) = max(S(k) + device, H(k) + behind)    a pass ends when its kernels have run, each behind its issue
//   S(k) = max(C(k-1), A(k), H(k))              it starts behind the one before, with its tensor, when the host is there
//   E(k) = max(C(k-1), H(k)) + early            but for what wants no tensor: then S(k) = max(E(k), A(k)), less of both
//   A(k) = max(C of the sender, R(k), A(k-1)) + transfer; of a gradient, C less what the sender scatters behind it
//   R(k) = H(k)                                 the receive is posted
// A pass of no layers keeps no device waiting: of the last stage's layers, if there are none, the head waits for the tensor.
// What a pass gathers for its second layer travels while it waits for its tensor, too: of a late one only the rest is left.
//   H(k) = H(k-1) + host                        the host has issued pass k-1; where it waits: S(k-1) + host
// Slots: a stage keeps two tensors that it sends, and two gradients that it receives, of each chunk.
// Activations on the host: a stage's layers leave theirs in two places in turn, whatever the chunk. A layer ends its forward pass no
// earlier than what lay there has gone; what comes back takes these places behind it and behind the last backward pass, and no
// earlier than the host issues it: in front of what waits for a gradient, but behind the gather of one that ranks of a layer share
// (`gathers_received`). Backward passes wait until all of the last forward pass has gone.
// Steps of more than four times as many micro-batches as stages repeat a round of the steady state; what a round of
// stages takes there stands for the others. In a V, whose rounds differ for long, and where forward passes all run first, many are
// walked, and the others take what these take more than half as many: in a V of 16 stages the rounds in the middle are up to a
// tenth longer than later ones.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "model/engine/closed/pass_graph.h"

namespace orrery {

// A layer of a pass whose activations may go to the host behind its forward pass and come back in front of its backward pass.
struct MovedLayer {
  double forward = 0, backward = 0, copy = 0;  // seconds; of the copy, one way
  bool moves = false;
  bool operator==(const MovedLayer&) const = default;
};

// Seconds of one pass of a chunk: [forward, backward, weight gradient].
struct PassSeconds {
  std::array<double, 3> device{}, host{};
  std::array<double, 3>
      behind{};  // from when the host begins to issue a pass until the device ends it, were it idle
  // Of it, what runs in front of the tensor that the pass receives: weights gathered, layers recomputed.
  std::array<double, 3> early{}, early_host{};
  // Of `early`, messages that no kernel follows: who waits for a tensor meanwhile waits for what comes last of both.
  std::array<double, 3> gathered{};
  // Weights gathered in front of a pass, into a slot of the stage's ring: while the pass before still runs, where that does not
  // hold the slot. Of `early`; what it costs kernels that run meanwhile; which slot; of the last layer: its slot, its seconds.
  std::array<double, 3> gather{}, layer{};
  double gather_lost = 0;
  std::array<int, 3> first_slot{-1, -1, -1}, last_slot{-1, -1, -1};
  // Weights of the second layer, gathered while the pass waits for its tensor: of each kind seconds, what they add to the first
  // layer's where the tensor is early; what a second of them costs its kernels.
  std::array<double, 3> second{}, second_shown{};
  double second_lost = 0;
  double first = 0;  // more of the first micro-batch's forward pass on the device
  double last = 0;   // more of the last micro-batch's backward pass
  // Of the backward pass, behind the gradient that it passes on: the last scatter.
  double after = 0;
  std::vector<MovedLayer> layers;  // empty: none moves
  bool operator==(const PassSeconds&) const = default;
};

struct PipelineTimes {
  PassRules order;
  int stages = 2, chunks = 1, micro_batches = 1;
  std::vector<PassSeconds> passes;  // by virtual stage
  bool host_waits =
      true;  // for what it receives or loads; the backward pass of the head receives nothing
  // What a pass receives is gathered in front of all else, copies from the host too.
  bool gathers_received = false;
  int on_node = 1;                 // neighbouring stages on one node
  double inside = 0, between = 0;  // seconds of a transfer, as StageMessages
  // By stage, instead: of one to the next stage, of the last one to the first. Empty: as they say.
  std::vector<double> hops;
  // Likewise, of the one rank whose time is accounted for. What others of its layer receive later holds it up, too.
  std::vector<double> own_hops;
  int watched = 0;  // stage whose time is accounted for
  int paces = 0;    // the busiest stage: rounds that are not walked take as long as its last one

  bool operator==(const PipelineTimes&) const = default;
};

// Of the watched stage; what is left of `seconds` is its device's.
struct ScheduleTime {
  double seconds = 0;  // until the last stage has ended
  double pipeline = 0, bubble = 0, host = 0;
  double copies = 0;  // to and from the host
  double fill = 0;    // part of the bubble: before its first pass
};

// Keeps its memory and its last answer: layouts that differ in sharding alone ask for the same one. Not for concurrent
// use.
class ScheduleClock {
 public:
  PipelineTimes& asked() { return asked_; }  // what Time() answers
  const ScheduleTime& Time();
  double Seconds();  // of the same, without its parts
  // Likewise; none if they are more than `most`, which shows long before all passes are walked: by what is left for the stage of
  // a pass, and for the stages that its last gradient then goes through.
  std::optional<double> Seconds(double most);
  struct Interval {
    double from = 0, to = 0;
  };
  // Of the last answer: when the last pass of a virtual stage and kind (PassCall::Kind) ran, in seconds behind the end of
  // all stages (negative).
  Interval LastPass(int virtual_stage, int kind) const;
  // Of the last answer: when the first micro-batch's forward pass of a virtual stage starts.
  double FirstPass(int virtual_stage) const {
    return first_[static_cast<std::size_t>(virtual_stage)];
  }
  // As LastPass(), when a stage's host has issued all passes.
  double Issued(int stage) const { return stages_[static_cast<std::size_t>(stage)].issued - end_; }
  // Of the last answer, with its parts: seconds of an interval, counted as LastPass() does, in which the watched stage waits for a
  // tensor that is not under way yet; of them those beside other messages between stages. Another message that travels
  // meanwhile is what it waits for.
  ScheduleTime IdleBetween(double from, double to) const {
    return Between(from + end_, to + end_, true);
  }
  // The same of the first so many seconds.
  ScheduleTime IdleUntil(double to) const { return Between(0, to, true); }
  // Micro-batches that are walked: where forward passes all run first, no round could stand for the others, but twice as many take
  // twice as long. In a V rounds differ for long (v_order.cc: of 4 stages they repeat from the 14th micro-batch on and each three,
  // of 8 from the 71st). So of both as many are walked as cost allows.
  static double Walked(const PassRules& order, int stages, double micro_batches) {
    int rounds = kRounds;
    if (order.in_a_v) rounds = std::max(kRounds, kMostInV / (stages * stages));
    if (order.forward_first) rounds = std::max(kRounds, kMostFirst / (stages * stages));
    return std::min(micro_batches, 1.0 * rounds * stages);
  }

 private:
  double batches() const {
    const double walked = Walked(times_.order, times_.stages, times_.micro_batches);
    return half_ ? std::floor(walked / 2) : walked;
  }
  static constexpr int kRounds = 4;        // of stages; the last of them stands for the others,
  static constexpr int kMostInV = 1024;    // in a V their second half; micro-batches x stages
  static constexpr int kMostFirst = 2048;  // likewise, where forward passes run first
  bool HalfStands() const { return times_.order.in_a_v || times_.order.forward_first; }

  // Of a stage, when its copies so far have ended.
  struct HostLink {
    double down = 0, up = 0;
  };
  // Of a stage, whose layers take two places in turn: when what the last forward pass left there has been sent, and what came
  // back for the last backward pass has been read.
  struct HostSlots {
    std::array<double, 2> sent{}, read{};
  };

  struct Gap {
    double from = 0, to = 0;
    bool host = false;  // else: for a tensor,
    double sent = 0;    // which travels from then on
    bool copies = false;
  };
  struct StageClock {
    double free = 0;    // the device
    double issued = 0;  // the host: all passes so far
  };
  // Of a stage, where gathers run ahead.
  struct Ring {
    std::array<double, 3> slots{};  // free again
    double gathered = 0;            // the last gather has ended
    double ahead = 0;               // seconds of the next pass's first gather that have gone by
  };

  bool Run(double most = std::numeric_limits<double>::infinity());  // false: more than `most`
  bool RunBatches(double most);
  ScheduleTime Whole();
  // False: the stages end later than `latest`. `kPlain`: what Plain() says.
  template <bool kParts, bool kAhead, bool kPlain>
  bool Walk(double latest);
  bool Plain() const;
  void FindWorks();
  double LeastDevice(std::size_t work) const;
  double FindRest(double most);
  double Transfer(int one, int other, const std::vector<double>& hops) const;
  double GatherAhead(const PassGraph::Pass& pass, double start, double end);
  double AwaitCopies(const PassGraph::Pass& pass, double start, double device, bool held);
  static double SendLayers(const std::vector<MovedLayer>& layers, HostLink* link, HostSlots* slots,
                           double now);
  static double FetchLayers(const std::vector<MovedLayer>& layers, HostLink* link, HostSlots* slots,
                            double now, double head);
  void FindMessages();
  ScheduleTime Between(double from, double to, bool unsent = false) const;
  double BusyOf(int stage) const;
  const ScheduleTime& Answer();
  ScheduleTime Account() const;

  PipelineTimes asked_, times_;
  ScheduleTime time_;
  bool parts_ = false;  // time_ has them, or is to have them
  bool half_ = false;   // HalfStands(): half as many micro-batches are walked, which took
  ScheduleTime before_;
  PassGraphs graphs_;
  const PassGraph* graph_ = nullptr;
  std::vector<StageClock> stages_;
  std::vector<Ring> rings_;
  std::vector<HostLink> host_links_;
  std::vector<HostSlots> host_slots_;
  struct WorkTimes {
    double device = 0, host = 0, behind = 0, early = 0, early_host = 0, gathered = 0, after = 0;
    double second = 0, second_shown = 0, second_lost = 0;
    // Of a second layer's gather that has travelled for so long: seconds that the pass takes less.
    double Saved(double waited) const {
      const double gone = std::min(waited, second);
      return std::max(0.0, std::min(gone, second_shown - second_lost * (second - gone)));
    }
  };
  struct GatherTimes {
    double gather = 0, lost = 0, layer = 0;
    int first_slot = -1, last_slot = -1;
  };
  std::vector<WorkTimes> works_;      // by PassGraph::Pass::work
  std::vector<GatherTimes> gathers_;  // likewise, where gathers run ahead
  std::vector<double> hops_;          // by PassGraph::Pass::hop
  std::vector<double> own_hops_;      // likewise, of the rank that is accounted for
  std::vector<double>
      rest_;        // by stage: seconds until all stages end, from its next pass on, at least
  double end_ = 0;  // of all stages
  std::vector<double> first_;     // by virtual stage: FirstPass()
  std::vector<Interval> latest_;  // by PassGraph::Pass::work: the last one of it
  // By pass: when it has ended, when what it makes has left, when its tensor has come.
  std::vector<double> done_, left_, arrived_;
  std::vector<Gap> gaps_;            // of the watched stage
  std::vector<Interval> under_way_;  // its messages, by start
};

}  // namespace orrery
