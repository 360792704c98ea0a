// SPDX-License-Identifier: Apache-2.0
// Groups and collectives of this twin in NCCL's terms.
#include "model/collectives/nccl_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>

#include "model/collectives/nccl/machine.h"

namespace orrery {

// "": not one that this twin prices.
std::string_view NameHere(nccl::Algorithm algorithm) {
  switch (algorithm) {
    case nccl::Algorithm::kTree:
      return "tree";
    case nccl::Algorithm::kRing:
      return "ring";
    case nccl::Algorithm::kNvls:
      return "nvls";
    case nccl::Algorithm::kNvlsTree:
      return "nvls-tree";
    case nccl::Algorithm::kCollNetDirect:
    case nccl::Algorithm::kCollNetChain:
    case nccl::Algorithm::kPat:
      break;
  }
  return "";
}

namespace {

// Of a range's end: as far as messages are told apart.
constexpr double kSameSize = 1.001;

NcclRange RangeAt(const nccl::Communicator& nccl, nccl::Operation operation, double bytes) {
  NcclRange range;
  range.from = bytes;
  const std::optional<nccl::Choice> choice = nccl.Choose(operation, bytes);
  if (!choice) return range;
  range.algorithm = FindAlgorithm(NameHere(choice->algorithm));
  range.protocol = choice->protocol;
  return range;
}

bool SameChoice(const NcclRange& a, const NcclRange& b) {
  return a.algorithm == b.algorithm && a.protocol == b.protocol;
}

// Some sizes to each factor of two, and between two that differ the end by halving.
NcclRanges FindRanges(const nccl::Communicator& nccl, nccl::Operation operation) {
  constexpr int kLeast = 8,
                kMost = 36;  // powers of two: at them NCCL's own tables have their steps
  constexpr int kParts = 4;
  NcclRanges ranges = {RangeAt(nccl, operation, std::exp2(kLeast))};
  double below = ranges.front().from;
  for (int part = 1; part <= kParts * (kMost - kLeast); ++part) {
    const double bytes =
        std::ldexp(std::exp2(part % kParts / double{kParts}), kLeast + part / kParts);
    const NcclRange here = RangeAt(nccl, operation, bytes);
    while (!SameChoice(here, ranges.back())) {
      double low = std::max(below, ranges.back().from);
      NcclRange next = here;
      while (next.from > low * kSameSize) {
        const NcclRange middle = RangeAt(nccl, operation, std::sqrt(low * next.from));
        if (SameChoice(middle, ranges.back())) {
          low = middle.from;
        } else {
          next = middle;
        }
      }
      ranges.push_back(next);
    }
    below = bytes;
  }
  ranges.front().from = 0;
  return ranges;
}

// Of a group, as far as its choices depend on it.
struct GroupKey {
  const NodeSpec* node;
  int gpus_per_node, capability;
  bool gpu_direct, in_network, rails;
  BytesPerSecond driver_rate;
  int each, nodes;
  nccl::Release release;
  auto operator<=>(const GroupKey&) const = default;
};

struct GroupRanges {
  std::weak_ptr<const NodeSpec> node;  // gone: another may lie at its address
  std::array<std::shared_ptr<const NcclRanges>, kCollectives> of;
};

}  // namespace

std::shared_ptr<const nccl::Communicator> NcclCommunicator(const nccl::Setting& setting,
                                                           const GroupShape& shape) {
  const int each = shape.ranks_per_node, nodes = shape.nodes();
  if (shape.ranks < 2 || shape.ranks != each * nodes || each > setting.domain_gpus) return nullptr;
  const int stride = nodes > 1 ? setting.domain_gpus / each : 1;
  std::vector<int> gpus;
  for (int g = 0; g < each; ++g) gpus.push_back(g * stride);
  return nccl::CommunicatorOf(setting, gpus, nodes);
}

std::shared_ptr<const NcclRanges> NcclRangesOf(const nccl::Setting& setting,
                                               const GroupShape& shape, Collective collective) {
  if (setting.node == nullptr || !NcclOperation(collective)) return nullptr;
  static std::mutex mutex;
  static std::map<GroupKey, GroupRanges> known;
  const GroupKey key{setting.node.get(),  setting.gpus_per_node, setting.capability,
                     setting.gpu_direct,  setting.in_network,    setting.rails,
                     setting.driver_rate, shape.ranks_per_node,  shape.nodes(),
                     setting.release};
  const std::lock_guard lock(mutex);
  GroupRanges& group = known[key];
  if (group.node.expired()) {
    group = {setting.node, {}};
    if (const auto nccl = NcclCommunicator(setting, shape)) {
      for (int c = 0; c < kCollectives; ++c) {
        const auto operation = NcclOperation(static_cast<Collective>(c));
        if (operation)
          group.of[static_cast<std::size_t>(c)] =
              std::make_shared<const NcclRanges>(FindRanges(*nccl, *operation));
      }
    }
  }
  return group.of[static_cast<std::size_t>(collective)];
}

const NcclRange& RangeOf(const NcclRanges& ranges, double bytes) {
  const auto above = std::ranges::upper_bound(ranges, bytes, {}, &NcclRange::from);
  return above == ranges.begin() ? ranges.front() : above[-1];
}

std::optional<nccl::Operation> NcclOperation(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return nccl::Operation::kAllReduce;
    case Collective::kAllGather:
      return nccl::Operation::kAllGather;
    case Collective::kReduceScatter:
      return nccl::Operation::kReduceScatter;
    case Collective::kBroadcast:
      return nccl::Operation::kBroadcast;
    case Collective::kAllToAll:
    case Collective::kSendRecv:
      break;
  }
  return std::nullopt;
}

}  // namespace orrery
