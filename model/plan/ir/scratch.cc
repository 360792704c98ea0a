// SPDX-License-Identifier: Apache-2.0
// Packing of lifetimes: first fit and best fit over several orders, then promotion of whatever sets
// the peak.
#include "model/plan/ir/scratch.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_map>

namespace orrery::ir {
namespace {

using Order = std::vector<int32_t>;

bool Overlap(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

// Places items in the given order, each in the lowest (or tightest) gap between those alive beside
// it.
Packing Place(const std::vector<Lifetime>& items, const Order& order, bool tightest,
              int64_t give_up) {
  Packing packing;
  packing.offset.assign(items.size(), 0);
  std::vector<int32_t> placed;  // by offset
  placed.reserve(items.size());
  for (int32_t i : order) {
    int64_t cursor = 0, best = -1, best_gap = std::numeric_limits<int64_t>::max();
    for (int32_t p : placed) {
      if (!Overlap(items[p], items[i])) continue;
      const int64_t gap = packing.offset[p] - cursor;
      if (gap >= items[i].bytes && gap < best_gap) {
        best = cursor;
        best_gap = gap;
        if (!tightest) break;
      }
      cursor = std::max(cursor, packing.offset[p] + items[p].bytes);
    }
    if (best < 0) best = cursor;
    packing.offset[i] = best;
    packing.bytes = std::max(packing.bytes, best + items[i].bytes);
    if (packing.bytes >= give_up) return packing;
    const auto at =
        std::upper_bound(placed.begin(), placed.end(), best,
                         [&](int64_t offset, int32_t p) { return offset < packing.offset[p]; });
    placed.insert(at, i);
  }
  return packing;
}

template <typename Key>  // larger keys first; equal keys in item order
Order SortedBy(size_t n, Key key) {
  Order order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return key(a) > key(b); });
  return order;
}

std::vector<Order> Orders(const std::vector<Lifetime>& items) {
  const size_t n = items.size();
  auto length = [&](int32_t i) { return static_cast<int64_t>(items[i].last - items[i].first + 1); };
  return {
      SortedBy(n, [&](int32_t i) { return items[i].bytes; }),
      SortedBy(n, [&](int32_t i) { return std::pair(length(i), items[i].bytes); }),
      SortedBy(n, [&](int32_t i) { return items[i].bytes * length(i); }),
      SortedBy(
          n,
          [&](int32_t i) { return std::pair<int64_t, int64_t>(-items[i].first, items[i].bytes); }),
      SortedBy(
          n, [&](int32_t i) { return std::pair<int64_t, int64_t>(items[i].last, items[i].bytes); }),
  };
}

// Moves the items that reach the top to the front of the order and tries again.
void Repair(const std::vector<Lifetime>& items, Order order, int64_t good_enough, Packing* best) {
  constexpr int kRounds = 24;
  for (int round = 0; round < kRounds && best->bytes > good_enough; ++round) {
    const Packing packing =
        Place(items, order, round % 2 == 1, std::numeric_limits<int64_t>::max());
    if (packing.bytes < best->bytes) *best = packing;
    std::stable_partition(order.begin(), order.end(), [&](int32_t i) {
      return packing.offset[i] + items[i].bytes == packing.bytes;
    });
  }
}

Packing Search(const std::vector<Lifetime>& items, int64_t good_enough) {
  Packing best;
  best.bytes = std::numeric_limits<int64_t>::max();
  const std::vector<Order> orders = Orders(items);
  const Order* best_order = &orders[0];
  for (const Order& order : orders) {
    for (bool tightest : {false, true}) {
      Packing packing = Place(items, order, tightest, best.bytes);
      if (packing.bytes >= best.bytes) continue;
      best = std::move(packing);
      best_order = &order;
      if (best.bytes <= good_enough) return best;
    }
  }
  Repair(items, *best_order, good_enough, &best);
  return best;
}

struct Memo {
  std::vector<Lifetime> items;
  int64_t good_enough;
  Packing packing;
};

uint64_t Hash(const std::vector<Lifetime>& items) {
  uint64_t hash = items.size();
  for (const Lifetime& item : items) {
    for (uint64_t part : {static_cast<uint64_t>(item.bytes), static_cast<uint64_t>(item.first),
                          static_cast<uint64_t>(item.last)}) {
      hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
  }
  return hash;
}

}  // namespace

int64_t PackingBound(const std::vector<Lifetime>& items) {
  int32_t end = 0;
  for (const Lifetime& item : items) end = std::max(end, item.last + 1);
  std::vector<int64_t> delta(end + 1, 0);
  for (const Lifetime& item : items) {
    delta[item.first] += item.bytes;
    delta[item.last + 1] -= item.bytes;
  }
  int64_t live = 0, most = 0;
  for (int64_t step : delta) most = std::max(most, live += step);
  return most;
}

Packing Pack(const std::vector<Lifetime>& items, int64_t good_enough) {
  if (items.empty()) return {};
  constexpr size_t kRemembered = 1 << 20;  // tensors over all packings, 48 MB
  thread_local std::unordered_map<uint64_t, Memo> memory;
  thread_local size_t remembered = 0;
  const uint64_t key = Hash(items) ^ static_cast<uint64_t>(good_enough);
  // A remembered packing answers only the very same question, so that results never depend on
  // history.
  if (const auto it = memory.find(key);
      it != memory.end() && it->second.items == items && it->second.good_enough == good_enough) {
    return it->second.packing;
  }
  Packing packing = Search(items, good_enough);
  // An entry that another question of the same hash replaces stays counted: the limit is no less one.
  remembered += items.size();
  if (remembered > kRemembered) {
    memory.clear();
    remembered = items.size();
  }
  if (items.size() <= kRemembered) memory[key] = {items, good_enough, packing};
  return packing;
}

}  // namespace orrery::ir
