// SPDX-License-Identifier: Apache-2.0
// Schedules: unfolding nested loops into calls, and finding the loops in a list of calls.
//
// Compression works bottom-up. A sequence of nodes (first calls, later also loops) is cut, by
// dynamic programming over its positions, into plain nodes and loops so that the fewest items
// remain; then the shorter sequence is cut again, so that loops nest, until nothing shrinks. Only a
// few loop lengths are tried: the short ones first, then the commonest distances between equal runs
// of four nodes. One pass over n nodes and c lengths costs O(n c). Schedules of very many micro-batches
// are not listed at all: two short ones of the same kind show how they go on (Lengthened).
#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>

#include "model/plan/ir/plan.h"

namespace orrery::ir {
namespace {

constexpr int kShortLength = 8;  // loop bodies up to this many nodes are always tried
constexpr int kCandidates = 64;  // further body lengths per pass
constexpr int kGram = 4;         // nodes that must agree to suggest a body length

// An item up to a shift of its micro-batches; equal shapes have equal numbers.
struct Node {
  int32_t shape;
  int64_t base;  // micro-batch of its first call
};
struct Shape {
  int32_t block = -1;
  uint8_t flags = 0;
  int32_t count = 0;
  int32_t stride = 0;
  std::vector<Node> body;  // bases relative to the loop's base
  int64_t items = 1;
};

class Shapes {
 public:
  int32_t OfCall(const Call& call) {
    const int64_t key = int64_t{call.block} * 256 + call.flags;
    const auto [at, added] = calls_.try_emplace(key, static_cast<int32_t>(shapes_.size()));
    if (added) shapes_.push_back({call.block, call.flags, 0, 0, {}, 1});
    return at->second;
  }

  int32_t OfLoop(const Node* body, int length, int32_t count, int32_t stride) {
    std::vector<int64_t> key = {count, stride};
    Shape shape{-1, 0, count, stride, {}, 1};
    for (int i = 0; i < length; ++i) {
      const Node child{body[i].shape, body[i].base - body[0].base};
      key.push_back(child.shape);
      key.push_back(child.base);
      shape.items += shapes_[child.shape].items;
      shape.body.push_back(child);
    }
    const auto [at, added] = loops_.try_emplace(key, static_cast<int32_t>(shapes_.size()));
    if (added) shapes_.push_back(std::move(shape));
    return at->second;
  }

  const Shape& operator[](int32_t shape) const { return shapes_[shape]; }

  Item ToItem(const Node& node) const {
    const Shape& shape = shapes_[node.shape];
    if (shape.block >= 0) {
      return {shape.block, static_cast<int32_t>(node.base), shape.flags, 0, 0, {}};
    }
    Item loop{-1, 0, 0, shape.count, shape.stride, {}};
    for (const Node& child : shape.body) {
      loop.body.push_back(ToItem({child.shape, node.base + child.base}));
    }
    return loop;
  }

 private:
  std::vector<Shape> shapes_;
  std::unordered_map<int64_t, int32_t> calls_;
  std::map<std::vector<int64_t>, int32_t> loops_;
};

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdULL;
}

// Body lengths worth trying: distances at which a run of kGram nodes comes again, commonest first.
std::vector<int> CommonDistances(const std::vector<Node>& nodes) {
  const int n = static_cast<int>(nodes.size());
  std::unordered_map<uint64_t, int> last;
  std::vector<int> times(n, 0);
  for (int i = 0; i + kGram <= n; ++i) {
    uint64_t hash = 0;
    for (int j = i; j < i + kGram; ++j) {
      hash = Mix(hash, static_cast<uint64_t>(nodes[j].shape));
      hash = Mix(hash, static_cast<uint64_t>(nodes[j].base - nodes[i].base));
    }
    const auto [at, first] = last.try_emplace(hash, i);
    if (!first) ++times[i - at->second];
    at->second = i;
  }
  std::vector<int> lengths;
  for (int length = kShortLength + 1; length <= n / 2; ++length) {
    if (times[length] > 0) lengths.push_back(length);
  }
  std::stable_sort(lengths.begin(), lengths.end(),
                   [&](int a, int b) { return times[a] > times[b]; });
  if (lengths.size() > kCandidates) lengths.resize(kCandidates);
  return lengths;
}

// For one body length, while the position moves left: how many nodes from here on equal the node
// `length` later but for one constant shift of the micro-batch.
struct Run {
  int length;
  int64_t shift = 0;
  int matched = 0;

  void Extend(const std::vector<Node>& nodes, int i) {
    if (i + length >= static_cast<int>(nodes.size()) || nodes[i].shape != nodes[i + length].shape) {
      matched = 0;
      return;
    }
    const int64_t here = nodes[i + length].base - nodes[i].base;
    if (here < std::numeric_limits<int32_t>::min() || here > std::numeric_limits<int32_t>::max()) {
      matched = 0;
      return;
    }
    matched = matched > 0 && here == shift ? matched + 1 : 1;
    shift = here;
  }
};

struct Cut {
  int64_t items = 0;  // from here to the end
  int length = 1;     // of the loop body that starts here
  int32_t count = 1;  // 1: a plain node
  int64_t shift = 0;
};

// The best cut at every position, from the end to the start.
std::vector<Cut> BestCuts(const std::vector<Node>& nodes, const Shapes& shapes,
                          const std::vector<int>& lengths) {
  const int n = static_cast<int>(nodes.size());
  std::vector<Cut> cuts(n + 1);
  std::vector<int64_t> before(n + 1, 0);  // items of nodes[0..i)
  for (int i = 0; i < n; ++i) before[i + 1] = before[i] + shapes[nodes[i].shape].items;
  std::vector<Run> runs;
  for (const int length : lengths) runs.push_back({length});
  for (int i = n - 1; i >= 0; --i) {
    Cut best{before[i + 1] - before[i] + cuts[i + 1].items, 1, 1, 0};
    for (Run& run : runs) {
      run.Extend(nodes, i);
      const int32_t most = run.matched / run.length + 1;
      for (int32_t count = most; count >= 2 && count + 1 >= most; --count) {
        const int64_t items =
            1 + before[i + run.length] - before[i] + cuts[i + count * run.length].items;
        if (items < best.items) best = {items, run.length, count, run.shift};
      }
    }
    cuts[i] = best;
  }
  return cuts;
}

// One pass: true when the sequence became shorter.
bool Fold(std::vector<Node>* nodes, Shapes* shapes, const std::vector<int>& lengths) {
  const std::vector<Cut> cuts = BestCuts(*nodes, *shapes, lengths);
  std::vector<Node> folded;
  for (std::size_t i = 0; i < nodes->size();) {
    const Cut& cut = cuts[i];
    Node node = (*nodes)[i];
    if (cut.count > 1) {
      node.shape =
          shapes->OfLoop(nodes->data() + i, cut.length, cut.count, static_cast<int32_t>(cut.shift));
    }
    folded.push_back(node);
    i += std::size_t(cut.length) * cut.count;
  }
  const bool shorter = folded.size() < nodes->size();
  *nodes = std::move(folded);
  return shorter;
}

void ExpandInto(const std::vector<Item>& items, int64_t shift, std::vector<Call>* calls) {
  for (const Item& item : items) {
    if (item.block >= 0) {
      calls->push_back({item.block, static_cast<int32_t>(item.micro_batch + shift), item.flags});
      continue;
    }
    for (int64_t i = 0; i < item.count; ++i) ExpandInto(item.body, shift + i * item.stride, calls);
  }
}

}  // namespace

std::vector<Call> Expand(const std::vector<Item>& schedule) {
  std::vector<Call> calls;
  ExpandInto(schedule, 0, &calls);
  return calls;
}

std::vector<Item> Compress(const std::vector<Call>& calls) {
  Shapes shapes;
  std::vector<Node> nodes;
  nodes.reserve(calls.size());
  for (const Call& call : calls) nodes.push_back({shapes.OfCall(call), call.micro_batch});
  std::vector<int> lengths;
  for (int length = 1; length <= kShortLength; ++length) lengths.push_back(length);
  while (Fold(&nodes, &shapes, lengths)) {
  }
  for (bool shorter = true; shorter;) {
    std::vector<int> all = lengths;
    const std::vector<int> further = CommonDistances(nodes);
    all.insert(all.end(), further.begin(), further.end());
    shorter = Fold(&nodes, &shapes, all);
  }
  std::vector<Item> items;
  for (const Node& node : nodes) items.push_back(shapes.ToItem(node));
  return items;
}

std::optional<std::vector<Item>> Lengthened(const std::vector<Item>& shorter,
                                            const std::vector<Item>& longer, int64_t times) {
  if (shorter.size() != longer.size()) return std::nullopt;
  std::vector<Item> all = longer;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Item& before = shorter[i];
    Item& item = all[i];
    if (item.block != before.block || item.flags != before.flags || item.stride != before.stride)
      return std::nullopt;
    const auto go_on = [&](int32_t was, int32_t* is) {
      const int64_t end = *is + times * (int64_t{*is} - was);
      const bool fits = end >= 0 && end <= std::numeric_limits<int32_t>::max();
      if (fits) *is = static_cast<int32_t>(end);
      return fits;
    };
    if (!go_on(before.micro_batch, &item.micro_batch) || !go_on(before.count, &item.count))
      return std::nullopt;
    auto body = Lengthened(before.body, item.body, times);
    if (!body) return std::nullopt;
    item.body = std::move(*body);
  }
  return all;
}

}  // namespace orrery::ir
