// SPDX-License-Identifier: Apache-2.0
// Ping-pong and ring all-reduce through the lab, against alpha and the payload rate.
#include "bench/lab/ring_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "runtime/comm/mpi.h"

namespace orrery::bench {
namespace {

constexpr double kDeadline = 120;  // seconds
constexpr int kPings = 200;
constexpr int32_t kPingChannel = 1, kPongChannel = 2;
constexpr double kTotalSeconds = 8;  // per size, about
constexpr int kLeastRounds = 5, kMostRounds = 60;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Ranks go before other people's programs on this machine, where that is allowed: what is measured is
// the network. (With autogroups, niceness counts between sessions only here.)
void TakePriority() { std::ofstream("/proc/self/autogroup") << "-20" << std::flush; }

double Median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Half of a round trip of one byte between ranks 0 and 1; 0 elsewhere.
double MeasureAlpha(comm::Endpoint* endpoint) {
  char byte = 0;
  std::vector<double> halves;
  if (endpoint->rank() > 1) return 0;
  const int64_t peer = 1 - endpoint->rank();
  const bool first = endpoint->rank() == 0;
  const auto send = [&](int32_t channel) {
    comm::Wait(endpoint, endpoint->Send(peer, channel, &byte, 1).get(), kDeadline, "ping");
  };
  const auto receive = [&](int32_t channel) {
    comm::Wait(endpoint, endpoint->Receive(peer, channel, &byte, 1).get(), kDeadline, "pong");
  };
  for (int i = 0; i < kPings; ++i) {
    const double begin = Now();
    if (first) send(kPingChannel);
    receive(first ? kPongChannel : kPingChannel);
    if (!first) send(kPongChannel);
    halves.push_back((Now() - begin) / 2);
  }
  return Median(halves);
}

// All ranks begin together, as near as a barrier gets them; the slowest one counts.
std::vector<double> TimeAllReduce(comm::Endpoint* endpoint, comm::Communicator* group,
                                  int64_t bytes, int rounds) {
  std::vector<float> values(static_cast<std::size_t>(bytes / 4), 1.0F);
  std::vector<double> times;
  for (int i = 0; i <= rounds; ++i) {
    comm::Wait(endpoint, group->Start({}).get(), kDeadline, "barrier");
    const double begin = Now();
    comm::Collective sum;
    sum.kind = comm::CollectiveKind::kAllReduce;
    sum.in = sum.out = values.data();
    sum.n = static_cast<int64_t>(values.size());
    comm::Wait(endpoint, group->Start(sum).get(), kDeadline, "all_reduce");
    auto seconds = static_cast<float>(Now() - begin);
    comm::Collective slowest = sum;
    slowest.in = slowest.out = &seconds;
    slowest.n = 1;
    slowest.maximum = true;
    comm::Wait(endpoint, group->Start(slowest).get(), kDeadline, "maximum");
    if (i > 0) times.push_back(static_cast<double>(seconds));  // the first one warms up
    std::fill(values.begin(), values.end(), 1.0F);
  }
  return times;
}

}  // namespace

void MeasureRings(const lab::Settings& settings) {
  TakePriority();
  const std::unique_ptr<comm::Endpoint> endpoint = comm::ConnectMpi();
  const auto p = static_cast<double>(endpoint->size());
  std::vector<int64_t> everyone;
  for (int64_t rank = 0; rank < endpoint->size(); ++rank) everyone.push_back(rank);
  const comm::CommunicatorPtr group = endpoint->Join(0, everyone);
  const double alpha = MeasureAlpha(endpoint.get());
  const bool speaks = endpoint->rank() == 0;
  if (speaks)
    fmt::print("ring_all_reduce p={:.0f}: alpha {:.1f} us by ping-pong\n", p, alpha * 1e6);
  for (int64_t bytes = 64 << 10; bytes <= 16 << 20; bytes *= 4) {
    const double wire = 2 * (p - 1) / p * static_cast<double>(bytes) / settings.PayloadRate().value;
    const double ideal = 2 * (p - 1) * alpha + wire;
    const int rounds =
        std::clamp(static_cast<int>(kTotalSeconds / wire), kLeastRounds, kMostRounds);
    const std::vector<double> times = TimeAllReduce(endpoint.get(), group.get(), bytes, rounds);
    const double median = Median(times), least = *std::min_element(times.begin(), times.end());
    if (!speaks) continue;
    fmt::print(
        "ring_all_reduce p={:.0f} {:>5} KiB = {:9.0f} us median of {:2}, {:9.0f} least; ideal "
        "{:9.0f}: "
        "{:+.1f} % ({:+.1f} %)\n",
        p, bytes >> 10, median * 1e6, rounds, least * 1e6, ideal * 1e6, 100 * (median / ideal - 1),
        100 * (least / ideal - 1));
    std::fflush(stdout);
  }
}

}  // namespace orrery::bench
