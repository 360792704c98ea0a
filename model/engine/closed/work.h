// SPDX-License-Identifier: Apache-2.0
// What the closed form adds up: messages beside kernels, the passes of a stage, the turns of its micro-batches.
#pragma once

#include <algorithm>

namespace orrery::closed {

// Share by which sums in another order may differ.
constexpr double kRounding = 1e-9;

// Messages beside kernels: how long they take, and what they cost the kernels meanwhile. In front of a gather copies from the
// host, behind a scatter those to it, which cost kernels nothing. In front of a scatter the tail of a gradient, which ranks of a layer add up first: messages
// inside of layers share its communicator.
struct Beside {
  double seconds = 0, lost = 0, copies = 0;
  double tail = 0, tail_lost = 0;
  double tail_beside = 0;  // of the tail, what goes on beside a gather

  Beside operator+(const Beside& other) const {
    return {seconds + other.seconds, lost + other.lost,           copies + other.copies,
            tail + other.tail,       tail_lost + other.tail_lost, tail_beside + other.tail_beside};
  }
  double tail_alone() const { return tail - tail_beside; }
  double All() const { return seconds + copies + tail_alone(); }
  double Lost() const { return tail > 0 ? lost + tail_lost * tail_alone() / tail : lost; }
};

// A gather with its copy, and what is scattered meanwhile, with its own: copies are on other links.
inline Beside Combined(const Beside& gather, const Beside& scatter) {
  return {gather.seconds + scatter.seconds,
          gather.lost + scatter.lost,
          std::max({0.0, gather.copies - scatter.seconds - scatter.tail,
                    scatter.copies - gather.seconds}),
          scatter.tail,
          scatter.tail_lost,
          std::min(scatter.tail, gather.seconds)};
}

// What messages add to kernels: seconds, and those of them that are left where the host is later than all of it, of which
// kernels lose so much that run meanwhile. Of both what copies from the host take, and tails.
struct Exposed {
  double seconds = 0, beside_host = 0, slowed = 0, copies = 0, tails = 0;

  void Add(double count, const Exposed& other) {
    seconds += count * other.seconds;
    beside_host += count * other.beside_host;
    slowed += count * other.slowed;
    copies += count * other.copies;
    tails += count * other.tails;
  }
};

// Kernels wait for all of it.
inline Exposed Alone(const Beside& messages) {
  const double all = messages.All();
  return {all, all, 0, messages.copies, messages.tail_alone()};
}

// Kernels beside messages that slow them down, see closed_form.h.
inline Exposed Cover(double kernels, const Beside& messages, bool overlaps) {
  if (!overlaps) return Alone(messages);
  const double all = messages.All(), lost = messages.Lost();
  const double through = all - lost;  // kernels that run meanwhile
  if (through <= kernels) return {lost, lost, lost};
  const double exposed = all - kernels, slowed = through > 0 ? kernels / through * lost : 0.0;
  return {exposed, slowed, slowed,
          std::max(0.0, exposed - messages.seconds - messages.tail_alone())};
}

// What is folded over: one stage with its share of the layers.
struct Stage {
  double layers = 0;
  bool first = true, last = true;
  double chunks = 1;
  double slowdown = 1;    // of its kernels
  int index = -1;         // where stages differ in speed
  double recomputed = 0;  // of its layers, beyond the share of all layers that is
  double plain = 0;       // likewise, whose products are not cast (PlanOutline::plain)
  double used = 1;        // of its chunks, those that hold a layer
};

// Kernels and messages inside of layers, gathers and scatters that they wait for, and what the host issues.
struct PassWork {
  double kernels = 0, host = 0;
  double behind = 0;  // from when the host begins until the device ends, were it idle before
  double copies = 0;  // that kernels wait for: activations on their way from or to the host
  Exposed shards;
  // Seconds of them in front of the first kernel of a layer: meanwhile the host gets ahead.
  double front = 0;
  double context_early = 0;  // of `kernels`: as PassTime
  double device() const { return kernels + shards.seconds + copies; }
  // Of `shards`, what is left where the host is late: kernels then run for a part of the time that a message takes.
  double BesideHost() const {
    const double left = host - shards.slowed;
    const double busy = left > kernels ? kernels / left : 1;
    return shards.beside_host - (1 - busy) * shards.slowed;
  }
};
// One micro-batch on one stage: forward, head and backward passes in this order, then the last scatters. Where the
// schedule puts gradients of weights off they are a pass of their own, and are scattered there.
struct Work {
  PassWork forward, head, backward, weight;
  Exposed last;
  double kernels() const {
    return forward.kernels + head.kernels + backward.kernels + weight.kernels;
  }
  double host() const { return forward.host + head.host + backward.host + weight.host; }
  double copies() const { return forward.copies + backward.copies; }
  // Of the gathers and scatters, what copies of weights and gradients take.
  double fetched() const {
    return forward.shards.copies + head.shards.copies + backward.shards.copies +
           weight.shards.copies + last.copies;
  }
  // Of them, tails.
  double tails() const {
    return forward.shards.tails + head.shards.tails + backward.shards.tails + weight.shards.tails +
           last.tails;
  }
  double device() const {
    return forward.device() + head.device() + backward.device() + weight.device() + last.seconds;
  }
};
// Seconds that a stage spends on a micro-batch, and those of them that are gathers and scatters.
struct Turn {
  double seconds = 0, shards = 0;
  double forward = 0;        // seconds up to the head
  double backward = 0;       // of one pass behind the other: those of the backward pass
  double context_early = 0;  // of PassWork's, where the host is late: it waits for the host instead
};

// The later of both.
inline Turn Later(const Turn& a, const Turn& b) { return b.seconds > a.seconds ? b : a; }
// The device works on what the host has issued: it ends no earlier than if the host issues the first passes and the
// device then runs the others, whatever their number. All of it by the device, or by the host.
inline Turn OnDevice(const Work& w) {
  return {w.device(), w.forward.shards.seconds + w.head.shards.seconds + w.backward.shards.seconds +
                          w.weight.shards.seconds + w.last.seconds};
}
inline Turn OnHost(const Work& w) {
  return {w.host(), w.forward.BesideHost() + w.head.BesideHost() + w.backward.BesideHost() +
                        w.weight.BesideHost() + w.last.beside_host};
}
// Both, one pass behind the other. `lead`: seconds by which the host is ahead of the device when it begins.
Turn BehindHost(const Work& w, double lead = 0);

}  // namespace orrery::closed
