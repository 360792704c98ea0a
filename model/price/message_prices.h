// SPDX-License-Identifier: Apache-2.0
// Price of one message: algorithm and protocol, latency, seconds on the wire, and what it does to compute beside it.
//
// A framework gets another share of the network's benchmark rates for each role that a message plays in a step. The
// one policy that says so is TermsOf(). The closed form asks for a whole group at once (Prepare), the simulator for
// single messages (Price), with the seconds that their traffic takes split off.
#pragma once

#include <algorithm>
#include <string_view>

#include "model/collectives/select.h"
#include "model/plan/ir/op.h"
#include "model/price/setting.h"

namespace orrery {

enum class MessageRole : uint8_t {
  kLayer,    // inside a layer's pass, among ranks that share the layer
  kWhole,    // likewise, and no product is cut in pieces for it
  kContext,  // inside a layer's pass, among ranks that share sequences
  kShard,    // weights and gradients of one layer, gathered and scattered inside a pass
  kStep,     // gradients and weights of a whole step, sent in buckets
  kStage,    // between neighbouring stages
  kControl,  // norms and flags of a step: a few bytes
};
// `one_use`: of a buffer that lives for one use of a layer. `context`: among ranks that share sequences. `whole`: the op's
// attribute.
MessageRole RoleOf(ir::Phase phase, bool one_use, bool context = false, bool whole = false);

// What a role means for a group.
struct MessageTerms {
  BandwidthUse bandwidth;
  double latency = 0;  // seconds on top of the algorithm's
  double copy = 0;     // seconds per byte of the message, of a copy in front of it or behind
  // Compute beside a message loses processors and memory bandwidth to the bytes that move: `slowdown` of its rate at
  // the pace of the links inside a node, less where a slower network adds `slower_per_byte` seconds to each byte.
  double slowdown = 0;
  double slower_per_byte = 0;
  // Seconds that compute beside a message of so many bytes loses to it while it takes `seconds`.
  double Lost(double bytes, double seconds) const {
    return slowdown * std::max(0.0, seconds - bytes * slower_per_byte);
  }
  double hidden =
      0;           // share of the message that nobody waits for: fused with the kernels around it
  int pieces = 1;  // messages that it is sent as, one behind the other
  double bucket = 0;             // bytes that are sent together; 0: each message alone
  double bucket_parameters = 0;  // or, where that is not 0, the parameters
  // Bytes of a bucket whose elements have so many.
  double Bucket(double element) const {
    return bucket_parameters > 0 ? bucket_parameters * element : bucket;
  }
};

// Collectives of one kind in one group, for any size. A group of one rank: everything is zero.
struct PreparedMessage {
  PreparedCollective collective;
  MessageTerms terms;
  double of_bucket[2] = {0, 0};  // seconds of a whole bucket, with elements of 2 and of 4 bytes

  double Time(double bytes) const {
    if (bytes <= 0) return 0;
    return terms.copy * bytes +
           terms.pieces * (terms.latency + collective.Time(bytes / terms.pieces));
  }
  // Of so many bytes in all, sent in buckets: each of them pays the latency. `element`: bytes of a gradient or weight.
  double InBuckets(double bytes, double element) const {
    const double bucket = terms.Bucket(element);
    if (bucket <= 0 || bytes <= bucket) return Time(bytes);
    const double whole = element == 2 ? of_bucket[0] : element == 4 ? of_bucket[1] : Time(bucket);
    return bytes / bucket * whole;
  }
};

// Of the messages of a whole step, the shares that a framework waits for.
struct AwaitedShares {
  double reductions = 1, gathers = 1;
};

// `setting` must outlive it.
class MessagePrices {
 public:
  explicit MessagePrices(const CostSetting& setting) : setting_(setting) {}

  // The same, where uplinks take so much longer than NICs.
  MessagePrices With(const UplinkStretch& stretch) const {
    CostSetting setting = setting_;
    setting.stretch = stretch;
    return MessagePrices(setting);
  }

  // `backward`: in a backward pass, which has kernels of its own to hide a message behind.
  MessageTerms TermsOf(MessageRole role, Collective collective, const GroupShape& shape,
                       bool backward = false) const;
  Network View(const GroupShape& shape, const MessageTerms& terms) const;
  PreparedMessage Prepare(MessageRole role, Collective collective, const GroupShape& shape,
                          bool backward = false) const;
  // S as in algorithm.h; ranks >= 2. `only`: the algorithm to take; "": the fastest. Throws InputError when that cannot
  // do this collective.
  MessagePrice Price(MessageRole role, Collective collective, const GroupShape& shape, double bytes,
                     std::string_view only = "") const;
  // `whole_replicas`: see model/plan/lower/overlap.h.
  AwaitedShares Awaited(bool whole_replicas) const;

 private:
  CostSetting setting_;
};

}  // namespace orrery
