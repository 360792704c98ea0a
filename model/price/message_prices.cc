// SPDX-License-Identifier: Apache-2.0
// The policy of roles.
#include "model/price/message_prices.h"

#include <algorithm>
#include <cmath>

#include "model/base/check.h"

namespace orrery {

MessageRole RoleOf(ir::Phase phase, bool one_use, bool context, bool whole) {
  switch (phase) {
    case ir::Phase::kForward:
    case ir::Phase::kBackward:
    case ir::Phase::kWeightGrad:
    case ir::Phase::kRecompute:
      return context ? MessageRole::kContext : whole ? MessageRole::kWhole : MessageRole::kLayer;
    case ir::Phase::kGradReduce:
    case ir::Phase::kParamGather:
      return one_use ? MessageRole::kShard : MessageRole::kStep;
    case ir::Phase::kPipeline:
      return MessageRole::kStage;
    case ir::Phase::kInput:
    case ir::Phase::kGradNorm:
    case ir::Phase::kOptimizer:
    case ir::Phase::kSetup:
      return MessageRole::kControl;
  }
  ORRERY_CHECK(false, "phase {}", static_cast<int>(phase));
}

MessageTerms MessagePrices::TermsOf(MessageRole role, Collective collective,
                                    const GroupShape& shape, bool backward) const {
  const FrameworkProfile& framework = *setting_.framework;
  const bool whole = collective == Collective::kAllReduce;
  // Of a message that no host waits for.
  const double launch = framework.tensor_latency.value;
  MessageTerms terms;
  switch (role) {
    case MessageRole::kLayer: {
      // The two halves of an all-reduce (sequence parallelism) have half of its latency each, and are hidden behind
      // pieces of the products that need them.
      const double extra = launch + (shape.ranks - 1) * framework.tensor_latency_per_rank.value;
      const double pieces =
          whole || !framework.preset->tp_overlap ? 0.0 : framework.sequence_overlap;
      // Between nodes they get what the reductions of the same job get of the same NICs: no more is known of them, and
      // the benchmark's whole rate is known not to be reached in a step (calib/DERIVATIONS.md, section 4.1).
      terms.bandwidth = {framework.scaleup_use,
                         ReductionNicUse(framework, EndsApart(*setting_.cluster, shape)),
                         framework.algorithm};
      terms.latency = whole ? extra : 0.5 * extra;
      // Parts of the sequence do not lie in the order in which ranks send them: a kernel reads and writes all of S.
      if (!whole && framework.preset->sequence_copies)
        terms.copy = 2.0 / (setting_.gpu->memory_bandwidth.value * setting_.gpu->memory_efficiency);
      terms.hidden = backward ? std::max(framework.tensor_overlap, pieces) : pieces;
      return terms;
    }
    case MessageRole::kWhole:
      terms = TermsOf(MessageRole::kLayer, collective, shape, backward);
      terms.hidden = 0;
      return terms;
    // A hop is a message between two ranks, as between stages. The others stand between kernels of a layer as those of
    // tensor parallelism do, but no framework cuts them
    // in pieces (calib/DERIVATIONS.md, section 4.1).
    case MessageRole::kContext:
      if (collective == Collective::kSendRecv) {
        terms = TermsOf(MessageRole::kStage, collective, shape, backward);
        // Hops are issued ahead on a stream of their own (TransformerEngine's ring of sends and receives); between stages
        // the host waits for each transfer (Megatron-LM's batch_isend_irecv and synchronize).
        terms.latency = launch;
        return terms;
      }
      terms = TermsOf(MessageRole::kLayer, collective, shape, backward);
      terms.hidden = terms.copy = 0;
      return terms;
    case MessageRole::kShard:
      terms.bandwidth = {framework.gather_scaleup_use, framework.gather_nic_use,
                         framework.algorithm};
      terms.latency = framework.gather_latency.value *
                      (1.0 + framework.gather_latency_growth * std::log2(shape.nodes()));
      if (collective == Collective::kAllGather) terms.pieces = framework.preset->gather_messages;
      terms.slowdown = setting_.gpu->overlap_slowdown;
      terms.slower_per_byte = SlowerPerByte(*setting_.cluster, *setting_.gpu, *setting_.fabric,
                                            shape, terms.bandwidth, setting_.stretch);
      return terms;
    case MessageRole::kStep:
      terms.bandwidth = {framework.data_scaleup_use,
                         ReductionNicUse(framework, EndsApart(*setting_.cluster, shape)),
                         framework.algorithm};
      terms.bucket = framework.bucket.value;
      terms.bucket_parameters = BucketParameters(framework, shape.ranks);
      return terms;
    case MessageRole::kStage:
      terms.bandwidth = {1.0, framework.pipeline_nic_use, ""};
      terms.latency = framework.pipeline_latency.value;
      return terms;
    case MessageRole::kControl:
      terms.bucket = 1e18;  // all of a step's travel together
      return terms;
  }
  ORRERY_CHECK(false, "role {}", static_cast<int>(role));
}

Network MessagePrices::View(const GroupShape& shape, const MessageTerms& terms) const {
  BandwidthUse use = terms.bandwidth;
  use.nccl = setting_.framework->preset->nccl;
  return ViewNetwork(*setting_.cluster, *setting_.gpu, *setting_.fabric, shape, use,
                     setting_.stretch);
}

PreparedMessage MessagePrices::Prepare(MessageRole role, Collective collective,
                                       const GroupShape& shape, bool backward) const {
  PreparedMessage message;
  if (shape.ranks < 2) return message;
  message.terms = TermsOf(role, collective, shape, backward);
  message.collective = orrery::Prepare(collective, View(shape, message.terms));
  for (const int half : {0, 1}) {
    const double bucket = message.terms.Bucket(half == 0 ? 2 : 4);
    if (bucket > 0) message.of_bucket[half] = message.Time(bucket);
  }
  return message;
}

AwaitedShares MessagePrices::Awaited(bool whole_replicas) const {
  return {VisibleShare(VisibleReductionOf(*setting_.framework), whole_replicas),
          setting_.framework->data_exposed};
}

MessagePrice MessagePrices::Price(MessageRole role, Collective collective, const GroupShape& shape,
                                  double bytes, std::string_view only) const {
  const MessageTerms terms = TermsOf(role, collective, shape);
  MessagePrice price = PriceMessage(collective, View(shape, terms), bytes / terms.pieces, only);
  price.latency = terms.pieces * (price.latency + terms.latency) + terms.copy * bytes;
  return price;
}

}  // namespace orrery
