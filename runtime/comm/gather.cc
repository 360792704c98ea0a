// SPDX-License-Identifier: Apache-2.0
// Gathering over channels that no plan uses.
#include "runtime/comm/gather.h"

#include <algorithm>
#include <chrono>

namespace orrery::comm {
namespace {

constexpr int32_t kSizeChannel = 32001, kTextChannel = 32002, kAskChannel = 32003,
                  kClockChannel = 32004, kUpChannel = 32008, kDownChannel = 32009;
constexpr int kRounds = 16;

int64_t Nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

using Clock = std::function<int64_t()>;

ClockOffset AskClock(Endpoint* endpoint, int64_t peer, double deadline_s, const Clock& clock) {
  ClockOffset best;
  int64_t shortest = -1;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t begin = clock();
    Wait(endpoint, endpoint->Send(peer, kAskChannel, &begin, sizeof begin).get(), deadline_s,
         "clocks");
    int64_t theirs = 0;
    Wait(endpoint, endpoint->Receive(peer, kClockChannel, &theirs, sizeof theirs).get(), deadline_s,
         "clocks");
    const int64_t trip = clock() - begin;
    if (shortest >= 0 && trip >= shortest) continue;
    shortest = trip;
    best = {static_cast<double>(theirs - begin - trip / 2) * 1e-9,
            static_cast<double>(trip) * 0.5e-9};
  }
  return best;
}

void TellClock(Endpoint* endpoint, double deadline_s, const Clock& clock) {
  for (int round = 0; round < kRounds; ++round) {
    int64_t asked = 0;
    Wait(endpoint, endpoint->Receive(0, kAskChannel, &asked, sizeof asked).get(), deadline_s,
         "clocks");
    const int64_t now = clock();
    Wait(endpoint, endpoint->Send(0, kClockChannel, &now, sizeof now).get(), deadline_s, "clocks");
  }
}

}  // namespace

std::vector<std::string> GatherText(Endpoint* endpoint, const std::string& text,
                                    double deadline_s) {
  auto size = static_cast<int64_t>(text.size());
  if (endpoint->rank() != 0) {
    Wait(endpoint, endpoint->Send(0, kSizeChannel, &size, sizeof size).get(), deadline_s, "record");
    Wait(endpoint, endpoint->Send(0, kTextChannel, text.data(), size).get(), deadline_s, "record");
    return {};
  }
  std::vector<std::string> all = {text};
  for (int64_t peer = 1; peer < endpoint->size(); ++peer) {
    Wait(endpoint, endpoint->Receive(peer, kSizeChannel, &size, sizeof size).get(), deadline_s,
         "record");
    all.emplace_back(static_cast<std::size_t>(size), '\0');
    Wait(endpoint, endpoint->Receive(peer, kTextChannel, all.back().data(), size).get(), deadline_s,
         "record");
  }
  return all;
}

std::string TextToAll(Endpoint* endpoint, std::string text, double deadline_s) {
  auto size = static_cast<int64_t>(text.size());
  const auto wait = [&](const OperationPtr& operation) {
    Wait(endpoint, operation.get(), deadline_s, "record");
  };
  if (endpoint->rank() != 0) {
    wait(endpoint->Receive(0, kSizeChannel, &size, sizeof size));
    text.assign(static_cast<std::size_t>(size), '\0');
    wait(endpoint->Receive(0, kTextChannel, text.data(), size));
    return text;
  }
  for (int64_t peer = 1; peer < endpoint->size(); ++peer) {
    wait(endpoint->Send(peer, kSizeChannel, &size, sizeof size));
    wait(endpoint->Send(peer, kTextChannel, text.data(), size));
  }
  return text;
}

// Up and down a binary tree: children of r are 2r + 1 and 2r + 2.
int64_t LargestOf(Endpoint* endpoint, int64_t mine, double deadline_s) {
  const int64_t rank = endpoint->rank(), parent = (rank - 1) / 2;
  const auto children = [&](auto visit) {
    for (int64_t child = 2 * rank + 1; child <= 2 * rank + 2 && child < endpoint->size(); ++child)
      visit(child);
  };
  const auto wait = [&](const OperationPtr& operation) {
    Wait(endpoint, operation.get(), deadline_s, "all ranks to agree");
  };
  children([&](int64_t child) {
    int64_t theirs = 0;
    wait(endpoint->Receive(child, kUpChannel, &theirs, sizeof theirs));
    mine = std::max(mine, theirs);
  });
  if (rank > 0) {
    wait(endpoint->Send(parent, kUpChannel, &mine, sizeof mine));
    wait(endpoint->Receive(parent, kDownChannel, &mine, sizeof mine));
  }
  children([&](int64_t child) { wait(endpoint->Send(child, kDownChannel, &mine, sizeof mine)); });
  return mine;
}

std::vector<ClockOffset> CompareClocks(Endpoint* endpoint, double deadline_s) {
  return CompareClocks(endpoint, deadline_s, Nanoseconds, endpoint->host());
}

std::vector<ClockOffset> CompareClocks(Endpoint* endpoint, double deadline_s, const Clock& clock,
                                       const std::string& host) {
  const std::vector<std::string> hosts = GatherText(endpoint, host, deadline_s);
  if (endpoint->rank() != 0) {
    TellClock(endpoint, deadline_s, clock);
    return {};
  }
  std::vector<ClockOffset> offsets(1);
  for (int64_t peer = 1; peer < endpoint->size(); ++peer) {
    const ClockOffset offset = AskClock(endpoint, peer, deadline_s, clock);
    offsets.push_back(hosts[static_cast<std::size_t>(peer)] == hosts[0] ? ClockOffset{} : offset);
  }
  return offsets;
}

}  // namespace orrery::comm
