// SPDX-License-Identifier: Apache-2.0
// Messages between all pairs of ranks, as many pairs at a time as there are without a rank in two.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "runtime/comm/gather.h"
#include "runtime/health/health.h"

namespace orrery::check {
namespace {

constexpr int64_t kLarge = int64_t{4} << 20, kSmall = 8;
constexpr int kLargeTrips = 5, kSmallTrips = 20;

// Seconds of the best of some round trips.
double RoundTrip(comm::Endpoint* endpoint, int64_t peer, bool first, int trips, int64_t bytes,
                 std::vector<char>* buffer, double deadline_s) {
  double best = 1e9;
  const std::string what = fmt::format("a message between ranks {} and {}", endpoint->rank(), peer);
  for (int trip = 0; trip < trips; ++trip) {
    const auto start = std::chrono::steady_clock::now();
    for (const bool send : {first, !first}) {
      const comm::OperationPtr operation = send ? endpoint->Send(peer, 0, buffer->data(), bytes)
                                                : endpoint->Receive(peer, 0, buffer->data(), bytes);
      comm::Wait(endpoint, operation.get(), deadline_s, what);
    }
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

}  // namespace

std::vector<std::vector<int64_t>> PairRounds(int64_t ranks) {
  // The circle method: one stays, the others turn. An odd number has one that rests.
  const int64_t even = ranks + ranks % 2;
  std::vector<std::vector<int64_t>> rounds;
  for (int64_t round = 0; round + 1 < even; ++round) {
    std::vector<int64_t> partner(static_cast<std::size_t>(ranks), -1);
    const auto place = [&](int64_t seat) {
      return seat == 0 ? 0 : (seat - 1 + round) % (even - 1) + 1;
    };
    for (int64_t seat = 0; seat < even / 2; ++seat) {
      const int64_t a = place(seat), b = place(even - 1 - seat);
      if (a >= ranks || b >= ranks) continue;
      partner[static_cast<std::size_t>(a)] = b;
      partner[static_cast<std::size_t>(b)] = a;
    }
    rounds.push_back(std::move(partner));
  }
  return rounds;
}

std::vector<PairHealth> MeasurePairs(comm::Endpoint* endpoint, double deadline_s) {
  std::vector<char> buffer(static_cast<std::size_t>(kLarge), 1);
  std::string own;
  for (const std::vector<int64_t>& round : PairRounds(endpoint->size())) {
    const int64_t peer = round[static_cast<std::size_t>(endpoint->rank())];
    if (peer >= 0) {
      const bool first = endpoint->rank() < peer;
      const double small =
          RoundTrip(endpoint, peer, first, kSmallTrips, kSmall, &buffer, deadline_s);
      const double large =
          RoundTrip(endpoint, peer, first, kLargeTrips, kLarge, &buffer, deadline_s);
      if (first) own += fmt::format("{} {} {} ", peer, small / 2, large / 2);
    }
    const comm::OperationPtr barrier = endpoint->Barrier();
    comm::Wait(endpoint, barrier.get(), deadline_s, "the other pairs");
  }
  std::vector<PairHealth> pairs;
  const std::vector<std::string> texts = comm::GatherText(endpoint, own, deadline_s);
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const char* at = texts[rank].c_str();
    for (char* end = nullptr;; at = end) {
      const long long peer = std::strtoll(at, &end, 10);
      if (end == at) break;
      const double latency = std::strtod(end, &end), large = std::strtod(end, &end);
      pairs.push_back({static_cast<int64_t>(rank), peer,
                       static_cast<double>(kLarge) / std::max(1e-9, large), latency});
    }
  }
  return pairs;
}

}  // namespace orrery::check
